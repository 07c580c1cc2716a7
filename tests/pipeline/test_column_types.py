"""Types of columns, as Spark and DuckDB describe them."""

from typing import Any

import duckdb
import pytest

from duckicelake.pipeline.column_types import from_duckdb_type, from_spark_type, is_comparable


def described(duckdb_type: str) -> Any:
    with duckdb.connect() as connection:
        return connection.sql(f"SELECT NULL::{duckdb_type}").types[0]


@pytest.mark.parametrize(
    ("spark", "in_duckdb"),
    [
        ("byte", "TINYINT"),
        ("integer", "UTINYINT"),
        ("long", "BIGINT"),
        ("decimal(20,0)", "UBIGINT"),
        ("decimal(9,2)", "DECIMAL(9, 2)"),
        ("float", "FLOAT"),
        ("double", "DOUBLE"),
        ("string", "VARCHAR"),
        ("varchar(10)", "UUID"),
        ("string", "JSON"),
        ("binary", "BLOB"),
        ("boolean", "BOOLEAN"),
        ("date", "DATE"),
        ("timestamp", "TIMESTAMPTZ"),
        ("timestamp_ntz", "TIMESTAMP_MS"),
        ({"type": "array", "elementType": "long"}, "INT[]"),
        ({"type": "map", "keyType": "string", "valueType": "double"}, "MAP(VARCHAR, DOUBLE)"),
        ({"type": "struct", "fields": [{"name": "a b", "type": "long"}]}, 'STRUCT("a b" INT)'),
    ],
)
def test_types_that_mean_the_same_are_equal(spark: Any, in_duckdb: str) -> None:
    assert from_spark_type(spark) == from_duckdb_type(described(in_duckdb))
    assert is_comparable(from_spark_type(spark))


@pytest.mark.parametrize(
    ("spark", "in_duckdb"),
    [
        ("float", "DOUBLE"),
        ("timestamp", "TIMESTAMP"),
        ("string", "BLOB"),
        ("decimal(9,2)", "DECIMAL(10, 2)"),
        ({"type": "struct", "fields": [{"name": "a", "type": "long"}]}, "STRUCT(b INT)"),
    ],
)
def test_types_that_mean_something_else_differ(spark: Any, in_duckdb: str) -> None:
    assert from_spark_type(spark) != from_duckdb_type(described(in_duckdb))


@pytest.mark.parametrize("in_duckdb", ["INTERVAL", "TIMESTAMP_NS", "HUGEINT", "INTERVAL[]", "STRUCT(a MAP(INT, BIT))"])
def test_types_that_engines_write_differently_are_incomparable(in_duckdb: str) -> None:
    assert not is_comparable(from_duckdb_type(described(in_duckdb)))


def test_variants_of_spark_are_incomparable() -> None:
    assert not is_comparable(from_spark_type({"type": "array", "elementType": "variant"}))
