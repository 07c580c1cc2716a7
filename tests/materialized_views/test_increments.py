"""Which queries can be followed by appends, and by which windows; the functions are those of the installed DuckDB."""

import json
from typing import Any

import duckdb
import pytest

from duckicelake.iceberg.schema import Schema
from duckicelake.lake.model import LakeChange
from duckicelake.materialized_views.increments import (
    NotIncrementalError,
    Window,
    find_row_functions,
    find_windows,
    plan_increment,
    plan_refresh,
)
from duckicelake.materialized_views.sources import find_volatile_functions
from duckicelake.query.contents import build_schema
from duckicelake.query.functions import FUNCTIONS
from duckicelake.query.statement import ResolvedTable, check_statement

COLUMNS = "k INT, v DECIMAL(10,2), s VARCHAR, d DOUBLE, t TIMESTAMP, id BIGINT, l INT[]"


def check(sql: str) -> tuple[Any, Schema]:
    """Return the checked tree of a query over `t` and `u`, and the schema of its view."""
    with duckdb.connect() as connection:
        for name in ("t", "u"):
            connection.execute(f"CREATE TABLE {name} ({COLUMNS})")
        parsed = json.loads(connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()[0][0])
        described = connection.execute(f"DESCRIBE {sql}").fetchall()
    tree = check_statement(parsed, lambda use: ResolvedTable("main", use.parts[-1], 1), sql)
    return tree, build_schema([(name, kind) for name, kind, *_ in described])


@pytest.mark.parametrize(
    ("sql", "shape"),
    [
        ("FROM t", "rows"),
        ("SELECT * EXCLUDE (l) FROM t WHERE v > 2 AND s LIKE 'a%'", "rows"),
        ("SELECT k, CASE WHEN v > 1 THEN upper(s) END AS c, CAST(d AS INT) AS i FROM t", "rows"),
        ("SELECT kk + 1 AS k FROM (SELECT k AS kk FROM t WHERE k > 0) WHERE kk < 9", "rows"),
        ("SELECT k, count(*) AS n, sum(v) AS v, min(t) AS low, max(s) AS high FROM t GROUP BY k", "groups"),
        ("SELECT count(*) FILTER (v > 1) AS n FROM t", "groups"),
        ("SELECT id % 10 AS bucket, count(*) AS n FROM t GROUP BY bucket", "groups"),
        ("SELECT id % 10 AS k, count(*) AS n FROM t GROUP BY 1", "groups"),
        ("SELECT date_trunc('day', t) AS day, sum(k) AS k FROM t GROUP BY ALL", "groups"),
        ("SELECT sum(k) AS sum FROM (SELECT k FROM t WHERE v > 1)", "groups"),
    ],
)
def test_query_that_appends_can_be_followed_in(sql: str, shape: str) -> None:
    assert plan_increment(*check(sql)).shape == shape


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT t.k FROM t JOIN u USING (k)",
        "SELECT k FROM t WHERE k IN (SELECT k FROM u)",
        "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM t AS o WHERE o.k > t.k)",
        "SELECT k FROM t UNION ALL SELECT k FROM t",
        "SELECT DISTINCT k FROM t",
        "SELECT k FROM t ORDER BY k LIMIT 3",
        "SELECT k, row_number() OVER (ORDER BY k) AS r FROM t",
        "SELECT unnest(l) AS e FROM t",
        "SELECT count(*) + 1 AS n FROM t",
        "SELECT k FROM t QUALIFY row_number() OVER () = 1",
        "SELECT k, avg(v) AS a FROM t GROUP BY k",
        "SELECT k, sum(d) AS d FROM t GROUP BY k",
        "SELECT d, count(*) AS n FROM t GROUP BY d",
        "SELECT k, count(DISTINCT s) AS n FROM t GROUP BY k",
        "SELECT k, count(*) AS n FROM t GROUP BY k HAVING count(*) > 1",
        "SELECT k, s, count(*) AS n FROM t GROUP BY ROLLUP (k, s)",
        "SELECT count(*) AS n FROM t GROUP BY k",
        "SELECT k // 2 AS k, count(*) AS n FROM t GROUP BY k",
        "SELECT k // 2 AS half, k, count(*) AS n FROM t GROUP BY k",
        "SELECT max(n) AS n FROM (SELECT count(*) AS n FROM t GROUP BY k)",
        "WITH c AS (FROM t) SELECT k FROM c",
        "SELECT 1 AS one",
        "SELECT list(k) AS ks FROM t",
        "SELECT max(k, 2) AS top FROM t",
        "SELECT columns(*) FROM t",
        "SELECT rowid AS r FROM t",
        "SELECT k FROM t, range(3)",
    ],
)
def test_query_that_is_computed_as_a_whole(sql: str) -> None:
    with pytest.raises(NotIncrementalError):
        plan_increment(*check(sql))


def change(snapshot_id: int, *kinds: str) -> LakeChange:
    return LakeChange(snapshot_id, 0, frozenset(kinds))


def test_windows_leave_out_what_moves_rows() -> None:
    found = [
        change(11, "inserted_into_table"),
        change(13, "inlined_insert"),
        change(15, "inline_flush"),
        change(16, "merge_adjacent"),
        change(18, "inlined_insert"),
    ]
    assert find_windows(found, 10, 20) == [Window(11, 14), Window(17, 20)]
    assert find_windows(found[2:4], 10, 20) == []
    for kinds in (["deleted_from_table"], ["inlined_insert", "altered_table"], ["inlined_insert", "inline_flush"]):
        with pytest.raises(NotIncrementalError):
            find_windows([change(11, *kinds)], 10, 20)


def test_refresh_is_unchanged_if_rows_were_only_moved() -> None:
    tree, schema = check("SELECT t.k FROM t JOIN u USING (k)")
    moved = {1: [change(11, "inline_flush")], 2: [change(12, "rewrite_delete", "inline_flush")]}
    assert plan_refresh(tree, schema, moved, 10, 20).mode == "unchanged"
    assert plan_refresh(tree, schema, moved | {2: [change(12, "inlined_insert")]}, 10, 20).mode == "whole"


def test_functions_of_one_row_are_neither_aggregates_nor_volatile() -> None:
    names = find_row_functions()
    assert {"upper", "%", "||", "date_trunc", "json_extract", "hash"} <= names
    assert not names & {"count", "sum", "first", "list", "histogram", "row_number", "unnest", "random", "now", "error"}
    volatile = find_volatile_functions()
    assert volatile & FUNCTIONS == {
        *("ago", "current_date", "current_localtime", "current_localtimestamp", "gen_random_uuid", "get_current_time"),
        *("get_current_timestamp", "now", "random", "reservoir_quantile", "today", "transaction_timestamp"),
        *("uuid", "uuidv4", "uuidv7"),
    }
