"""Lineage over HTTP: graphs, runs and exports for who may read what, and events that other tools send."""

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lineage.events import intake
from duckicelake.lineage.graph import lists as lineage_listing
from duckicelake.lineage.graph.store import record_events
from duckicelake.postgres.database import Database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.conftest import new_lake, services_of
from tests.support.client import SCHEMA
from tests.support.lineage_events import (
    Json,
    at,
    columns,
    dataset_event,
    event,
    facet,
    foreign,
    job_event,
    run_id,
    table,
)
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.servers import running

SCOPES = {
    "root": "*",
    "sales": "ns:sales:r",
    "hr": "ns:hr:rw",
    "writer": "ns:sales:w",
    "nothing": "ns:nowhere:r",
    "busy": "ns:nowhere:r",
    "idle": "ns:nowhere:r",
}
KAFKA = foreign("kafka://broker:9092", "clicks")
RAW, ORDERS, SUMS = table("sales.raw"), table("sales.orders"), table("sales.sums")
PEOPLE, PAY = table("hr.people"), table("hr.pay")
FIELDS = [{"name": "id", "type": "long"}, {"name": "address", "type": "struct", "fields": [{"name": "city"}]}]


def report() -> Iterator[Json]:
    """clicks → raw → orders → sums ← hr.people → hr.pay, and a view of sums."""
    commit = facet(principal="etl", application="app-1")
    engine = facet(name="spark", version="4.0.1")
    yield event(1, inputs=(KAFKA,), outputs=(RAW,), job="load")
    made = columns(("id", RAW, "id"), ("address.city", RAW, "place"), ("", RAW, "day", "INDIRECT", "FILTER"))
    orders = table("sales.orders", schema=facet(fields=FIELDS), columnLineage=made, version=facet(datasetVersion="42"))
    yield event(2, inputs=(RAW,), outputs=(orders,), job="clean", processing_engine=engine, duckicelake_commit=commit)
    summed = columns(("total", ORDERS, "id", "DIRECT", "AGGREGATION"), ("city", ORDERS, "address.city"))
    inferred = {"inputFacets": {"duckicelake_inferred": facet(confidence=0.5)}}
    yield event(3, inputs=(ORDERS, PEOPLE | inferred), outputs=(table("sales.sums", columnLineage=summed),), job="sum")
    yield event(4, inputs=(PEOPLE,), outputs=(PAY,), job="pay")
    yield dataset_event(5, table("sales.shown", columnLineage=columns(("total", SUMS, "total"))))


class Lake:
    """The served lake, and what its clients ask."""

    def __init__(self, http: httpx.Client, database: Database, warehouse: Path) -> None:
        self.http, self.database, self.warehouse = http, database, warehouse
        self.headers = {who: bearing(token(http, who)) for who in SCOPES}

    def get(self, path: str, who: str = "root", status: int = 200, **query: Any) -> Any:
        answer = self.http.get(path, params=query, headers=self.headers[who])
        assert answer.status_code == status, answer.text
        return answer.json()

    def graph(self, node: str, who: str = "root", **query: Any) -> Any:
        return self.get("/lineage/v1/graph", who, node=node, **query)

    def send(self, body: Any, who: str = "root", path: str = "/api/v1/lineage") -> httpx.Response:
        return self.http.post(path, json=body, headers=self.headers[who])


@pytest.fixture(scope="module")
def lake(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with new_lake(postgres, warehouse) as url, closing(open_lake_database(url, pool_size=4)) as database:
        server, services = Server(), services_of(database, warehouse)
        clients = [OAuthClient(who, SECRET, tuple(scopes.split())) for who, scopes in SCOPES.items()]
        with (
            running(server.app(services, server.authentication(*clients))) as uri,
            httpx.Client(base_url=uri, timeout=60) as http,
        ):
            with database.transaction() as cursor:
                record_events(cursor, list(report()), origin="catalog")
            yield Lake(http, database, warehouse)


def distances(graph: Any) -> dict[str, int]:
    return {node["name"]: node["distance"] for node in graph["nodes"]}


def edges(graph: Any) -> set[tuple[str, str]]:
    names = {node["id"]: node["name"] for node in graph["nodes"]}
    return {(names[edge["source"]], names[edge["target"]]) for edge in graph["edges"]}


def test_graph_shows_what_a_table_comes_from_and_what_comes_from_it(lake: Lake) -> None:
    found = lake.graph("sales.orders")
    assert distances(found) == {
        "sales.orders": 0,
        "sales.raw": -1,
        "clicks": -2,
        "sales.sums": 1,
        "sales.shown": 2,
    }
    assert not found["truncated"]
    assert edges(found) == {
        ("clicks", "sales.raw"),
        ("sales.raw", "sales.orders"),
        ("sales.orders", "sales.sums"),
        ("sales.sums", "sales.shown"),
    }


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"direction": "upstream"}, {"sales.orders", "sales.raw", "clicks"}),
        ({"direction": "downstream"}, {"sales.orders", "sales.sums", "sales.shown"}),
        ({"depth": 1}, {"sales.orders", "sales.raw", "sales.sums"}),
        ({"at": at(2.5)}, {"sales.orders", "sales.raw", "clicks"}),
    ],
)
def test_graph_goes_in_the_direction_and_as_deep_as_asked_as_of_a_time(
    lake: Lake, query: dict[str, Any], names: set[str]
) -> None:
    assert distances(lake.graph("sales.orders", **query)).keys() == names


