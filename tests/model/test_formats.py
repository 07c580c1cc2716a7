"""The same history, at random, in lakes of DuckLake 1.0 and 1.1: Iceberg clients see the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import duckdb
import pytest

from duckicelake.postgres.embedded import EmbeddedPostgres
from tests.model.lake import Lake
from tests.model.opening import new_lake, standalone
from tests.model.run import chosen, run
from tests.support.ducklake_11 import NewerDuckDB, migrate

RUNS = [
    pytest.param(version, seed, steps, marks=pytest.mark.model)
    for version in (2, 3)
    for seed, steps in enumerate((12, 60, 60))
]
SUMMARY = (
    "operation",
    "added-data-files",
    "added-records",
    "deleted-records",
    "total-records",
    "total-position-deletes",
)


@contextmanager
def opened(postgres: EmbeddedPostgres, lake_format: str, version: int) -> Iterator[Lake]:
    """A lake of a format. Snapshot ids are DuckLake's, so that both lakes have the same."""
    with standalone(postgres) as (services, attach):
        url = services.database.url
        if lake_format == "1.1":
            migrate(url, is_guarded=False)
        newer = (
            (lambda: cast("duckdb.DuckDBPyConnection", NewerDuckDB(url, attach))) if lake_format == "1.1" else attach
        )
        with new_lake(services, newer, "ducklake", version) as lake:
            yield lake


def seen(lake: Lake) -> list[Any]:
    """What Iceberg clients see: of each table its schemas, partitioning, refs, and each snapshot with its rows."""
    found = []
    for table in lake.tables:
        metadata = lake.metadata(table)
        snapshots = [
            (
                snapshot["snapshot-id"],
                {key: snapshot["summary"].get(key) for key in SUMMARY},
                lake.reader.at(metadata, snapshot["snapshot-id"]),
            )
            for snapshot in metadata.get("snapshots", ())
        ]
        parts = (
            "schemas",
            "current-schema-id",
            "partition-specs",
            "sort-orders",
            "last-column-id",
            "refs",
            "next-row-id",
        )
        found.append((table.identifier, {part: metadata.get(part) for part in parts}, snapshots))
    return found


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")  # PyIceberg's overwrite of nothing
@pytest.mark.parametrize(("version", "seed", "steps"), RUNS)
def test_the_same_history_looks_the_same_in_both_formats(
    postgres: EmbeddedPostgres, extensions: None, version: int, seed: int, steps: int
) -> None:
    shown = []
    for lake_format in ("1.0", "1.1"):
        with opened(postgres, lake_format, version) as lake:
            run(lake, chosen(lake, seed, steps))
            shown.append(seen(lake))

    assert shown[0] == shown[1]
