"""Views from both sides: what one makes, replaces, comments, renames or drops, the other sees."""

from dataclasses import replace

import duckdb
import psycopg
import pytest

from duckicelake.catalog import views
from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.namespaces import create_namespace, drop_namespace
from duckicelake.catalog.tables import list_tables
from duckicelake.errors import InvalidRequestError, NamespaceNotEmptyError, NoSuchViewError
from tests.support import view_queries
from tests.support.view_requests import (
    CITY,
    DROPPING,
    ID,
    SPARK,
    columns,
    commit,
    create,
    current,
    load,
    queries,
    rename,
    replacement,
    set_properties,
    written,
)

NEWEST = """
    SELECT s.snapshot_id, schema_version, next_catalog_id, next_file_id, changes_made, commit_extra_info
    FROM ducklake_snapshot s JOIN ducklake_snapshot_changes USING (snapshot_id) ORDER BY 1 DESC LIMIT 1
"""
VIEWS = """
    SELECT view_id, begin_snapshot, end_snapshot, view_name, dialect, sql, column_aliases
    FROM ducklake_view ORDER BY begin_snapshot
"""
COMMENTS = "SELECT begin_snapshot, end_snapshot, value FROM ducklake_tag ORDER BY begin_snapshot"
DUCKDB = {"duckdb": "SELECT i, upper(s) FROM t"}


def names(services, namespace="main"):
    return list(views.list_views(services, (namespace,), PageRequest()).items)


def native(answer, dialect="duckdb"):
    """The SQL of a view that DuckDB made, which comes after Spark's: Spark runs the first that it is given."""
    (first, _), (found, sql) = queries(answer).items()
    assert (first, found) == ("spark", dialect)
    return sql


def carried(answer):
    """What Spark is given for a view that DuckDB made."""
    return queries(answer)["spark"]


@pytest.fixture
def table(lake):
    lake.run("CREATE TABLE t (i BIGINT, s VARCHAR)", "INSERT INTO t VALUES (1, 'Essen'), (2, 'Ulm')")


def test_duckdb_reads_the_sql_of_its_dialect_under_the_schemas_names(lake, table):
    create(lake.services, "v", SPARK | DUCKDB)
    assert lake.duck.sql("FROM v").columns == ["id", "city"]
    assert lake.duck.sql("SELECT city FROM v WHERE id = 1").fetchall() == [("ESSEN",)]


def test_dialect_is_duckdbs_in_any_case(lake, table):
    create(lake.services, "v", {"DuckDB": DUCKDB["duckdb"]})
    assert lake.one("SELECT count(*) FROM v") == (2,)


@pytest.fixture
def foreign(lake):
    """A view that has SQL for Spark only, with columns of all kinds."""
    struct = {"type": "struct", "fields": [{**ID, "id": 10}, {**CITY, "id": 11}]}
    nested = [
        {**ID, "id": 3, "name": "s", "type": struct},
        {
            **ID,
            "id": 4,
            "name": "l",
            "type": {"type": "list", "element-id": 12, "element": "date", "element-required": False},
        },
        {
            **ID,
            "id": 5,
            "name": 'm "q"',
            "type": {
                "type": "map",
                "key-id": 13,
                "key": "string",
                "value-id": 14,
                "value": "decimal(9, 2)",
                "value-required": True,
            },
        },
        {**ID, "id": 6, "name": "v", "type": "variant"},
    ]
    create(lake.services, "v", {"spark": "SELECT * FROM t LATERAL VIEW explode(x)", "it's": "?"}, ID, CITY, *nested)


def test_view_without_sql_for_duckdb_is_listed_and_described(lake, foreign):
    assert lake.duck.execute("SHOW TABLES").fetchall() == [("v",)]
    described = [row[:2] for row in lake.duck.execute("DESCRIBE v").fetchall()]
    assert described == [
        ("id", "BIGINT"),
        ("city", "VARCHAR"),
        ("s", "STRUCT(id BIGINT, city VARCHAR)"),
        ("l", "DATE[]"),
        ('m "q"', "MAP(VARCHAR, DECIMAL(9,2))"),
        ("v", "VARCHAR"),
    ]
    assert lake.one("SELECT column_count FROM duckdb_views() WHERE database_name = 'lake'") == (6,)


