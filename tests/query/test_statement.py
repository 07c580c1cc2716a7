"""Which queries are admitted, by DuckDB's own parser: each function, kind of statement and way to name a file."""

import json
import re
from collections.abc import Mapping
from typing import Any

import duckdb
import pytest

from duckicelake.errors import CatalogError, InvalidRequestError
from duckicelake.query.functions import FUNCTIONS, TABLE_FUNCTIONS
from duckicelake.query.statement import (
    SYSTEM_NAMES,
    Resolve,
    ResolvedTable,
    ResolvedView,
    TableUse,
    check_statement,
    list_tables,
    parse_tree,
)

REFUSED_PREFIXES = (
    *("__internal", "current_", "has_", "inet_", "json_deserialize", "json_execute", "json_serialize"),
    *("pg_", "col_description", "obj_description", "shobj_description", "session_", "icu_collate_"),
)
"""Functions that read the session, the catalog or a statement."""
REFUSED = frozenset(
    """
    can_cast_implicitly cast_to_type combine constant_or_null create_sort_key currval finalize format_pg_type
    format_type get_block_size get_type getvariable icu_sort_key in_search_path make_type map_to_pg_oid nextval
    normalized_interval parse_duckdb_log_message remap_struct replace_type setseed sleep_ms stats sum_no_overflow
    timetz_byte_comparable txid_current user variant_bytes_to_variant variant_normalize variant_to_parquet_variant
    vector_type version write_log
    """.split()  # noqa: SIM905
)
"""Functions that are DuckDB's own business, change something, or wait."""


def serialize(sql: str) -> Any:
    with duckdb.connect() as duck:
        ((text,),) = duck.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
    return parse_tree(text)


def deserialize(tree: Any) -> str:
    with duckdb.connect() as duck:
        ((text,),) = duck.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchall()
    return str(text)


def refuse_all(use: TableUse) -> ResolvedTable:
    raise AssertionError(f"{use} reached the catalog")


def resolve_as(known: Mapping[tuple[str, ...], ResolvedTable | ResolvedView]) -> Resolve:
    return lambda use: known[use.parts]


def admit(sql: str, resolve: Resolve = lambda use: ResolvedTable("s", use.parts[-1], 7)) -> str:
    return deserialize(check_statement(serialize(sql), resolve))


def list_functions(*kinds: str) -> set[str]:
    with duckdb.connect() as duck:
        found = duck.execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ?", [kinds])
        return {str(name).lower() for (name,) in found.fetchall()}


def test_every_function_of_duckdb_is_admitted_or_refused_by_name() -> None:
    """A new version of DuckDB brings new functions: look at each before it joins one of the lists."""
    installed = list_functions("scalar", "aggregate", "macro")
    refused = {name for name in installed if name in REFUSED or name.startswith(REFUSED_PREFIXES)} - FUNCTIONS
    assert installed - FUNCTIONS == refused
    windows = {"dense_rank", "rank", "row_number", "lag", "lead", "ntile", "nth_value", "cume_dist", "percent_rank"}
    assert FUNCTIONS - installed <= windows | {"unnest"}
    assert list_functions("table") >= TABLE_FUNCTIONS


@pytest.mark.parametrize("name", sorted(list_functions("scalar", "aggregate", "macro") - FUNCTIONS))
def test_function_that_is_not_listed_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="Not in this route: the function"):
        admit(f'SELECT "{name}"(1)')


@pytest.mark.parametrize("name", sorted(list_functions("table", "table_macro", "pragma") - TABLE_FUNCTIONS))
def test_table_function_that_is_not_listed_is_refused(name: str) -> None:
    for sql in (f"SELECT * FROM \"{name}\"('x')", f"FROM main.{name}()", f'SELECT 1 WHERE EXISTS (FROM "{name}"())'):
        with pytest.raises(InvalidRequestError, match="Not in this route: the table function"):
            admit(sql, refuse_all)


