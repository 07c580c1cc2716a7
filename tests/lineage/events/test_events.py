"""What PyIceberg, HTTP and DuckDB do to a real lake, as the events of lineage that are kept of it."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.types import IntegerType

from duckicelake.catalog.context.services import Services
from duckicelake.changelog.writer import write_all_changes
from duckicelake.lineage.events.generator import EventGenerator, generate_events_in_background
from duckicelake.server.app import create_app
from tests.support.openlineage import check_event
from tests.support.servers import running

Json = dict[str, Any]

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", "c"]})
NO_WAIT = timedelta(0)


@pytest.fixture
def uri(services: Services) -> Iterator[str]:
    with running(create_app(services)) as found:
        yield found


@pytest.fixture
def catalog(uri: str) -> Iterator[Catalog]:
    with RestCatalog("lake", uri=uri) as rest:
        rest.create_namespace("ns")
        yield rest


@pytest.fixture
def maker(services: Services, uri: str) -> EventGenerator:
    return EventGenerator(services, uri, age=NO_WAIT)


def made(services: Services, maker: EventGenerator) -> list[Json]:
    """All events, after everything that has happened is in them."""
    write_all_changes(services)
    while maker.advance():
        pass
    return kept(services)


def kept(services: Services) -> list[Json]:
    with services.database.reading() as cursor:
        rows = cursor.execute("SELECT body FROM duckicelake_lineage_event WHERE origin = 'catalog' ORDER BY id")
        events = [row[0] for row in rows.fetchall()]
    for event in events:
        check_event(event)
    return events


def ends(events: list[Json], job: str = "") -> list[Json]:
    """Ends of runs of jobs in whose name this is."""
    return [event for event in events if event.get("eventType", "START") != "START" and job in event["job"]["name"]]


def test_what_pyiceberg_does_becomes_runs(
    services: Services, catalog: Catalog, maker: EventGenerator, uri: str
) -> None:
    table = catalog.create_table("ns.t", ROWS.schema, properties={"owner": "bo", "token": "s3cr3t"})
    table.append(ROWS)
    table.delete("id = 1")
    table.delete()
    with table.update_schema() as update:
        update.add_column("more", IntegerType())
    catalog.rename_table("ns.t", "ns.u")
    catalog.drop_table("ns.u")
    events = made(services, maker)
    found = ends(events, "ns.t") + ends(events, "ns.u")
    states = [each["outputs"][0]["facets"].get("lifecycleStateChange", {}) for each in found]
    assert [each.get("lifecycleStateChange") for each in states] == [
        "CREATE",
        None,
        "OVERWRITE",  # PyIceberg writes the other rows anew
        "TRUNCATE",
        "ALTER",
        "RENAME",
        "DROP",
    ]
    assert states[5]["previousIdentifier"] == {"namespace": uri, "name": "ns.t"}
    assert {(each["outputs"][0]["namespace"], each["outputs"][0]["name"]) for each in found} == {
        ("file", table.location().removeprefix("file:"))
    }
    appended = found[1]["outputs"][0]
    assert appended["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert appended["facets"]["version"]["datasetVersion"] == str(table.history()[0].snapshot_id)
    assert appended["facets"]["schema"]["fields"] == [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
    ]
    assert appended["facets"]["ownership"]["owners"] == [{"name": "bo", "type": "OWNER"}]
    assert found[1]["run"]["facets"]["processing_engine"]["name"] == "pyiceberg"
    assert found[4]["outputs"][0]["facets"]["schema"]["fields"][-1] == {"name": "more", "type": "int"}
    assert "s3cr3t" not in str(events)


def test_what_duckdb_does_becomes_runs_too(
    services: Services, ducklake: duckdb.DuckDBPyConnection, catalog: Catalog, maker: EventGenerator
) -> None:
    ducklake.execute("CREATE TABLE lake.ns.n (id BIGINT, place STRUCT(x DOUBLE))")
    ducklake.execute("INSERT INTO lake.ns.n SELECT i, {'x': i} FROM range(100) r(i)")
    ducklake.execute("BEGIN; INSERT INTO lake.ns.n VALUES (1, NULL); CREATE TABLE lake.ns.m AS SELECT 1 AS i; COMMIT")
    ducklake.execute("CREATE VIEW lake.ns.v AS SELECT id FROM lake.ns.n")
    events = made(services, maker)
    created, inserted, both, view = [each for each in ends(events, "duckdb.") if each["outputs"]]
    assert inserted["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 100
    fields = [
        {"name": "id", "type": "long"},
        {"name": "place", "type": "struct", "fields": [{"name": "x", "type": "double"}]},
    ]
    assert created["outputs"][0]["facets"]["schema"]["fields"] == fields
    assert inserted["outputs"][0]["facets"]["schema"]["fields"] == fields
    assert {each["facets"]["duckicelake_table"]["name"] for each in both["outputs"]} == {"n", "m"}
    assert view["outputs"][0]["facets"]["datasetType"]["datasetType"] == "VIEW"
    assert created["outputs"][0]["name"] == catalog.load_table("ns.n").location().removeprefix("file:")


def test_a_transaction_over_several_tables_is_one_run(
    services: Services, catalog: Catalog, maker: EventGenerator, uri: str
) -> None:
    for name in ("a", "b"):
        catalog.create_table(f"ns.{name}", ROWS.schema)
    changes = [
        {"identifier": {"namespace": ["ns"], "name": name}, "requirements": [], "updates": widening(catalog, name)}
        for name in ("a", "b")
    ]
    parent = str(UUID(int=5))
    headers = {"X-OpenLineage-Parent-RunId": parent, "X-OpenLineage-Parent-JobName": "dag"}
    httpx.post(f"{uri}/v1/transactions/commit", json={"table-changes": changes}, headers=headers).raise_for_status()
    (run,) = ends(made(services, maker), "alter-table")
    assert {each["facets"]["duckicelake_table"]["name"] for each in run["outputs"]} == {"a", "b"}
    assert run["run"]["facets"]["parent"]["run"]["runId"] == parent


def test_a_view_is_a_job_that_says_which_columns_it_is_of(
    services: Services, ducklake: duckdb.DuckDBPyConnection, catalog: Catalog, maker: EventGenerator, uri: str
) -> None:
    location = catalog.create_table("ns.t", ROWS.schema).location().removeprefix("file:")
    ducklake.execute("CREATE VIEW lake.ns.v AS SELECT upper(name) AS big FROM lake.ns.t WHERE id > 471147114711")
    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 0, "name": "b", "required": False, "type": "string"}]}
    version = {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1,
        "summary": {},
        "default-namespace": ["ns"],
        "representations": [{"type": "sql", "dialect": "spark", "sql": "SELECT big AS b FROM v"}],
    }
    view = {"name": "w", "schema": schema, "view-version": version, "properties": {}}
    httpx.post(f"{uri}/v1/namespaces/ns/views", json=view).raise_for_status()
    events = made(services, maker)
    native, iceberg = [event for event in events if "run" not in event]
    assert native["job"]["facets"]["sql"]["query"] == 'SELECT upper("name") AS big FROM ns.t WHERE (id > ?)'
    assert native["outputs"][0]["facets"]["columnLineage"]["fields"]["big"]["inputFields"][0] == {
        "namespace": "file",
        "name": location,
        "field": "name",
        "transformations": [{"type": "DIRECT", "subtype": "TRANSFORMATION", "description": "", "masking": False}],
    }
    assert native["inputs"][0]["name"] == location
    assert iceberg["inputs"][0] == {"namespace": uri, "name": "ns.v", "facets": {}}
    assert iceberg["outputs"][0]["facets"]["columnLineage"]["fields"]["b"]["inputFields"][0]["field"] == "big"
    assert "471147114711" not in str(events)
    telling = EventGenerator(services, uri, age=NO_WAIT, literals=True)
    ducklake.execute("CREATE VIEW lake.ns.x AS SELECT 471147114711 AS n")
    assert "471147114711" in made(services, telling)[-1]["job"]["facets"]["sql"]["query"]


def widening(catalog: Catalog, name: str) -> list[Json]:
    schema = catalog.load_table(f"ns.{name}").schema().model_dump(by_alias=True, mode="json")
    more = {"id": 9, "name": "more", "required": False, "type": "int"}
    wider = {**schema, "fields": [*schema["fields"], more]}
    return [{"action": "add-schema", "schema": wider}, {"action": "set-current-schema", "schema-id": -1}]


def test_posts_of_rows_are_one_streaming_run(
    services: Services, catalog: Catalog, maker: EventGenerator, uri: str
) -> None:
    catalog.create_table("ns.t", ROWS.schema)
    for number in range(5):
        post = httpx.post(f"{uri}/v1/namespaces/ns/tables/t/rows", json=[{"id": number, "name": "x"}])
        post.raise_for_status()
    events = [each for each in made(services, maker) if "append" in each["job"]["name"]]
    assert [each["eventType"] for each in events] == ["START", "RUNNING"]
    assert events[0]["job"]["facets"]["jobType"]["processingType"] == "STREAMING"


def test_a_conflict_is_a_run_that_failed(services: Services, catalog: Catalog, maker: EventGenerator) -> None:
    table = catalog.create_table("ns.t", ROWS.schema)
    stale = catalog.load_table("ns.t")
    with table.update_schema() as update:
        update.add_column("more", IntegerType())
    with pytest.raises(CommitFailedException), stale.update_schema() as late:
        late.add_column("other", IntegerType())
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_audit SET at = at - interval '1 minute'")
    (failed,) = [event for event in made(services, maker) if event["eventType"] == "FAIL"]
    assert failed["run"]["facets"]["errorMessage"]["message"].endswith("CommitFailedException 409")
    assert failed["outputs"][0]["name"] == table.location().removeprefix("file:")


def test_each_change_is_reported_once_by_two_that_follow_and_are_killed(
    services: Services, ducklake: duckdb.DuckDBPyConnection, warehouse: Path
) -> None:
    ducklake.execute("CREATE TABLE lake.main.t (id INT)")
    for number in range(40):
        ducklake.execute(f"INSERT INTO lake.main.t VALUES ({number})")
    write_all_changes(services)
    followers = [Follower(services, warehouse) for _ in range(4)]
    for report in (8, 30):
        for follower in followers[:2]:
            follower.begin()
        wait_until(lambda report=report: count(services) >= report)
        for follower in followers[:2]:
            follower.kill()
        del followers[:2]
    maker = EventGenerator(services, "http://catalog", age=NO_WAIT)
    # Whoever was killed holds its turn until Postgres notices.
    wait_until(lambda: not maker.advance() and count(services) >= 84)
    events = kept(services)
    runs = [(event["run"]["runId"], event["eventType"]) for event in events]
    assert len(runs) == len(set(runs)) == 84, "of two that DuckLake began with, the table, and its rows"
    positions = [each["outputs"][0]["outputFacets"]["duckicelake_change"]["position"] for each in ends(events, ".t.")]
    assert positions == sorted(positions, key=float)
    assert len(positions) == 41


class Follower:
    """Another process, which makes events as soon as it begins."""

    def __init__(self, services: Services, warehouse: Path) -> None:
        command = [sys.executable, "-m", "tests.support.lineage_process", services.database.url, str(warehouse)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"begin\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def count(services: Services) -> int:
    with services.database.reading() as cursor:
        ((found,),) = cursor.execute("SELECT count(*) FROM duckicelake_lineage_event").fetchall()
    return int(found)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_thread_makes_events_and_goes_on_after_errors(
    services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    ducklake.execute("CREATE TABLE lake.main.t (id INT)")
    write_all_changes(services)
    with services.database.transaction() as cursor:
        cursor.execute("ALTER TABLE duckicelake_lineage_event RENAME TO elsewhere")
    errors: list[Exception] = []
    with generate_events_in_background(EventGenerator(services, "http://catalog", age=NO_WAIT), errors.append):
        wait_until(lambda: bool(errors))
        with services.database.transaction() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO duckicelake_lineage_event")
        wait_until(lambda: bool(ends(kept(services), "main.t")))


def test_what_fails_each_time_is_left_out_and_said(services: Services, ducklake: duckdb.DuckDBPyConnection) -> None:
    for name in ("before", "bad", "after"):
        ducklake.execute(f"CREATE TABLE lake.main.{name} (id INT)")
    write_all_changes(services)
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_change SET facts = '{\"metrics\": [5]}' WHERE name = 'bad'")
    maker = EventGenerator(services, "http://catalog", age=NO_WAIT)
    with pytest.raises(AttributeError):
        maker.advance()
    left_out = maker.pass_by()
    assert "1 change up to " in str(left_out)
    assert "AttributeError" in str(left_out)
    report = ends(made(services, maker), "main.")
    assert [each["outputs"][0]["facets"]["duckicelake_table"]["name"] for each in report if each["outputs"]] == [
        "before",
        "after",
    ]
    assert maker.pass_by() is None


def test_what_is_too_young_waits(services: Services, ducklake: duckdb.DuckDBPyConnection) -> None:
    ducklake.execute("CREATE TABLE lake.main.t (id INT)")
    patient = EventGenerator(services, "http://catalog", age=timedelta(hours=1), batch=1)
    assert made(services, patient) == []
    assert ends(made(services, EventGenerator(services, "http://catalog", age=NO_WAIT)), "main.t")


def test_a_transaction_is_never_cut_in_two(services: Services, ducklake: duckdb.DuckDBPyConnection) -> None:
    names = ["a", "b", "c"]
    for _ in range(3):
        ducklake.execute("BEGIN")
        for name in names:
            ducklake.execute(f"CREATE OR REPLACE TABLE lake.main.{name} (id INT)")
        ducklake.execute("COMMIT")
    events = made(services, EventGenerator(services, "http://catalog", age=NO_WAIT, batch=4))
    runs = [each["outputs"] for each in ends(events, "duckdb.") if each["outputs"]]
    tables = [{output["facets"]["duckicelake_table"]["name"] for output in outputs} for outputs in runs]
    assert tables == [set(names)] * 3
    assert [len(outputs) for outputs in runs] == [3, 6, 6], "those that were replaced, too"