@pytest.mark.parametrize(
    "query",
    [
        "FROM v",
        "SELECT count(*) FROM v",
        "SELECT city FROM v WHERE id = 1",
        "SELECT 1 FROM v",
        "SELECT EXISTS (FROM v)",
        "SELECT s.id FROM v",
        "SELECT range FROM range(3) WHERE range NOT IN (SELECT id FROM v)",
        "SELECT range FROM range(3) LEFT JOIN v ON id = range",
        "CREATE TABLE copied AS FROM v",
    ],
)
def test_view_without_sql_for_duckdb_fails_whatever_is_asked_and_says_why(lake, foreign, query):
    with pytest.raises(duckdb.InvalidInputException, match="no SQL for DuckDB, only for it s, spark: replace it"):
        lake.run(query)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT `i` FROM t",
        "SELECT 1; SELECT 2",
        "DROP TABLE t",
        "",
        "CREATE VIEW v AS SELECT 1",
        "FROM nowhere",
        "';--",
    ],
)
def test_sql_that_duckdb_cant_read_hurts_nothing_but_its_view(lake, attach, table, sql):
    create(lake.services, "bad", {"duckdb": sql})
    client = attach()
    assert sorted(client.execute("SHOW TABLES").fetchall()) == [("bad",), ("t",)]
    assert client.execute("SELECT count(*) FROM t").fetchall() == [(2,)]
    client.execute("SELECT * FROM duckdb_columns()")
    with pytest.raises(duckdb.Error):
        client.execute("FROM bad")
    client.execute("DROP VIEW bad")
    assert names(lake.services) == []


@pytest.mark.parametrize("name", ["a b", 'q"q', "it's", "x,y", "ü/1.2%"])
def test_odd_column_and_view_names_are_kept(lake, attach, table, name):
    create(lake.services, name, DUCKDB, ID, {**CITY, "name": name})
    quoted = '"' + name.replace('"', '""') + '"'
    assert attach().sql(f"FROM {quoted}").columns == ["id", name]
    assert names(lake.services) == [name]


def test_view_has_no_column_at_all_or_none_that_is_known(lake):
    lake.run(
        "CREATE VIEW file AS SELECT 1 AS one", "CREATE MACRO m() AS TABLE SELECT 1 AS one", "CREATE VIEW v AS FROM m()"
    )
    with psycopg.connect(lake.services.database.url) as connection:
        connection.execute("UPDATE ducklake_view SET sql = 'FROM read_csv(''/etc/passwd'')' WHERE view_name = 'file'")
    assert columns(load(lake.services, "v")) == columns(load(lake.services, "file")) == []


def test_creating_writes_the_rows_that_duckdb_writes(lake, attach, empty_database_url, warehouse):
    theirs = attach(empty_database_url, f"{warehouse}/ducklake/")
    theirs.execute("CREATE TABLE t (i BIGINT, s VARCHAR)")
    theirs.execute('CREATE VIEW v(id, "a ""b""") AS SELECT i, s FROM t')
    theirs.execute("CREATE OR REPLACE VIEW w AS SELECT i FROM t")
    theirs.execute("DROP VIEW v")
    lake.run("CREATE TABLE t (i BIGINT, s VARCHAR)")
    create(lake.services, "v", {"duckdb": "SELECT i, s FROM t"}, ID, {**CITY, "name": 'a "b"'})
    create(lake.services, "w", {"duckdb": "SELECT i FROM t"}, ID)
    views.drop_view(lake.services, ("main",), "v")

    with psycopg.connect(empty_database_url) as connection:
        (newest,), expected = connection.execute(NEWEST).fetchall(), connection.execute(VIEWS).fetchall()
    assert lake.sql(NEWEST) == [newest]
    (first, second) = lake.sql(VIEWS)
    assert first == expected[0]
    assert second == (*expected[1][:-1], '"id"')  # DuckDB writes aliases only where the statement has some


