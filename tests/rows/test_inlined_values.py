"""Our texts of inlined rows against DuckDB's own, and what DuckDB reads of them."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import duckdb
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from psycopg import sql

from duckicelake.bridge.values.columns import to_schema
from duckicelake.bridge.values.lake_values import parse_stats_text
from duckicelake.lake.ducklake import native
from duckicelake.rows.bodies import read_batch
from duckicelake.rows.columns import build_row_columns
from duckicelake.rows.inlined_values import Encoded
from duckicelake.rows.layout import Layout
from duckicelake.rows.row_batch import Batch, build_column_stats, find_inlining_obstacle
from tests.rows.layouts import JSON, column, layout_of, list_of, map_of, struct_of
from tests.support.examples import count_examples
from tests.support.lakes import Lake

FLAT: list[tuple[str, list[tuple[str, Any]]]] = [
    ("BOOLEAN", [("true", True), ("false", False)]),
    ("TINYINT", [("-128", -128)]),
    ("SMALLINT", [("32767", 32767)]),
    ("INTEGER", [("-2147483648", -(2**31))]),
    ("BIGINT", [("9223372036854775807", 2**63 - 1)]),
    ("UTINYINT", [("255", 255)]),
    ("USMALLINT", [("65535", 65535)]),
    ("UINTEGER", [("4294967295", 2**32 - 1)]),
    ("UBIGINT", [("18446744073709551615", 2**64 - 1)]),
    (
        "FLOAT",
        [("0.1", 0.1), ("'-0.0'", -0.0), ("'nan'", "NaN"), ("'-inf'", "-Infinity"), ("3e38", 3e38), ("1e-45", 1e-45)],
    ),
    ("DOUBLE", [("0.1", 0.1), ("'-0.0'", -0.0), ("'nan'", "NaN"), ("'inf'", "Infinity"), ("1e300", 1e300)]),
    ("DECIMAL(4, 1)", [("-0.5", "-0.5"), ("0", "0"), ("999.9", "999.9")]),
    ("DECIMAL(38, 10)", [("'-0.0000000001'", "-0.0000000001"), ("'1234567890123456789012345678.5'",) * 2]),
    ("DATE", [("'1969-12-31'", "1969-12-31"), ("'0044-03-15 (BC)'", "-0043-03-15"), ("'12345-01-01'", "+12345-01-01")]),
    ("TIME", [("'00:00:00'", "00:00:00"), ("'23:59:59.999999'", "23:59:59.999999"), ("'01:02:03.1'", "01:02:03.1")]),
    (
        "TIMESTAMP",
        [
            ("'1969-12-31 23:59:59.999999'",) * 2,
            ("'0044-03-15 (BC) 00:00:00.5'", "-0043-03-15T00:00:00.5"),
            ("'12345-01-01 01:00:00'", "+12345-01-01T01:00:00"),
            ("'2026-01-01 00:00:00'", "2026-01-01T00:00"),
        ],
    ),
    (
        "TIMESTAMPTZ",
        [("'2026-01-01 00:00:00.25+05:30'",) * 2, ("'0044-03-15 (BC) 00:00:00+00'", "-0043-03-15T00:00:00Z")],
    ),
    ("TIMESTAMP_NS", [("'1969-12-31 23:59:59.999999999'",) * 2, ("'2026-01-01 00:00:00.1'",) * 2]),
    ("TIMESTAMP_S", [("'1969-12-31 23:59:59'",) * 2]),
    ("TIMESTAMP_MS", [("'1969-12-31 23:59:59.999'",) * 2]),
    (
        "VARCHAR",
        [
            ("''",) * 2,
            ("'tab\t nl\n \\ \"d\" ü€😀 NULL'",) * 2,
            ("chr(0) || 'x'", "\0x"),
            ("repeat('ü', 500000)", "ü" * 500000),
        ],
    ),
    ("JSON", [("'{\"a\": [1, null]}'",) * 2, ("'null'",) * 2]),
    ("BLOB", [("''::BLOB", ""), ("'\\x00\\xFFab'::BLOB", "00ff6162")]),
    ("UUID", [("'F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6'",) * 2]),
]
"""DuckDB's types, each with values as SQL and as JSON."""

