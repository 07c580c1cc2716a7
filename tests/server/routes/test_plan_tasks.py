"""Plan tasks over HTTP: any server answers them, and none that it shouldn't; long requests, limits, few rows wanted."""

import gzip
import json
import random
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import httpx
import orjson
import pytest
import zstandard
from fastapi import FastAPI

from duckicelake.catalog import scan_pages
from duckicelake.catalog.context.scan_cache import ScanCache
from duckicelake.catalog.context.services import Services
from duckicelake.lake.side_tables import scan
from duckicelake.server.app import Edge, create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.http.compression import choose_coding
from tests.server.routes.test_plans import TABLE, fetch, fetch_all, paths, plan, refusal
from tests.server.telemetry.test_metrics import counts
from tests.support.client import Client, Draft, Json, data_files, delete, new_client
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.seams import fresh
from tests.support.servers import running

FILES = 7


@pytest.fixture
def client(services: Services) -> Client:
    """A client of a table with a manifest for each of its files: file n has the ids 10 n to 10 n + 2."""
    client = new_client(services)
    client.create()
    for number in range(FILES):
        client.append(*((10 * number + row, f"n{number}") for row in range(3)))
    return client


@pytest.fixture
def http(services: Services, client: Client, serve: Callable[[FastAPI], httpx.Client]) -> httpx.Client:
    return serve(create_app(services))


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_pages, "PAGE_TASKS", 2)


def other_server(services: Services) -> FastAPI:
    """A server on the same lake that remembers nothing."""
    return create_app(replace(fresh(services), scans=ScanCache()))


def over(ids: int) -> Json:
    return {"type": "gt", "term": "id", "value": ids}


def long_filter(seed: int = 1) -> Json:
    values = random.Random(seed).sample(range(10**12), 2_000)
    return {"type": "in", "term": "id", "values": [*values, 1, 11, 21, 31]}


def test_all_tasks_are_there_once_and_every_plan_task_is_another(http: httpx.Client, client: Client) -> None:
    answer = plan(http)
    assert len(answer["file-scan-tasks"]) == 2
    assert len(set(answer["plan-tasks"])) == len(answer["plan-tasks"]) == FILES - 2
    assert sorted(fetch_all(http, answer)) == sorted(data_files(client.metadata()))
    some = plan(http, filter=over(31))
    assert len(some["plan-tasks"]) == 2
    assert sorted(fetch_all(http, some)) == sorted(data_files(client.metadata())[3:])
    for task in answer["plan-tasks"]:
        assert fetch(http, task).json() == fetch(http, task).json()


def test_other_servers_answer_after_the_planner_has_died(services: Services, client: Client) -> None:
    with running(create_app(services)) as uri, httpx.Client(base_url=uri) as http:
        answers = [plan(http, filter=over(9)), plan(http, filter=long_filter())]
    files = data_files(client.metadata())
    with running(other_server(services)) as uri, httpx.Client(base_url=uri) as http:
        with running(other_server(services)) as second_uri, httpx.Client(base_url=second_uri) as second:
            for task in answers[0]["plan-tasks"]:
                assert fetch(http, task).content == fetch(second, task).content
        for answer, expected in zip(answers, (files[1:], files[:4]), strict=True):
            assert sorted(fetch_all(http, answer)) == sorted(expected)


def assert_gone(answer: httpx.Response, problem: str) -> None:
    status, kind, message = refusal(answer)
    assert (status, kind) == (404, "NoSuchPlanTaskException"), message
    assert problem in message
    assert message.endswith("plan again")


def forge(*members: Any, packed: bytes = b"", version: int = 2) -> str:
    """A token whose checksum is right."""
    data = json.dumps([version, *members]).encode() + b"\n" + packed
    return urlsafe_b64encode(sha256(data).digest()[:8] + data).decode()


def test_broken_tasks_are_404(http: httpx.Client) -> None:
    task = plan(http)["plan-tasks"][0]
    for broken in (
        "",
        "nonsense",
        "ä€",
        "x" * 100_000,
        *(task[:length] for length in range(1, len(task), 7)),
        *(task[:place] + ("A" if task[place] != "A" else "B") + task[place + 1 :] for place in range(0, len(task), 5)),
        task + "AAAA",
        task[4:],
    ):
        assert_gone(fetch(http, broken), "cut")
    assert refusal(http.post(f"{TABLE}/tasks", json={}))[0] == 400
    assert refusal(http.post(f"{TABLE}/tasks", json={"plan-task": 7}))[0] == 400