def test_each_write_that_duckdb_can_see_is_one_snapshot_naming_the_version(lake, table):
    create(lake.services, "v", SPARK)
    assert lake.sql(NEWEST) == [(3, 2, 3, 1, 'created_view:"main"."v"', '{"iceberg":{"2":1}}')]
    commit(lake.services, "v", *replacement(SPARK | DUCKDB))
    assert lake.sql(NEWEST) == [(4, 3, 3, 1, "altered_view:2", '{"iceberg":{"2":2}}')]
    commit(lake.services, "v", set_properties(comment="why"))
    assert lake.sql(NEWEST) == [(5, 4, 3, 1, "altered_view:2", '{"iceberg":{"2":2}}')]
    commit(lake.services, "v", set_properties(other="property"))
    assert lake.newest() == 5
    rename(lake.services, "main.v", "main.w")
    assert lake.sql(NEWEST) == [(6, 5, 3, 1, 'created_view:"main"."w",altered_view:2', None)]
    views.drop_view(lake.services, ("main",), "w")
    assert lake.sql(NEWEST) == [(7, 6, 3, 1, "dropped_view:2", None)]
    assert [row[1:4] for row in lake.sql(VIEWS)] == [(3, 4, "v"), (4, 6, "v"), (6, 7, "w")]
    assert lake.sql(COMMENTS) == [(5, 7, "why")]
    assert lake.sql("SELECT * FROM duckicelake_view") == []
    lake.run("FROM lake.snapshots()")


def test_new_version_and_comment_are_seen_by_a_duckdb_that_had_the_old_ones(lake, table):
    create(lake.services, "v", DUCKDB)
    assert lake.one("SELECT max(city) FROM v") == ("ULM",)
    commit(lake.services, "v", *replacement({"duckdb": "SELECT -i FROM t"}, ID), set_properties(comment="negative"))
    assert lake.duck.sql("FROM v ORDER BY ALL").fetchall() == [(-2,), (-1,)]
    assert lake.one("SELECT comment FROM duckdb_views() WHERE view_name = 'v'") == ("negative",)
    commit(lake.services, "v", {"action": "remove-properties", "removals": ["comment"]})
    assert lake.one("SELECT comment FROM duckdb_views() WHERE view_name = 'v'") == (None,)


def test_name_is_taken_in_duckdb_and_table_names_are_taken_for_views(lake, table):
    create(lake.services, "v")
    for statement in ("CREATE TABLE v (i INT)", "CREATE VIEW v AS SELECT 1", "ALTER TABLE t RENAME TO v"):
        with pytest.raises(duckdb.Error, match="already exists"):
            lake.run(statement)
    assert list_tables(lake.services, ("main",), PageRequest()).items == ("t",)
    assert names(lake.services) == ["v"]


def test_view_that_duckdb_made_is_listed_and_loaded(lake, table):
    lake.run("CREATE VIEW v AS SELECT i, upper(s) AS big, sum(i) OVER () FROM t WHERE s <> ''")
    assert names(lake.services) == ["v"]
    answer = load(lake.services, "v")
    (row,) = lake.sql("SELECT view_uuid::text, begin_snapshot FROM ducklake_view")
    assert answer["metadata"]["view-uuid"] == row[0]
    assert native(answer) == lake.sql("SELECT sql FROM ducklake_view")[0][0]
    assert columns(answer)[:2] == [("i", "long"), ("big", "string")]
    assert columns(answer)[2][1] == "decimal(38, 0)"
    assert current(answer)["default-namespace"] == ["main"]
    assert written(answer) == answer["metadata"]
    assert load(lake.services, "v") == answer
    assert lake.newest() == row[1]  # looking at it writes nothing that DuckDB could see


