"""Queries of views in the other engine's SQL: what is let through, and how. The engine tests run it."""

import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from sqlglot import exp

from duckicelake.iceberg.model import parse
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.sql_dialects.dialects import DUCKDB, SPARK, TRINO, DialectSide, NotTranslatableError, TypedSql
from duckicelake.sql_dialects.expressions import CASTS, ExpressionWriter
from duckicelake.sql_dialects.functions import FROM_TRINO, TO_DUCKDB, TO_SPARK, TO_TRINO
from duckicelake.sql_dialects.queries import JOINS, SETS, QueryWriter
from duckicelake.sql_dialects.views import parse_query, translate_to_duckdb, translate_to_spark, translate_to_trino
from tests.support import view_queries
from tests.support.view_queries import (
    BOTH,
    NAMES,
    NO_TRINO,
    OTHER_SQL,
    REFUSED_BY_BOTH,
    REFUSED_IN_DUCKDB,
    REFUSED_IN_SPARK,
    REFUSED_IN_TRINO,
    TABLES,
)

SCHEMA = parse(
    Schema,
    {
        "type": "struct",
        "fields": [{"id": n, "name": n_, "required": False, "type": "long"} for n, n_ in enumerate("ab")],
    },
    "schema",
)


ID = Schema(fields=(SCHEMA.fields[0].model_copy(update={"name": "id"}),))
"""What the queries' set operations give."""


def spark(sql: str, *unlike: str, schema: Schema = SCHEMA) -> str:
    return translate_to_spark(sql, schema, unlike)


def duck(sql: str, namespace: tuple[str, ...] = ("ns",), catalog: str | None = None, *, schema: Schema = SCHEMA) -> str:
    return translate_to_duckdb(sql, schema, namespace, catalog)


def trino(sql: str, *unlike: str, schema: Schema = SCHEMA) -> str:
    """In a lake without schemas but `main`."""
    return translate_to_trino(sql.replace("{t}", "main.t").replace("{u}", "main.u"), schema, "lake", unlike)


def from_trino(sql: str, namespace: tuple[str, ...] = ("ns",), *, schema: Schema = SCHEMA) -> str:
    return translate_to_duckdb(sql, schema, namespace, "lake", TRINO)


IN_SCHEMA = {"t": "main.t", "u": "main.u"}


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as memory:
        for statement in TABLES:
            memory.execute(statement.format(t="t", u="u"))
        yield memory


def kept(connection: duckdb.DuckDBPyConnection, query: str) -> str:
    """The query as DuckDB keeps it in a view."""
    connection.execute(f"CREATE OR REPLACE VIEW v AS {query.format(**NAMES)}")
    ((sql,),) = connection.execute("SELECT sql FROM duckdb_views() WHERE view_name = 'v'").fetchall()
    return str(sql).removeprefix("CREATE VIEW v AS ").rstrip().removesuffix(";")


