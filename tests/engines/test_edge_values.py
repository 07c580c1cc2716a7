"""Values at the edges of DuckDB's types, cell by cell, in every engine: inlined, in files of DuckDB's, and flushed."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.engines.engines import Engines

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

EDGES = {
    "boolean": ("true", "false"),
    "tinyint": ("-128", "127", "0"),
    "smallint": ("-32768", "32767"),
    "integer": ("-2147483648", "2147483647", "-1"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "utinyint": ("0", "255"),
    "usmallint": ("0", "65535"),
    "uinteger": ("0", "4294967295", "2147483648"),
    "ubigint": ("0", "18446744073709551615", "9223372036854775808"),
    "float": ("'nan'", "'inf'", "'-inf'", "-0.0", "3.4028234663852886e38", "1.401298464324817e-45"),
    "double": ("'nan'", "'inf'", "'-inf'", "-0.0", "1.7976931348623157e308", "5e-324"),
    "decimal(4,1)": ("-999.9", "999.9", "0.1"),
    "decimal(18,0)": ("-999999999999999999", "999999999999999999"),
    "decimal(38,0)": (f"-{'9' * 38}", "9" * 38),
    "decimal(38,37)": (f"-9.{'9' * 37}", f"9.{'9' * 37}", f"0.{'0' * 36}1"),
    "date": (
        "'0044-03-15 (BC)'", "'0001-01-01'", "'1582-10-10'", "'1969-12-31'", "'9999-12-31'", "'12345-06-07'",
        "'infinity'", "'-infinity'",
    ),
    "timestamp": (
        "'0044-03-15 (BC) 12:00:00'", "'0001-01-01 00:00:00'", "'1582-10-10 01:02:03.456789'",
        "'1969-12-31 23:59:59.999999'", "'9999-12-31 23:59:59.999999'", "'12345-06-07 08:09:10.111213'",
        "'infinity'", "'-infinity'",
    ),
    "timestamp with time zone": (
        "'0044-03-15 (BC) 12:00:00+00'", "'1969-12-31 23:59:59.999999+00'", "'2024-03-31 02:30:00+01'",
        "'9999-12-31 23:59:59.999999-11'", "'infinity'",
    ),
    "timestamp_s": ("'1969-12-31 23:59:59'", "'0044-03-15 (BC) 12:00:00'", "'9999-12-31 23:59:59'"),
    "timestamp_ms": ("'1969-12-31 23:59:59.999'", "'0044-03-15 (BC) 12:00:00.001'", "'9999-12-31 23:59:59.999'"),
    "varchar": (
        "''", "' '", "'NULL'", "'null'", "'it''s \"quoted\" \\ back'", "'a' || chr(10) || 'b' || chr(9)",
        "chr(128640) || 'ü'", "repeat('long', 5000)", "'z' || chr(1114111)",
    ),
    "blob": ("''::blob", "'\\x00'::blob", "'\\xFF\\x27\\x5C'::blob", "repeat('\\xFF', 40)::blob"),
    "uuid": ("'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
    "json": ("'{\"a\": [1, null, \"ü\"]}'", "'null'", "'\"text\"'"),
    "integer[]": ("[]", "[NULL]", "[1, NULL, -2147483648]"),
    "varchar[][]": ("[]", "[[], ['', NULL, 'a,b', '[c]'], []]"),
    "map(varchar, double)": ("MAP {}", "MAP {'': 'nan'::double, 'k=v, {x}': -0.0}"),
    "struct(a integer, b struct(c varchar[], d map(integer, struct(e date))))": (
        "{'a': NULL, 'b': NULL}",
        "{'a': 1, 'b': {'c': [], 'd': MAP {}}}",
        "{'a': -1, 'b': {'c': ['', NULL, 'x'], 'd': MAP {1: {'e': DATE '1969-12-31'}, 2: {'e': NULL}}}}",
    ),
}  # fmt: skip
ROWS = max(map(len, EDGES.values())) + 1


def rows(first: int, copies: int) -> str:
    """A row for each edge and one of NULLs, times `copies`, with ids of their own."""
    columns = [
        f"[{', '.join(f'({value})::{type_}' for value in values)}][i % {ROWS} + 1]" for type_, values in EDGES.items()
    ]
    return f"INSERT INTO {{t}} SELECT i + {first}, {', '.join(columns)} FROM range({copies * ROWS}) r(i)"


def test_edges_are_the_same_cell_by_cell(engines: Engines, namespace: str) -> None:
    name = f"{namespace}.t"
    columns = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(EDGES))
    run(engines, name, f"CREATE TABLE {{t}} (id bigint, {columns})", rows(0, 1))
    assert_cells(engines, name)
    run(engines, name, rows(100, 3), "UPDATE {t} SET id = -id WHERE id IN (3, 103)")
    assert_cells(engines, name)
    run(engines, name, "CALL ducklake_flush_inlined_data('lake', schema_name => '{namespace}', table_name => 't')")
    assert_cells(engines, name)
    engines.spark.sql(f"DELETE FROM lake.{name} WHERE id = 101")
    assert_cells(engines, name)
    engines.spark.sql(f"INSERT INTO lake.{name} SELECT * FROM lake.{name} WHERE id < 100")
    assert_cells(engines, name)


def run(engines: Engines, name: str, *statements: str) -> None:
    for statement in statements:
        placed = statement.replace("{t}", f"lake.{name}").replace("{namespace}", name.partition(".")[0])
        engines.duck.execute(placed)


def assert_cells(engines: Engines, name: str) -> None:
    got = {engine: cells(table) for engine, table in engines.read(name).items()}
    for column, expected in got["DuckDB"].items():
        kind = "id" if column == "id" else list(EDGES)[int(column[1:])]
        assert {engine: read[column] for engine, read in got.items()} == dict.fromkeys(got, expected), kind


def cells(table: pa.Table) -> dict[str, list[str]]:
    """Each column in the order of ids, and of all columns where ids come twice, as texts that tell -0.0 from 0.0."""
    values = {name: list(map(repr, plain(table.column(name).combine_chunks()))) for name in table.column_names}
    order = sorted(range(table.num_rows), key=lambda row: [values["id"][row], *(v[row] for v in values.values())])
    return {name: [column[row] for row in order] for name, column in values.items()}


def plain(column: Any) -> list[Any]:
    """Values as Python has them, but days and microseconds since 1970 where Python's years end."""
    if pa.types.is_timestamp(column.type):
        return list(pc.cast(pc.cast(column, pa.timestamp("us", column.type.tz)), pa.int64()).to_pylist())
    if pa.types.is_date(column.type):
        return list(pc.cast(column, pa.int32()).to_pylist())
    if pa.types.is_integer(column.type) or pa.types.is_decimal(column.type):
        return [None if value is None else Decimal(value) for value in column.to_pylist()]
    return [str(value) if type(value).__name__ == "UUID" else value for value in column.to_pylist()]
