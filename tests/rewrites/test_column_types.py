"""Rewritten files have the values, nulls and Parquet types of the old ones, whatever the columns' types."""

from pathlib import Path

import duckdb
import pytest
from pyiceberg.table import StaticTable

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from tests.rewrites.test_compaction import list_files, run

VALUES = {
    "BOOLEAN": "true",
    "TINYINT": "-128",
    "SMALLINT": "32767",
    "INTEGER": "-2147483648",
    "BIGINT": "9223372036854775807",
    "UTINYINT": "255",
    "USMALLINT": "65535",
    "UINTEGER": "4294967295",
    "UBIGINT": "18446744073709551615",
    "FLOAT": "'nan'::FLOAT",
    "DOUBLE": "'-inf'::DOUBLE",
    "DECIMAL(4, 2)": "-12.34",
    "DECIMAL(18, 3)": "123456789012345.678",
    "DECIMAL(38, 10)": "-1234567890123456789012345678.0123456789",
    "DATE": "DATE '0001-01-01'",
    "TIME": "TIME '23:59:59.999999'",
    "TIMESTAMP": "TIMESTAMP '9999-12-31 23:59:59.999999'",
    "TIMESTAMP_S": "TIMESTAMP_S '2026-11-29 01:02:03'",
    "TIMESTAMP_MS": "TIMESTAMP_MS '2026-11-29 01:02:03.004'",
    "TIMESTAMP_NS": "TIMESTAMP_NS '2026-11-29 01:02:03.123456789'",
    "TIMESTAMPTZ": "TIMESTAMPTZ '2026-11-29 01:02:03.000001+02'",
    "VARCHAR": "'äöü' || chr(0) || '🦆'",
    "BLOB": "'\\x00\\xFF'::BLOB",
    "UUID": "'00000000-0000-0000-0000-0000000000ff'::UUID",
    "JSON": "'{\"a\": [1, null]}'::JSON",
    "STRUCT(a INTEGER, b STRUCT(c VARCHAR[]))": "{'a': 1, 'b': {'c': ['x', NULL]}}",
    "STRUCT(a UTINYINT, b TIMESTAMP_MS[])": "{'a': 255, 'b': [TIMESTAMP_MS '2026-11-29 01:02:03.004', NULL]}",
    "MAP(VARCHAR, DECIMAL(9, 2))": "MAP {'k': 1.25, 'l': NULL}",
    "INTEGER[][]": "[[1, NULL], NULL, []]",
    "VARIANT": "{'a': 1, 'b': ['x', NULL]}::VARIANT",
    "GEOMETRY": "'POINT (1 2)'::GEOMETRY",
}

WIDENED = {
    *("TINYINT", "SMALLINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "TIMESTAMP_S", "TIMESTAMP_MS"),
    "STRUCT(a UTINYINT, b TIMESTAMP_MS[])",
}
"""Of which rewritten files have wider types, those that Iceberg's schema has."""
UNKNOWN_TO_PYICEBERG = {"VARIANT", "GEOMETRY"}


@pytest.mark.parametrize("type_", VALUES)
def test_values_of_a_type_survive_a_rewrite(
    services: Services, ducklake: duckdb.DuckDBPyConnection, tmp_path: Path, type_: str
) -> None:
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute(f"CREATE TABLE lake.main.t (id INTEGER, v {type_})")
    for number in range(3):
        ducklake.execute(f"INSERT INTO lake.main.t VALUES ({number}, {VALUES[type_]}), ({number}, NULL)")
    iceberg = read_by_pyiceberg(services, type_)
    rows = "SELECT id, v::VARCHAR, typeof(v), rowid FROM lake.main.t ORDER BY id, v::VARCHAR"
    before, schema = ducklake.execute(rows).fetchall(), describe_files(ducklake)
    outcome = run(services, tmp_path, policy={"maintenance.compaction.min-files": "2"})
    assert outcome.counts["rewritten files"] == 3
    assert list_files(ducklake) == 1
    assert ducklake.execute(rows).fetchall() == before
    assert not is_misread(describe_files(ducklake))
    assert type_ in WIDENED or describe_files(ducklake) == schema
    assert read_by_pyiceberg(services, type_) == iceberg


def read_by_pyiceberg(services: Services, type_: str) -> list[str]:
    """The rows that PyIceberg reads of the newest version, as texts; none of a type that it doesn't know."""
    location = load_current_table(services, ("main",), "t").location
    if type_ in UNKNOWN_TO_PYICEBERG:
        return []
    return sorted(map(repr, StaticTable.from_metadata(location).scan().to_arrow().to_pylist()))


def describe_files(ducklake: duckdb.DuckDBPyConnection) -> list[tuple[object, ...]]:
    """The columns of all files as Parquet types, without those of row lineage."""
    files = [path for (path,) in ducklake.execute("SELECT data_file FROM ducklake_list_files('lake', 't')").fetchall()]
    query = (
        "SELECT DISTINCT name, type, type_length, repetition_type, num_children, converted_type, scale, precision, "
        f"field_id, logical_type FROM parquet_schema({files}) "
        "WHERE name <> 'duckdb_schema' AND name NOT LIKE '\\_%' ESCAPE '\\' ORDER BY ALL"
    )
    return ducklake.execute(query).fetchall()


def is_misread(columns: list[tuple[object, ...]]) -> bool:
    """Return whether Parquet's types are unsigned or in milliseconds, which not all of Iceberg's readers know."""
    signs = ("UINT_", "_MILLIS", "isSigned=0", "MILLIS=MilliSeconds")
    return any(sign in str(column) for column in columns for sign in signs)