@pytest.mark.parametrize(
    "sql",
    [
        *("ALTER TABLE t ADD COLUMN x INT", "ANALYZE", "ATTACH 'x.db'", "BEGIN", "CALL pragma_version()", "CHECKPOINT"),
        *("COMMENT ON TABLE t IS 'x'", "COPY t TO 'x'", "COPY (SELECT 1) TO 'x'", "COPY FROM DATABASE a TO b"),
        *(
            "CREATE TABLE t AS SELECT 1",
            "CREATE VIEW v AS SELECT 1",
            "CREATE SECRET (TYPE s3)",
            "CREATE MACRO m() AS 1",
        ),
        *(
            "CREATE TEMP TABLE t (a INT)",
            "CREATE SEQUENCE s",
            "CREATE TYPE e AS ENUM ('a')",
            "DEALLOCATE p",
            "DELETE FROM t",
        ),
        *("DETACH lake", "DROP TABLE t", "EXECUTE p", "EXPLAIN SELECT 1", "EXPORT DATABASE 'x'", "FORCE CHECKPOINT"),
        *("IMPORT DATABASE 'x'", "INSERT INTO t VALUES (1)", "INSTALL httpfs", "LOAD httpfs", "PRAGMA version"),
        *("PREPARE p AS SELECT 1", "RESET memory_limit", "ROLLBACK", "SET memory_limit = '1GB'", "SET VARIABLE x = 1"),
        *(
            "TRUNCATE t",
            "UPDATE t SET a = 1",
            "USE lake",
            "VACUUM",
            "MERGE INTO t USING u ON a = b WHEN MATCHED THEN DELETE",
        ),
        *("DESCRIBE t", "SHOW TABLES", "SUMMARIZE t", "SHOW ALL TABLES", "FROM (DESCRIBE t)", "FROM (SHOW TABLES)"),
        *("SELECT 1; SELECT 2", "SELECT 1; DROP TABLE t", "", ";", "PIVOT t ON a USING sum(b)", "selec 1"),
        *(
            "SELECT $1",
            "SELECT ?",
            "SELECT $name",
            "FROM query('SELECT 1')",
            "FROM query_table('t')",
            "SELECT pg_catalog.abs(1)",
        ),
        *("SELECT system.main.abs(1)", "FROM lake.main.range(3)"),
    ],
)
def test_statement_that_is_no_query_is_refused(sql: str) -> None:
    with pytest.raises(InvalidRequestError):
        admit(sql)


@pytest.mark.parametrize(
    "name",
    [
        *("'/etc/passwd'", "'x.parquet'", "'https://example.com/x.csv'", "'s3://b/x'", '"duckdb_secrets"', "pg_class"),
        *("information_schema.tables", "system.information_schema.tables", "duckdb_tables", "sqlite_master", "df"),
        *(
            "__ducklake_metadata_lake.public.ducklake_snapshot",
            "memory.main.x",
            "temp.main.x",
            "system.main.duckdb_views",
        ),
    ],
)
def test_name_reaches_the_catalog_alone(name: str) -> None:
    """Whatever a query names is looked up in the lake, and nowhere else."""
    asked: list[TableUse] = []

    def resolve(use: TableUse) -> ResolvedTable:
        asked.append(use)
        return ResolvedTable("s", "t", 7)

    for sql in (f"FROM {name}", f"SELECT (SELECT count(*) FROM {name})", f"WITH x AS (FROM {name}) FROM x"):
        written = admit(sql, resolve)
        assert re.search(r"lake\.s\.t AS \S+ AT \(VERSION => 7\)", written), written
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("WITH t AS (SELECT 1) FROM t", []),
        ("WITH t AS (FROM t) FROM t", ["t"]),
        ("WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < 3) FROM t", []),
        ("WITH a AS (FROM b), b AS (SELECT 1) FROM a, b", ["b"]),
        ("WITH a AS (SELECT 1) SELECT (SELECT count(*) FROM a), (WITH b AS (FROM a) SELECT 1 FROM b)", []),
        ("SELECT * FROM (WITH a AS (SELECT 1) FROM a), a", ["a"]),
        ("WITH A AS (SELECT 1) FROM a", []),
        ("WITH a AS (SELECT 1) FROM s.a", ["a"]),
        ("WITH a AS MATERIALIZED (SELECT 1) SELECT * FROM t SEMI JOIN a ON true UNION ALL FROM a", ["t"]),
    ],
)
def test_common_table_expressions_hide_tables_where_they_are_in_scope(sql: str, tables: list[str]) -> None:
    checked = check_statement(serialize(sql), lambda use: ResolvedTable("s", use.parts[-1], 7))
    assert [use.parts[-1] for use in list_tables(checked)] == tables


@pytest.mark.parametrize(
    "name", ["duckdb_tables", "pg_class", "sqlite_master", "pragma_database_list", "DuckDB_secrets"]
)
def test_common_table_expression_has_no_name_of_duckdbs_own(name: str) -> None:
    """DuckDB could take the name for its own view where this module takes it for the expression."""
    with pytest.raises(InvalidRequestError, match="can't be called"):
        admit(f"WITH {name} AS (SELECT 1) FROM {name}")