NESTED: list[tuple[str, str, Any]] = [
    (
        'STRUCT(x INTEGER, y VARCHAR, "q\'k" VARCHAR)',
        "[{'x': 1, 'y': 'it''s', 'q''k': 'a\\b \"c\"'}, {'x': NULL, 'y': 'NULL', 'q''k': ''}, NULL]",
        [{"x": 1, "y": "it's", "q'k": 'a\\b "c"'}, {"y": "NULL", "q'k": ""}, None],
    ),
    (
        "STRUCT(d DATE, t TIME, ts TIMESTAMP, tz TIMESTAMPTZ, u UUID, b BLOB, dc DECIMAL(10, 2), f DOUBLE, k BOOLEAN)",
        (
            "[{'d': DATE '1969-12-31', 't': TIME '01:02:03.5', 'ts': TIMESTAMP '1969-12-31 23:59:59.999999', "
            "'tz': TIMESTAMPTZ '2026-01-01 00:00:00+02', 'u': 'f81d4fae-7dec-11d0-a765-00a0c91e6bf6'::UUID, "
            "'b': '\\x00''\\xFF\\x5C'::BLOB, 'dc': -0.5, 'f': 'nan'::DOUBLE, 'k': true}]"
        ),
        [
            {
                "d": "1969-12-31",
                "t": "01:02:03.5",
                "ts": "1969-12-31T23:59:59.999999",
                "tz": "2026-01-01T00:00:00+02:00",
            }
            | {"u": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "b": "0027ff5c", "dc": -0.5, "f": "NaN", "k": True}
        ],
    ),
    (
        "VARCHAR[]",
        "[['a', 'it''s', NULL, 'NULL', '', ' x', 'a,b', '[{(\\'], []]",
        [["a", "it's", None, "NULL", "", " x", "a,b", "[{(\\"], []],
    ),
    ("MAP(VARCHAR, INTEGER)", "[MAP {'it''s': 1, 'a=b': NULL, '': 3}, MAP {}]", [{"it's": 1, "a=b": None, "": 3}, {}]),
    (
        "STRUCT(l VARCHAR[], m MAP(VARCHAR, STRUCT(z VARCHAR)))[]",
        "[[{'l': ['}', NULL, ']''['], 'm': MAP {'k''=': {'z': '\\''}'}}}, NULL]]",
        [[{"l": ["}", None, "]'["], "m": {"k'=": {"z": "\\'}"}}}, None]],
    ),
    (
        "MAP(DATE, TIMESTAMPTZ[])",
        "[MAP {DATE '2026-01-01': [TIMESTAMPTZ '1969-12-31 23:00:00+00']}]",
        [{"keys": ["2026-01-01"], "values": [["1969-12-31T23:00:00Z"]]}],
    ),
]


@pytest.fixture
def lake(services, ducklake) -> Lake:
    ducklake.execute("SET TimeZone = 'UTC'; CALL lake.set_option('data_inlining_row_limit', 100)")
    return Lake(services, ducklake)


def layout_in(lake: Lake) -> Layout:
    """That of table t."""
    ((table_id,),) = lake.sql("SELECT table_id FROM ducklake_table WHERE table_name = 't'")
    with lake.services.database.reading() as cursor:
        definition = native.read_definition(cursor, table_id, lake.newest())
    assert definition is not None
    return Layout(build_row_columns(to_schema(definition.columns, 0), definition.columns))


def stored(lake: Lake, layout: Layout) -> list[Any]:
    """The rows of table t as Postgres' texts."""
    names = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(column.name)) for column in layout.columns)
    with lake.services.database.reading() as cursor:
        query = sql.SQL("SELECT {} FROM {} ORDER BY row_id").format(names, sql.Identifier(inlined_table(lake)))
        return cursor.execute(query).fetchall()


def inlined_table(lake: Lake) -> str:
    ((name,),) = lake.sql("SELECT table_name FROM ducklake_inlined_data_tables")
    return str(name)


def store(lake: Lake, layout: Layout, columns: list[list[Encoded]]) -> None:
    """Put our values in the place of those of the same rows."""
    sets = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(column.name)) for column in layout.columns)
    update = sql.SQL("UPDATE {} SET {} WHERE row_id = %s").format(sql.Identifier(inlined_table(lake)), sets)
    with lake.services.database.statement() as cursor:
        for row, values in enumerate(zip(*columns, strict=True)):
            cursor.execute(update, [*values, row])


def encoded(batch: Batch) -> list[list[Encoded]]:
    return list(map(batch.encode_column, range(len(batch.layout.stored))))