def test_edge_has_the_job_and_the_run_behind_it(lake: Lake) -> None:
    (edge,) = lake.graph("sales.orders", direction="upstream", depth=1)["edges"]
    assert edge["job"] | {"type": None, "integration": None} == {
        "namespace": "tests",
        "name": "clean",
        "type": None,
        "integration": None,
    }
    (run,) = edge["runs"]
    assert {key: run[key] for key in ("id", "state", "engine", "principal", "application", "version", "inferred")} == {
        "id": run_id(2),
        "state": "COMPLETE",
        "engine": "spark 4.0.1",
        "principal": "etl",
        "application": "app-1",
        "version": "42",
        "inferred": False,
    }
    assert not edge["inferred"]
    (guessed,) = (each for each in lake.graph("hr.people", depth=1)["edges"] if each["inferred"])
    assert (guessed["confidence"], guessed["runs"][0]["inferred"]) == (0.5, True)


def test_definition_has_no_job(lake: Lake) -> None:
    (edge,) = lake.graph("sales.shown", direction="upstream", depth=1)["edges"]
    assert (edge["job"], edge["runs"]) == (None, [])


def column_edges(graph: Any) -> set[tuple[str, str, str]]:
    return {
        (column["source-field"], column["target-field"], column["subtype"])
        for edge in graph["edges"]
        for column in edge["columns"]
    }


def test_columns_of_a_table_are_reported_if_asked_for(lake: Lake) -> None:
    found = lake.graph("sales.orders", columns="true", direction="upstream", depth=1)
    assert column_edges(found) == {
        ("id", "id", "IDENTITY"),
        ("place", "address.city", "IDENTITY"),
        ("day", "", "FILTER"),
    }
    assert {node["name"]: node["columns"] for node in found["nodes"]}["sales.raw"] == ["day", "id", "place"]


DAY = ("day", "", "FILTER")
CITY = {("place", "address.city", "IDENTITY"), ("address.city", "city", "IDENTITY"), DAY}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (
            "sales.orders#id",
            {("id", "id", "IDENTITY"), DAY, ("id", "total", "AGGREGATION"), ("total", "total", "IDENTITY")},
        ),
        ("sales.orders#address", CITY),
        ("sales.sums#city", CITY),
    ],
)
def test_column_is_followed_through_tables_and_structs(
    lake: Lake, node: str, expected: set[tuple[str, str, str]]
) -> None:
    found = lake.graph(node)
    assert column_edges(found) == expected
    assert found["column"] == node.partition("#")[2]


@pytest.mark.parametrize("column", ["nope", "address.nope", "total"])
def test_column_that_a_table_has_not_is_reported_with_those_it_has(lake: Lake, column: str) -> None:
    answer = lake.get("/lineage/v1/graph", status=404, node=f"sales.orders#{column}")["error"]
    assert answer["message"] == f"sales.orders has no column {column!r}: there are id, address"


def test_column_of_which_nothing_is_known_is_shown_alone(lake: Lake) -> None:
    assert distances(lake.graph("sales.orders#id", at=at(-1))) == {"sales.orders": 0}
    assert distances(lake.graph("sales.orders#nope", at=at(-1))) == {"sales.orders": 0}


def test_filter_on_a_column_concerns_all_that_comes_of_the_rows(lake: Lake) -> None:
    found = lake.graph("sales.raw#day", direction="downstream")
    assert distances(found) == {"sales.raw": 0, "sales.orders": 1, "sales.sums": 2, "sales.shown": 3}