def test_forged_tasks_give_nothing_that_the_table_has_not(http: httpx.Client, client: Client) -> None:
    client.create("other")
    client.append((1, "one"), name="other")
    other = http.post("/v1/namespaces/ns/tables/other/plan", json={})
    assert other.status_code == 200
    line, _, packed = urlsafe_b64decode(plan(http)["plan-tasks"][0])[8:].partition(b"\n")
    members = orjson.loads(line)[1:]
    assert len(paths(fetch(http, forge(*members, packed=packed)).json())) == 1
    for place, wrong in (
        (0, "another-uuid"),
        (0, None),
        (1, 1),
        (1, "x"),
        (1, 2**80),
        (2, "x"),
        (3, 2**40),
        (4, 2**70),
        (3, True),
        (4, "x"),
        (5, [1]),
        (6, "zz"),
        (6, 7),
        (6, "00" * 32),
    ):
        changed = [*members]
        changed[place] = wrong
        assert_gone(fetch(http, forge(*changed, packed=packed)), "No such plan task")
    for wrong_pack in (b"", b"x", packed[:-1]):
        assert_gone(fetch(http, forge(*members, packed=wrong_pack)), "cut")
    assert_gone(fetch(http, forge(*members, packed=packed, version=1)), "cut")
    assert_gone(fetch(http, forge(*members, 1, packed=packed)), "cut")
    assert fetch(http, forge(*members[:4], -(2**60), 2**60, "", packed=packed)).json()["file-scan-tasks"]
    assert fetch(http, forge(*members[:4], 5, 1, "", packed=packed)).json() == {"file-scan-tasks": []}


def test_tasks_of_another_table_or_an_older_one_of_the_name_are_404(http: httpx.Client, client: Client) -> None:
    task = plan(http)["plan-tasks"][0]
    other = "/v1/namespaces/ns/tables/other"
    renaming = {
        "source": {"namespace": ["ns"], "name": "t"},
        "destination": {"namespace": ["ns"], "name": "other"},
    }
    expected = fetch(http, task).content
    assert http.post("/v1/tables/rename", json=renaming).status_code == 204
    assert refusal(fetch(http, task))[1] == "NoSuchTableException"
    assert fetch(http, task, other).content == expected
    client.create()
    client.append((1, "one"))
    assert_gone(fetch(http, task), "another table's")
    assert http.delete(other).status_code == 204
    client.create("other")
    client.append((1, "one"), name="other")
    assert_gone(fetch(http, task, other), "another table's")


def test_tasks_of_an_expired_snapshot_are_404(http: httpx.Client, client: Client) -> None:
    task = plan(http)["plan-tasks"][0]
    old = client.metadata()["current-snapshot-id"]
    client.append((100, "new"))
    expected = fetch(http, task)
    assert expected.status_code == 200
    client.commit({"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": [old]}]})
    assert_gone(fetch(http, task), "expired")
    assert refusal(http.post(f"{TABLE}/plan", json={"snapshot-id": old}))[0] == 400


def test_column_may_be_renamed_between_plan_and_task(http: httpx.Client, client: Client) -> None:
    new = {"id": 3, "name": "late", "type": "long", "required": False}

    def change(schema_id: int, name: str) -> None:
        fields = [*client.metadata()["schemas"][0]["fields"], {**new, "name": name}]
        schema = {"type": "struct", "schema-id": schema_id, "fields": fields}
        updates = [
            {"action": "add-schema", "schema": schema, "last-column-id": 3},
            {"action": "set-current-schema", "schema-id": -1},
        ]
        client.commit({"requirements": [], "updates": updates})

    change(1, "late")
    answer = plan(http, filter={"type": "is-null", "term": "late"})
    assert len(answer["plan-tasks"]) == FILES - 2
    change(2, "later")
    assert sorted(fetch_all(http, answer)) == sorted(data_files(client.metadata()))
    assert refusal(http.post(f"{TABLE}/plan", json={"filter": {"type": "is-null", "term": "late"}}))[0] == 400