def test_columns_of_every_type_are_the_nearest_that_iceberg_has(lake):
    kinds = {
        "1::TINYINT": "int",
        "1::UINTEGER": "long",
        "1::UBIGINT": "decimal(20, 0)",
        "1::HUGEINT": "decimal(38, 0)",
        "1.50": "decimal(3, 2)",
        "1::FLOAT": "float",
        "true": "boolean",
        "current_date": "date",
        "'1:00'::TIME": "time",
        "now()": "timestamptz",
        "now()::TIMESTAMP_NS": "timestamp",
        "'x'::BLOB": "binary",
        "uuid()": "uuid",
        "'{}'::JSON": "string",
        "INTERVAL 1 DAY": "string",
        "'a'::ENUM('a')": "string",
        "[[1]]": ("list", ("list", "int")),
        "[1, 2]::INTEGER[2]": ("list", "int"),
        "{'a': 1, 'b': {'c': 'x'}}": ("struct", {"a": "int", "b": ("struct", {"c": "string"})}),
        "MAP {'a': 1.5::DOUBLE}": ("map", "string", "double"),
    }
    selected = ", ".join(f"{sql} AS c{number}" for number, sql in enumerate(kinds))
    lake.run(f"CREATE VIEW v AS SELECT {selected}")
    found = [shape(kind) for _, kind in columns(load(lake.services, "v"))]
    assert dict(zip(kinds, found, strict=True)) == kinds


def shape(kind):
    """A type without its ids."""
    match kind:
        case {"type": "list", "element": element}:
            return ("list", shape(element))
        case {"type": "map", "key": key, "value": value}:
            return ("map", shape(key), shape(value))
        case {"type": "struct", "fields": fields}:
            return ("struct", {field["name"]: shape(field["type"]) for field in fields})
    return kind


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("FROM s.u", ["j"]),
        ("FROM lake.s.u", ["j"]),
        ("FROM U", ["j"]),
        ("FROM t", ["in_main"]),
        ("FROM main.t", ["in_main"]),
        ("FROM lake.t", ["in_main"]),
        ("SELECT * FROM u JOIN main.t ON j = in_main", ["j", "in_main"]),
        ('FROM "odd.schema"."odd ""table"""', ["k"]),
        ("FROM w", ["renamed"]),
        ("SELECT a.j FROM s.u AS a JOIN lake.s.u b ON a.j = b.j", ["j"]),
        ('SELECT "an alias".k FROM "odd.schema"."odd ""table""" "an alias"', ["k"]),
        ("WITH c AS (SELECT j AS x FROM u) FROM c", ["x"]),
        ("SELECT * FROM range(3) r(n)", ["n"]),
        ("SELECT 1 AS a, 2 AS a", ["a", "a_1"]),
        ("SELECT (SELECT max(j) FROM u) AS m", ["m"]),
    ],
)
def test_names_in_a_view_mean_what_they_mean_to_duckdb(lake, query, expected):
    lake.run(
        "CREATE SCHEMA s",
        'CREATE SCHEMA "odd.schema"',
        "CREATE TABLE t (in_main INTEGER)",
        "CREATE TABLE s.u (j INTEGER)",
        'CREATE TABLE "odd.schema"."odd ""table""" (k INTEGER)',
        "CREATE VIEW s.w(renamed) AS SELECT j FROM s.u",
        f"CREATE VIEW s.v AS {query}",
    )
    assert lake.duck.sql("FROM s.v LIMIT 0").columns == expected
    assert [name for name, _ in columns(load(lake.services, "v", "s"))] == expected


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("FROM lake.s.u", "SELECT * FROM s.u"),
        ("FROM lake.t", "SELECT * FROM main.t"),
        ("SELECT lake.main.t.i FROM lake.main.t", "SELECT main.t.i FROM main.t"),
        ("SELECT lake.t.i, 'lake.t' AS x FROM lake.t", "SELECT t.i, 'lake.t' AS x FROM main.t"),
        ("SELECT '{DUCKLAKE_CATALOG}.it''s' AS \"{DUCKLAKE_CATALOG}.x\"",) * 2,
    ],
)
def test_what_a_client_calls_the_lake_is_not_shown_to_others(lake, table, query, shown):
    lake.run("CREATE SCHEMA s", "CREATE TABLE s.u (j INTEGER)", f"CREATE VIEW s.v AS {query}")
    expected = lake.duck.sql("FROM s.v LIMIT 0").columns
    answer = load(lake.services, "v", "s")
    assert native(answer) == shown
    assert [name for name, _ in columns(answer)] == expected
    commit(lake.services, "v", DROPPING, *replacement({"duckdb": shown}, ID), namespace="s")
    lake.run("FROM s.v")