def test_hidden_datasets_are_left_out_and_nothing_is_seen_through_them(lake: Lake) -> None:
    found = lake.graph("sales.sums", "sales")
    assert "hr.people" not in str(found)
    assert distances(found).keys() == {"clicks", "sales.raw", "sales.orders", "sales.sums", "sales.shown"}
    assert distances(lake.graph("hr.people", "hr")).keys() == {"hr.people", "hr.pay"}


@pytest.mark.parametrize("who", ["hr", "nothing", "writer"])
def test_hidden_table_is_answered_like_one_that_is_not_there(lake: Lake, who: str) -> None:
    hidden = lake.get("/lineage/v1/graph", who, 404, node="sales.orders")["error"]["message"]
    absent = lake.get("/lineage/v1/graph", who, 404, node="sales.absent")["error"]["message"]
    assert hidden.replace("orders", "absent") == absent


def test_dataset_of_another_tool_is_known_to_who_may_read_what_it_adjoins(lake: Lake) -> None:
    assert [each["name"] for each in lake.get("/lineage/v1/datasets", "sales", search="CLICK")["datasets"]] == [
        "clicks"
    ]
    assert lake.get("/lineage/v1/datasets", "hr", search="click")["datasets"] == []
    (dataset,) = lake.get("/lineage/v1/datasets", search="click")["datasets"]
    assert distances(lake.graph(dataset["id"], "sales", depth=1)) == {"clicks": 0, "sales.raw": 1}
    assert distances(lake.graph("dataset:kafka://broker:9092:clicks", depth=1)) == {"clicks": 0, "sales.raw": 1}


def test_search_lists_the_lakes_own_first(lake: Lake) -> None:
    found = lake.get("/lineage/v1/datasets", search="a", limit=4)["datasets"]
    assert [each["ours"] for each in found] == [True] * 4
    (orders,) = lake.get("/lineage/v1/datasets", search="sales.ORDERS")["datasets"]
    assert orders["table"] == {"namespace": ["sales"], "name": "orders"}
    assert [each["name"] for each in orders["fields"]] == ["id", "address"]


def test_limit_on_nodes_is_kept_and_said(lake: Lake) -> None:
    found = lake.graph("sales.orders", limit=2)
    assert (len(found["nodes"]), found["truncated"]) == (2, True)
    assert not lake.graph("sales.orders", limit=5)["truncated"]


def test_run_is_reported_with_what_it_said_unless_something_of_it_is_hidden(lake: Lake) -> None:
    whole = lake.get(f"/lineage/v1/runs/{run_id(3)}")
    assert [each["name"] for each in whole["inputs"]] == ["hr.people", "sales.orders"]
    assert whole["complete"]
    assert len(whole["events"]) == 1
    part = lake.get(f"/lineage/v1/runs/{run_id(3)}", "sales")
    assert [each["name"] for each in part["inputs"]] == ["sales.orders"]
    assert (part["complete"], part["events"], part["facets"]) == (False, [], {})
    lake.get(f"/lineage/v1/runs/{run_id(3)}", "nothing", 404)
    lake.get(f"/lineage/v1/runs/{run_id(99)}", status=404)


def test_export_draws_the_graph_or_gives_its_events(lake: Lake) -> None:
    def export(format_: str, who: str = "root", **query: Any) -> str:
        asked = {"node": "sales.sums", "format": format_, **query}
        return lake.http.get("/lineage/v1/export", params=asked, headers=lake.headers[who]).text

    assert 'label="sales.orders", shape=box' in export("dot")
    assert "style=dashed" in export("dot")
    assert "flowchart LR" in export("mermaid")
    assert "-.->" in export("mermaid")
    assert export("ndjson").count('"eventTime"') == 4
    assert export("ndjson", "sales").count('"eventTime"') == 2, "the run that read hr.people tells of it"


def test_schema_of_a_facet_is_served_to_anybody(lake: Lake) -> None:
    answer = lake.http.get("/lineage/v1/facets/duckicelake_inferred.json")
    assert answer.json()["$schema"].startswith("https://json-schema.org/")
    assert lake.http.get("/lineage/v1/facets/..%2fgraph.json").status_code == 404


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({}, "node"),
        ({"node": ""}, "node"),
        ({"node": "sales.orders#"}, "node"),
        ({"node": "sales.orders", "depth": 0}, "depth"),
        ({"node": "sales.orders", "depth": 21}, "depth"),
        ({"node": "sales.orders", "direction": "up"}, "direction"),
        ({"node": "sales.orders", "at": "yesterday"}, "at"),
        ({"node": "sales.orders", "limit": 2001}, "limit"),
        ({"node": "sales.orders", "columns": "some"}, "columns"),
    ],
)
def test_bad_question_is_reported_what_is_wrong(lake: Lake, query: dict[str, Any], named: str) -> None:
    assert named in lake.get("/lineage/v1/graph", status=400, **query)["error"]["message"]


