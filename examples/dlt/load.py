"""Load a shop's orders and customers with dlt's destination `ducklake`, which writes to the lake's Postgres."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import dlt
from dlt.destinations import ducklake
from duckdb_extensions import import_extension

ORDERS_A_DAY = 200
OPENING = datetime(2026, 11, 1, tzinfo=UTC)
REGIONS = ("north", "south", "east", "west")


@dlt.source
def shop(days: int) -> Any:
    """Return what changed in the shop since the last run. A real source would ask an API or a database."""

    @dlt.resource(primary_key="id", write_disposition="merge")
    def orders(placed: Any = dlt.sources.incremental("placed_at", initial_value=OPENING)) -> Iterator[dict[str, Any]]:
        for number in range(days * ORDERS_A_DAY):
            placed_at = OPENING + timedelta(days=1) * number / ORDERS_A_DAY
            if placed_at >= placed.last_value:
                yield {"id": number, "customer_id": number % 50, "cents": 100 + number % 900, "placed_at": placed_at}

    @dlt.resource(primary_key="id", write_disposition="merge")
    def customers() -> Iterator[dict[str, Any]]:
        """Each day one more customer moves to the next region: rows that are there already change."""
        for number in range(50):
            yield {"id": number, "name": f"Customer {number}", "region": REGIONS[(number + (number < days)) % 4]}

    return orders, customers


def find_lake() -> Any:
    """Return the destination of the lake that `duckicelake info` shows: its Postgres, and the folder of its files."""
    info = json.loads(subprocess.run(["duckicelake", "info", "--json"], check=True, capture_output=True).stdout)
    words = dict(word.split("=", 1) for word in info["ducklake-attach"].removeprefix("ducklake:postgres:").split(" "))
    catalog = f"postgresql://{words['user']}@/{words['dbname']}?host={quote(words['host'], safe='')}"
    return ducklake(credentials={
        "ducklake_name": "lake",
        "metadata_schema": "public",
        "catalog": catalog,
        "storage": {"bucket_url": info["data-path"]},
    })  # fmt: skip


def main(days: int) -> None:
    import_extension("ducklake")
    import_extension("postgres_scanner")
    pipeline = dlt.pipeline("shop", pipelines_dir="pipelines", destination=find_lake(), dataset_name="shop")
    if pipeline.has_pending_data:
        pipeline.run()  # what a killed run has left; dlt would take no other rows before
    pipeline.run(shop(days), loader_file_format="parquet")
    counts = pipeline.last_trace.last_normalize_info.row_counts
    print(f"loaded: {counts.get('orders', 0)} orders, {counts['customers']} customers")


if __name__ == "__main__":
    main(int(sys.argv[1]))