@pytest.mark.parametrize("query", [*BOTH, *view_queries.DUCKDB, *view_queries.AT_RUN_TIME])
def test_query_of_duckdbs_is_carried_over(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    assert spark(kept(connection, query), schema=ID)


@pytest.mark.parametrize("query", [*BOTH, *view_queries.SPARK, *view_queries.AT_RUN_TIME])
def test_query_of_sparks_is_carried_over_to_what_duckdb_binds(
    connection: duckdb.DuckDBPyConnection, query: str
) -> None:
    sql = duck(query.format(**NAMES), schema=ID).replace('{DUCKLAKE_CATALOG}."ns"', "main")
    connection.execute(f"CREATE OR REPLACE VIEW w AS {sql}")


@pytest.mark.parametrize(("query", "obstacle"), (REFUSED_BY_BOTH | REFUSED_IN_DUCKDB).items())
def test_query_of_duckdbs_is_refused_by_name(query: str, obstacle: str) -> None:
    with pytest.raises(NotTranslatableError, match=obstacle):
        spark(query.format(**NAMES))


@pytest.mark.parametrize(("query", "obstacle"), (REFUSED_BY_BOTH | REFUSED_IN_SPARK).items())
def test_query_of_sparks_is_refused_by_name(query: str, obstacle: str) -> None:
    with pytest.raises(NotTranslatableError, match=obstacle):
        duck(query.format(**NAMES))


@pytest.mark.parametrize("query", [query for query in (*BOTH, *view_queries.DUCKDB) if query not in NO_TRINO])
def test_query_of_duckdbs_is_carried_over_to_trino(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    assert trino(kept(connection, query.format(**IN_SCHEMA)), schema=ID)


@pytest.mark.parametrize(
    "query",
    [query for query in (*BOTH, *view_queries.TRINO) if query not in {*OTHER_SQL, *REFUSED_IN_TRINO}],
)
def test_query_of_trinos_is_carried_over_to_what_duckdb_binds(
    connection: duckdb.DuckDBPyConnection, query: str
) -> None:
    sql = from_trino(query.format(**NAMES), schema=ID).replace('{DUCKLAKE_CATALOG}."ns"', "main")
    connection.execute(f"CREATE OR REPLACE VIEW x AS {sql}")


@pytest.mark.parametrize(
    ("query", "obstacle"),
    [
        *((query, NO_TRINO[query]) for query in NO_TRINO if not NO_TRINO[query].endswith(("of NaN", "of these types"))),
        *((query, f"{obstacle}|USING") for query, obstacle in (REFUSED_BY_BOTH | REFUSED_IN_DUCKDB).items()),
        ("SELECT id FROM {t} WHERE ts > '2020-02-29 01:00:00'", "without the word TIMESTAMP"),
        ('SELECT a FROM main."T"', "a table whose name has letters in upper case"),
        ('SELECT a FROM "a%2Eb".t', "a namespace that Trino has no name for"),
        ("SELECT a FROM t", "a namespace that Trino has no name for"),
        ("SELECT a FROM other.main.t", "a table of another database"),
    ],
)
def test_query_of_duckdbs_is_refused_for_trino_by_name(query: str, obstacle: str) -> None:
    with pytest.raises(NotTranslatableError, match=obstacle):
        trino(query.format(**IN_SCHEMA))


def test_schema_of_duckdbs_is_one_name_in_trino() -> None:
    assert trino('SELECT a FROM "a.b".t') == 'SELECT "a" FROM "lake"."a.b"."t"'


@pytest.mark.parametrize("namespace", [("ns",), ("a", "b")])
def test_namespace_of_trinos_is_its_schema_in_duckdb(namespace: tuple[str, ...]) -> None:
    schema = ".".join(namespace)
    expected = f'SELECT "a" FROM {{DUCKLAKE_CATALOG}}."{schema}"."t"'
    for name in ("T", f'"{schema}".t', f'lake."{schema}".t'):
        assert from_trino(f"SELECT a FROM {name}", namespace) == expected
    with pytest.raises(NotTranslatableError, match="a table of the catalog other"):
        from_trino("SELECT a FROM lake.ns.t JOIN other.ns.u USING (a)")


def test_nan_is_refused_where_trino_alone_takes_it_for_unequal() -> None:
    for sql in ("SELECT a FROM {t} WHERE a > b", "SELECT min(a) AS a FROM {t}", "SELECT nullif(a, b) AS a FROM {t}"):
        assert "NaN is not carried over" in trino(sql)
    assert "NaN" not in trino("SELECT a FROM {t} WHERE length(a) = 1")


class Recorder(QueryWriter):
    """Notes what was let through."""

    def __init__(self, source: DialectSide, target: DialectSide) -> None:
        super().__init__(source, target, ".".join, ID)
        self.seen: set[Any] = set()

    def expression(self, node: exp.Expr) -> TypedSql:
        self.seen.add(type(node))
        return super().expression(node)

    def statement(self, node: exp.Expr) -> str:
        self.seen.add(type(node))
        return super().statement(node)

    def _write_call(self, key: str, *rest: Any) -> TypedSql:
        self.seen.add(key)
        return super()._write_call(key, *rest)

    def _write_type(self, node: exp.DataType) -> tuple[str, str]:
        found = super()._write_type(node)
        self.seen.add(found[0])
        return found

    def _join(self, node: exp.Join, left: str) -> TypedSql:
        self.seen.add((node.side, node.kind))
        return super()._join(node, left)


def recorded(source: DialectSide, target: DialectSide, queries: list[str]) -> set[Any]:
    recorder = Recorder(source, target)
    for query in queries:
        recorder.statement(parse_query(query, source))
    return recorder.seen


def test_all_that_is_let_through_is_in_the_queries_that_the_engines_run(connection: duckdb.DuckDBPyConnection) -> None:
    of_duckdb = recorded(DUCKDB, SPARK, [kept(connection, each) for each in (*BOTH, *view_queries.DUCKDB)])
    of_spark = recorded(SPARK, DUCKDB, [each.format(**NAMES) for each in (*BOTH, *view_queries.SPARK)])
    assert set(TO_SPARK) - of_duckdb == set()
    assert set(TO_DUCKDB) - of_spark == set()
    assert {*ExpressionWriter.WRITERS, *CASTS, *JOINS, *SETS} - of_duckdb - of_spark == set()


def test_all_functions_that_trino_is_given_are_in_the_queries_that_it_runs(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    to_trino = [kept(connection, query) for query in (*BOTH, *view_queries.DUCKDB) if query not in NO_TRINO]
    of_trino = [query for query in (*BOTH, *view_queries.TRINO) if query not in {*OTHER_SQL, *REFUSED_IN_TRINO}]
    assert set(TO_TRINO) - recorded(DUCKDB, TRINO, to_trino) == set()
    assert set(FROM_TRINO) - recorded(TRINO, DUCKDB, [query.format(**NAMES) for query in of_trino]) == set()


def test_order_has_the_nulls_where_the_other_engine_would_put_them() -> None:
    assert spark("SELECT a FROM t ORDER BY a, b DESC LIMIT 1").endswith(
        "ORDER BY `a` ASC NULLS LAST, `b` DESC NULLS LAST LIMIT 1"
    )
    assert duck("SELECT a FROM t ORDER BY a, b DESC LIMIT 1").endswith(
        'ORDER BY "a" ASC NULLS FIRST, "b" DESC NULLS LAST LIMIT 1'
    )


def test_types_are_only_asked_where_the_text_does_not_say_them() -> None:
    assert spark("SELECT 1 + 2 AS a, 'x' || 'y' AS b WHERE length('x') > 0") == (
        "SELECT (1 + 2) AS `a`, ('x' || 'y') AS `b` WHERE (length('x') > 0)"
    )
    assert spark("SELECT trim(a) AS a FROM t").count("typeof") == 1
    assert "'^(string)$'" in spark("SELECT a FROM t WHERE a = 'x'")
    assert "'^(date|timestamp_ntz|string)$'" not in spark("SELECT a FROM t WHERE a = 'x'")
    with pytest.raises(NotTranslatableError, match="a comparison of unlike types"):
        spark("SELECT a FROM t WHERE length(a) = 'x'")


@pytest.mark.parametrize(("kind", "pattern"), [("long", "bigint"), ("double", "int|bigint|double"), ("date", "date")])
def test_sides_of_set_operations_are_of_what_the_result_is_made_of(kind: str, pattern: str) -> None:
    (field,) = ID.fields
    schema = Schema(fields=(field.model_copy(update={"type": PrimitiveType(name=kind)}),))
    sql = spark("SELECT a FROM t UNION ALL SELECT NULL", schema=schema)
    assert f"{pattern})$'" in sql
    assert sql.count("typeof") == 1
    assert sql.count(f" AS {'BIGINT' if kind == 'long' else kind.upper()}) ") == 2


def test_set_operation_whose_columns_are_not_known_is_refused() -> None:
    for sql, obstacle in (
        ("SELECT a FROM t UNION SELECT b FROM t", "whose columns are not known"),
        ("SELECT a FROM t EXCEPT SELECT a FROM t EXCEPT SELECT a, b FROM t", "whose columns are not known"),
    ):
        with pytest.raises(NotTranslatableError, match=obstacle):
            spark(sql)
    listed = parse(Schema, SCHEMA.to_json() | {"fields": [ID.fields[0].to_json() | {"type": "uuid"}]}, "schema")
    with pytest.raises(NotTranslatableError, match="a set operation with a column of type uuid"):
        spark("SELECT a FROM t UNION SELECT b FROM t", schema=listed)


def test_star_in_a_set_operation_has_the_columns_by_name_first_and_then_by_place() -> None:
    sql = spark("SELECT * FROM t UNION ALL SELECT * FROM u")
    assert "FROM (SELECT * FROM `t`) AS `side`) UNION ALL" in sql
    assert sql.endswith("FROM (SELECT * FROM `u`) AS `side`(`c0`, `c1`)))")


def test_types_of_columns_are_asked_where_queries_meet() -> None:
    assert "typeof((SELECT `x` FROM `u` LIMIT 0))" in spark("SELECT a FROM t WHERE a IN (SELECT x FROM u WHERE x > a)")
    using = spark("SELECT t.a FROM t JOIN u USING (x) JOIN w USING (y)")
    assert "typeof((SELECT `x` FROM `t` LIMIT 0)), typeof((SELECT `x` FROM `u` LIMIT 0))" in using
    assert "typeof((SELECT `y` FROM `t` JOIN `u` USING (`x`) LIMIT 0)), typeof((SELECT `y` FROM `w` LIMIT 0))" in using


def test_long_integer_is_not_multiplied_by_a_long_decimal() -> None:
    assert "1[6-8]" in spark("SELECT 2 * a AS a FROM t")
    for sql in ("SELECT 9999999999 * a AS a FROM t", "SELECT CAST(b AS BIGINT) * a AS a FROM t"):
        assert "1[6-8]" not in spark(sql)


def test_text_that_looks_like_a_date_may_be_compared_with_one() -> None:
    assert "'^(string|date|timestamp_ntz)$'" in spark("SELECT a FROM t WHERE a > '2020-02-29'")
    assert "'^(string)$'" in spark("SELECT a FROM t WHERE a > '2020-2-29'")


def test_star_gives_the_columns_that_the_view_has_whatever_the_table_gets() -> None:
    assert spark("SELECT * FROM t") == "SELECT `a`, `b` FROM (SELECT * FROM `t`)"
    assert spark("SELECT a, b FROM (SELECT * FROM t) AS x") == "SELECT `a`, `b` FROM (SELECT * FROM `t`) AS `x`"


def test_star_is_refused_where_the_names_of_the_columns_do_not_show_them() -> None:
    for sql, renamed in (("SELECT * FROM t", True), ("SELECT *, a + 1 FROM t", False)):
        with pytest.raises(NotTranslatableError, match="columns of other names"):
            translate_to_spark(sql, SCHEMA, renamed=renamed)
    assert translate_to_spark("SELECT b, a FROM t", SCHEMA, renamed=True)
    assert spark("SELECT *, a + 1 AS b FROM t")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t", "`t`"),
        ("s.t", "`s`.`t`"),
        ('"a.b".t', "`a`.`b`.`t`"),
        ('"a%2Eb"."odd ""t"" `"', '`a.b`.`odd "t" ```'),
    ],
)
def test_schema_of_duckdbs_is_its_namespace_in_spark(name: str, expected: str) -> None:
    assert spark(f"SELECT a FROM {name}") == f"SELECT `a` FROM {expected}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t", '"ns"."t"'),
        ("s.t", '"s"."t"'),
        ("lake.s.t", '"s"."t"'),
        ("lake.a.b.t", '"a.b"."t"'),
        ('lake.`a.b`.`odd "t" ```', '"a%2Eb"."odd ""t"" `"'),
    ],
)
def test_namespace_of_sparks_is_its_schema_in_duckdb(name: str, expected: str) -> None:
    assert duck(f"SELECT a FROM {name}") == f'SELECT "a" FROM {{DUCKLAKE_CATALOG}}.{expected}'


