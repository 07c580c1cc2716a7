"""Column lineage follows from the text of a statement, and what doesn't follow isn't claimed."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duckicelake.lineage.sql.lineage import build_column_lineage, read_view_lineage
from duckicelake.lineage.sql.model import Flow, FlowEffect, FlowSubtype, SqlDataset, StatementLineage
from tests.support.examples import count_examples
from tests.support.sql_lineage_cases import QUERIES, SPARK, TABLES, TRINO, WORDS, WRITES, lineage_of

CODES = {subtype.value[0]: subtype for subtype in FlowSubtype}
KNOWN = {**TABLES, "v": ("a", "m"), "o": None, "p": None}
BY_NAME = {name.lower(): SqlDataset("lake", name, columns) for name, columns in KNOWN.items()}


def lookup(parts: tuple[str, ...]) -> SqlDataset | None:
    return BY_NAME.get(parts[-1].lower())


def shown(flow: Flow | None) -> dict[str, set[FlowEffect]]:
    return {f"{origin.dataset.name}.{origin.column}": set(effects) for origin, effects in (flow or {}).items()}


def meant(text: str) -> dict[str, set[FlowEffect]]:
    flows: dict[str, set[FlowEffect]] = {}
    for each in text.split():
        column, _, effects = each.rpartition(":")
        masking = effects.endswith("*")
        flows[column] = {FlowEffect(CODES[code], masking) for code in effects.rstrip("*")}
    return flows


def assert_means(found: StatementLineage | None, expected: dict[str, str]) -> None:
    assert found is not None
    fields = {name: shown(flow) for name, flow in (found.fields or {}).items() if flow}
    assert fields == {name: meant(text) for name, text in expected.items() if name != "~" and text}
    assert shown(found.influence) == meant(expected.get("~", ""))


@pytest.mark.parametrize(("sql", "expected"), QUERIES)
def test_columns_of_a_query_come_from_where_its_text_says(sql: str, expected: dict[str, str]) -> None:
    found = lineage_of(sql, "duckdb", lookup)
    assert_means(found, expected)
    assert found is not None
    assert found.output is None


@pytest.mark.parametrize(("sql", "output", "expected"), WRITES)
def test_columns_that_are_written_come_from_where_the_text_says(
    sql: str, output: str, expected: dict[str, str]
) -> None:
    found = lineage_of(sql, "duckdb", lookup)
    assert_means(found, expected)
    assert found is not None
    assert found.output is not None
    assert found.output.name == output


@pytest.mark.parametrize(("sql", "expected"), SPARK)
def test_spark_sql_is_read(sql: str, expected: dict[str, str]) -> None:
    assert_means(lineage_of(sql, "Spark", lookup), expected)


@pytest.mark.parametrize(("sql", "expected"), TRINO)
def test_trino_sql_is_read(sql: str, expected: dict[str, str]) -> None:
    assert_means(lineage_of(sql, "trino", lookup), expected)


def test_inputs_are_the_tables_that_are_read_however_they_are_used() -> None:
    found = lineage_of("WITH q AS (FROM z), w AS (FROM p) SELECT 1 FROM q, v WHERE EXISTS (FROM u)", "duckdb", lookup)
    assert found is not None
    assert [each.name for each in found.inputs] == ["z", "v", "u"]


@pytest.mark.parametrize(
    ("call", "files"),
    [
        ("read_csv('x.csv', nullstr='NA')", ["x.csv"]),
        ("read_csv('x.csv', nullstr=['NA', '-'], delim=';')", ["x.csv"]),
        ("read_csv(['a.csv', 'b.csv'], header=true)", ["a.csv", "b.csv"]),
        ("read_csv(nullstr='NA', 'x.csv')", ["x.csv"]),
        ("read_json('x.json', columns={'a': 'INTEGER'}, format='array')", ["x.json"]),
        ("read_parquet('x.parquet', filename='from')", ["x.parquet"]),
        ("read_csv('a' || 'b.csv')", []),
        ("read_csv(getvariable('x'), nullstr='NA')", []),
        ("read_csv(['a.csv', getvariable('x')])", []),
    ],
)
def test_files_are_those_of_the_first_argument_and_no_option(call: str, files: list[str]) -> None:
    found = lineage_of(f"SELECT * FROM {call}", "duckdb", lookup)
    assert found is not None
    assert [each.name for each in found.inputs] == [f"/{file}" for file in files]


def test_table_that_is_written_is_an_input_only_if_something_comes_from_it() -> None:
    constant = lineage_of("UPDATE t SET a = 1", "duckdb", lookup)
    own = lineage_of("UPDATE t SET a = b", "duckdb", lookup)
    assert constant is not None
    assert own is not None
    assert ([each.name for each in constant.inputs], [each.name for each in own.inputs]) == ([], ["t"])


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT FROM WHERE",
        "SELECT 1; SELECT 2",
        "",
        ";",
        "-- nothing",
        "ATTACH 'x' AS y",
        "CREATE SECRET (TYPE s3, KEY_ID 'x')",
        "SET threads = 1",
        "PRAGMA version",
        "CREATE TABLE o (a INT)",
        "DROP TABLE t",
        "\0",
        "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
        "SELECT " + "a + " * 10_000 + "1 FROM t",
        "SELECT " + "NOT " * 10_000 + "a FROM t",
        "SELECT * FROM " + "(SELECT * FROM " * 500 + "t" + ")" * 500,
        "SELECT " + ", ".join(f"a AS a{each}" for each in range(50_000)) + " FROM t",
        "SELECT '" + "x" * 1_000_000 + "' FROM t",
        " UNION ALL ".join(["SELECT a FROM t"] * 5_000),
        "SELECT " + "CASE WHEN a THEN " * 1_000 + "1" + " END" * 1_000 + " FROM t",
    ],
    ids=lambda sql: sql[:30],
)
def test_what_is_not_read_has_no_lineage_and_takes_no_time(sql: str) -> None:
    begun = time.process_time()
    assert lineage_of(sql, "duckdb", lookup) is None
    assert time.process_time() - begun < 2


def test_names_that_multiply_with_every_step_are_given_up_in_time() -> None:
    """Each query has twice the columns of the one before."""
    steps = [f"q{at} AS (SELECT l.*, r.* FROM q{at - 1} l, q{at - 1} r)" for at in range(1, 40)]
    begun = time.process_time()
    assert lineage_of(f"WITH q0 AS (FROM t), {', '.join(steps)} SELECT * FROM q39", "duckdb", lookup) is None
    assert time.process_time() - begun < 5


WIDE = SqlDataset("lake", "wide", tuple(f"a{each}" for each in range(5_000)))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + ", ".join(f"z{each}" for each in range(9_000)) + " FROM w",
        "SELECT " + ", ".join(f"w AS c{each}" for each in range(3_000)) + " FROM w",
        "SELECT * FROM w w0 " + " ".join(f"NATURAL JOIN w w{each}" for each in range(1, 30)),
        "SELECT " + ", ".join(f"(SELECT count(*) FROM w x WHERE x.a{n} = w.a{n}) c{n}" for n in range(700)) + " FROM w",
        "WITH RECURSIVE c AS (FROM w UNION ALL SELECT c.* FROM c JOIN w USING (a1)) SELECT DISTINCT * FROM c",
    ],
    ids=lambda sql: sql[:30],
)
def test_tables_of_thousands_of_columns_take_bounded_time(sql: str) -> None:
    begun = time.process_time()
    lineage_of(sql, "duckdb", lambda _: WIDE)
    assert time.process_time() - begun < 10


def test_long_chain_of_one_operator_is_read() -> None:
    condition = " OR ".join(f"a{each} = {each}" for each in range(600))
    found = lineage_of(f"SELECT a1 FROM w WHERE {condition}", "duckdb", lambda _: WIDE)
    assert found is not None
    assert len(found.influence or {}) == 600


@settings(max_examples=count_examples(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from(WORDS.split()), max_size=30).map(" ".join) | st.text(max_size=60),
    st.sampled_from(["duckdb", "spark", "trino", "?"]),
)
def test_any_text_has_lineage_or_none(sql: str, dialect: str) -> None:
    found = lineage_of(sql, dialect, lookup)
    assert found is None or build_column_lineage(found) is None or found.inputs


@settings(max_examples=count_examples(200), deadline=None)
@given(st.sampled_from([sql for sql, *_ in [*QUERIES, *WRITES]]), st.data())
def test_statement_that_lost_a_piece_has_lineage_or_none(sql: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(sql)))
    length = data.draw(st.integers(0, 12))
    lineage_of(sql[:start] + sql[start + length :], "duckdb", lookup)


VIEW = SqlDataset("lake", "n.view", ("n", "m"))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a, b + 1 FROM {DUCKLAKE_CATALOG}.main.t",
        "CREATE VIEW n.view AS SELECT a, b + 1 FROM t",
        "CREATE OR REPLACE VIEW n.view (x, y) AS (SELECT a, b + 1 FROM t);",
    ],
)
def test_view_has_the_lineage_of_its_query_under_its_own_columns_names(sql: str) -> None:
    found = read_view_lineage(sql, "duckdb", VIEW, lookup)
    assert_means(found, {"n": "t.a:I", "m": "t.b:T"})
    assert found is not None
    assert found.output == VIEW


def test_name_in_a_ducklake_view_is_asked_for_with_its_placeholder() -> None:
    asked: list[tuple[str, ...]] = []
    read_view_lineage('SELECT * FROM {DUCKLAKE_CATALOG}."a.b".t, s.u', "duckdb", VIEW, asked.append)
    assert asked == [("__lake__", "a.b", "t"), ("s", "u")]


def test_view_in_a_view_is_named_as_the_user_named_it() -> None:
    found = read_view_lineage("SELECT a, m FROM v", "spark", VIEW, lookup)
    assert found is not None
    assert [each.name for each in found.inputs] == ["v"]
    assert_means(found, {"n": "v.a:I", "m": "v.m:I"})


def test_view_of_other_columns_than_its_query_has_tables_only() -> None:
    found = read_view_lineage("SELECT a, b, c FROM t", "duckdb", VIEW, lookup)
    assert_means(found, {})
    assert found is not None
    assert [each.name for each in found.inputs] == ["t"]


def test_view_in_another_dialect_has_no_lineage() -> None:
    assert read_view_lineage("SELECT a FROM t", "cobol", VIEW, lookup) is None


def test_facet_says_it_as_openlineage_does() -> None:
    found = lineage_of("INSERT INTO out SELECT md5(a), CASE WHEN a THEN b END FROM t WHERE c", "duckdb", lookup)
    assert found is not None
    facet = build_column_lineage(found)
    assert facet is not None
    assert facet["fields"]["a"] == {"inputFields": [field("a", ("DIRECT", "TRANSFORMATION", True))]}
    assert facet["fields"]["b"] == {
        "inputFields": [field("a", ("INDIRECT", "CONDITIONAL", False)), field("b", ("DIRECT", "IDENTITY", False))]
    }
    assert facet["dataset"] == [field("c", ("INDIRECT", "FILTER", False))]


def test_facet_of_what_no_column_matters_for_is_none() -> None:
    found = lineage_of("INSERT INTO out VALUES (1, 2)", "duckdb", lookup)
    assert found is not None
    assert build_column_lineage(found) is None


def field(column: str, *transformations: tuple[str, str, bool]) -> dict[str, object]:
    said = [{"type": a, "subtype": b, "description": "", "masking": c} for a, b, c in transformations]
    return {"namespace": "lake", "name": "t", "field": column, "transformations": said}
