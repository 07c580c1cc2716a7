"""Imported Delta tables with deletion vectors: what each version deletes is deleted for every reader."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from duckicelake.catalog.context.services import Services
from tests.delta.import_.tables import (
    VECTORS,
    again,
    column,
    defined,
    gone,
    new_table,
    vector,
    vector_file,
    with_features,
    written,
)
from tests.delta.import_.versions import assert_law, imported, rows, table_metadata
from tests.support.client import new_client
from tests.support.seams import fresh


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def left(*parts: Sequence[int]) -> list[str]:
    return rows(ids(*(number for part in parts for number in part)))


def without(count: int, *positions: int) -> list[int]:
    return [number for number in range(count) if number not in positions]


@pytest.mark.parametrize("mode", ["client", "ducklake"])
def test_vectors_grow_shrink_and_leave(
    services: Services, ducklake: duckdb.DuckDBPyConnection, warehouse: Path, mode: Any
) -> None:
    new_client(services)
    table = new_table(warehouse / "delta" / "t")
    first = written(table, "f0.parquet", ids(*range(10)))
    other = written(table, "f1.parquet", ids(*range(100, 105)))
    table.commit(0, with_features(*VECTORS), defined(column("id", "long")), first, other)
    states = [first]
    for version, found in enumerate(
        [vector(1, 2), vector_file(table, "dv.bin", 1, 2, 5), vector(1), None, vector(0, 9)], start=1
    ):
        states.append(again(first, found))
        table.commit(version, gone(states[-2]), states[-1])
    table.commit(6, gone(states[-1]), again(other, vector(4)), gone(other))
    table.commit(7, again(first, vector(3)))
    report = imported(replace(fresh(services), snapshot_ids=mode), table.folder)
    assert (report.versions, report.files) == (8, 5)
    rest = range(100, 105)
    expected = {
        0: left(range(10), rest),
        1: left(without(10, 1, 2), rest),
        2: left(without(10, 1, 2, 5), rest),
        3: left(without(10, 1), rest),
        4: left(range(10), rest),
        5: left(without(10, 0, 9), rest),
        6: left(range(100, 104)),
        7: left(without(10, 3), range(100, 104)),
    }
    services = replace(fresh(services), snapshot_ids=mode)
    assert_law(services, ducklake, expected)
    metadata = table_metadata(services)
    assert metadata.format_version == 3
    if mode == "client":
        assert [each.snapshot_id for each in metadata.snapshots] == [1 << 62, *range(1, 8)]
        assert metadata.refs["v0"].snapshot_id == 1 << 62