def test_flat_values_are_stored_as_duckdb_stores_them(lake: Lake) -> None:
    lake.run(f"CREATE TABLE t ({', '.join(f'c{index} {kind}' for index, (kind, _) in enumerate(FLAT))})")
    rows = list(zip_longest(*(values for _, values in FLAT)))
    for row in rows:
        lake.run(f"INSERT INTO t VALUES ({', '.join('NULL' if value is None else value[0] for value in row)})")
    layout = layout_in(lake)
    body = [
        {
            f"c{index}": value[1].strip("'") if type(value[1]) is str else value[1]
            for index, value in enumerate(row)
            if value
        }
        for row in rows
    ]
    batch = read_batch(orjson.dumps(body), JSON, layout)
    assert find_inlining_obstacle(batch) is None
    theirs = stored(lake, layout)
    store(lake, layout, encoded(batch))
    assert stored(lake, layout) == theirs
    assert_same_bounds(lake, layout, batch)


def assert_same_bounds(lake: Lake, layout: Layout, batch: Batch) -> None:
    """Ours are DuckDB's, but that NaN isn't one, and that bytes have none."""
    query = "SELECT column_id, min_value, max_value, contains_null FROM ducklake_table_column_stats"
    theirs = {column_id: (low, high, null) for column_id, low, high, null in lake.sql(query)}
    ours = {row.column_id: row for row in build_column_stats(batch)}
    assert {column.name for column in layout.columns if column.field_id not in ours} == {"c22"}  # BLOB
    kinds = {column.field_id: column.type for column in layout.columns}
    for column_id, row in ours.items():
        low, high, null = theirs[column_id]
        values = [parse_stats_text(kinds[column_id], text) for text in (row.min_value, row.max_value, low, high)]
        assert (values[0], row.contains_null) == (values[2], null)
        assert values[1] == values[3] or (row.contains_nan and high == "nan")


@pytest.mark.parametrize(("kind", "literal", "json"), NESTED, ids=[kind for kind, *_ in NESTED])
def test_nested_values_read_right(lake: Lake, kind: str, literal: str, json: list[Any]) -> None:
    lake.run(f"CREATE TABLE t (a {kind})", f"INSERT INTO t SELECT unnest({literal})")
    layout = layout_in(lake)
    batch = read_batch(orjson.dumps([{"a": value} for value in json]), JSON, layout)
    assert find_inlining_obstacle(batch) is None
    store(lake, layout, encoded(batch))
    wanted = lake.duck.execute(f"SELECT unnest({literal})::{kind}").fetchall()
    assert repr(lake.duck.execute("FROM lake.t").fetchall()) == repr(wanted)
    assert lake.duck.execute("SELECT count(*) FROM lake.t WHERE a IS NOT NULL").fetchall() == [
        (sum(map(bool, json)) + json.count([]) + json.count({}),)
    ]


ANY_TEXT = some.text(some.sampled_from("'\"\\,{}[]():= \n\tüaNUL😀"), max_size=8)
KIND = struct_of(s="string", l=list_of("string"), m=map_of("string", "string"))
VALUES = some.fixed_dictionaries(
    {
        "s": some.none() | ANY_TEXT,
        "l": some.none() | some.lists(some.none() | ANY_TEXT, max_size=3),
        "m": some.none() | some.dictionaries(ANY_TEXT, some.none() | ANY_TEXT, max_size=2),
    }
)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


@settings(max_examples=count_examples(150), deadline=None)
@given(some.lists(VALUES, min_size=1, max_size=3))
def test_any_text_inside_nested_values_reads_right(duck: duckdb.DuckDBPyConnection, values: list[Any]) -> None:
    """As DuckLake reads inlined rows: by a cast of their texts."""
    layout = column(list_of(KIND))
    ((text,),) = encoded(read_batch(orjson.dumps([{"a": values}]), JSON, layout))
    cast = "CAST(? AS STRUCT(s VARCHAR, l VARCHAR[], m MAP(VARCHAR, VARCHAR))[])"
    assert duck.execute(f"SELECT {cast}", [text]).fetchall() == [(values,)]


def test_nul_is_inlined_in_texts_and_not_inside_nested_values() -> None:
    layout = layout_of({"name": "a", "type": "string"}, {"name": "n", "type": list_of("string")})

    def batch(**row: Any) -> Batch:
        return read_batch(orjson.dumps([row]), JSON, layout)

    assert find_inlining_obstacle(batch(a="\0", n=["x"])) is None
    assert (
        find_inlining_obstacle(batch(a="x", n=["\0"]))
        == "Postgres holds no NUL character in n, a column of nested values"
    )


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("a", "timestamptz_ns", "DuckDB keeps microseconds of column a"),
        ("a", struct_of(x="int", y="geometry"), "a column of type geometry"),
    ],
)
def test_tables_of_which_no_row_is_inlined_say_why(name: str, kind: Any, reason: str) -> None:
    assert reason in str(layout_of({"name": name, "type": kind}).obstacle)
