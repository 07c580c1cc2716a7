"""Be the shop: write the orders of some days through the server. Days that are there already are not written again."""

import os
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import duckicelake
from duckicelake.client import Connection, Writer
from duckicelake.errors import JobConflictError

URI = os.environ.get("DUCKICELAKE_CLIENT_URI", "http://localhost:8181")
COLUMNS = "id long not null, region string not null, amount decimal(9, 2) not null, placed_at timestamptz not null"
OPENING = datetime(2026, 11, 1, tzinfo=UTC)
REGIONS = ("north", "south", "east", "west")


def main(days: int) -> None:
    with duckicelake.connect(URI) as lake:
        with suppress(JobConflictError):  # an earlier run made it
            lake.create_namespace("sales")
        with suppress(JobConflictError):
            lake.create_table("sales.orders", COLUMNS)
    with Writer("sales.orders", Connection(URI), app_id="shop") as writer:
        for number in range(days * 100):
            placed_at = OPENING + timedelta(days=1) * number / 100
            amount = f"{1 + number % 90}.50"
            writer.append({"id": number, "region": REGIONS[number % 4], "amount": amount, "placed_at": placed_at})
    print(f"orders: {writer.progress.written} written, {writer.progress.skipped} were there")


if __name__ == "__main__":
    main(int(sys.argv[1]))