def test_views_that_read_each_other_have_no_known_columns(lake):
    lake.run("CREATE VIEW a AS SELECT 1 AS i", "CREATE VIEW b AS FROM a", "CREATE OR REPLACE VIEW a AS FROM b")
    assert columns(load(lake.services, "a")) == []


def test_replacing_in_duckdb_makes_the_next_version_of_the_same_view(lake, table):
    first = create(lake.services, "v", SPARK | DUCKDB)["metadata"]
    lake.run("CREATE OR REPLACE VIEW v AS SELECT i AS n FROM t", "CREATE OR REPLACE VIEW v AS SELECT s AS n FROM t")
    answer = load(lake.services, "v")
    metadata = answer["metadata"]
    assert (metadata["view-uuid"], metadata["location"]) == (first["view-uuid"], first["location"])
    assert [each["version-id"] for each in metadata["version-log"]] == [1, 2]
    assert metadata["versions"][0] == first["versions"][0]
    assert native(answer) == "SELECT s AS n FROM t"
    assert columns(answer) == [("n", "string")]
    assert written(answer) == metadata


def test_comment_of_duckdbs_is_a_property_and_no_new_version(lake, table):
    create(lake.services, "v", DUCKDB, properties={"comment": "ours"})
    assert lake.one("SELECT comment FROM duckdb_views() WHERE view_name = 'v'") == ("ours",)
    lake.run("COMMENT ON VIEW v IS 'theirs'")
    answer = load(lake.services, "v")
    assert answer["metadata"]["properties"] == {"comment": "theirs"}
    assert len(answer["metadata"]["versions"]) == 1
    lake.run("COMMENT ON VIEW v IS NULL")
    assert load(lake.services, "v")["metadata"]["properties"] == {}
    commit(lake.services, "v", set_properties(owner="me"))
    assert queries(load(lake.services, "v")) == DUCKDB


def test_properties_set_here_leave_duckdbs_sql_as_duckdb_wrote_it(lake, table):
    lake.run("CREATE VIEW v AS SELECT i FROM t")
    commit(lake.services, "v", set_properties(comment="ours"))
    assert lake.sql(VIEWS)[0][4:] == ("duckdb", "SELECT i FROM t", "")


def test_commit_over_what_duckdb_did_meanwhile_builds_on_it(lake, table):
    uuid = create(lake.services, "v", DUCKDB)["metadata"]["view-uuid"]
    lake.run("CREATE OR REPLACE VIEW v AS SELECT 1 AS one")
    after = commit(lake.services, "v", *replacement(DUCKDB | SPARK), uuid=uuid)["metadata"]
    assert [each["version-id"] for each in after["version-log"]] == [1, 2, 3]
    assert lake.one("SELECT count(*) FROM v") == (2,)


def test_view_renamed_in_duckdb_is_the_same_under_its_new_name(lake, table):
    before = create(lake.services, "v", DUCKDB)
    lake.run("ALTER VIEW v RENAME TO w")
    assert load(lake.services, "w") == before
    with pytest.raises(NoSuchViewError, match=r"^View does not exist: main\.v$"):
        load(lake.services, "v")