@pytest.mark.parametrize(
    "node", ["9" * 30, "a.\u2028b", "x" * 5000 + ".y", "dataset:", "dataset:a", "%.%", "..", "'.\""]
)
def test_odd_names_are_not_found(lake: Lake, node: str) -> None:
    lake.get("/lineage/v1/graph", status=404, node=node)


def changed(**changes: Any) -> Json:
    return event(50, outputs=(foreign("pg://x", "t"),)) | changes


def with_facets(**facets: Any) -> Json:
    return changed(outputs=[foreign("pg://x", "t", **facets)])


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (changed(eventTime="soon"), "eventTime"),
        (changed(eventTime=None), "eventTime"),
        (changed(producer=None), "producer"),
        (changed(schemaURL=""), "schemaURL"),
        (changed(eventType="DONE"), "eventType"),
        (changed(run={"runId": "1"}), "run.runId"),
        (changed(run={"runId": run_id(1), "facets": {"parent": []}}), "run.facets.parent"),
        (changed(job={"namespace": "a"}), "job.name"),
        (changed(job=None), "no job"),
        (changed(run=None, job=None), "no run, job or dataset"),
        (changed(dataset=RAW), "besides a run or job"),
        (changed(inputs=[{"name": "t"}]), "inputs[0].namespace"),
        (changed(inputs={}), "inputs"),
        (with_facets(schema=[]), "outputs[0].facets.schema"),
        (with_facets(custom=1), "outputs[0].facets.custom"),
        (with_facets(symlinks={"identifiers": [{"name": "x"}]}), "symlinks.identifiers[0].namespace"),
        (with_facets(lifecycleStateChange={"lifecycleStateChange": "GONE"}), "lifecycleStateChange"),
        (with_facets(columnLineage={"fields": {"a": {"inputFields": [{"name": "x", "namespace": "y"}]}}}), "field"),
        (with_facets(duckicelake_inferred={"confidence": 2}), "confidence"),
        ([], "the body"),
        (changed(job={"namespace": "a", "name": "x" * 8001}), "job.name"),
        (changed(producer="\x00"), "NUL"),
        (changed(more=10**400), "number"),
    ],
)
def test_event_that_is_none_is_refused_and_reported_why(lake: Lake, body: Any, place: str) -> None:
    answer = lake.send(body)
    assert answer.status_code == 400, answer.text
    assert place in answer.json()["error"]["message"]


def test_received_events_join_the_graph(lake: Lake) -> None:
    assert lake.send(event(60, inputs=(SUMS,), outputs=(foreign("pg://bi", "report"),))).json() == {
        "received": 1,
        "new": 1,
    }
    assert lake.send(event(60, inputs=(SUMS,), outputs=(foreign("pg://bi", "report"),))).json()["new"] == 0
    assert lake.graph("sales.sums", depth=1, direction="downstream")["nodes"][1]["name"] == "report"
    batch = [
        job_event(61, "copy", (foreign("pg://bi", "report"),), (foreign("pg://bi", "more"),)),
        dataset_event(62, RAW),
    ]
    assert lake.send(batch, path="/api/v1/lineage/batch").json() == {"received": 2, "new": 2}
    assert "more" in distances(lake.graph("sales.sums", direction="downstream"))
    assert lake.send([changed(), changed(run={})], path="/api/v1/lineage/batch").status_code == 400


@pytest.mark.parametrize(
    ("who", "inputs", "outputs", "status"),
    [
        ("writer", (), (ORDERS,), 200),
        ("writer", (RAW,), (ORDERS,), 200),
        ("writer", (PEOPLE,), (ORDERS,), 403),
        ("sales", (), (ORDERS,), 403),
        ("sales", (ORDERS,), (foreign("pg://x", "mine"),), 200),
        ("hr", (), (ORDERS,), 403),
        ("hr", (), (foreign("file", "/lake/sales.orders"),), 403),
        ("hr", (), (table("hr.pay", "/lake/sales.orders"),), 403),
        ("hr", (), (foreign("pg://x", "t", columnLineage=columns(("a", RAW, "a"))),), 403),
        ("nothing", (), (foreign("pg://x", "t"),), 200),
        ("nothing", (foreign("bigquery", "shop.sales.orders"),), (foreign("s3://b", "a//b?"),), 200),
        ("nothing", (foreign("bigquery", "shop.sales.orders\0"),), (), 400),
    ],
)
def test_only_who_may_write_shows_what_came_into_a_table(
    lake: Lake, who: str, inputs: tuple[Json, ...], outputs: tuple[Json, ...], status: int
) -> None:
    answer = lake.send(event(70, inputs=inputs, outputs=outputs, job=f"of {who}"), who)
    assert answer.status_code == status, answer.text


