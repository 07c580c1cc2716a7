"""DuckDB answers from the statistics we write: after our commits it must count, compare and filter right (facts §8)."""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from duckicelake.catalog.flush import flush_rows
from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from tests.support.lakes import Lake, assert_same_rows

START = datetime(1969, 12, 31, 23, 59, 59, 250000)
VALUES = {
    pa.bool_(): lambda i: i % 2 == 0,
    pa.int32(): lambda i: (-1) ** i * 1000 * i,
    pa.int64(): lambda i: 10**15 - 7 * i,
    pa.float32(): lambda i: i / 4 - 2,
    pa.float64(): lambda i: math.inf if i == 5 else 1e300 / (i + 1),
    pa.decimal128(12, 3): lambda i: Decimal(i - 3).scaleb(-3),
    pa.date32(): lambda i: date(1969, 12, 28) + timedelta(days=i),
    pa.time64("us"): lambda i: time(i, 1, 2, 30 * i),
    pa.timestamp("us"): lambda i: START + timedelta(milliseconds=150 * i),
    pa.timestamp("us", "UTC"): lambda i: (START - timedelta(hours=i)).replace(tzinfo=UTC),
    pa.string(): lambda i: "long " * 6 + str(i) if i % 2 else f"s{i}",
    pa.large_string(): lambda i: f"é{i}",
    pa.binary(): lambda i: bytes([i, 255 - i]),
}
COLUMNS = [f"c{index}" for index in range(len(VALUES))]


def batch(first, count, *, nulls=False):
    data = {"id": pa.array(range(first, first + count), pa.int64())}
    for name, (kind, value) in zip(COLUMNS, VALUES.items(), strict=True):
        data[name] = pa.array([None if nulls and i % 2 else value(i) for i in range(first, first + count)], kind)
    return pa.table(data)


def assert_answers_are_of_the_rows(lake):
    """What DuckDB answers from statistics equals what it computes from the rows copied elsewhere."""
    assert_same_rows(lake)
    everything = lake.duck.sql("FROM lake.t").to_arrow_table()
    lake.duck.register("arrow", everything).execute("CREATE OR REPLACE TEMP TABLE everything AS FROM arrow")
    for name in everything.column_names:
        aggregates = (
            f'min("{name}")::VARCHAR, max("{name}")::VARCHAR, count("{name}"), count(*), bool_or("{name}" IS NULL)'
        )
        answers = {t: lake.one(f"SELECT {aggregates} FROM {t}") for t in TABLES}
        assert answers[TABLES[0]] == answers[TABLES[1]], name
        for value in {everything[name][0], everything[name][-1]}:
            lake.duck.register("one", pa.table({"v": [value]}))
            for operator in ("=", ">="):
                counts = [
                    lake.one(f'SELECT count(*) FROM {t} WHERE "{name}" {operator} (SELECT v FROM one)') for t in TABLES
                ]
                assert counts[0] == counts[1], (name, operator, value)


TABLES = ("lake.t", "everything")


@pytest.mark.parametrize("order", ["inlined first", "files first"])
def test_duckdb_answers_right_between_commits_of_both_sides(lake, catalog, order):
    table = catalog.create_table("main.t", batch(0, 1).schema)
    native = [
        "INSERT INTO t SELECT * REPLACE (id + 100 AS id, 'nan' AS c3, 'm' AS c10) FROM given",
        "INSERT INTO t SELECT * REPLACE (id + 200 AS id, c2 * 2 AS c2, 'zz' AS c10) FROM given",
    ]
    lake.duck.register("given", batch(0, 6))
    lake.duck.execute("SELECT count(*), max(c1) FROM t")
    if order == "files first":
        lake.run("CALL lake.set_option('data_inlining_row_limit', 0)")
    lake.run(native[0])
    table.refresh().append(batch(3, 4, nulls=True))
    assert_answers_are_of_the_rows(lake)
    lake.run(native[1])
    table.refresh().append(batch(0, 8))
    assert_answers_are_of_the_rows(lake)
    table.refresh().delete("id = 3 or id = 201")
    lake.run("DELETE FROM t WHERE id = 5")
    assert_answers_are_of_the_rows(lake)


def test_table_of_nothing_but_nulls_gets_values_later(lake, catalog):
    table = catalog.create_table("main.t", pa.schema([("a", pa.int64()), ("b", pa.float64()), ("s", pa.string())]))
    table.append(pa.table({"a": pa.nulls(3, pa.int64()), "b": [math.nan] * 3, "s": pa.nulls(3, pa.string())}))
    assert lake.one("SELECT count(a), max(a), count(b), count(s) FROM t") == (0, None, 3, 0)

    lake.run("INSERT INTO t VALUES (500, 1.5, 'x')")
    assert lake.one("SELECT count(*) FROM t WHERE a = 500 AND b = 1.5 AND s = 'x'") == (1,)
    table.refresh().append(pa.table({"a": [7000], "b": [-1.0], "s": ["long enough to be truncated"]}))

    answers = "SELECT min(a), max(a), count(a), min(b), count(*) FILTER (isnan(b)), min(s), max(s) FROM t"
    assert lake.one(answers) == (500, 7000, 2, -1.0, 3, "long enough to be truncated", "x")
    assert lake.one("SELECT count(*) FROM t WHERE a IS NULL") == (3,)


