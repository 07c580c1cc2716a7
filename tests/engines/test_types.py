"""Types: a value written by any engine is the same value in the others, also when DuckDB inlines it."""

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pytest

from tests.engines.engines import Engines, Row, arrow, sorted_rows

pytestmark = [pytest.mark.engine, pytest.mark.spark]

WHEN = dt.datetime(2024, 2, 29, 12, 34, 56, 789123, tzinfo=dt.UTC)
COMMON: dict[str, list[Any]] = {
    "boolean": [True, False],
    "int": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1],
    "float": [1.5, -0.25],
    "double": [1e300, -2.5],
    "decimal(9,2)": [Decimal("1234567.89"), Decimal("-0.01")],
    "decimal(38,10)": [Decimal("1234567890123456789012345678.0123456789"), Decimal("0E-10")],
    "date": [dt.date(1969, 12, 31), dt.date(2024, 2, 29)],
    "timestamp": [WHEN, dt.datetime(1901, 1, 1, tzinfo=dt.UTC)],
    "timestamp_ntz": [WHEN.replace(tzinfo=None), dt.datetime(1901, 1, 1)],
    "string": ["it's ünïcode 🦆", ""],
    "binary": [b"\x00\xff'\\", b""],
    "array<int>": [[1, None, 3], []],
    "struct<a: int, b: string>": [{"a": 1, "b": "x"}, {"a": None, "b": "y z"}],
    "map<string, int>": [[("k", 1), ("l", 2)], []],
    "struct<a: int, b: array<string>>": [{"a": 1, "b": ["x", "y"]}, {"a": None, "b": []}],
}
DUCKDB_NAMES = {
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "binary": "blob",
    "array<int>": "int[]",
    "struct<a: int, b: string>": "struct(a int, b string)",
    "map<string, int>": "map(string, int)",
    "struct<a: int, b: array<string>>": "struct(a int, b string[])",
}
DUCKDB_ONLY: dict[str, list[Any]] = {
    "tinyint": [-128, 127],
    "smallint": [-32768, 32767],
    "utinyint": [0, 255],
    "usmallint": [0, 65535],
    "uuid": [uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)],
    "time": [dt.time(0, 0), dt.time(23, 59, 59, 999999)],
}


@pytest.mark.parametrize("creator", ["spark", "duckdb"])
@pytest.mark.parametrize("kind", COMMON)
def test_value_is_the_same_in_every_engine(engines: Engines, namespace: str, kind: str, creator: str) -> None:
    """Two values and a NULL: written to a file by PyIceberg, inlined by DuckDB, copied by Spark."""
    name = f"{namespace}.t"
    create(engines, name, kind, creator)
    table = engines.catalog.load_table(name)
    expected = [(1, COMMON[kind][0]), (2, COMMON[kind][1]), (3, None)]
    table.append(arrow(table, expected))
    assert_values(engines, name, expected)
    engines.duck.execute(f"INSERT INTO lake.{name} SELECT id + 10, value FROM lake.{name}")
    expected += [(key + 10, value) for key, value in expected]
    assert_values(engines, name, expected)
    engines.spark.sql(f"INSERT INTO lake.{name} SELECT id + 100, value FROM lake.{name}")
    expected += [(key + 100, value) for key, value in expected]
    assert_values(engines, name, expected)


def create(engines: Engines, name: str, kind: str, creator: str) -> None:
    if creator == "spark":
        engines.spark.sql(f"CREATE TABLE lake.{name} (id bigint, value {kind})")
    else:
        engines.duck.execute(f"CREATE TABLE lake.{name} (id bigint, value {DUCKDB_NAMES.get(kind, kind)})")


def assert_values(engines: Engines, name: str, expected: list[Row]) -> None:
    rows = sorted_rows(arrow(engines.catalog.load_table(name), expected))
    got = engines.read(name)
    assert {engine: sorted_rows(table) for engine, table in got.items()} == dict.fromkeys(got, rows)


@pytest.mark.parametrize("kind", DUCKDB_ONLY)
def test_value_of_a_type_that_only_duckdb_has_is_read_by_pyiceberg(engines: Engines, namespace: str, kind: str) -> None:
    """Spark has no such types. One row is inlined, then flushed to a file; the other stays inlined."""
    name, (first, second) = f"{namespace}.t", DUCKDB_ONLY[kind]
    engines.duck.execute(f"CREATE TABLE lake.{name} (id bigint, value {kind})")
    engines.duck.execute(f"INSERT INTO lake.{name} VALUES (1, ?)", [first])
    engines.duck.execute(f"CALL ducklake_flush_inlined_data('lake', schema_name => '{namespace}')")
    engines.duck.execute(f"INSERT INTO lake.{name} VALUES (2, ?), (3, NULL)", [second])
    got = engines.catalog.load_table(name).scan().to_arrow()
    expected = arrow(engines.catalog.load_table(name), [(1, first), (2, second), (3, None)])
    assert sorted_rows(got) == sorted_rows(expected)
