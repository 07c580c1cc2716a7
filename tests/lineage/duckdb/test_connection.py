"""Statements of a DuckDB connection reach a real receiver as OpenLineage's events, and what they say is so."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from openlineage.client.transport.console import ConsoleConfig, ConsoleTransport
from openlineage.client.transport.file import FileConfig, FileTransport

from duckicelake.lineage.duckdb.connection import LineageConnection, connect
from tests.support.openlineage import check_event
from tests.support.receiver import Answer, Receiver, always, receiving

Json = dict[str, Any]
Opens = Callable[..., LineageConnection]
MEMORY = "duckdb://memory"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as started:
        yield started


@pytest.fixture
def opens(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opens]:
    monkeypatch.delenv("DUCKICELAKE_LINEAGE_LITERALS", raising=False)
    opened: list[LineageConnection] = []

    def start(*arguments: Any, **options: Any) -> LineageConnection:
        opened.append(connect(*arguments, **{"catalog_uri": receiver.uri, "job_name": "p", **options}))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.fixture
def db(opens: Opens) -> LineageConnection:
    connection = opens()
    return connection.execute("CREATE TABLE t (a INT, b TEXT); CREATE TABLE u (n INT, m TEXT)")


def report(connection: LineageConnection, receiver: Receiver, kind: str | None = None) -> list[Json]:
    """All events, once the connection is closed; each is as OpenLineage's schemas have it."""
    connection.close()
    for each in receiver.taken:
        check_event(each)
    return [each for each in receiver.taken if kind in {None, each["eventType"]}]


def columns(event: Json) -> dict[str, list[tuple[str, str]]]:
    """Inputs of the output's columns: (name of the table, column)."""
    facet = event["outputs"][0]["facets"].get("columnLineage", {"fields": {}})
    return {
        name: [(each["name"].rpartition(".")[2], each["field"]) for each in field["inputFields"]]
        for name, field in facet["fields"].items()
    }


def types(events: list[Json]) -> list[str]:
    return [each["eventType"] for each in events]