def test_rights_are_checked_for_each_task(
    services: Services, client: Client, serve: Callable[[FastAPI], httpx.Client]
) -> None:
    logins = Server()
    scopes = {"reader": "ns:ns:r", "writer": "ns:ns:w", "elsewhere": "ns:hr:*"}
    clients = [OAuthClient(name, SECRET, (scope,)) for name, scope in scopes.items()]
    http = serve(logins.app(services, logins.authentication(*clients)))
    tokens = {name: bearing(token(http, name)) for name in scopes}
    planned = http.post(f"{TABLE}/plan", json={"filter": long_filter()}, headers=tokens["reader"])
    body = {"plan-task": planned.json()["plan-tasks"][0]}
    assert http.post(f"{TABLE}/tasks", json=body, headers=tokens["reader"]).status_code == 200
    for name in ("writer", "elsewhere"):
        for path, sent in (("plan", {}), ("tasks", body)):
            answer = http.post(f"{TABLE}/{path}", json=sent, headers=tokens[name])
            assert refusal(answer)[:2] == (403, "ForbiddenException")
    assert refusal(http.post(f"{TABLE}/tasks", json=body))[0] == 401
    logins.clock.now += 3601
    assert refusal(http.post(f"{TABLE}/tasks", json=body, headers=tokens["reader"]))[0] == 401
    revoked = serve(logins.app(services, logins.authentication(clients[1])))
    assert refusal(revoked.post(f"{TABLE}/tasks", json=body, headers=tokens["reader"]))[0] == 401


# --- Long requests


def kept_requests(services: Services) -> int:
    with services.database.reading() as cursor:
        row = cursor.execute("SELECT count(*) FROM duckicelake_scan_request").fetchone()
    assert row is not None
    return int(row[0])


