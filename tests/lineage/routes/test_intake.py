"""Lineage of what other tools send: much of it, all sorts of nonsense, and by OpenLineage's own client."""

import copy
import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.transport.http import HttpConfig, HttpTransport

from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.database import Database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.app import create_app
from tests.conftest import new_lake, services_of
from tests.support.lineage_events import Json, at, columns, event, facet, run_id, table
from tests.support.servers import running

TABLES = 2_000
EVENTS = 10_000
BATCH = 1_000
JUNK: list[Any] = [
    None,
    0,
    1.5,
    True,
    "",
    "x",
    [],
    {},
    [None],
    {"a": None},
    10**30,
    "2026-13-01",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "2026-01-01T00:00:00.123456789Z",
    {"identifiers": None},
    {"fields": {"": {"inputFields": [{"namespace": "a", "name": "b", "field": ""}]}}},
    {"fields": [{"name": "a", "type": {}, "description": 1}]},
    {"lifecycleStateChange": "RENAME", "previousIdentifier": {"namespace": "file", "name": "/lake/ns.t1"}},
    {"datasetVersion": ""},
    {"confidence": 0.1, "columns": []},
    {"_deleted": True},
    {"description": {}, "processingType": [], "name": {}, "url": 1},
]
FACETS = (
    "symlinks",
    "columnLineage",
    "lifecycleStateChange",
    "version",
    "schema",
    "documentation",
    "jobType",
    "parent",
)
QUESTIONS: list[tuple[str, dict[str, str]]] = [
    ("/lineage/v1/graph", {"node": "dataset:file:/lake/ns.t1", "columns": "true"}),
    ("/lineage/v1/datasets", {}),
    ("/lineage/v1/export", {"node": "dataset:file:/lake/ns.t1", "format": "mermaid"}),
    ("/api/v1/jobs", {}),
    ("/api/v1/events/lineage", {}),
    ("/api/v1/namespaces/file/datasets", {}),
    ("/api/v1/namespaces/file/datasets/%2Flake%2Fns.t1/versions", {}),
    ("/api/v1/column-lineage", {"nodeId": "dataset:file:/lake/ns.t1"}),
    ("/api/v1/lineage", {"nodeId": "dataset:file:/lake/ns.t1"}),
]


class Served:
    def __init__(self, http: httpx.Client, database: Database) -> None:
        self.http, self.database = http, database

    def count(self, name: str) -> int:
        with self.database.reading() as cursor:
            rows = cursor.execute(f"SELECT count(*) FROM duckicelake_lineage_{name}").fetchall()  # type: ignore[arg-type]
        return int(rows[0][0])