def test_tables_of_other_catalogs_are_refused() -> None:
    for sql, namespace, catalog in (
        ("SELECT a FROM t", (), None),
        ("SELECT a FROM t", ("ns",), "other"),
        ("SELECT a FROM other.ns.t", ("ns",), "other"),
        ("SELECT a, b FROM lake.ns.t UNION SELECT a, b FROM other.ns.t", ("ns",), None),
    ):
        with pytest.raises(NotTranslatableError, match=r"a table of the catalog other|a table without a namespace"):
            duck(sql, namespace, catalog)
    assert duck("SELECT a FROM lake.ns.t", (), "other")
    with pytest.raises(NotTranslatableError, match="another database"):
        spark("SELECT a FROM other.ns.t")


def test_name_that_the_query_defines_is_no_table() -> None:
    assert duck("WITH C AS (SELECT a FROM t) SELECT a FROM c") == (
        'WITH "C" AS (SELECT "a" FROM {DUCKLAKE_CATALOG}."ns"."t") SELECT "a" FROM "c"'
    )
    with pytest.raises(NotTranslatableError, match="something of the same name"):
        duck("WITH t AS (SELECT a FROM t) SELECT a FROM t")


def test_column_that_has_another_type_in_spark_is_only_handed_on() -> None:
    assert spark("SELECT U FROM t", "u") == "SELECT `U` FROM `t`"
    for sql in (
        "SELECT u AS x FROM t",
        "SELECT a FROM t WHERE u = 'A'",
        "SELECT a FROM t ORDER BY u LIMIT 1",
        "SELECT DISTINCT u FROM t",
        "SELECT u, a FROM t UNION ALL SELECT a, b FROM t",
    ):
        with pytest.raises(NotTranslatableError, match="an expression of u, which has another type in Spark"):
            spark(sql, "u")