def test_tables_name_in_the_catalog_that_is_asked_means_its_table(lake: Lake) -> None:
    http, headers = lake.http, lake.headers["root"]
    http.post("/v1/namespaces", json={"namespace": ["live"]}, headers=headers).raise_for_status()
    for name in ("a", "b"):
        http.post(
            "/v1/namespaces/live/tables", json={"name": name, "schema": SCHEMA}, headers=headers
        ).raise_for_status()
    places = [http.get(f"/v1/namespaces/live/tables/{name}", headers=headers).json()["metadata"] for name in ("a", "b")]
    report = [
        table(f"live.{name}", place["location"].removeprefix("file:")) for name, place in zip("ab", places, strict=True)
    ]
    with lake.database.transaction() as cursor:
        record_events(cursor, [event(84, outputs=tuple(report))], origin="catalog")
    mine = str(http.base_url).rstrip("/")
    sent = event(85, inputs=(foreign(mine, "live.a"),), outputs=(foreign(f"{mine}/", "live.b"),), job="by address")
    assert lake.send(sent, "hr").status_code == 403
    assert lake.send(sent).status_code == 200
    assert distances(lake.graph("live.b")) == {"live.b": 0, "live.a": -1}
    other = event(86, inputs=(foreign("http://elsewhere", "live.a"),), outputs=(foreign("pg://x", "u"),))
    assert lake.send(other).status_code == 200
    assert distances(lake.graph("live.a", direction="downstream")) == {"live.a": 0, "live.b": 1}


@pytest.mark.parametrize(
    ("folder", "who", "status"),
    [
        ("data/sales/new-1", "writer", 200),
        ("ducklake/sales/new", "writer", 200),
        ("data/sales2/new-1", "writer", 403),
        ("data/hr/new-1", "writer", 403),
        ("data/hr/new-1", "root", 200),
        ("x", "writer", 403),
        ("data/sales/../hr/new-1", "writer", 403),
    ],
)
def test_place_in_the_lake_that_is_no_tables_yet_is_its_namespaces(
    lake: Lake, folder: str, who: str, status: int
) -> None:
    answer = lake.send(event(80, outputs=(foreign("file", f"{lake.warehouse}/{folder}"),)), who)
    assert answer.status_code == status, answer.text


def test_forged_run_of_the_catalog_changes_nothing(lake: Lake) -> None:
    before = lake.get(f"/lineage/v1/runs/{run_id(2)}")
    assert lake.send(event(2, "FAIL", inputs=(SUMS,), outputs=(ORDERS,), minutes=99)).status_code == 200
    after = lake.get(f"/lineage/v1/runs/{run_id(2)}")
    assert {**after, "events": None} == {**before, "events": None}


def test_batch_has_a_limit(lake: Lake) -> None:
    answer = lake.send([changed()] * 1001, path="/api/v1/lineage/batch")
    assert answer.status_code == 400
    assert "1000" in answer.json()["error"]["message"]


def test_who_sends_too_many_events_is_reported_to_wait(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MAX_EVENTS_PER_HOUR", 3)
    batch = [event(number, outputs=(foreign("pg://quota", "t"),), job="quota") for number in range(70, 73)]
    assert lake.send(batch, "busy", "/api/v1/lineage/batch").json() == {"received": 3, "new": 3}
    refused = lake.send(batch[0], "busy")
    assert refused.status_code == 429
    assert refused.headers["retry-after"]
    assert lake.send(batch[0], "idle").status_code == 200


def test_events_for_who_may_not_know_all_are_among_those_that_are_examined(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(who: str) -> int:
        return len(lake.get("/api/v1/events/lineage", who, limit=1000)["events"])

    few, all_ = listed("sales"), listed("root")
    assert 0 < few < all_
    monkeypatch.setattr(lineage_listing, "EXAMINED", 0)
    assert (listed("sales"), listed("root")) == (0, all_)


def test_times_are_reported_in_utc(lake: Lake) -> None:
    found = lake.graph("sales.orders", direction="upstream", depth=1)["edges"]
    (edge,) = (each for each in found if each["job"]["name"] == "clean")
    assert datetime.fromisoformat(edge["first-seen"]) == datetime.fromisoformat(at(2))