def test_renamed_view_is_read_in_its_new_schema(lake, table):
    create_namespace(lake.services, ("s",), {})
    before = create(lake.services, "v", {"duckdb": "SELECT i, s FROM main.t"})
    rename(lake.services, "main.v", "s.w")
    assert load(lake.services, "w", "s") == before
    assert lake.one("SELECT count(*) FROM s.w") == (2,)
    with pytest.raises(duckdb.CatalogException):
        lake.run("FROM main.v")


@pytest.mark.parametrize(
    "drop", ["DROP VIEW s.v", "DROP SCHEMA s CASCADE", "BEGIN; DROP VIEW s.v; CREATE TABLE s.v (i INT); COMMIT"]
)
def test_view_dropped_in_duckdb_is_gone_and_its_name_starts_afresh(lake, drop):
    create_namespace(lake.services, ("s",), {})
    first = create(lake.services, "v", DUCKDB, namespace="s")["metadata"]
    lake.run(drop)
    with pytest.raises(NoSuchViewError):
        load(lake.services, "v", "s")
    lake.run("CREATE SCHEMA IF NOT EXISTS s", "DROP TABLE IF EXISTS s.v", "CREATE VIEW s.v AS SELECT 1 AS one")
    again = load(lake.services, "v", "s")["metadata"]
    assert again["view-uuid"] != first["view-uuid"]
    assert len(again["versions"]) == 1


def test_view_with_sql_of_another_dialect_in_ducklake_is_loaded_with_that(lake):
    lake.run("CREATE VIEW v AS SELECT 1 AS one")
    with psycopg.connect(lake.services.database.url) as connection:
        connection.execute("UPDATE ducklake_view SET dialect = 'trino', sql = 'SELECT 1 AS \"one\"'")
    answer = load(lake.services, "v")
    assert native(answer, "trino") == 'SELECT 1 AS "one"'
    assert "raise_error('This view has no SQL for Spark, only for trino: " in carried(answer)


def test_view_of_duckdbs_has_its_query_for_spark_as_well(lake, table):
    lake.run("CREATE VIEW v AS SELECT i AS number, s AS name FROM t ORDER BY name LIMIT 5")
    answer = load(lake.services, "v")
    assert carried(answer) == "SELECT `i` AS `number`, `s` AS `name` FROM `t` ORDER BY `name` ASC NULLS LAST LIMIT 5"
    assert native(answer) == lake.sql("SELECT sql FROM ducklake_view")[0][0]
    lake.run("CREATE OR REPLACE VIEW v AS SELECT i FROM lake.t")
    assert carried(load(lake.services, "v")) == "SELECT `i` FROM `main`.`t`"


def test_view_of_duckdbs_that_spark_would_read_otherwise_says_so(lake, table):
    lake.run("CREATE VIEW v AS SELECT i // 2 AS half FROM t")
    assert "no SQL for Spark, only for duckdb: " in carried(load(lake.services, "v"))
    assert "or by one without what can not be carried over: INTDIV (i // 2)" in carried(load(lake.services, "v"))


def test_view_of_duckdbs_has_its_query_for_trino_where_the_lake_has_a_name_there(lake, table):
    services = replace(lake.services, trino_catalog="sales")
    lake.run("CREATE VIEW v AS SELECT i FROM main.t")
    assert list(queries(load(services, "v"))) == ["spark", "trino", "duckdb"]
    assert queries(load(services, "v"))["trino"] == (
        'SELECT CAST("i" AS BIGINT) AS "i" FROM (SELECT "i" FROM "sales"."main"."t") AS "view"("i")'
    )
    lake.run("CREATE OR REPLACE VIEW v AS SELECT i // 2 AS half FROM main.t")
    assert "no SQL for Trino, only for duckdb: " in queries(load(services, "v"))["trino"]
    lake.run("CREATE OR REPLACE VIEW v AS SELECT s FROM main.t")
    assert list(queries(load(lake.services, "v"))) == ["spark", "duckdb"]