def test_truncated_bounds_never_become_answers_though_duckdb_rewrites_files(lake, catalog):
    table = catalog.create_table("main.t", pa.schema([("id", pa.int64()), ("s", pa.string())]))
    texts = ["a" * 16 + f"{i:04}" for i in range(100)] + ["z" * 40]
    table.append(pa.table({"id": range(101), "s": texts}))
    table.append(pa.table({"id": range(101, 202), "s": texts}))
    lake.run("DELETE FROM t WHERE id BETWEEN 20 AND 60")

    for maintenance in ("ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.01)",
                        "ducklake_merge_adjacent_files('lake')"):  # fmt: skip
        lake.run(f"CALL {maintenance}")
        assert lake.one("SELECT min(s), max(s) FROM t") == (texts[0], texts[-1])
        assert lake.one(f"SELECT count(*) FROM t WHERE s = '{texts[-1]}'") == (2,)
        assert_same_rows(lake)


def test_bytes_in_a_clients_file_are_found_although_duckdb_misreads_their_bounds(lake, catalog):
    """DuckDB compares an escaped text with the bounds, which are hex: it misses such bytes in files of its own."""
    table = catalog.create_table("main.t", pa.schema([("b", pa.binary())]))
    table.append(pa.table({"b": [b"\xab", b"\xab"]}))

    assert lake.one(r"SELECT count(*) FROM t WHERE b = '\xAB'::BLOB") == (2,)


def test_strings_that_postgres_has_no_text_for_are_committed_without_statistics(lake, catalog):
    table = catalog.create_table("main.t", pa.schema([("id", pa.int64()), ("s", pa.string())]))

    table.append(pa.table({"id": [1, 2], "s": ["\0", "a\0b"]}))

    assert lake.sql("SELECT column_id FROM ducklake_file_column_stats") == [(1,)]
    assert_same_rows(lake)


CREATE = "CREATE TABLE t (id INTEGER, x INTEGER)"
NULLS = "INSERT INTO t SELECT range, NULL FROM range(5)"
VALUES_5_900 = "INSERT INTO t VALUES (9, 5), (10, 900)"
IN_ONE_TRANSACTION = (
    "CALL lake.set_option('data_inlining_row_limit', 0)",
    CREATE,
    "BEGIN",
    NULLS,
    VALUES_5_900,
    "COMMIT",
)
FLUSH = "CALL ducklake_flush_inlined_data('lake')"
RETYPED = (CREATE, NULLS, "ALTER TABLE t ALTER x TYPE BIGINT", VALUES_5_900, FLUSH)
LOST = "UPDATE ducklake_table_column_stats SET min_value = NULL, max_value = NULL WHERE column_id = 2"


def add_file(lake: Lake, catalog: Catalog) -> None:
    table = catalog.load_table("main.t")
    table.append(pa.table({"id": [20], "x": [500]}, schema=table.schema().as_arrow()))


def post(lake: Lake, _: Catalog) -> None:
    append_rows(lake.services, PostedRows(("main",), "t", b'[{"id": 20, "x": 500}]', "application/json"))


@pytest.mark.parametrize("first", [IN_ONE_TRANSACTION, RETYPED])
@pytest.mark.parametrize("write", [add_file, post])
def test_bounds_that_duckdb_lost_over_nulls_are_not_begun_anew(
    lake: Lake, catalog: Catalog, first: tuple[str, ...], write: Callable[[Lake, Catalog], None]
) -> None:
    lake.run(*first)
    bounds = "SELECT min_value, max_value FROM ducklake_table_column_stats WHERE column_id = 2"
    assert lake.sql(bounds) == [(None, None)], "DuckDB begins bounds here now: this can go"

    write(lake, catalog)

    assert [lake.one(f"SELECT count(*) FROM t WHERE x = {value}") for value in (5, 500, 900)] == [(1,), (1,), (1,)]
    assert lake.one("SELECT min(x), max(x), count(x) FROM t") == (5, 900, 3)


def test_flush_takes_rows_of_statistics_away_that_lost_their_bounds(lake: Lake) -> None:
    """As DuckDB's own flush of a table that was retyped leaves them; here with rows that are still to be flushed."""
    lake.run(CREATE, NULLS, VALUES_5_900)
    with lake.services.database.transaction() as cursor:
        cursor.execute(LOST)

    flush_rows(lake.services, ("main",), "t")

    assert lake.sql("SELECT column_id FROM ducklake_table_column_stats") == [(1,)]
    lake.run("INSERT INTO t VALUES (20, 500)")
    assert lake.one("SELECT count(*) FROM t WHERE x IN (5, 900)") == (2,)
