"""Imported Delta tables whose columns are mapped, evolve and partition: every reader finds them in every file."""

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.errors import UnsupportedError
from tests.delta.import_.tables import column, defined, gone, new_table, with_features, written
from tests.delta.import_.versions import assert_law, imported, rows, table_metadata
from tests.delta.logs import HandMade
from tests.support.client import new_client

MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.fixture
def table(services: Services, warehouse: Path) -> HandMade:
    new_client(services)
    return new_table(warehouse / "delta" / "t")


def with_ids(table: pa.Table, ids: dict[str, int]) -> pa.Table:
    """The same with the field ids in the file, as Spark writes mapped columns."""
    fields = [table.field(name).with_metadata({"PARQUET:field_id": str(ids[name])}) for name in table.column_names]
    return pa.table(table.columns, schema=pa.schema(fields))


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_renamed_dropped_and_added_again(
    services: Services, ducklake: duckdb.DuckDBPyConnection, table: HandMade, mode: str
) -> None:
    mapped = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "4"}
    numbers = {"col-a": 1, "col-b": 2, "col-c": 4}
    one = with_ids(pa.table({"col-a": [1, 2], "col-b": ["x", "y"]}), numbers)
    two = with_ids(pa.table({"col-a": [3], "col-c": [0.5]}), numbers)
    a, b = column("a", "long", 1, "col-a"), column("b", "string", 2, "col-b")
    table.commit(0, with_features("columnMapping"), defined(a, b, **mapped), written(table, "Zx/0.parquet", one))
    renamed = column("alpha", "long", 1, "col-a")
    table.commit(1, defined(b, renamed, **mapped))
    dropped_and_added = column("b", "double", 4, "col-c")
    table.commit(2, defined(renamed, dropped_and_added, **mapped), written(table, "Qy/1.parquet", two))
    imported(services, table.folder)
    expected = {
        0: rows(pa.table({"a": [1, 2], "b": ["x", "y"]})),
        1: rows(pa.table({"alpha": [1, 2], "b": ["x", "y"]})),
        2: rows(pa.table({"alpha": [1, 2, 3], "b": [None, None, 0.5]})),
    }
    assert_law(services, ducklake, expected)
    assert {field.id for field in table_metadata(services).schema().fields} == {1, 4}


def test_partitions_of_mapped_tables_are_found_by_links(
    services: Services, ducklake: duckdb.DuckDBPyConnection, table: HandMade
) -> None:
    columns = (
        column("v", "long", 1, "col-v"),
        column("when", "timestamp", 2, "col-w"),
        column("p", "string", 3, "col-p"),
    )
    adds = [
        written(
            table,
            f"a{number}/{number}.parquet",
            pa.table({"col-v": [number]}),
            partitionValues={"col-w": when, "col-p": part},
        )
        for number, (when, part) in enumerate(
            [("2024-01-01 10:00:00", "a/b=c %41"), (None, None), ("2024-01-01T10:00:00.000001Z", "é")]
        )
    ]
    definition = defined(*columns, partition_by=["when", "p"], **MAPPED)
    table.commit(0, with_features("columnMapping"), definition, *adds)
    table.commit(1, gone(adds[0]))
    imported(services, table.folder)
    times = [datetime(2024, 1, 1, 10, tzinfo=UTC), None, datetime(2024, 1, 1, 10, 0, 0, 1, UTC)]
    whole = pa.table({"v": [0, 1, 2], "when": times, "p": ["a/b=c %41", None, "é"]})
    ducklake.execute("SET TimeZone = 'America/New_York'")
    assert_law(services, ducklake, {0: rows(whole), 1: rows(whole.slice(1))})
    count = ducklake.sql('SELECT count(*) FROM lake.ns.t AT (VERSION => 2) WHERE "when" IS NULL').fetchone()
    assert count == (1,)


def test_nested_columns_of_a_mapped_table(
    services: Services, ducklake: duckdb.DuckDBPyConnection, table: HandMade
) -> None:
    struct = {"type": "struct", "fields": [column("y", "long", 3, "col-y"), column("z", "string", 4, "col-z")]}
    lists = {"type": "array", "elementType": struct, "containsNull": True}
    inner = {"type": "struct", "fields": [column("q", "long", 6, "col-q")]}
    data = pa.table({"col-x": [[{"col-y": 1, "col-z": "a"}]], "col-s": [{"col-q": 5}]})
    definition = defined(column("x", lists, 2, "col-x"), column("s", inner, 5, "col-s"), **MAPPED)
    table.commit(0, with_features("columnMapping"), definition, written(table, "0.parquet", data))
    imported(services, table.folder)
    assert_law(services, ducklake, {0: rows(pa.table({"x": [[{"y": 1, "z": "a"}]], "s": [{"q": 5}]}))})