def test_view_of_trinos_is_read_in_duckdb_with_the_types_that_trino_gave_it(lake, table):
    create(lake.services, "v", {"trino": 'SELECT length(s), s FROM sales."main".t WHERE i = 1'}, ID, CITY)
    assert lake.one("FROM v") == (5, "Essen")
    commit(lake.services, "v", *replacement({"trino": "SELECT i / 2, s FROM sales.main.t"}))
    with pytest.raises(duckdb.InvalidInputException, match="/ of these types is not carried over"):
        lake.run("FROM v")


def test_all_columns_of_views_that_spark_can_read_are_known(lake):
    """What Spark is given needs them; `main.t` is its table, however the query calls it."""
    names = {"t": "lake.main.t", "u": "lake.main.u"}
    lake.run(*(statement.format(**names) for statement in view_queries.TABLES))
    selects = [query.format(**names) for query in (*view_queries.BOTH, *view_queries.DUCKDB)]
    lake.run("BEGIN", *(f"CREATE VIEW v{number} AS {query}" for number, query in enumerate(selects)), "COMMIT")
    for number, query in enumerate(selects):
        answer = load(lake.services, f"v{number}")
        assert [name for name, _ in columns(answer)] == lake.duck.sql(f"FROM v{number} LIMIT 0").columns, query
        assert "This view has no SQL" not in carried(answer), query


@pytest.mark.parametrize("kind", ["UUID", "INTERVAL", "TIME", "HUGEINT", "JSON"])
def test_column_of_a_type_that_is_another_in_spark_is_only_handed_on_to_it(lake, kind):
    lake.run(f"CREATE TABLE t (i BIGINT, x {kind})", "CREATE VIEW v AS SELECT x FROM t AS a")
    assert carried(load(lake.services, "v")) == "SELECT `x` FROM `t` AS `a`"
    lake.run("CREATE VIEW w AS SELECT max(x) AS m FROM t")
    assert "an expression of x, which has another type in Spark" in carried(load(lake.services, "w"))


def test_view_of_sparks_is_read_in_duckdb_with_the_types_that_spark_gave_it(lake, attach, table):
    create(lake.services, "v", {"spark": "SELECT length(`s`), concat(s, 'x', NULL) FROM lake.main.t"}, ID, CITY)
    client = attach()
    assert sorted(client.execute("FROM v").fetchall()) == [(3, None), (5, None)]
    assert [row[:2] for row in client.execute("DESCRIBE v").fetchall()] == [("id", "BIGINT"), ("city", "VARCHAR")]
    assert queries(load(lake.services, "v")) == {"spark": "SELECT length(`s`), concat(s, 'x', NULL) FROM lake.main.t"}


def test_replaced_view_of_sparks_is_carried_over_anew(lake, table):
    create(lake.services, "v", {"spark": "SELECT i, s FROM t"})
    assert lake.one("SELECT min(id) FROM v") == (1,)
    commit(lake.services, "v", *replacement({"spark": "SELECT -i, s FROM t"}))
    assert lake.one("SELECT min(id) FROM v") == (-2,)
    commit(lake.services, "v", *replacement({"spark": "SELECT i DIV 2, s FROM t"}))
    with pytest.raises(duckdb.InvalidInputException, match=r"only for spark: .* not be carried over: INTDIV"):
        lake.run("FROM v")
    commit(lake.services, "v", *replacement({"spark": "SELECT 'not DuckDB''s', 1", "duckdb": "SELECT 8, s FROM t"}))
    assert lake.one("SELECT min(id) FROM v") == (8,)


def test_view_of_sparks_that_duckdb_replaces_is_duckdbs(lake, table):
    create(lake.services, "v", {"spark": "SELECT i, s FROM t"})
    lake.run("CREATE OR REPLACE VIEW v AS SELECT 8 AS n")
    assert queries(load(lake.services, "v")) == {"spark": "SELECT 8 AS `n`", "duckdb": "SELECT 8 AS n"}


