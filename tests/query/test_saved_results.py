"""Results of queries that are saved as tables: what is made, who may, what is refused, and that nothing is left."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from typer.testing import CliRunner

from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.changelog.writer import write_all_changes
from duckicelake.cli.main import app
from duckicelake.iceberg.read_restrictions import Mask
from duckicelake.lineage.events.generator import EventGenerator
from duckicelake.properties import QUERY_SOURCES
from duckicelake.query import service
from duckicelake.query.processes import QueryLimits
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.server.routes.test_idempotency import uuid7
from tests.support.lakes import Lake, iceberg_rows
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.policies import restrict
from tests.support.servers import Serve
from tests.support.waits import wait_until

LIMITS = QueryLimits(processes=2, memory_bytes=256 * 1024**2, disk_bytes=256 * 1024**2, seconds=60.0, rows=1_000_000)
Save = Callable[..., httpx.Response]


@pytest.fixture(autouse=True)
def limits(services: Services) -> Iterator[None]:
    service._limits[services.database] = LIMITS
    yield
    del service._limits[services.database]
    service.end_processes()


@pytest.fixture
def lake(lake: Lake) -> Lake:
    lake.run(
        "CREATE TABLE t (k INT, v DECIMAL(10,2), s VARCHAR)",
        "INSERT INTO t SELECT i, i / 4, 's' || i FROM range(3000) r(i)",
        "INSERT INTO t VALUES (NULL, NULL, NULL)",
        "DELETE FROM t WHERE k = 7",
    )
    return lake


@pytest.fixture
def http(services: Services, serve: Serve, lake: Lake) -> httpx.Client:
    assert lake.services is not None
    return serve(create_app(services))


@pytest.fixture
def save(http: httpx.Client) -> Save:
    def post(sql: str, name: str = "made", *, key: str | None = None, **body: Any) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        path = "/v1/namespaces/main/query-results"
        return http.post(path, json={"name": name, "sql": sql, **body}, headers=headers, timeout=60)

    return post


def read_problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["message"]


def rows_of(lake: Lake, query: str) -> list[Any]:
    return lake.duck.execute(query).fetchall()


def list_data_files(warehouse: Path, name: str = "made") -> list[Path]:
    return [file for file in warehouse.rglob("*.parquet") if f"/{name}" in str(file)]


def test_table_has_the_rows_for_duckdb_and_for_iceberg(lake: Lake, save: Save) -> None:
    sql = "SELECT s, k AS id, sum(v) AS total, count(*) AS n FROM t GROUP BY ALL"
    answer = save(sql)
    assert answer.status_code == 200, answer.text
    saved = answer.json()
    assert saved["columns"] == [
        {"name": "s", "type": "VARCHAR"},
        {"name": "id", "type": "INT"},
        {"name": "total", "type": "DECIMAL(38, 2)"},
        {"name": "n", "type": "BIGINT"},
    ]
    assert (saved["sources"], saved["rows"], saved["files"]) == (["main.t"], 3000, 1)
    static = lake.static("made")
    assert lake.duck_rows("made") == iceberg_rows(static)
    assert rows_of(lake, "SELECT count(*) FROM (FROM made EXCEPT SELECT * FROM (" + sql + "))") == [(0,)]
    snapshot = static.current_snapshot()
    assert snapshot is not None
    assert (snapshot.snapshot_id, static.metadata.table_uuid) == (int(saved["snapshot-id"]), UUID(saved["table-uuid"]))


@pytest.mark.parametrize("sql", ["SELECT * FROM t WHERE k > 100000", "SELECT NULL::INT AS a WHERE false"])
def test_result_without_rows_is_an_empty_table(lake: Lake, save: Save, sql: str) -> None:
    saved = save(sql).json()
    assert (saved["rows"], saved["files"]) == (0, 0)
    assert lake.duck_rows("made") == iceberg_rows(lake.static("made")) == []


def test_types_are_kept_widened_or_refused_by_name(lake: Lake, save: Save) -> None:
    sql = (
        "SELECT 1::HUGEINT AS h, 2::UTINYINT AS u, [1, NULL] AS l, {'a': MAP {'x': 1.5}} AS s, '\\xAA'::BLOB AS b, "
        "TIMESTAMPTZ '2026-01-01 00:00:00+00' AS z, UUID '00000000-0000-0000-0000-000000000001' AS id, 0.5::FLOAT AS f"
    )
    types = {one["name"]: one["type"] for one in save(sql).json()["columns"]}
    assert (types["h"], types["u"], types["l"]) == ("DECIMAL(38, 0)", "INT", "INT[]")
    assert lake.duck_rows("made") == iceberg_rows(lake.static("made"))
    for expression, kind in (("INTERVAL 1 DAY", "INTERVAL"), ("1::BIT", "BIT"), ("[TIME '10:00'::TIMETZ]", "TIME")):
        status, message = read_problem(save(f"SELECT {expression} AS odd", "other"))
        assert (status, "Column odd is of type" in message, kind in message) == (400, True, True)
    assert "several columns called k" in read_problem(save("SELECT k, k FROM t", "other"))[1]


def test_dry_run_says_what_it_would_be_and_makes_nothing(lake: Lake, save: Save, warehouse: Path) -> None:
    answer = save("SELECT k FROM t", **{"dry-run": True}).json()
    assert answer == {
        "namespace": ["main"],
        "name": "made",
        "columns": [{"name": "k", "type": "INT"}],
        "sources": ["main.t"],
        "ducklake-snapshot-id": lake.newest(),
    }
    assert list_data_files(warehouse) == []
    assert save("SELECT k FROM nowhere", **{"dry-run": True}).status_code == 404
    assert save("SELECT k FROM t", "t", **{"dry-run": True}).status_code == 409
    assert (
        save("SELECT k FROM t", properties={"write.metadata.path": "s3://x/y"}, **{"dry-run": True}).status_code == 400
    )


def test_same_key_makes_one_table_and_answers_the_same(lake: Lake, save: Save) -> None:
    key = uuid7()
    first = save("SELECT k FROM t", key=key)
    lake.run("INSERT INTO t VALUES (9999, 1, 'later')")
    again = save("SELECT k FROM t", key=key)
    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    assert rows_of(lake, "SELECT count(*) FROM made") == [(3000,)]
    assert read_problem(save("SELECT s FROM t", key=key))[0] == 422
    assert save("SELECT k FROM t").status_code == 409


def test_query_reads_an_old_snapshot_a_view_and_another_namespace(lake: Lake, save: Save) -> None:
    before = lake.newest()
    lake.run("CREATE SCHEMA sales", "CREATE TABLE sales.t AS SELECT 1 AS one", "CREATE VIEW w AS SELECT k FROM t")
    lake.run("DELETE FROM t")
    assert save("SELECT k FROM t", "old", at=str(before)).json()["rows"] == 3000
    assert save("FROM t", "there", **{"default-namespace": ["sales"]}).json()["rows"] == 1
    assert save("FROM w", "viewed").json()["sources"] == ["main.t"]


def test_properties_are_those_of_the_table(lake: Lake, save: Save) -> None:
    properties = {"comment": "kept", "format-version": "3"}
    assert save("SELECT k FROM t", properties=properties).status_code == 200
    metadata = lake.metadata("made")
    assert (metadata.format_version, metadata.properties["comment"]) == (3, "kept")
    assert lake.duck_rows("made") == iceberg_rows(lake.static("made"))


def test_summary_and_lineage_have_the_sources(lake: Lake, save: Save) -> None:
    lake.run("CREATE TABLE u AS SELECT 1 AS k")
    assert save("SELECT t.s FROM t JOIN u USING (k)").status_code == 200
    snapshot = lake.metadata("made").current_snapshot()
    assert snapshot is not None
    states = json.loads(snapshot.summary[QUERY_SOURCES])["source-states"]
    wanted = {(one.table_uuid, one.current_snapshot_id) for one in map(lake.metadata, ("t", "u"))}
    assert {(state["uuid"], state["snapshot-id"]) for state in states} == wanted
    write_all_changes(lake.services)
    while EventGenerator(lake.services, "http://catalog:8181", age=timedelta(0)).advance():
        pass
    with lake.services.database.statement() as cursor:
        rows = cursor.execute("SELECT body FROM duckicelake_lineage_event ORDER BY id").fetchall()
    bodies = [body for (body,) in rows if any("made" in one["name"] for one in body["outputs"])]
    names = {one["facets"]["symlinks"]["identifiers"][0]["name"] for body in bodies for one in body["inputs"]}
    assert {name.rpartition(".")[2] for name in names} == {"t", "u"}


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("CREATE TABLE x AS SELECT 1", "Only SELECT"),
        ("SELECT 1 / 0; SELECT 2", "one statement"),
        ("SELECT error('no')", "no"),
        ("FROM read_csv('/etc/hostname')", "read_csv"),
        ("SELECT count(*) AS n FROM range(1000000) a, range(1000000) b", "took longer"),
        ("SELECT list(i) AS i FROM range(200000000) r(i)", "memory"),
        ("SELECT hash(i) AS h, uuid() AS u FROM range(100000000) r(i)", "DUCKICELAKE_QUERY_DISK_BYTES"),
    ],
)
def test_query_that_fails_says_why_and_leaves_nothing(
    lake: Lake, save: Save, services: Services, warehouse: Path, sql: str, said: str
) -> None:
    disk = 8 * 1024**2 if "uuid" in sql else LIMITS.disk_bytes
    service._limits[services.database] = replace(LIMITS, disk_bytes=disk)
    timeout = {"timeout-seconds": 1} if "range(1000000) b" in sql else {}
    status, message = read_problem(save(sql, **timeout))
    assert (status, said in message) == (400, True), message
    assert list_data_files(warehouse) == []
    assert rows_of(lake, "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'made'") == [(0,)]
    assert save("SELECT 1 AS a").status_code == 200


def test_command_says_what_it_would_make_and_made(http: httpx.Client, lake: Lake) -> None:
    command = ["sql", "SELECT k FROM t", "--save-as", "main.made", "--uri", str(http.base_url)]
    would = CliRunner().invoke(app, [*command, "--dry-run"])
    assert would.stdout == f"would make main.made (k INT) from main.t, at DuckLake's snapshot {lake.newest()}\n"
    assert json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)["rows"] == 3000
    again = CliRunner().invoke(app, command)
    assert (again.exit_code, "already exists" in again.stderr) == (6, True), again.stderr
    command[3] = "nowhere.made"
    elsewhere = CliRunner().invoke(app, command)
    assert (elsewhere.exit_code, "does not exist: nowhere" in elsewhere.stderr) == (2, True), elsewhere.stderr
    for wrong in ("--explain", "--dry-run"):
        words = [*command[:2], wrong, *([] if wrong == "--dry-run" else command[2:])]
        assert "--dry-run needs it" in CliRunner().invoke(app, words).stderr


def test_running_save_is_listed_and_cancelled(http: httpx.Client, save: Save, warehouse: Path) -> None:
    query_id, answers = str(uuid4()), list[httpx.Response]()
    sql = "SELECT count(*) AS n FROM range(1000000) a, range(1000000) b"
    thread = threading.Thread(target=lambda: answers.append(save(sql, **{"query-id": query_id})))
    thread.start()
    path = f"/sql/v1/queries/{query_id}"
    wait_until(lambda: http.get(path).status_code == 200 and http.get(path).json()["state"] == "running", 20)
    time.sleep(1)
    assert http.delete(path).status_code == 204
    thread.join()
    assert read_problem(answers[0]) == (409, f"Query {query_id} was cancelled")
    assert list_data_files(warehouse) == []


def test_third_save_at_once_is_refused(http: httpx.Client, save: Save) -> None:
    sql = "SELECT count(*) AS n FROM range(1000000) a, range(1000000) b"
    ids = [str(uuid4()), str(uuid4())]
    threads = [threading.Thread(target=save, args=(sql, f"m{i}"), kwargs={"query-id": i}) for i in ids]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(http.get("/sql/v1/queries").json()["queries"]) == 2, 20)
    assert save("SELECT 1 AS a").status_code == 429
    time.sleep(1)
    for query_id in ids:
        http.delete(f"/sql/v1/queries/{query_id}")
    for thread in threads:
        thread.join()
    assert save("SELECT 1 AS a").status_code == 200


def test_killed_process_is_one_error(save: Save, warehouse: Path) -> None:
    def kill() -> None:
        wait_until(lambda: bool(_list_busy()), 20)
        time.sleep(0.5)
        for process in _list_busy():
            os.kill(process, 9)

    thread = threading.Thread(target=kill)
    thread.start()
    status, message = read_problem(save("SELECT count(*) AS n FROM range(1000000) a, range(1000000) b"))
    thread.join()
    assert (status, "has ended" in message) == (503, True)
    assert list_data_files(warehouse) == []


def _list_busy() -> list[int]:
    kept = [one for processes in service._processes.values() for one in processes._started]
    return [one.pid for one in kept if one.is_alive and one.is_busy and one.key]


def test_caller_needs_the_sources_and_the_target(services: Services, serve: Serve, lake: Lake) -> None:
    lake.run("CREATE SCHEMA mine", "CREATE SCHEMA shut", "CREATE TABLE shut.t AS SELECT 1 AS k")
    server = Server()
    http = serve(
        server.app(services, server.authentication(OAuthClient("writer", SECRET, ("ns:mine:rw", "ns:main:r"))))
    )
    headers = bearing(token(http, "writer"))

    def post(namespace: str, sql: str) -> int:
        path = f"/v1/namespaces/{namespace}/query-results"
        return http.post(path, json={"name": "made", "sql": sql}, headers=headers, timeout=60).status_code

    assert post("main", "SELECT 1 AS a") == 403
    assert post("mine", "FROM shut.t") == 403
    assert post("mine", "FROM main.t") == 200


def test_policies_of_the_caller_decide_what_is_saved(services: Services, serve: Serve, lake: Lake) -> None:
    services = replace(services, rights=RightsCache.of_first(services.database))
    is_low = {"type": "lt", "left": {"type": "reference", "id": 1}, "right": 10}
    restrict(services, "main.t", is_low, masks={3: Mask.NULL})
    http = serve(create_app(services))
    body = {"name": "made", "sql": "SELECT k, s FROM t"}
    answer = http.post("/v1/namespaces/main/query-results", json=body, timeout=60)
    assert answer.json()["rows"] == 9, answer.text
    assert sorted(rows_of(lake, "FROM made")) == [(k, None) for k in range(10) if k != 7]


def test_wide_rows_need_little_memory_on_many_cores(lake: Lake, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ", ".join(f"hash(range + {number})::VARCHAR AS c{number}" for number in range(20))
    lake.run(f"CREATE TABLE wide AS SELECT range AS k, {texts} FROM range(300000)")
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    answer = save("SELECT * FROM wide", name="copied")
    assert answer.status_code in {200, 201}, answer.text
    assert rows_of(lake, "SELECT count(*), count(DISTINCT c19) FROM copied") == [(300_000, 300_000)]