def test_query_without_known_columns_is_refused() -> None:
    with pytest.raises(NotTranslatableError, match="columns are not known"):
        translate_to_spark("SELECT 1", Schema(fields=()))


HOSTILE = {
    "parentheses": "SELECT " + "(" * 30_000 + "1" + ")" * 30_000,
    "queries": "(" * 20_000 + "SELECT 1" + ")" * 20_000,
    "tables": "SELECT a FROM " + "(" * 10_000 + "t" + ")" * 10_000,
    "subqueries": "SELECT * FROM (" * 2_000 + "t" + ")" * 2_000,
    "not": "SELECT " + "NOT " * 4_000 + "a FROM t",
    "minus": "SELECT " + "- " * 4_000 + "a FROM t",
    "case": "SELECT " + "CASE WHEN a THEN " * 900 + "1" + " END" * 900,
    "sum": "SELECT a" + " + a" * 2_400 + " FROM t",
    "quotients": "SELECT " + "a / (" * 40 + "a" + ")" * 40 + " FROM t",
    "union": " UNION ".join(["SELECT a FROM t"] * 1_000),
    "casts": "SELECT a" + "::BIGINT" * 2_000 + " FROM t",
    "members": "SELECT a" + ".b" * 2_400 + " FROM t",
    "joins": "SELECT a FROM t" + " JOIN t" * 2_000,
    "joins by name": "SELECT a FROM t AS t0" + "".join(f" JOIN t AS t{n} USING (a)" for n in range(1, 400)),
    "members of members": "SELECT a FROM t WHERE "
    + "a IN (SELECT a FROM (SELECT a FROM t WHERE " * 15
    + "a"
    + "))" * 15,
    "huge": "SELECT '" + "x" * 100_000 + "'",
    "unclosed": "SELECT 'abc",
    "several": "SELECT 1; SELECT 2",
    "nothing": "",
    "a comment": "-- nothing",
    "no query": "DROP TABLE t",
    "nul": "SELECT \0",
    "lone surrogate": "SELECT \ud800 ~ !",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("carry", [spark, duck, trino, from_trino])
def test_hostile_query_is_refused_cleanly(carry: Any, name: str) -> None:
    sql = HOSTILE[name] if (carry, name) != (from_trino, "quotients") else "SELECT 1 / 2"  # Trino's don't grow
    with pytest.raises(NotTranslatableError):
        carry(sql)


def test_whatever_is_cut_from_queries_is_carried_over_or_refused(connection: duckdb.DuckDBPyConnection) -> None:
    seeded = random.Random(1)
    texts = [kept(connection, each) for each in (*BOTH, *view_queries.DUCKDB)]
    texts += [each.format(**NAMES) for each in (*BOTH, *view_queries.SPARK)]
    refused = 0
    for text in texts * 3:
        words = text.split(" ")
        place = seeded.randrange(len(words))
        words[place : place + seeded.randrange(3)] = [seeded.choice(seeded.choice(texts).split(" "))]
        for carry in (spark, duck, trino, from_trino):
            try:
                carry(" ".join(words))
            except NotTranslatableError:
                refused += 1
    assert 0 < refused < len(texts) * 12