@pytest.fixture
def served(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with (
        new_lake(postgres, warehouse) as url,
        closing(open_lake_database(url, pool_size=4)) as database,
        running(create_app(services_of(database, warehouse))) as uri,
        httpx.Client(base_url=uri, timeout=60) as http,
    ):
        yield Served(http, database)


def many() -> Iterator[Json]:
    """Runs, each from one table to one that comes later, so that there are no circles."""
    chance = random.Random(1)
    for number in range(EVENTS):
        target = chance.randrange(1, TABLES)
        source = chance.randrange(target)
        yield event(number, inputs=(table(f"ns.t{source}"),), outputs=(table(f"ns.t{target}"),), job=f"j{target}")


@pytest.mark.commands
def test_ten_thousand_events_are_taken_and_their_graph_is_asked_in_parts(served: Served) -> None:
    events = list(many())
    for first in range(0, EVENTS, BATCH):
        answer = served.http.post("/api/v1/lineage/batch", json=events[first : first + BATCH])
        assert answer.json() == {"received": BATCH, "new": BATCH}, answer.text
    assert (served.count("event"), served.count("run")) == (EVENTS, EVENTS)
    edges = len({(each["inputs"][0]["name"], each["outputs"][0]["name"]) for each in events})
    assert served.count("edge") == edges
    asked = {"node": f"dataset:file:/lake/ns.t{TABLES - 1}", "depth": "20", "limit": "100"}
    graph = served.http.get("/lineage/v1/graph", params=asked).json()
    assert (len(graph["nodes"]), graph["truncated"]) == (100, True)
    whole = served.http.get("/lineage/v1/graph", params=asked | {"limit": "2000"}).json()
    ids = {node["id"] for node in whole["nodes"]}
    assert not whole["truncated"]
    assert all({edge["source"], edge["target"]} <= ids and edge["runs"] for edge in whole["edges"])


def test_steps_through_the_graph_look_into_indexes(served: Served) -> None:
    assert served.http.post("/api/v1/lineage/batch", json=list(many())[:BATCH]).is_success
    with served.database.transaction() as cursor:
        cursor.execute("ANALYZE duckicelake_lineage_edge, duckicelake_lineage_column, duckicelake_lineage_io")
        for column in ("source", "target"):
            query = f"EXPLAIN SELECT * FROM duckicelake_lineage_edge WHERE {column} = ANY ('{{1, 2, 3}}'::bigint[])"
            plan = "\n".join(line for (line,) in cursor.execute(query).fetchall())  # type: ignore[arg-type]
            assert "Index" in plan, plan


def places(value: Any, at_: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places in a JSON value below its top."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*at_, key)
        yield from places(part, (*at_, key))


def spoiled(sound: Json, chance: random.Random) -> Json:
    """The event with something in it replaced, gone, or added."""
    made = copy.deepcopy(sound)
    for _ in range(chance.randint(1, 3)):
        *above, last = chance.choice(list(places(made)))
        inside = made
        for key in above:
            inside = inside[key]
        if isinstance(inside[last], dict) and chance.random() < 0.5:
            inside[last][chance.choice(FACETS)] = copy.deepcopy(chance.choice(JUNK))
        else:
            inside[last] = copy.deepcopy(chance.choice(JUNK))
    return made


def test_nonsense_is_refused_or_kept_and_breaks_no_answer(served: Served) -> None:
    chance = random.Random(3)
    made = columns(("a", table("ns.t1"), "b"), ("", table("ns.t1"), "c", "INDIRECT", "FILTER"))
    outputs = (table("ns.t2", columnLineage=made, schema=facet(fields=[{"name": "a"}])),)
    sound = [event(1, inputs=(table("ns.t1"),), outputs=outputs), event(2, "START", outputs=outputs)]
    for number in range(200):
        sent = spoiled(chance.choice(sound), chance)
        answer = served.http.post("/api/v1/lineage", json=sent)
        assert answer.status_code in {200, 400}, (answer.text, sent)
        if number % 20 == 0:
            for path, query in QUESTIONS:
                asked = served.http.get(path, params=query)
                assert asked.status_code in {200, 404}, (path, asked.text, sent)


def test_openlineages_own_client_sends_events_that_join_the_graph(served: Served) -> None:
    config = HttpConfig(url=str(served.http.base_url).rstrip("/"))
    client = OpenLineageClient(transport=HttpTransport(config))
    report = {
        "inputs": [InputDataset(namespace="pg://host", name="a")],
        "outputs": [OutputDataset(namespace="pg://host", name="b")],
    }
    for state in (RunState.START, RunState.COMPLETE):
        job = Job(namespace="airflow", name="dag.task")
        client.emit(RunEvent(eventTime=at(1), run=Run(runId=run_id(7)), job=job, eventType=state, **report))
    graph = served.http.get("/lineage/v1/graph", params={"node": "dataset:pg://host:b"}).json()
    (edge,) = graph["edges"]
    assert (edge["job"]["name"], edge["runs"][0]["state"]) == ("dag.task", "COMPLETE")
    assert [node["name"] for node in graph["nodes"]] == ["b", "a"]