def test_insert_shows_its_beginning_and_what_flowed_where(db: LineageConnection, receiver: Receiver) -> None:
    db.execute("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    db.execute("INSERT INTO u SELECT a + 1, b FROM t WHERE a > 1")
    start, complete = report(db, receiver)[-2:]
    assert types([start, complete]) == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert start["job"] == complete["job"]
    assert [(each["namespace"], each["name"]) for each in complete["inputs"]] == [(MEMORY, "p.memory.main.t")]
    (output,) = complete["outputs"]
    assert (output["namespace"], output["name"]) == (MEMORY, "p.memory.main.u")
    assert columns(complete) == {"n": [("t", "a")], "m": [("t", "b")]}
    assert [each["field"] for each in output["facets"]["columnLineage"]["dataset"]] == ["a"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert [each["name"] for each in output["facets"]["schema"]["fields"]] == ["n", "m"]
    assert start["outputs"][0]["facets"] == {}


def test_job_is_the_same_for_other_literals_and_another_for_another_statement(
    db: LineageConnection, receiver: Receiver
) -> None:
    for statement in (
        "INSERT INTO t VALUES (1, 'x')",
        "INSERT INTO t VALUES (2, 'y')",
        "INSERT INTO t SELECT n, m FROM u",
    ):
        db.execute(statement)
    one, two, three = (each["job"]["name"] for each in report(db, receiver, "COMPLETE"))
    assert one == two != three
    assert one.startswith("p.insert.t.")


def test_results_are_duckdbs_own(db: LineageConnection) -> None:
    assert db.execute("INSERT INTO t VALUES (1, 'x'), (2, 'y')").fetchall() == [(2,)]
    assert db.execute("INSERT INTO t VALUES (3, 'z')").fetchone() == (1,)
    assert [each[0] for each in db.execute("DELETE FROM t WHERE a = 3").description] == ["Count"]
    assert db.execute("UPDATE t SET a = a + 1 RETURNING a").fetchall() == [(2,), (3,)]
    assert db.execute("SELECT sum(a) FROM t").fetchall() == [(5,)]
    assert db.execute("SELECT a FROM t; SELECT b FROM t ORDER BY 1").fetchall() == [("x",), ("y",)]
    assert db.sql("SELECT max(a) FROM t").fetchall() == [(3,)]
    assert db.sql("INSERT INTO t VALUES (4, 'w')") is None
    assert db.execute("SELECT a FROM t WHERE a > $least", {"least": 3}).fetchall() == [(4,)]
    assert db.table("t").count("*").fetchall() == [(3,)]
    assert db.execute("SELECT ? + ?", [1, 2]).to_arrow_table().num_rows == 1
    assert db.begin().execute("DELETE FROM t").rollback().execute("SELECT count(*) FROM t").fetchone() == (3,)


def test_variables_of_the_caller_are_tables(db: LineageConnection) -> None:
    def inside() -> list[tuple[int]]:
        query = pa.table({"q": [1, 2]})
        assert query.num_rows == 2
        return db.execute("SELECT sum(q) FROM query").fetchall() + db.sql("SELECT q FROM query LIMIT 1").fetchall()

    assert inside() == [(3,), (1,)]
    with pytest.raises(duckdb.CatalogException):
        db.execute("FROM parameters")


def test_failure_is_raised_as_it_is_and_reported_without_values(db: LineageConnection, receiver: Receiver) -> None:
    db.execute("INSERT INTO t VALUES (1, 'hidden')")
    with pytest.raises(duckdb.ConversionException, match="hidden"):
        db.execute("INSERT INTO u SELECT b, b FROM t")
    with pytest.raises(duckdb.BinderException):
        db.execute("INSERT INTO u SELECT nope, 'hidden' FROM t")
    data, name = report(db, receiver, "FAIL")
    assert data["run"]["facets"]["errorMessage"]["message"] == "ConversionException"
    assert 'column "nope" not found' in name["run"]["facets"]["errorMessage"]["message"]
    assert data["outputs"][0]["facets"] == {}
    assert "hidden" not in json.dumps(receiver.taken)


def test_what_is_rolled_back_is_aborted_and_what_is_committed_complete(
    db: LineageConnection, receiver: Receiver
) -> None:
    db.execute("BEGIN").execute("INSERT INTO t VALUES (1, 'x')").execute("ROLLBACK")
    db.begin().execute("INSERT INTO t SELECT n, m FROM u").rollback()
    db.execute("BEGIN; DELETE FROM t; UPDATE u SET n = 2; COMMIT;")
    db.begin().execute("INSERT INTO u VALUES (1, 'y')").commit()
    kinds = {each["run"]["runId"]: each["eventType"] for each in report(db, receiver)}
    assert sorted(kinds.values()) == ["ABORT", "ABORT", "COMPLETE", "COMPLETE", "COMPLETE"]


def test_nothing_is_complete_before_its_transaction_is(db: LineageConnection, receiver: Receiver) -> None:
    db.begin().execute("INSERT INTO t VALUES (1, 'x')")
    receiver.until_taken(1)
    time.sleep(0.1)
    assert types(receiver.taken) == ["START"]
    assert types(report(db, receiver)) == ["START", "ABORT"]


def test_failed_commit_fails_what_it_would_have_committed(opens: Opens, receiver: Receiver) -> None:
    db = opens()
    db.execute("CREATE TABLE k (a INT PRIMARY KEY); INSERT INTO k VALUES (1)")
    other = db.cursor()
    db.begin().execute("INSERT INTO k VALUES (2)")
    other.execute("INSERT INTO k VALUES (2)")
    with pytest.raises(duckdb.Error):
        db.commit()
    other.close()
    assert types(report(db, receiver)).count("FAIL") == 1


def test_table_made_of_a_query_has_its_columns(db: LineageConnection, receiver: Receiver) -> None:
    db.execute("CREATE TABLE made AS SELECT a AS n, count(*) AS c, b FROM t GROUP BY ALL")
    (event,) = report(db, receiver, "COMPLETE")
    assert columns(event) == {"n": [("t", "a")], "b": [("t", "b")]}
    assert event["outputs"][0]["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"


def test_table_that_was_there_is_not_made_again(db: LineageConnection, receiver: Receiver) -> None:
    db.execute("CREATE TABLE IF NOT EXISTS u AS SELECT a AS n, b AS m FROM t")
    (event,) = report(db, receiver, "COMPLETE")
    assert event["outputs"] == []


def test_view_is_an_output_and_then_an_input_of_its_own(db: LineageConnection, receiver: Receiver) -> None:
    db.execute("CREATE VIEW v AS SELECT a AS n FROM t; INSERT INTO u (n) SELECT n FROM v")
    view, insert = report(db, receiver, "COMPLETE")
    assert columns(view) == {"n": [("t", "a")]}
    assert columns(insert) == {"n": [("v", "n")]}


def test_files_are_datasets(db: LineageConnection, receiver: Receiver, tmp_path: Path) -> None:
    db.execute(f"COPY t TO '{tmp_path}/t.parquet'; CREATE TABLE f AS SELECT * FROM '{tmp_path}/t.parquet'")
    db.execute(f"COPY u FROM '{tmp_path}/t.parquet'")
    copied, made, loaded = report(db, receiver, "COMPLETE")
    assert (copied["outputs"][0]["namespace"], copied["outputs"][0]["name"]) == ("file", f"{tmp_path}/t.parquet")
    assert set(columns(copied)) == set(columns(made)) == {"a", "b"}
    assert made["inputs"] == loaded["inputs"]
    assert made["inputs"][0]["name"] == f"{tmp_path}/t.parquet"
    assert columns(loaded) == {}


def test_temporary_table_is_not_the_one_of_its_name(db: LineageConnection, receiver: Receiver) -> None:
    db.execute("CREATE TEMP TABLE t AS SELECT 1 AS a, 'x' AS b; INSERT INTO u FROM t")
    inputs = [each["name"] for event in report(db, receiver, "COMPLETE") for each in event["inputs"]]
    assert inputs == ["p.temp.main.t"]


def test_database_in_a_file_is_named_by_it(opens: Opens, receiver: Receiver, tmp_path: Path) -> None:
    db = opens(tmp_path / "d.duckdb")
    db.execute('CREATE SCHEMA "a b"; CREATE TABLE "a b".t AS SELECT 1 AS n; USE "a b"; CREATE TABLE s AS FROM t')
    _, event = report(db, receiver, "COMPLETE")
    name = (event["outputs"][0]["namespace"], event["outputs"][0]["name"], event["inputs"][0]["name"])
    assert name == (f"duckdb://{tmp_path}/d.duckdb", "a b.s", "a b.t")


def test_no_literal_parameter_or_comment_enters_an_event(
    db: LineageConnection, receiver: Receiver, tmp_path: Path
) -> None:
    db.execute("CREATE TABLE secret AS SELECT 'xyzzy' || b, a = 424242, b AS ok FROM t WHERE b = 'xyzzy' -- xyzzy")
    db.execute("/* xyzzy */ INSERT INTO t VALUES (424242, $$xyzzy$$)")
    db.execute("INSERT INTO t VALUES (?, ?)", [424242, "xyzzy"])
    db.executemany("INSERT INTO t VALUES (?, ?)", [[424242, "xyzzy"], [1, "xyzzy"]])
    db.execute("UPDATE t SET b = 'xyzzy' WHERE a IN (424242, 1)")
    db.execute(
        "COPY (SELECT 'xyzzy' AS b, a FROM t WHERE a = 424242) TO '" + str(tmp_path / "f.csv") + "' (NULL 'xyzzy')"
    )
    db.execute("PREPARE q AS SELECT 'xyzzy'; EXECUTE q; SET VARIABLE w = 'xyzzy'")
    for wrong in (
        "SELECT b::INT FROM t WHERE a = 424242",
        "SELECT 'xyzzy'::INT FROM t",
        "INSERT INTO t SELECT error('xyzzy'), b FROM t",
    ):
        with pytest.raises(duckdb.Error):
            db.execute(wrong).fetchall()
    events = json.dumps(report(db, receiver))
    assert len(receiver.taken) > 12
    assert "xyzzy" not in events
    assert "424242" not in events


def test_literals_are_kept_for_who_wants_them(opens: Opens, receiver: Receiver) -> None:
    db = opens(literals="keep")
    db.execute("CREATE TABLE t AS SELECT 'xyzzy' AS a -- why")
    (event,) = report(db, receiver, "COMPLETE")
    assert event["job"]["facets"]["sql"]["query"] == "CREATE TABLE t AS SELECT 'xyzzy' AS a -- why"


def test_parent_is_the_one_that_the_environment_names(
    opens: Opens, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = "01234567-89ab-7cde-8f01-23456789abcd"
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow://x/dag.task/{run}")
    monkeypatch.setenv("OPENLINEAGE_ROOT_PARENT_ID", f"airflow/dag/{run}")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "team")
    db = opens()
    db.execute("CREATE TABLE t AS SELECT 1 AS a")
    (event,) = report(db, receiver, "COMPLETE")
    parent = event["run"]["facets"]["parent"]
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("airflow://x", "dag.task")
    assert parent["run"]["runId"] == parent["root"]["run"]["runId"] == run
    assert event["job"]["namespace"] == "team"


def test_token_is_sent_to_the_catalog(opens: Opens, receiver: Receiver) -> None:
    db = opens(token="t0ken")
    db.execute("CREATE TABLE t AS SELECT 1 AS a")
    report(db, receiver)
    assert receiver.headers[0]["Authorization"] == "Bearer t0ken"
    assert receiver.paths[0] == "/api/v1/lineage"


def test_openlineages_own_configuration_says_where_to(tmp_path: Path) -> None:
    file = FileTransport(FileConfig(log_file_path=str(tmp_path / "events"), append=True))
    with connect(transport=file, job_name="p") as db:
        db.execute("CREATE TABLE t AS SELECT 1 AS a")
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert types(events) == ["START", "COMPLETE"]


def test_switched_off_by_openlineages_switch(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> None:
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    with connect(catalog_uri=receiver.uri) as db:
        assert db.execute("CREATE TABLE t AS SELECT 1 AS a").fetchall() == [(1,)]
    assert receiver.tries == []


@pytest.mark.parametrize("answer", [Answer(500), Answer(400), Answer(None), Answer(hang=30), Answer(reset=True)])
def test_receiver_that_fails_neither_breaks_nor_delays_anything(receiver: Receiver, answer: Answer) -> None:
    receiver.behaviour = always(answer)
    db = connect(catalog_uri=receiver.uri, patience=0.3)
    begun = time.monotonic()
    db.execute("CREATE TABLE t (a INT)")
    for each in range(50):
        db.execute("INSERT INTO t VALUES (?)", [each])
    assert db.execute("SELECT count(*) FROM t").fetchall() == [(50,)]
    db.close()
    assert time.monotonic() - begun < 3


def test_more_than_fits_is_dropped_and_counted() -> None:
    held = threading.Event()

    class Held(ConsoleTransport):
        def emit(self, *_: Any) -> None:
            held.wait(10)

    db = connect(transport=Held(ConsoleConfig()), patience=0.1)
    outbox = db._recorder._outbox
    assert outbox is not None
    db.execute("CREATE TABLE t (a INT)")
    outbox.put(lambda: [held.wait(10) and None])  # type: ignore[list-item]
    for _ in range(10_010):
        outbox.put(list)
    assert 5 <= outbox.dropped <= 12
    assert db.execute("INSERT INTO t VALUES (1)").fetchall() == [(1,)]
    held.set()
    db.close()


def test_cursors_show_as_their_connection_does_and_the_last_one_waits(
    db: LineageConnection, receiver: Receiver
) -> None:
    with db.cursor() as cursor:
        assert cursor.execute("INSERT INTO t VALUES (1, 'x')").fetchall() == [(1,)]
    db.execute("INSERT INTO u SELECT a, b FROM t")
    assert len(report(db, receiver, "COMPLETE")) == 2


@pytest.mark.parametrize(
    "statement",
    ["SELEC", "", ";", "SELECT 1; SELEC", "INSERT INTO", "SELECT * FROM nowhere", "PIVOT t ON b USING sum(a)", "\0"],
)
def test_what_duckdb_says_is_what_the_user_hears(db: LineageConnection, statement: str) -> None:
    plain = duckdb.connect()
    plain.execute("CREATE TABLE t (a INT, b TEXT)")
    assert heard(db, statement) == heard(plain, statement)


def heard(connection: Any, statement: str) -> object:
    try:
        result = connection.execute(statement)
        return result and result.fetchall()
    except duckdb.Error as error:
        return type(error), str(error)


def test_prepared_statement_is_reported_as_what_it_is(db: LineageConnection, receiver: Receiver) -> None:
    db.execute("PREPARE fill AS INSERT INTO u SELECT a, b FROM t WHERE a = $1")
    db.execute("INSERT INTO t VALUES (7, 'x')")
    assert db.execute("EXECUTE Fill(424242)").fetchall() == [(0,)]
    assert db.execute("EXECUTE fill(7)").fetchall() == [(1,)]
    _, first, second = report(db, receiver, "COMPLETE")
    assert first["job"] == second["job"]
    assert columns(second) == {"n": [("t", "a")], "m": [("t", "b")]}
    assert second["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert "424242" not in json.dumps(receiver.taken)


def test_long_insert_of_values_is_reported_by_its_table(db: LineageConnection, receiver: Receiver) -> None:
    db.execute(f"INSERT INTO t VALUES {', '.join(['(1, NULL)'] * 20_000)}")
    (event,) = report(db, receiver, "COMPLETE")
    assert event["outputs"][0]["name"] == "p.memory.main.t"