def test_views_of_duckdbs_own_are_those_whose_names_are_refused() -> None:
    with duckdb.connect() as duck:
        views = duck.execute("SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND internal").fetchall()
    assert [name for (name,) in views if not name.startswith(SYSTEM_NAMES)] == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(b) FILTER (c) OVER (PARTITION BY d ORDER BY e ROWS 1 PRECEDING) FROM t QUALIFY rank() OVER () = 1",
        "SELECT DISTINCT ON (a) * EXCLUDE (b) REPLACE (c + 1 AS c), COLUMNS('x.*') FROM t ORDER BY ALL LIMIT 10%",
        "FROM t SELECT a, grouping(a) GROUP BY GROUPING SETS ((a), ()), ROLLUP (b)",
        "SELECT list_transform([1, 2], lambda x: x + 1), {'a': 1}.a, MAP {'k': 1}['k'], [1, 2][1:2], a::INT",
        "SELECT CASE WHEN a THEN 1 ELSE 2 END, a BETWEEN 1 AND 2, a IN (1, 2), a LIKE 'x%', a COLLATE nocase FROM t",
        "SELECT * FROM t JOIN u USING (id) LEFT JOIN v ON t.a = v.a ASOF JOIN w ON t.b >= w.b, LATERAL (SELECT t.a)",
        "SELECT * FROM range(3) r(i), unnest([1, 2]) u(x), (VALUES (1), (2)) v(a), json_each('[1]')",
        "SELECT * FROM t PIVOT (sum(a) FOR b IN (1, 2))",
        "SELECT * FROM (FROM t UNPIVOT (x FOR n IN (a, b)))",
        "SELECT 1 UNION BY NAME SELECT 2 EXCEPT SELECT 3 INTERSECT SELECT 4",
        "SELECT * FROM t TABLESAMPLE 10%",
        "SELECT date '2026-01-01' + INTERVAL 3 DAY, current_date, TRY_CAST('x' AS DECIMAL(9, 2)), now(), uuid()",
        "VALUES (1, 'a'), (2, NULL)",
        "TABLE t",
    ],
)
def test_query_is_admitted(sql: str) -> None:
    assert admit(sql)


def test_table_gets_its_snapshot_and_keeps_its_alias() -> None:
    written = admit("SELECT t.a, x.b FROM q.t, q.u AS x")
    assert "lake.s.t AS t AT (VERSION => 7)" in written
    assert "lake.s.u AS x AT (VERSION => 7)" in written


def test_version_of_a_table_is_passed_on() -> None:
    asked: list[TableUse] = []

    def resolve(use: TableUse) -> ResolvedTable:
        asked.append(use)
        return ResolvedTable("s", "t", 3)

    admit("FROM a.t AT (VERSION => 3)", resolve)
    admit("FROM a.t AT (VERSION => 'audit')", resolve)
    assert asked == [TableUse(("a", "t"), 3), TableUse(("a", "t"), "audit")]
    for wrong in ("TIMESTAMP => '2026-01-01'", "VERSION => 1 + 1", "VERSION => 1.5", "VERSION => (SELECT 1)"):
        with pytest.raises(InvalidRequestError, match="AT takes a number, a branch or a tag here"):
            admit(f"FROM t AT ({wrong})")


def test_view_is_read_as_its_own_query_is_checked() -> None:
    def view(sql: str) -> ResolvedView:
        return ResolvedView("s.v", serialize(sql)["statements"][0], ("x",))

    table = ResolvedTable("s", "t", 7)
    written = admit("SELECT v.x FROM s.v", resolve_as({("s", "v"): view("SELECT a FROM s.t"), ("s", "t"): table}))
    assert "(SELECT a FROM lake.s.t" in written
    for escape in ("FROM read_text('/etc/passwd')", "SELECT getenv('HOME')"):
        with pytest.raises(InvalidRequestError, match="Not in this route"):
            admit("FROM s.v", resolve_as({("s", "v"): view(escape)}))
    with pytest.raises(InvalidRequestError, match=r"The view s\.v reads itself"):
        admit("FROM s.v", resolve_as({("s", "v"): view("FROM s.v")}))
    hidden = resolve_as({("s", "v"): view("FROM duckdb_x"), ("duckdb_x",): table})
    assert "lake.s.t" in admit("WITH duckdb AS (SELECT 1) FROM s.v", hidden)


@pytest.mark.parametrize("sql", ["SELECT " + "(" * 150 + "1" + ")" * 150, "SELECT " + "+".join(["1"] * 900)])
def test_deep_query_ends_in_an_answer(sql: str) -> None:
    try:
        admit(sql)
    except CatalogError as error:
        assert "too deep" in str(error)  # noqa: PT017


def test_long_query_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="too deep or too long"):
        admit(f"SELECT [{', '.join('x' for _ in range(60_000))}]")
