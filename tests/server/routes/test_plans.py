"""Plans of scans over HTTP, beside what PyIceberg plans itself, and what DuckDB reads."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import httpx
import pyarrow as pa
import pytest
from fastapi import FastAPI
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import DateType, IntegerType, NestedField, StringType

from duckicelake.catalog import scan_pages
from duckicelake.catalog.context.services import Services
from duckicelake.server.app import create_app
from tests.support.client import Client, Json, append, new_client, set_properties
from tests.support.table_history import History

TABLE = "/v1/namespaces/ns/tables/t"
FILTERS: tuple[Any, ...] = (
    AlwaysTrue(),
    "id = 2",
    "id > 3 and name != 'x'",
    "not (id < 4)",
    "name like 'm%'",
    "name is null",
    "id in (1, 5, 77)",
)


@dataclass(frozen=True)
class Planner:
    """PyIceberg twice on one server: planning itself, and by the server."""

    uri: str
    local: Catalog
    server: Catalog

    def tables(self, name: str) -> tuple[Table, Table]:
        return self.local.load_table(name), self.server.load_table(name)

    def check(self, name: str, row_filter: Any = AlwaysTrue(), snapshot_id: int | None = None) -> list[Json]:  # noqa: B008
        """The rows that both read, once the server's files are among those of PyIceberg's own plan."""
        mine, servers = (table.scan(row_filter=row_filter, snapshot_id=snapshot_id) for table in self.tables(name))
        own, planned = files_of(mine.plan_files()), files_of(servers.plan_files())
        assert planned.keys() <= own.keys(), row_filter
        assert all(planned[path] <= own[path] for path in planned), row_filter
        rows = sort_rows(servers.to_arrow())
        assert rows == sort_rows(mine.to_arrow()), row_filter
        assert servers.count() == len(rows), row_filter
        return rows


def files_of(tasks: Any) -> dict[str, set[str]]:
    """The data files of tasks, each with its delete files."""
    found: dict[str, set[str]] = {}
    task: FileScanTask
    for task in tasks:
        assert task.file.file_path not in found
        found[task.file.file_path] = {file.file_path for file in task.delete_files}
    return found


def sort_rows(table: pa.Table) -> list[Json]:
    rows: list[Json] = table.to_pylist()
    return sorted(rows, key=repr)


@pytest.fixture
def http(services: Services, serve: Callable[[FastAPI], httpx.Client]) -> httpx.Client:
    return serve(create_app(services))


@pytest.fixture
def planner(http: httpx.Client) -> Iterator[Planner]:
    uri = str(http.base_url)
    with (
        RestCatalog("local", uri=uri) as local,
        RestCatalog("server", uri=uri, **{"scan-planning-mode": "server"}) as server,
    ):
        yield Planner(uri, local, server)


def plan(http: httpx.Client, table: str = TABLE, **request: Any) -> Json:
    answer = http.post(f"{table}/plan", json={name.replace("_", "-"): value for name, value in request.items()})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    assert found["status"] == "completed"
    return found


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    return answer.status_code, error["type"], error["message"]


def fetch(http: httpx.Client, task: str, table: str = TABLE) -> httpx.Response:
    return http.post(f"{table}/tasks", json={"plan-task": task})


def paths(answer: Json) -> list[str]:
    return [task["data-file"]["file-path"] for task in answer["file-scan-tasks"]]


def fetch_all(http: httpx.Client, answer: Json, table: str = TABLE) -> list[str]:
    """The paths of all tasks of a plan; no plan task is there twice."""
    found, waiting, seen = paths(answer), list(answer.get("plan-tasks", ())), set[str]()
    while waiting:
        task = waiting.pop()
        assert task not in seen
        seen.add(task)
        fetched = fetch(http, task, table)
        assert fetched.status_code == 200, fetched.text
        found += paths(fetched.json())
        waiting += fetched.json().get("plan-tasks", ())
    return found


# --- Everything that is a snapshot


def test_every_snapshot_is_planned(history: History, planner: Planner) -> None:
    history.append()
    history.insert(4)
    history.append("main", 5)
    history.set_ref("old", history.head(), "tag")
    history.set_ref("side", history.head())
    history.delete("main", history.ids()[:2])
    history.delete("side", history.ids("side")[3:5])
    history.append("side")
    history.append(None)
    history.delete_in_duckdb(history.ids()[-1:])
    history.insert(30)
    history.rename_in_duckdb(history.ids()[4:6], "m")
    history.compact("side")
    listed = history.metadata()["snapshots"]
    assert len(listed) > 10
    for snapshot in listed:
        snapshot_id = snapshot["snapshot-id"]
        for row_filter in FILTERS[:3]:
            planner.check("ns.t", row_filter, snapshot_id)
        rows = planner.check("ns.t", snapshot_id=snapshot_id)
        assert {(row["id"], row["name"]) for row in rows} == history.shown[snapshot_id]
    for row_filter in FILTERS:
        planner.check("ns.t", row_filter)
    history.clean_in_duckdb()  # so that what refs need of the older ones is held for clients alone
    kept = history.metadata()["snapshots"]
    assert history.head("old") in {snapshot["snapshot-id"] for snapshot in kept}
    for snapshot in kept:
        rows = planner.check("ns.t", snapshot_id=snapshot["snapshot-id"])
        assert {(row["id"], row["name"]) for row in rows} == history.shown[snapshot["snapshot-id"]]
    assert {(row["id"], row["name"]) for row in planner.check("ns.t")} == set(
        history.duck.sql("SELECT id, name FROM lake.ns.t").fetchall()
    )


@pytest.mark.parametrize("version", [1, 2, 3])
def test_files_of_all_specs_and_schemas_are_planned(
    planner: Planner, services: Services, ducklake: duckdb.DuckDBPyConnection, version: int
) -> None:
    new_client(services)
    schema = Schema(
        NestedField(1, "id", IntegerType()), NestedField(2, "name", StringType()), NestedField(3, "day", DateType())
    )
    planner.local.create_table("ns.t", schema, properties={"format-version": str(version)})
    rows = "SELECT n, CASE WHEN n % 3 > 0 THEN 'm' || n END, DATE '2024-01-01' + (9 * n)::INTEGER"
    for statement in (
        "CALL lake.set_option('data_inlining_row_limit', 0)",
        f"INSERT INTO lake.ns.t {rows} FROM range(12) t(n)",
        "ALTER TABLE lake.ns.t SET PARTITIONED BY (name)",
        f"INSERT INTO lake.ns.t {rows} FROM range(12) t(n)",
        "ALTER TABLE lake.ns.t SET PARTITIONED BY (bucket(4, id), day)",
        "ALTER TABLE lake.ns.t RENAME name TO label",
        "ALTER TABLE lake.ns.t ALTER id TYPE BIGINT",
        f"INSERT INTO lake.ns.t {rows} FROM range(12) t(n)",
        f"ALTER TABLE lake.ns.t ADD COLUMN more BIGINT {'DEFAULT 7' if version == 3 else ''}",
        f"INSERT INTO lake.ns.t {rows}, 8 FROM range(12) t(n)",
        "DELETE FROM lake.ns.t WHERE id = 4" if version > 1 else "DELETE FROM lake.ns.t WHERE more = 9",
    ):
        ducklake.execute(statement)
    _check_evolved(planner, ducklake)


def _check_evolved(planner: Planner, duck: duckdb.DuckDBPyConnection) -> None:
    # a copy, as DuckDB 1.5 itself misses rows of `id = 5` after the partitioning has changed
    duck.execute("CREATE TEMP TABLE truth AS FROM lake.ns.t")
    conditions = [
        "true",
        "day < DATE '2024-02-01'",
        "id = 5",
        "id > 7 AND label = 'm8'",
        "label IS NULL",
        "more = 7",
        "more IS NULL",
        "id = 5000000000",
    ]
    filters = [AlwaysTrue(), "day < '2024-02-01'", *conditions[2:]]
    for condition, row_filter in zip(conditions, filters, strict=True):
        rows = planner.check("ns.t", row_filter)
        truth = duck.sql(f"SELECT id, label, day, more FROM truth WHERE {condition}").to_arrow_table()
        assert rows == sort_rows(truth), condition
    first = planner.local.load_table("ns.t").snapshots()[0].snapshot_id
    assert len(planner.check("ns.t", "id < 3", first)) <= 3


def test_partitions_that_json_lacks_are_406_and_texts_like_them_are_not(
    planner: Planner, http: httpx.Client, services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    new_client(services)
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    for name, type_ in (("f", "DOUBLE"), ("t", "VARCHAR")):
        ducklake.execute(f"CREATE TABLE lake.ns.{name} (id BIGINT, part {type_})")
        ducklake.execute(f"ALTER TABLE lake.ns.{name} SET PARTITIONED BY (part)")
        ducklake.execute(f"INSERT INTO lake.ns.{name} VALUES (1, 'NaN'), (2, 'inf'), (3, '1'), (4, NULL)")
    assert len(planner.check("ns.t")) == 4
    assert [row["id"] for row in planner.check("ns.t", "part = 'inf'")] == [2]
    status, kind, message = refusal(http.post("/v1/namespaces/ns/tables/f/plan", json={}))
    assert (status, kind) == (406, "UnsupportedOperationException")
    assert "part = " in message
    assert len(planner.check("ns.f", "part = 1")) == 1


def test_name_mapping_and_old_names_are_read(planner: Planner, services: Services) -> None:
    client = new_client(services)
    client.create()
    client.append((1, "one"), (2, "two"))
    client.append((3, "three"))
    mapping = json.dumps([{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["name"]}])
    client.commit(set_properties(**{"schema.name-mapping.default": mapping}))
    old = client.metadata()["current-snapshot-id"]
    with planner.local.load_table("ns.t").update_schema() as change:
        change.rename_column("name", "label")
    assert planner.check("ns.t", "label = 'three'") == [{"id": 3, "label": "three"}]
    with httpx.Client(base_url=planner.uri) as http:
        for name in ("name", "label"):
            for uses in (True, False):
                wanted = {"type": "eq", "term": name, "value": "three"}
                found = plan(http, filter=wanted, snapshot_id=old, use_snapshot_schema=uses)
                assert found["file-scan-tasks"][0]["residual-filter"] in (wanted, True)


def test_table_without_files_or_snapshot_has_no_tasks(http: httpx.Client, services: Services) -> None:
    client = new_client(services)
    client.create()
    assert plan(http) == {"status": "completed", "file-scan-tasks": []}
    client.append((1, "one"))
    path = paths(plan(http))
    assert len(path) == 1
    assert plan(http, filter=False) == {"status": "completed", "file-scan-tasks": []}
    with RestCatalog("server", uri=str(http.base_url), **{"scan-planning-mode": "server"}) as catalog:
        catalog.load_table("ns.t").delete("id = 1")
        assert len(catalog.load_table("ns.t").scan().to_arrow()) == 0
    assert plan(http) == {"status": "completed", "file-scan-tasks": []}


@pytest.mark.parametrize("mode", ["client", "ducklake"])
def test_snapshots_go_by_the_ids_of_iceberg_and_of_ducklake(
    services: Services, serve: Callable[[FastAPI], httpx.Client], mode: Any
) -> None:
    services = replace(services, snapshot_ids=mode)
    client = new_client(services)
    client.create()
    own = append(client.metadata(), (1, "one"))
    client.commit(own)
    client.append((2, "two"))
    http = serve(create_app(services))
    given = own["updates"][0]["snapshot"]["snapshot-id"]
    listed = client.metadata()["snapshots"][0]["snapshot-id"]
    assert (given == listed) == (mode == "client")
    assert len(paths(plan(http, snapshot_id=listed))) == 1
    if mode == "ducklake":
        assert len(paths(plan(http, snapshot_id=given))) == 1
    assert len(paths(plan(http))) == 2


# --- Requests


def test_scans_from_snapshot_to_snapshot_are_406_and_both_kinds_of_ids_are_400(
    http: httpx.Client, services: Services
) -> None:
    client = new_client(services)
    client.create()
    client.append((1, "one"))
    known = client.metadata()["current-snapshot-id"]
    kinds = {"start-snapshot-id": known, "end-snapshot-id": known}
    status, kind, message = refusal(http.post(f"{TABLE}/plan", json=kinds))
    assert (status, kind) == (406, "UnsupportedOperationException")
    assert "scan-planning" in message
    assert refusal(http.post(f"{TABLE}/plan", json={"end-snapshot-id": known}))[0] == 406
    for wrong, problem in (
        ({"snapshot-id": known, **kinds}, "send one kind"),
        ({"snapshot-id": known, "end-snapshot-id": known}, "send one kind"),
        ({"start-snapshot-id": known}, "end-snapshot-id is needed"),
    ):
        status, kind, message = refusal(http.post(f"{TABLE}/plan", json=wrong))
        assert (status, kind) == (400, "BadRequestException")
        assert problem in message


LONG = {"type": "eq", "term": "id", "value": 1}
WRONG: list[tuple[Any, str]] = [
    ({"filter": 7}, "filter: Invalid predicate 7"),
    ({"filter": {"type": "eq", "term": "nothing", "value": 1}}, "filter.term: Cannot find field 'nothing'"),
    ({"filter": {"type": "eq", "term": "ID", "value": 1}}, "filter.term: Cannot find field 'ID'"),
    (
        {"filter": {"type": "and", "left": {"type": "eq", "term": "id", "value": "two"}, "right": True}},
        "filter.left.value: id is a long, which isn't compared with 'two'",
    ),
    (
        {"filter": {"type": "not", "child": {"type": "in", "term": "id", "values": [1, 2, "x"]}}},
        "filter.child.values[2]: id is a long",
    ),
    (
        {"filter": {"type": "or", "left": True, "right": {"type": "eq", "term": "id", "value": None}}},
        "filter.right.value: Nothing is compared with null",
    ),
    ({"filter": {"type": "eq", "term": "id", "value": 1, "more": 2}}, "filter: This 'eq' has more and term and value"),
    ({"filter": {"type": "and", "left": True, "right": {"type": "near"}}}, "filter.right: Invalid predicate"),
    ({"filter": {"type": "eq", "term": "id", "value": "1e999999999"}}, "filter.value: id is a long"),
    ({"filter": {"type": "eq", "term": "id", "value": "9" * 5000}}, "filter.value: id is a long"),
    ({"filter": {"type": "is-nan", "term": "name"}}, "filter.term: Cannot test name by is-nan"),
    (
        {"filter": {"type": "eq", "term": {"type": "transform", "transform": "day", "term": "id"}, "value": 1}},
        "filter.term: Cannot filter by day of id",
    ),
    (
        {"filter": {"type": "eq", "term": {"type": "reference", "id": 99}, "value": 1}},
        "filter.term: Cannot find field 99",
    ),
    (
        {
            "filter": {
                "type": "eq",
                "left": {"type": "reference", "name": "id"},
                "right": {"type": "literal", "value": []},
            }
        },
        "filter.right: id is a long",
    ),
    ({"filter": {"type": "in", "term": "id", "values": [1] * 100_001}}, "filter.values: A filter has up to 100000"),
    ({"snapshot-id": 77}, "snapshot-id: Cannot find snapshot 77"),
    ({"snapshot-id": "x"}, "snapshot-id: "),
    ({"snapshot-id": 2**63}, "snapshot-id: "),
    ({"select": "id"}, "select: "),
    ({"select": [1]}, "select[0]: "),
    ({"select": ["c"] * 10_001}, "select: "),
    ({"stats-fields": ["id", "nothing"]}, "stats-fields[1]: Cannot find field 'nothing'"),
    ({"case-sensitive": "maybe"}, "case-sensitive: "),
    ({"min-rows-requested": -1}, "min-rows-requested: "),
    ([], "the body: "),
]


@pytest.fixture
def filled(services: Services) -> Client:
    client = new_client(services)
    client.create()
    client.append((1, "one"), (2, "two"))
    return client


def test_wrong_requests_are_400_with_the_place(http: httpx.Client, filled: Client) -> None:
    assert len(paths(plan(http))) == 1
    for body, problem in WRONG:
        answer = http.post(f"{TABLE}/plan", json=body)
        assert answer.status_code == 400, str(body)[:200]
        message = refusal(answer)[2]
        assert problem in message
        assert len(message) < 2_000
    deep: Any = True
    for _ in range(101):
        deep = {"type": "not", "child": deep}
    assert "filter.child.child.child" in refusal(http.post(f"{TABLE}/plan", json={"filter": deep}))[2]
    very_deep = b'{"filter":' + b'{"type":"not","child":' * 100_000 + b"true" + b"}" * 100_001
    assert refusal(http.post(f"{TABLE}/plan", content=very_deep))[0] == 400
    too_long = b'{"filter":true,"select":["' + b"x" * (8 << 20) + b'"]}'
    assert "8388608 bytes" in refusal(http.post(f"{TABLE}/plan", content=too_long))[2]
    wide: Any = {"type": "or", "left": LONG, "right": LONG}
    for _ in range(9):
        wide = {"type": "or", "left": wide, "right": wide}
    assert "up to 1000 predicates" in refusal(http.post(f"{TABLE}/plan", json={"filter": wide}))[2]


@pytest.mark.parametrize("number", [10**18, 2**63, 10**30, -(10**399)])
def test_whole_numbers_of_any_size_are_compared_and_sent_back(http: httpx.Client, client: Client, number: int) -> None:
    client.create()
    client.append((1, "one"), (2, "two"))
    found = {"type": "eq", "term": "id", "value": 1}
    wanted = {"type": "or", "left": found, "right": {"type": "eq", "term": "id", "value": number}}
    (task,) = plan(http, filter=wanted)["file-scan-tasks"]
    assert task["residual-filter"] == wanted


def test_names_of_other_columns_in_select_are_no_error(http: httpx.Client, filled: Client) -> None:
    assert len(paths(plan(http, select=["id", "_file", "_pos", "nothing"]))) == 1
    assert len(paths(plan(http, filter=None, snapshot_id=None))) == 1  # null is as if absent, as everywhere
    lower = {"type": "eq", "term": "ID", "value": 1}
    assert len(paths(plan(http, filter=lower, case_sensitive=False, stats_fields=["Id"]))) == 1
    assert refusal(http.post(f"{TABLE}/plan", json={"select": ["_last_updated_sequence_number"]}))[0] == 406


def test_tables_that_are_not_there_are_404(http: httpx.Client, filled: Client) -> None:
    for namespace, table, kind in (("ns", "gone", "NoSuchTable"), ("no", "t", "NoSuchTable")):
        path = f"/v1/namespaces/{namespace}/tables/{table}"
        answers = (
            http.post(f"{path}/plan", json={}),
            http.post(f"{path}/tasks", json={"plan-task": "x"}),
            http.get(f"{path}/plan/x"),
            http.delete(f"{path}/plan/x"),
        )
        for answer in answers:
            assert refusal(answer)[:2] == (404, f"{kind}Exception")


def test_plans_have_no_id(http: httpx.Client, filled: Client) -> None:
    """Against the specification: clients accept it, and Java then spares a DELETE for each scan."""
    assert "plan-id" not in plan(http)
    status, kind, message = refusal(http.get(f"{TABLE}/plan/sync-1"))
    assert (status, kind) == (404, "NoSuchPlanIdException")
    assert "complete at once" in message
    assert http.delete(f"{TABLE}/plan/sync-1").status_code == 204


@pytest.mark.parametrize("key", ["nonsense", "", "919108f7-52d1-4320-9bac-f847db4148a8"])
def test_idempotency_keys_are_ignored(
    http: httpx.Client, filled: Client, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_pages, "PAGE_TASKS", 1)
    filled.append((3, "three"))
    headers = {"Idempotency-Key": key}
    first = http.post(f"{TABLE}/plan", json={}, headers=headers)
    assert first.status_code == 200
    assert http.post(f"{TABLE}/plan", json={"filter": False}, headers=headers).status_code == 200
    (task,) = first.json()["plan-tasks"]
    for _ in range(2):
        assert http.post(f"{TABLE}/tasks", json={"plan-task": task}, headers=headers).status_code == 200
    assert refusal(http.get(f"{TABLE}/plan/x", headers=headers))[1] == "NoSuchPlanIdException"
    assert http.delete(f"{TABLE}/plan/x", headers=headers).status_code == 204
