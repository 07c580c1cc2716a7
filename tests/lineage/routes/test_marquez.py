"""Marquez's API: every answer has the shapes that the types of its page demand (web/src/types of Marquez 0.50)."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic.alias_generators import to_camel

from duckicelake.errors import NotFoundError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lineage.graph.store import record_events
from duckicelake.lineage.marquez.graph import read_graph
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.conftest import new_lake, services_of
from tests.support.lineage_events import CATALOG, columns, event, facet, foreign, run_id, table
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.servers import running

Time = str


class Shape(BaseModel):
    """One of the page's types: what it has no mark for must be there."""

    model_config = ConfigDict(strict=True, extra="ignore", alias_generator=to_camel)


class Id(Shape):
    namespace: str
    name: str


class Namespace(Shape):
    name: str
    created_at: Time
    updated_at: Time
    owner_name: str
    description: str
    is_hidden: bool


class Field(Shape):
    name: str
    type: str | None
    tags: list[str]
    description: str


class InputField(Shape):
    namespace: str
    dataset: str
    field: str
    transformation_description: str | None
    transformation_type: str | None


class InputFields(Shape):
    name: str
    input_fields: list[InputField]
    transformation_description: str | None
    transformation_type: str | None


class Dataset(Shape):
    id: Id
    type: str
    name: str
    physical_name: str
    created_at: Time
    updated_at: Time
    namespace: str
    source_name: str
    fields: list[Field]
    tags: list[str]
    last_modified_at: Time
    description: str
    facets: dict[str, Any]
    deleted: bool
    column_lineage: list[InputFields]


class JobVersion(Shape):
    namespace: str
    name: str
    version: str


class Run(Shape):
    id: str
    created_at: Time
    updated_at: Time
    nominal_start_time: str | None
    nominal_end_time: str | None
    state: str
    job_version: JobVersion
    started_at: Time
    ended_at: Time | None
    duration_ms: int | None
    args: dict[str, str]
    facets: dict[str, Any]


class Job(Shape):
    id: Id
    type: str
    name: str
    created_at: Time
    updated_at: Time
    inputs: list[Id]
    outputs: list[Id]
    namespace: str
    location: str | None
    description: str
    latest_run: Run | None
    tags: list[str]
    simple_name: str
    parent_job_name: str | None
    parent_job_uuid: str | None


class Version(Shape):
    id: JobVersion
    type: str
    created_by_run: Run | None
    name: str
    physical_name: str
    created_at: Time
    version: str
    namespace: str
    source_name: str
    fields: list[Field]
    tags: list[str]
    last_modified_at: Time
    description: str
    lifecycle_state: str | None
    facets: dict[str, Any]


class Edge(Shape):
    origin: str
    destination: str


class Node(Shape):
    id: str
    type: str
    data: dict[str, Any]
    in_edges: list[Edge]
    out_edges: list[Edge]


class Result(Shape):
    name: str
    namespace: str
    node_id: str
    type: str
    updated_at: Time


class ColumnData(Shape):
    namespace: str
    dataset: str
    dataset_version: str | None
    field: str
    field_type: str | None
    transformation_description: str | None
    transformation_type: str | None
    input_fields: list[InputField]


def shaped(shape: Any, value: Any) -> Any:
    """The value, if it has the shape."""
    TypeAdapter(shape).validate_python(value)
    return value


NOW = datetime.now(UTC)
SPARK = "spark"
RAW, SUMS, PAY = table("sales.raw"), table("sales.sums"), table("hr.pay")


def recent(number: int, kind: str = "COMPLETE", **report: Any) -> Any:
    """An event of the last hours, as the page's first view shows them."""
    made = event(number, kind, job_namespace=SPARK, **report)
    return made | {"eventTime": (NOW - timedelta(minutes=100 - number)).isoformat()}


def report() -> Iterator[Any]:
    schema = facet(fields=[{"name": "total", "type": "long", "description": "of all"}, {"name": "day"}])
    made = columns(("total", RAW, "amount", "DIRECT", "AGGREGATION"))
    outcome = table("sales.sums", schema=schema, columnLineage=made, version=facet(datasetVersion="7"))
    started = {"nominalTime": facet(nominalStartTime="2026-11-01T00:00:00Z")}
    yield recent(1, "START", inputs=(foreign("kafka://b:9092", "clicks"),), outputs=(RAW,), job="jobs.load")
    yield recent(2, "START", inputs=(RAW,), outputs=(outcome,), job="jobs.sum")
    yield recent(3, "RUNNING", job="jobs.load") | {"run": {"runId": run_id(1), "facets": {}}}
    yield recent(2, "COMPLETE", inputs=(RAW,), outputs=(outcome,), job="jobs.sum", **started)
    yield recent(4, "FAIL", inputs=(PAY,), outputs=(PAY,), job="jobs.pay")