def test_view_of_sparks_that_duckdb_comments_or_renames_is_still_sparks(lake, table):
    create(lake.services, "v", {"spark": "SELECT i + 1, s FROM t WHERE s IN (SELECT s FROM t)"})
    lake.run("COMMENT ON VIEW v IS 'theirs'", "ALTER VIEW v RENAME TO w")
    assert list(queries(load(lake.services, "w"))) == ["spark"]
    assert lake.one("SELECT max(id) FROM w") == (3,)


def test_view_of_sparks_on_what_another_catalog_has_fails_in_duckdb(lake, table):
    create(lake.services, "v", {"spark": "SELECT i, s FROM spark_catalog.main.t"})
    with pytest.raises(duckdb.InvalidInputException, match="a table of the catalog spark_catalog"):
        lake.run("FROM v")


def test_views_keep_their_namespace_from_being_dropped(lake):
    create_namespace(lake.services, ("s",), {})
    create(lake.services, "v", namespace="s")
    with pytest.raises(NamespaceNotEmptyError, match=r"^Namespace s is not empty\. It holds view v$"):
        drop_namespace(lake.services, ("s",))
    views.drop_view(lake.services, ("s",), "v")
    drop_namespace(lake.services, ("s",))


@pytest.mark.parametrize("act", ["COMMENT ON VIEW v IS 'theirs'", "DROP VIEW v"])
def test_uncommitted_change_of_duckdbs_loses_to_ours_or_comes_after_it(lake, attach, table, act):
    create(lake.services, "v", DUCKDB)
    client = attach()
    client.execute(f"BEGIN; {act}")
    commit(lake.services, "v", *replacement({"duckdb": "SELECT -i, s FROM t"}))
    if act.startswith("COMMENT"):
        with pytest.raises(duckdb.Error, match="altered it"):
            client.execute("COMMIT")
        assert lake.one("SELECT min(id) FROM v") == (-2,)
    else:
        client.execute("COMMIT")
        with pytest.raises(NoSuchViewError):
            load(lake.services, "v")


@pytest.fixture
def expire(lake):
    return lambda: lake.run("CALL ducklake_expire_snapshots('lake', older_than => now())")


def test_expired_snapshots_take_nothing_from_a_view_that_was_looked_at(lake, table, expire):
    create(lake.services, "v", DUCKDB)
    lake.run("CREATE OR REPLACE VIEW v AS SELECT 8 AS n")
    before = load(lake.services, "v")
    expire()
    assert load(lake.services, "v") == before
    assert lake.one("FROM v") == (8,)


def test_view_that_was_replaced_and_expired_unseen_starts_afresh(lake, table, expire):
    first = create(lake.services, "v", DUCKDB)
    lake.run("CREATE OR REPLACE VIEW v AS SELECT 8 AS n")
    expire()
    after = load(lake.services, "v")
    assert after["metadata"]["view-uuid"] != first["metadata"]["view-uuid"]
    assert native(after) == "SELECT 8 AS n"
    assert lake.sql("SELECT count(*) FROM duckicelake_view") == [(1,)]


def test_view_that_duckdb_replaced_is_dropped_with_what_was_known_of_it(lake, table):
    create(lake.services, "v", DUCKDB)
    lake.run("CREATE OR REPLACE VIEW v AS SELECT 8 AS n")
    views.drop_view(lake.services, ("main",), "v")
    assert lake.sql("SELECT count(*) FROM duckicelake_view") == [(0,)]


def test_name_that_differs_only_by_case_from_a_table_or_view_is_refused(lake, table):
    create(lake.services, "v")
    for name in ("V", "T"):
        with pytest.raises(InvalidRequestError, match="differs only by case"):
            create(lake.services, name)
    rename(lake.services, "main.v", "main.V")
    assert names(lake.services) == ["V"]