def test_long_requests_are_kept_once_for_a_day(
    http: httpx.Client, client: Client, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = plan(http, filter=over(9))
    assert kept_requests(services) == 0
    answers = [plan(http, filter=long_filter()) for _ in range(2)]
    assert answers[0] == answers[1]
    assert kept_requests(services) == 1
    for task in (*short["plan-tasks"], *answers[0]["plan-tasks"]):
        assert len(task) < 500
    everything = {"type": "or", "left": long_filter(9), "right": True}
    assert "plan-tasks" not in plan(http, filter=everything, min_rows_requested=1)
    assert kept_requests(services) == 1, "no plan task, so nothing is kept"
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_scan_request SET sent = sent - interval '23 hours'")
    assert fetch(http, answers[0]["plan-tasks"][0]).status_code == 200
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_scan_request SET sent = sent - interval '2 hours'")
    assert_gone(fetch(http, answers[0]["plan-tasks"][0]), "more than a day ago")
    monkeypatch.setattr(scan, "MAX_REQUESTS_BYTES", 30_000)
    assert sorted(fetch_all(http, plan(http, filter=long_filter(2)))) == sorted(data_files(client.metadata())[:4])
    assert kept_requests(services) == 1, "the old one is gone"
    assert plan(http, filter=long_filter(2))["plan-tasks"], "known ones need no place"
    status, kind, message = refusal(
        next(answer for answer in (_send_long(http, seed) for seed in range(3, 9)) if answer.status_code != 200)
    )
    assert (status, kind) == (429, "TooManyRequestsException")
    assert "shorten the filter" in message


def _send_long(http: httpx.Client, seed: int) -> httpx.Response:
    return http.post(f"{TABLE}/plan", json={"filter": long_filter(seed)})


def test_kept_requests_outlive_a_crash_and_a_failover(services: Services) -> None:
    with services.database.reading() as cursor:
        found = cursor.execute("SELECT relpersistence FROM pg_class WHERE relname = 'duckicelake_scan_request'")
        assert found.fetchone() == ("p",), "an unlogged table is emptied by both"


# --- Limits


def test_manifests_beyond_the_limit_are_pruned_when_their_task_is_fetched(
    http: httpx.Client, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_pages, "MAX_READ_FILES", 3)
    monkeypatch.setattr(scan_pages, "_FIRST_FILES", 1)
    monkeypatch.setattr(scan_pages, "_MAX_BLOCK_FILES", 1)
    oldest = {"type": "lt", "term": "id", "value": 12}  # the last ones that the snapshot lists
    answer = plan(http, filter=oldest)
    assert answer["file-scan-tasks"] == []
    assert len(set(answer["plan-tasks"])) == FILES - 3
    assert counts(http, "scan_manifests_read_total") == {"": 3.0}
    assert sorted(fetch_all(http, answer)) == sorted(data_files(client.metadata())[:2])
    assert len(plan(http, filter=oldest)["file-scan-tasks"]) == 2, "now they are in memory"


def test_files_beyond_the_limit_of_decisions_are_decided_when_their_task_is_fetched(
    http: httpx.Client, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_pages, "_FIRST_FILES", 1)
    monkeypatch.setattr(scan_pages, "_MAX_BLOCK_FILES", 1)
    monkeypatch.setattr(scan_pages, "MAX_DECISIONS", 6)
    both = {"type": "and", "left": over(11), "right": {"type": "lt", "term": "id", "value": 40}}
    answer = plan(http, filter=both)
    assert (answer["file-scan-tasks"], len(answer["plan-tasks"])) == ([], FILES - 3)
    assert sorted(fetch_all(http, answer)) == sorted(data_files(client.metadata())[1:4])


def test_files_that_expire_while_they_are_looked_for_are_no_short_plan(
    http: httpx.Client, client: Client, services: Services
) -> None:
    task = plan(http, filter=over(9))["plan-tasks"][-1]
    again = other_server(services)
    with services.database.transaction() as cursor:
        cursor.execute("DELETE FROM duckicelake_file WHERE path = %s", [data_files(client.metadata())[1]])
    with running(again) as uri, httpx.Client(base_url=uri) as other:
        for body in ({}, {"filter": over(9)}):
            status, kind, message = refusal(other.post(f"{TABLE}/plan", json=body))
            assert (status, kind) == (503, "ServiceUnavailableException")
            assert message.endswith("plan again")
        assert_gone(fetch(other, task), "expired")
    assert_gone(fetch(http, task), "expired")


def test_full_scan_reads_no_manifest_beyond_its_first_page(
    http: httpx.Client, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_pages, "_FIRST_FILES", 1)
    monkeypatch.setattr(scan_pages, "_MAX_BLOCK_FILES", 1)
    answer = plan(http)
    assert counts(http, "scan_manifests_read_total") == {"": 3.0}
    assert sorted(fetch_all(http, answer)) == sorted(data_files(client.metadata()))


def test_server_without_free_slots_answers_429_to_plans_and_tasks(
    http: httpx.Client, services: Services, serve: Callable[[FastAPI], httpx.Client]
) -> None:
    task = plan(http)["plan-tasks"][0]
    full = serve(create_app(services, edge=Edge(max_requests=0)))
    for answer in (full.post(f"{TABLE}/plan", json={}), fetch(full, task)):
        assert refusal(answer)[:2] == (429, "TooManyRequestsException")
        assert answer.headers["retry-after"] == "1"


def test_files_of_one_manifest_are_divided_again_when_fetched(
    http: httpx.Client, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = Draft(client.metadata())
    files = [draft.data_file([(1000 + number, "more")]) for number in range(9)]
    client.commit(draft.body([draft.manifest(files), *draft.parent_manifests]))
    monkeypatch.setattr(scan_pages, "MAX_READ_FILES", 0)
    answer = plan(http, filter=over(1003))
    assert answer["file-scan-tasks"] == []
    assert len(fetch_all(http, answer)) == 5


def test_answers_of_long_filters_have_fewer_tasks(
    http: httpx.Client, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_pages, "MAX_RESIDUAL_BYTES", 10_000)
    answer = plan(http, filter=long_filter())
    assert len(answer["file-scan-tasks"]) == 1
    assert sorted(fetch_all(http, answer)) == sorted(data_files(client.metadata())[:4])


def test_hundred_thousand_literals_take_bounded_time(http: httpx.Client, client: Client) -> None:
    numbers = random.Random(1).sample(range(10**15, 10**16), 99_998)
    texts = [f"{number:040}" for number in numbers]
    for term, values in (("id", [*numbers, 1, 61]), ("name", [*texts, "n0", "n6"])):
        started = time.process_time()
        answer = plan(http, filter={"type": "in", "term": term, "values": values})
        first = time.process_time() - started
        found = fetch_all(http, answer)
        print(f"100,000 literals of {term}: {first:.2f} s of CPU, of client and server, for the plan")
        assert first < 20
        if term == "id":
            assert sorted(found) == sorted([data_files(client.metadata())[place] for place in (0, 6)])


# --- Few rows wanted


def test_plan_ends_with_as_many_rows_as_are_wanted(http: httpx.Client, client: Client) -> None:
    def count(wanted: int, **request: Any) -> int:
        answer = plan(http, min_rows_requested=wanted, **request)
        return len(fetch_all(http, answer))

    assert [count(wanted) for wanted in (1, 3, 4, 6, 0)] == [1, 1, 2, 2, FILES]
    assert count(7) == FILES, "beyond the first page it is no hint any more"
    assert count(3, filter=over(9)) == 1
    assert count(1, filter={"type": "eq", "term": "id", "value": 61}) == 1
    some = plan(http, filter=over(60), min_rows_requested=1)
    assert paths(some) == data_files(client.metadata())[6:], "not all its rows match"


def test_deleted_rows_do_not_count_as_wanted_ones(http: httpx.Client, client: Client) -> None:
    order = paths(plan(http))
    client.commit(delete(client.metadata(), (order[0], 0), (order[0], 1)))
    wanted = [len(paths(plan(http, min_rows_requested=wanted))) for wanted in (1, 2, 4)]
    assert paths(plan(http)) == order
    assert wanted == [1, 2, 2]


# --- Answers in short


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        ("gzip", "gzip"),
        ("gzip, zstd", "zstd"),
        ("GZIP;q=0.5, zstd;q=0.1", "gzip"),
        ("x-gzip", "gzip"),
        ("zstd;q=0, gzip;q=0", None),
        ("identity", None),
        ("identity;q=1, gzip;q=0.5", None),
        ("gzip;q=x", None),
        ("br, *", None),
        ("", None),
        (",;,=", None),
    ],
)
def test_coding_is_the_one_that_the_client_likes_best(header: str, coding: str | None) -> None:
    assert choose_coding(header) == coding


