"""Inferred inputs on their way into the stored events: valid by their schemas, and one run for one transaction."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.catalog.rest import RestCatalog

from duckicelake.catalog import tables
from duckicelake.catalog.context.caller import ANY_PRINCIPAL, Caller, Principal
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.namespaces import create_namespace
from duckicelake.catalog.tables import commit_transaction
from duckicelake.changelog.writer import write_all_changes
from duckicelake.iceberg.reports import MetricsReport
from duckicelake.iceberg.rest import CommitTransactionRequest, CreateTableRequest
from duckicelake.lineage.events.generator import EventGenerator
from duckicelake.lineage.events.reads import SESSION, ReadLog
from duckicelake.server.app import create_app
from tests.support.client import NS, SCHEMA, Client, append, new_client
from tests.support.openlineage import check_event
from tests.support.servers import running

Json = dict[str, Any]
ETL = Caller(Principal("etl", ANY_PRINCIPAL.grants), client={SESSION: "0123456789abcdef"})
URI = "http://catalog:8181"
NOW = timedelta(0)


@pytest.fixture
def client(services: Services) -> Client:
    """Of a server that notes reads, with tables a, b, c and d."""
    log = ReadLog()
    log.is_on = True
    made = new_client(replace(services, reads=log, caller=ETL))
    for name in "abcd":
        made.create(name)
    return made


def scan(client: Client, name: str, namespace: tuple[str, ...] = NS) -> None:
    said = {
        "report-type": "scan-report",
        "projected-field-names": ["id", "name"],
        "filter": {"type": "eq", "term": "name", "value": "(hash-74dd884d)"},
    }
    client.services.reads.note_report(ETL, namespace, name, MetricsReport.model_validate(said))
    client.services.reads.write(client.services.database)


def events(client: Client) -> list[Json]:
    """What runs came to that wrote, in order; each is checked."""
    services = client.services
    write_all_changes(services)
    while EventGenerator(services, URI, age=NOW).advance():
        pass
    with services.database.statement() as cursor:
        rows = cursor.execute("SELECT body FROM duckicelake_lineage_event ORDER BY id").fetchall()
    found = [body for (body,) in rows]
    for event in found:
        check_event(event)
    return [each for each in found if each["eventType"] == "COMPLETE" and ".append." in each["job"]["name"]]


def names(datasets: list[Json]) -> list[str]:
    return [each["facets"]["symlinks"]["identifiers"][0]["name"] for each in datasets]


def test_an_event_has_inferred_inputs_and_says_of_each_how_sure_it_is(client: Client) -> None:
    scan(client, "a")
    client.append((1, "x"), name="c")
    client.append((2, "y"), name="d")
    first, second = events(client)
    (given,), (made,) = first["inputs"], first["outputs"]
    assert (names([given]), names([made])) == (["ns.a"], ["ns.c"])
    assert given["facets"]["duckicelake_inferred"]["confidence"] == 0.7
    assert set(made["facets"]["columnLineage"]["fields"]) == {"id", "name"}
    (filtered,) = made["facets"]["columnLineage"]["dataset"]
    assert (filtered["field"], filtered["transformations"][0]["type"]) == ("name", "INDIRECT")
    assert (filtered["namespace"], filtered["name"]) == (given["namespace"], given["name"])
    assert names(second["inputs"]) == ["ns.a"]
    assert second["inputs"][0]["facets"]["duckicelake_inferred"]["confidence"] == 0.21, "the first write used it up"
    assert "hash-74dd884d" not in str(first)
    assert ETL.client[SESSION] not in str(first)


def test_a_transaction_of_several_tables_is_one_run_with_its_inputs(client: Client) -> None:
    scan(client, "a")
    scan(client, "d")
    changes = [
        {"identifier": {"namespace": list(NS), "name": name}, **append(client.metadata(name), (1, "x"))}
        for name in "bcd"
    ]
    request = CommitTransactionRequest.model_validate({"table-changes": changes})
    commit_transaction(client.services, request)
    (run,) = events(client)
    assert sorted(names(run["outputs"])) == ["ns.b", "ns.c", "ns.d"]
    assert names(run["inputs"]) == ["ns.a"], "d was scanned, too, but written with the others"
    assert all("columnLineage" in each["facets"] for each in run["outputs"])


def test_job_that_reads_another_namespace_is_not_named_after_what_it_writes(client: Client) -> None:
    """Who may read the input alone is shown the job, and learns no name of the output by it."""
    create_namespace(client.services, ("public",), {})
    body = CreateTableRequest.model_validate({"name": "seen", "schema": SCHEMA})
    tables.create_table(client.services, ("public",), body)
    client.create("merger-with-acme")
    scan(client, "seen", ("public",))
    client.append((1, "x"), name="merger-with-acme")
    (run,) = events(client)
    assert (names(run["inputs"]), names(run["outputs"])) == (["public.seen"], ["ns.merger-with-acme"])
    assert ".several-namespaces." in run["job"]["name"]
    assert "merger" not in run["job"]["name"]


def test_the_window_of_the_settings_holds(client: Client) -> None:
    scan(client, "a")
    client.append((1, "x"), name="c")
    client.services.reads.window = timedelta(microseconds=1)
    (run,) = events(client)
    assert run["inputs"] == []


@pytest.mark.parametrize(("principal", "is_reported"), [("etl", True), ("other", False)])
def test_files_that_a_job_of_the_pipeline_read_are_its_inputs(
    client: Client, principal: str, is_reported: bool
) -> None:
    """A job of another principal's is not asked: its places may be no one else's business."""
    job = str(uuid4())
    parameters = {"inputs": ["/in/day=*/x.csv", "s3a://key:secret@bucket/rows.parquet", 5]}
    with client.services.database.transaction() as cursor:
        cursor.execute(
            """INSERT INTO duckicelake_job
                   (id, kind, schema_name, table_name, principal, engine, parameters, lease_until)
               VALUES (%s, 'ingest', 'ns', 'c', %s, 'Spark', %s, now())""",
            [job, principal, parameters],
        )
    body = append(client.metadata("c"), (1, "x"))
    (added,) = (update for update in body["updates"] if update["action"] == "add-snapshot")
    added["snapshot"]["summary"]["duckicelake.job"] = job
    client.commit(body, "c")
    (event,) = events(client)
    found = [(each["namespace"], each["name"]) for each in event["inputs"]]
    assert found == ([("file", "/in"), ("s3://bucket", "rows.parquet")] if is_reported else [])
    assert "secret" not in str(event)


def test_what_pyiceberg_has_planned_by_the_server_is_an_input_with_its_columns(client: Client) -> None:
    client.append((1, "x"), (2, "y"), name="a")
    client.append((3, "z"), name="b")
    with (
        running(create_app(client.services)) as uri,
        RestCatalog("lake", uri=uri, **{"scan-planning-mode": "server"}) as catalog,
    ):
        source = catalog.load_table("ns.a")
        rows = source.scan(row_filter="name = 'x' and id < 5", selected_fields=("id", "name")).to_arrow()
        assert rows.num_rows == 1
        assert catalog.load_table("ns.b").scan().to_arrow().num_rows == 1
        client.services.reads.write(client.services.database)
        catalog.load_table("ns.c").append(rows)
    first, second = read_facets(events(client)[-1])
    assert (first["projected"], first["filtered"]) == (["id", "name"], ["name", "id"])
    assert (second["projected"], second["filtered"]) == (["id", "name"], [])
    assert {first["reason"], second["reason"]} == {"planned scan in the session"}


def read_facets(event: Json) -> list[Json]:
    """The facets of the inferred inputs, by the inputs' names."""
    assert names(event["inputs"]) == ["ns.a", "ns.b"]
    return [given["facets"]["duckicelake_inferred"] for given in event["inputs"]]