class Marquez:
    """The served lake, asked as the page asks."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.headers = {who: bearing(token(http, who)) for who in ("root", "sales")}

    def get(self, path: str, who: str = "root", status: int = 200, **query: Any) -> Any:
        answer = self.http.get(f"/api/v1/{path}", params=query, headers=self.headers[who])
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def marquez(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Marquez]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with new_lake(postgres, warehouse) as url, closing(open_lake_database(url, pool_size=4)) as database:
        server, services = Server(), services_of(database, warehouse)
        clients = [OAuthClient("root", SECRET, ("*",)), OAuthClient("sales", SECRET, ("ns:sales:r",))]
        with (
            running(server.app(services, server.authentication(*clients))) as uri,
            httpx.Client(base_url=uri, timeout=60) as http,
        ):
            with database.transaction() as cursor:
                record_events(cursor, list(report()), origin="catalog")
            yield Marquez(http)


def test_namespaces_are_those_of_datasets_and_jobs(marquez: Marquez) -> None:
    found = shaped(list[Namespace], marquez.get("namespaces")["namespaces"])
    assert [each["name"] for each in found] == [CATALOG, "kafka://b:9092", SPARK]


def test_datasets_of_a_namespace_are_known_by_their_tables_names(marquez: Marquez) -> None:
    found = marquez.get(f"namespaces/{quote(CATALOG, safe='')}/datasets", limit=20, offset=0)
    names = [(each["name"], each["physicalName"]) for each in shaped(list[Dataset], found["datasets"])]
    assert names == [(name, f"/lake/{name}") for name in ("hr.pay", "sales.raw", "sales.sums")]
    assert found["totalCount"] == 3
    second = marquez.get(f"namespaces/{quote(CATALOG, safe='')}/datasets", limit=1, offset=1)
    assert ([each["name"] for each in second["datasets"]], second["totalCount"]) == (["sales.raw"], 3)


@pytest.mark.parametrize(("namespace", "name"), [(CATALOG, "sales.sums"), ("file", "/lake/sales.sums")])
def test_dataset_is_found_by_any_of_its_names(marquez: Marquez, namespace: str, name: str) -> None:
    found = shaped(Dataset, marquez.get(f"namespaces/{quote(namespace, safe='')}/datasets/{quote(name, safe='')}"))
    assert [(each["name"], each["type"], each["description"]) for each in found["fields"]] == [
        ("total", "long", "of all"),
        ("day", None, ""),
    ]
    (lineage,) = found["columnLineage"]
    assert (lineage["name"], lineage["inputFields"][0]["dataset"]) == ("total", "sales.raw")


def test_versions_of_a_dataset_are_what_runs_made_of_it(marquez: Marquez) -> None:
    found = marquez.get(f"namespaces/{quote(CATALOG, safe='')}/datasets/sales.sums/versions", limit=100, offset=0)
    (version,) = shaped(list[Version], found["versions"])
    assert (version["version"], version["createdByRun"]["id"], found["totalCount"]) == ("7", run_id(2), 1)
    assert [each["name"] for each in version["fields"]] == ["total", "day"]


def test_jobs_come_with_what_they_read_and_write_and_their_newest_runs(marquez: Marquez) -> None:
    found = shaped(list[Job], marquez.get("jobs", limit=25, offset=0)["jobs"])
    assert [each["name"] for each in found] == ["jobs.pay", "jobs.load", "jobs.sum"]
    assert found[2]["inputs"] == [{"namespace": CATALOG, "name": "sales.raw"}]
    assert [each["latestRun"]["state"] for each in found] == ["FAILED", "RUNNING", "COMPLETED"]
    failed = marquez.get(f"namespaces/{SPARK}/jobs", lastRunStates="FAILED")
    assert ([each["simpleName"] for each in failed["jobs"]], failed["totalCount"]) == (["pay"], 1)
    shaped(Job, marquez.get(f"namespaces/{SPARK}/jobs/jobs.sum"))


def test_runs_of_a_job_have_marquezs_states_and_how_long_they_took(marquez: Marquez) -> None:
    found = marquez.get(f"namespaces/{SPARK}/jobs/jobs.sum/runs", limit=10, offset=0)
    (run,) = shaped(list[Run], found["runs"])
    assert (run["state"], run["durationMs"], run["nominalStartTime"]) == ("COMPLETED", 0, "2026-11-01T00:00:00Z")
    assert shaped(Run, marquez.get(f"jobs/runs/{run_id(2)}"))["id"] == run_id(2)
    assert marquez.get(f"jobs/runs/{run_id(2)}/facets", type="run")["facets"].keys() == {"nominalTime"}
    assert marquez.get(f"jobs/runs/{run_id(2)}/facets", type="job") == {"runId": run_id(2), "facets": {}}


@pytest.mark.parametrize("node", [f"dataset:{CATALOG}:sales.raw", "dataset:file:/lake/sales.raw", "job:spark:jobs.sum"])
@pytest.mark.parametrize("path", ["lineage", "lineage/"])
def test_graph_has_datasets_and_the_jobs_between_them(marquez: Marquez, path: str, node: str) -> None:
    found = shaped(list[Node], marquez.get(path, nodeId=node, depth=20)["graph"])
    assert [each["id"] for each in found] == [
        f"dataset:{CATALOG}:sales.raw",
        f"dataset:{CATALOG}:sales.sums",
        "dataset:kafka://b:9092:clicks",
        "job:spark:jobs.load",
        "job:spark:jobs.sum",
    ]
    raw = found[0]
    assert raw["inEdges"] == [{"origin": "job:spark:jobs.load", "destination": raw["id"]}]
    assert raw["outEdges"] == [{"origin": raw["id"], "destination": "job:spark:jobs.sum"}]
    for each in found:
        shaped(Dataset if each["type"] == "DATASET" else Job, each["data"])


@pytest.mark.parametrize("kind", ["dataset", "job"])
def test_node_with_many_colons_takes_no_query_for_each(database_url: str, warehouse: Path, kind: str) -> None:
    statements: list[str] = []

    @contextmanager
    def noted(statement: str) -> Iterator[None]:
        statements.append(statement)
        yield

    with closing(open_lake_database(database_url, traced=noted)) as database, pytest.raises(NotFoundError):
        read_graph(services_of(database, warehouse), f"{kind}:{':' * 1000}", 1)
    assert 0 < len(statements) < 20


def test_node_whose_name_and_namespace_hold_colons_is_found(marquez: Marquez) -> None:
    found = marquez.get("lineage", nodeId="dataset:kafka://b:9092:clicks", depth=0)["graph"]
    assert [each["id"] for each in found] == ["dataset:kafka://b:9092:clicks"]


def test_graph_is_as_deep_as_asked(marquez: Marquez) -> None:
    found = marquez.get("lineage", nodeId=f"dataset:{CATALOG}:sales.sums", depth=2)["graph"]
    assert [each["id"].rpartition(":")[2] for each in found] == ["sales.raw", "sales.sums", "jobs.sum"]
    assert len(marquez.get("lineage", nodeId=f"dataset:{CATALOG}:sales.sums", depth=0)["graph"]) == 1


@pytest.mark.parametrize("node", [f"dataset:{CATALOG}:sales.sums", f"datasetField:{CATALOG}:sales.sums:total"])
def test_graph_of_columns_has_a_node_for_each_field(marquez: Marquez, node: str) -> None:
    found = shaped(list[Node], marquez.get("column-lineage", nodeId=node, depth=2, withDownstream="true")["graph"])
    fields = {each["id"]: shaped(ColumnData, each["data"]) for each in found}
    target, source = f"datasetField:{CATALOG}:sales.sums:total", f"datasetField:{CATALOG}:sales.raw:amount"
    assert fields.keys() == {target, source}
    assert fields[target]["inputFields"][0]["transformationType"] == "AGGREGATION"
    assert {each["type"] for each in found} == {"DATASET_FIELD"}


def test_events_are_given_as_they_came_between_two_times(marquez: Marquez) -> None:
    found = marquez.get("events/lineage", limit=100, before="", after="", sortDirection="desc")
    assert found["totalCount"] == 5
    times = [each["eventTime"] for each in found["events"]]
    assert times == sorted(times, reverse=True)
    since = (NOW - timedelta(minutes=97.5)).isoformat()
    later = marquez.get("events/lineage", after=since, sortDirection="asc")
    assert [each["eventType"] for each in later["events"]] == ["RUNNING", "FAIL"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"q": "SUM"}, ["jobs.sum", "sales.sums"]),
        ({"q": "sum", "filter": "JOB"}, ["jobs.sum"]),
        ({"q": "s_m", "filter": "DATASET", "sort": "UPDATED_AT"}, ["sales.sums"]),
        ({"q": "jobs.%"}, ["jobs.load", "jobs.pay", "jobs.sum"]),
        ({"q": "100\\"}, []),
    ],
)
@pytest.mark.parametrize("path", ["search", "search/"])
def test_search_finds_datasets_and_jobs(marquez: Marquez, path: str, query: dict[str, str], names: list[str]) -> None:
    found = marquez.get(path, limit=100, **query)
    assert [each["name"] for each in shaped(list[Result], found["results"])] == names
    assert found["totalCount"] == len(names)


def test_stats_count_by_the_hour_or_the_day(marquez: Marquez) -> None:
    hours = marquez.get("stats/lineage-events", period="DAY", timezone="Europe/Berlin")
    assert len(hours) == 24
    assert hours[0].keys() == {"startInterval", "endInterval", "fail", "start", "complete", "abort"}
    assert {kind: sum(each[kind] for each in hours) for kind in ("start", "complete", "fail", "abort")} == {
        "start": 2,
        "complete": 1,
        "fail": 1,
        "abort": 0,
    }
    for counted, number in (("jobs", 3), ("datasets", 4), ("sources", 2)):
        days = marquez.get(f"stats/{counted}", period="WEEK", timezone="UTC")
        assert (len(days), days[-1]["count"]) == (7, number)
        assert days[-1].keys() == {"startInterval", "endInterval", "count"}


def test_there_are_no_tags(marquez: Marquez) -> None:
    assert marquez.get("tags") == {"tags": []}


def test_reader_of_a_part_gets_nothing_of_the_rest(marquez: Marquez) -> None:
    catalog = quote(CATALOG, safe="")
    answers = [
        marquez.get("namespaces", "sales"),
        marquez.get(f"namespaces/{catalog}/datasets", "sales"),
        marquez.get("jobs", "sales"),
        marquez.get(f"namespaces/{SPARK}/jobs/jobs.pay/runs", "sales"),
        marquez.get("events/lineage", "sales"),
        marquez.get("search", "sales", q="p"),
        marquez.get("lineage", "sales", nodeId=f"dataset:{CATALOG}:sales.raw"),
    ]
    assert "pay" not in str(answers)
    assert answers[1]["totalCount"] == 2
    assert answers[4]["totalCount"] == 4
    for path in (
        f"namespaces/{catalog}/datasets/hr.pay",
        f"namespaces/{SPARK}/jobs/jobs.pay",
        f"jobs/runs/{run_id(4)}",
    ):
        marquez.get(path, "sales", 404)
    marquez.get("lineage", "sales", 404, nodeId="job:spark:jobs.pay")
    assert marquez.get("stats/jobs", "sales", period="DAY")[-1]["count"] == 2


@pytest.mark.parametrize(
    ("path", "query", "named"),
    [
        ("lineage", {"nodeId": "sales.raw"}, "nodeId"),
        ("lineage", {"nodeId": "dataset:x"}, "nodeId"),
        ("lineage", {"nodeId": "run:a:b"}, "nodeId"),
        ("lineage", {"nodeId": "dataset:a:b", "depth": -1}, "depth"),
        ("column-lineage", {"nodeId": "job:a:b"}, "nodeId"),
        ("events/lineage", {"after": "yesterday"}, "after"),
        ("events/lineage", {"sortDirection": "up"}, "sortDirection"),
        ("stats/lineage-events", {"period": "YEAR"}, "period"),
        ("stats/jobs", {"timezone": "Mars/../Olympus"}, "timezone"),
        ("stats/flowers", {}, "counted"),
        ("jobs", {"limit": 0}, "limit"),
        ("jobs/runs/1", {}, "run"),
        ("namespaces/%FF/datasets", {}, "UTF-8"),
    ],
)
def test_bad_question_is_reported_what_is_wrong(marquez: Marquez, path: str, query: dict[str, Any], named: str) -> None:
    assert named in marquez.get(path, status=400, **query)["error"]["message"]