def test_container_in_a_list_of_a_mapped_table_is_refused(services: Services, table: HandMade) -> None:
    struct = {
        "type": "struct",
        "fields": [column("y", {"type": "array", "elementType": "long", "containsNull": True}, 3)],
    }
    lists = {"type": "array", "elementType": struct, "containsNull": True}
    table.commit(0, with_features("columnMapping"), defined(column("x", lists, 2), **MAPPED))
    with pytest.raises(UnsupportedError, match="below what it is in"):
        imported(services, table.folder)


def test_ids_of_a_table_that_was_mapped_later_are_deltas_from_the_start(
    services: Services, ducklake: duckdb.DuckDBPyConnection, table: HandMade
) -> None:
    table.begin()
    table.commit(
        1,
        defined(column("b", "string"), column("id", "long")),
        written(table, "0.parquet", pa.table({"b": ["x"], "id": [1]})),
    )
    mapped = defined(column("id", "long", 1), column("b", "string", 2), **MAPPED)
    table.commit(2, with_features("columnMapping"), mapped)
    imported(services, table.folder)
    one = rows(pa.table({"b": ["x"], "id": [1]}))
    assert_law(services, ducklake, {0: [], 1: one, 2: one})
    assert {field.name: field.id for field in table_metadata(services).schema().fields} == {"id": 1, "b": 2}


def test_types_are_widened(services: Services, ducklake: duckdb.DuckDBPyConnection, table: HandMade) -> None:
    stats = {
        "numRecords": 2,
        "minValues": {"n": 1, "f": 0.5},
        "maxValues": {"n": 2, "f": 1.5},
        "nullCount": {"n": 0, "f": 0},
    }
    narrow = pa.table({"n": pa.array([1, 2], pa.int32()), "f": pa.array([0.5, 1.5], pa.float32())})
    wide = pa.table({"n": pa.array([2**40, None]), "f": pa.array([0.1, 1e300])})
    table.commit(0, with_features("typeWidening"), defined(column("n", "integer"), column("f", "float")),
                 written(table, "0.parquet", narrow, stats))  # fmt: skip
    table.commit(1, defined(column("n", "long"), column("f", "double")), written(table, "1.parquet", wide))
    imported(services, table.folder)
    both = pa.concat_tables([narrow.cast(wide.schema), wide])
    assert_law(services, ducklake, {0: rows(narrow), 1: rows(both)})


@pytest.mark.parametrize("types", [("integer", "double"), ("integer", "decimal(12,2)"), ("date", "timestamp_ntz")])
def test_widening_that_iceberg_lacks_is_refused(services: Services, table: HandMade, types: tuple[str, str]) -> None:
    old = pa.table({"n": pa.array([1], pa.int32() if types[0] == "integer" else pa.date32())})
    table.commit(0, with_features("typeWidening"), defined(column("n", types[0])), written(table, "0.parquet", old))
    table.commit(1, defined(column("n", types[1])))
    with pytest.raises(UnsupportedError, match="got another type"):
        imported(services, table.folder)


def test_column_of_another_type_after_an_overwrite(
    services: Services, ducklake: duckdb.DuckDBPyConnection, table: HandMade
) -> None:
    stats = {"numRecords": 2, "minValues": {"c": "a"}, "maxValues": {"c": "z"}, "nullCount": {"c": 0}}
    numbers = {"numRecords": 2, "minValues": {"c": 5}, "maxValues": {"c": 70}, "nullCount": {"c": 0}}
    texts, ints = pa.table({"c": ["a", "z"]}), pa.table({"c": [5, 70]})
    first = written(table, "0.parquet", texts, stats)
    table.commit(0, with_features(), defined(column("c", "string")), first)
    table.commit(1, defined(column("c", "long")), gone(first), written(table, "1.parquet", ints, numbers))
    imported(services, table.folder)
    assert_law(services, ducklake, {0: rows(texts), 1: rows(ints)})
    assert ducklake.sql("SELECT c FROM lake.ns.t AT (VERSION => 2) WHERE c = 'z'").fetchall() == [("z",)]
    assert ducklake.sql("SELECT max(c), count(*) FROM lake.ns.t WHERE c > 6").fetchall() == [(70, 1)]
    assert ducklake.sql("SELECT max(c) FROM lake.ns.t AT (VERSION => 2)").fetchall() == [("z",)]