def test_long_answers_are_compressed_as_the_client_accepts(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_pages, "PAGE_TASKS", 5)
    body = {"filter": long_filter()}
    plain = http.post(f"{TABLE}/plan", json=body, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.headers["vary"] == "Accept-Encoding"
    with http.stream("POST", f"{TABLE}/plan", json=body, headers={"Accept-Encoding": "gzip"}) as packed:
        data = b"".join(packed.iter_raw())
    assert (packed.headers["content-encoding"], gzip.decompress(data)) == ("gzip", plain.content)
    assert len(data) < len(plain.content) / 1.5
    with http.stream("POST", f"{TABLE}/plan", json=body, headers={"Accept-Encoding": "gzip, zstd"}) as packed:
        data = b"".join(packed.iter_raw())
    unpacked = zstandard.ZstdDecompressor().decompress(data, max_output_size=len(plain.content))
    assert (packed.headers["content-encoding"], unpacked) == ("zstd", plain.content)
    assert "content-encoding" not in http.post(f"{TABLE}/plan", json={"filter": over(61)}).headers


def test_metrics_count_plans_and_files(http: httpx.Client) -> None:
    plan(http, filter=over(31))
    plan(http, filter=over(31))
    assert counts(http, "scan_plans_total") == {"": 2.0}
    assert counts(http, "scan_files_total") == {"what=considered": 2.0 * FILES, "what=matched": 8.0}
    assert counts(http, "scan_manifests_read_total") == {"": float(FILES)}
    assert counts(http, "scan_cached_manifests") == {"": float(FILES)}
    assert counts(http, "scan_cached_bytes")[""] > 100
