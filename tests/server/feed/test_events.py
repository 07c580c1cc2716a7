"""The change feed of a live server: every change once, in order, to those who may see it, whatever happens."""

import io
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import duckdb
import httpx
import psycopg
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.changelog import feed as change_feed
from duckicelake.changelog.writer import follow_in_background
from duckicelake.server.app import Edge, create_app
from duckicelake.server.auth.oauth_clients import OAuthClient as Login
from duckicelake.server.feed import hub as feed_hub
from duckicelake.server.feed.hub import ReaderLimits
from duckicelake.server.telemetry.logs import make_logger
from tests.conftest import Attach
from tests.server.middleware.test_hardening import behind
from tests.support.client import SCHEMA, Client, Json, append, new_client, set_properties
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.servers import running

EVENTS = "/v1/events"
STREAM = {"Accept": "text/event-stream"}
SECONDS = 30
QUIET = make_logger(io.StringIO())


@pytest.fixture
def followed(services: Services) -> Iterator[None]:
    """The changelog is kept up to date, as servers do it."""
    failures: list[Exception] = []
    with follow_in_background(services, failures.append):
        yield
    assert not failures


@pytest.fixture
def client(services: Services, followed: None) -> Client:
    client = new_client(services)
    client.create()
    return client


@pytest.fixture
def http(services: Services, client: Client, serve: Callable[[Any], httpx.Client]) -> httpx.Client:
    return serve(create_app(services, log=QUIET))


@dataclass
class Reported:
    """What a stream brought. end: why the server ended it."""

    events: list[Json] = field(default_factory=list)
    last_id: str | None = None
    end: Json | None = None

    @property
    def positions(self) -> list[str]:
        return [event["event-id"] for event in self.events]

    @property
    def brief(self) -> list[tuple[str, str]]:
        return [brief(event) for event in self.events]


class Stream:
    """A reader in a thread of its own."""

    def __init__(self, uri: str, query: str = "", **headers: str) -> None:
        self.report = Reported()
        self._opened = threading.Event()
        self._answer: httpx.Response | None = None
        self._thread = threading.Thread(target=self._read, args=(uri, query, STREAM | headers))
        self._thread.start()
        assert self._opened.wait(SECONDS)

    def until(self, number: int) -> Reported:
        """What it was told, once it is so many events."""
        return self.when(lambda report: len(report.events) >= number)

    def when(self, holds: Callable[[Reported], bool]) -> Reported:
        until = time.monotonic() + SECONDS
        while not holds(self.report):
            assert time.monotonic() < until, self.report
            time.sleep(0.005)
        return self.report

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def ended(self) -> Reported:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        return self.report

    def kill(self) -> Reported:
        """Lose the connection."""
        assert self._answer is not None
        with suppress(OSError):  # the server has ended it before
            self._answer.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        return self.ended()

    def _read(self, uri: str, query: str, headers: dict[str, str]) -> None:
        try:
            with (
                httpx.Client(timeout=SECONDS) as http,
                http.stream("GET", uri + EVENTS + query, headers=headers) as answer,
            ):
                assert answer.status_code == 200, answer.read()
                self._answer = answer
                self._take(answer.iter_lines())
        except httpx.HTTPError:
            pass  # killed
        finally:
            self._opened.set()

    def _take(self, lines: Iterator[str]) -> None:
        kind = ""
        for line in lines:
            name, _, value = line.partition(": ")
            if name == "id":
                self.report.last_id = value
            elif name == "event":
                kind = value
            elif name == "data" and kind == "end":
                self.report.end = json.loads(value)
            elif name == "data":
                self.report.events.append(json.loads(value))
            self._opened.set()


@contextmanager
def streams(uri: str, *queries: str, **headers: str) -> Iterator[list[Stream]]:
    with ExitStack() as stack:
        opened = []
        for query in queries:
            stream = Stream(uri, query, **headers)
            stack.callback(stream.kill)
            opened.append(stream)
        yield opened


def brief(event: Json) -> tuple[str, str]:
    """(Kind, name)"""
    operation = event["operation"]
    named = (
        operation.get("identifier")
        or operation.get("destination")
        or {"namespace": operation.get("namespace"), "name": None}
    )
    return event["duckicelake"]["kind"], ".".join([*named["namespace"], *filter(None, [named["name"]])])


def read_all(http: httpx.Client, **query: Any) -> list[Json]:
    """All events, page by page."""
    found: list[Json] = []
    while True:
        answer = http.get(EVENTS, params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page["events"]
        if page["continuation-token"] == query.get("from"):
            return found
        query["from"] = page["continuation-token"]


def settled(http: httpx.Client, number: int, **query: Any) -> list[Json]:
    """All events, once there are so many."""
    until = time.monotonic() + SECONDS
    while len(found := read_all(http, **query)) < number:
        assert time.monotonic() < until, found
        time.sleep(0.02)
    return found


def commit(http: httpx.Client, body: Json, name: str = "t") -> None:
    http.post(f"/v1/namespaces/ns/tables/{name}", json=body).raise_for_status()


def newest(http: httpx.Client) -> str:
    token: str = http.get(EVENTS, params={"from": "newest"}).json()["continuation-token"]
    return token


def error(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()["error"]
    assert body["code"] == answer.status_code
    return answer.status_code, body["message"]


def test_changes_are_events_of_the_drafts_shape_in_order(http: httpx.Client, client: Client) -> None:
    client.append((1, "a"))
    commit(http, set_properties(k="v"))
    found = settled(http, 4, namespace="ns")
    assert [brief(event) for event in found] == [
        ("create-namespace", "ns"),
        ("create-table", "ns.t"),
        ("append", "ns.t"),
        ("update-table", "ns.t"),
    ]
    assert [event["operation"]["operation-type"] for event in found] == [
        "create-namespace",
        "create-table",
        "update-table",
        "update-table",
    ]
    for event in found:
        assert {"event-id", "request-id", "request-event-count", "timestamp-ms", "actor", "operation"} <= set(event)
        assert event["event-id"] == event["duckicelake"]["position"]
    metadata = client.metadata()
    appended = found[2]
    assert appended["operation"] == {
        "operation-type": "update-table",
        "identifier": {"namespace": ["ns"], "name": "t"},
        "table-uuid": metadata["table-uuid"],
        "updates": [],
    }
    assert appended["duckicelake"]["iceberg-snapshot-id"] == metadata["current-snapshot-id"]
    assert appended["duckicelake"]["metrics"]["added-records"] == 1
    assert appended["duckicelake"]["source"] == "rest"
    changed = found[3]
    assert changed["actor"] == {"id": "anonymous", "user-agent": http.headers["user-agent"]}
    assert changed["duckicelake"]["engine"] == http.headers["user-agent"]
    assert changed["duckicelake"]["client"] == {"user-agent": http.headers["user-agent"]}
    assert changed["duckicelake"]["updates"] == ["set-properties"]


def test_namespaces_and_what_is_dropped_are_reported_as_in_the_draft(http: httpx.Client, client: Client) -> None:
    http.post("/v1/namespaces/ns/properties", json={"updates": {"k": "secret"}, "removals": []}).raise_for_status()
    settled(http, 1, kind="update-namespace")
    http.delete("/v1/namespaces/ns/tables/t?purgeRequested=true").raise_for_status()
    settled(http, 1, kind="drop-table")
    http.delete("/v1/namespaces/ns").raise_for_status()
    found = settled(http, 5, namespace="ns")
    assert [event["operation"] for event in found[2:]] == [
        {"operation-type": "update-namespace-properties", "namespace": ["ns"], "updated": ["k"], "removed": []},
        {
            "operation-type": "drop-table",
            "identifier": {"namespace": ["ns"], "name": "t"},
            "table-uuid": found[1]["operation"]["table-uuid"],
            "purge": True,
        },
        {"operation-type": "drop-namespace", "namespace": ["ns"]},
    ]
    assert "secret" not in json.dumps(found)


def test_renamed_namespace_is_reported_with_both_names(http: httpx.Client, client: Client) -> None:
    http.post("/v1/namespaces/ns/rename", json={"destination": ["a", "b"]}).raise_for_status()
    (renamed,) = settled(http, 1, kind="rename-namespace")
    (table,) = settled(http, 1, kind="rename-table")
    assert renamed["operation"] == {"operation-type": "rename-namespace", "source": ["ns"], "destination": ["a", "b"]}
    assert table["operation"]["source"] == {"namespace": ["ns"], "name": "t"}
    assert table["operation"]["destination"] == {"namespace": ["a", "b"], "name": "t"}
    assert renamed["request-id"] == table["request-id"]


def test_pages_by_get_and_by_post_hold_the_same(http: httpx.Client, client: Client) -> None:
    for number in range(5):
        client.append((number, "a"))
    found = settled(http, 8)
    assert read_all(http, limit=2) == found
    posted: list[Json] = []
    page: Json = {"continuation-token": None}
    for _ in range(len(found)):
        asked = {"page-size": 3, "continuation-token": page["continuation-token"]}
        page = http.post(EVENTS, json=asked).raise_for_status().json()
        assert set(page) == {"continuation-token", "highest-processed-timestamp-ms", "events"}
        posted += page["events"]
    assert posted == found
    assert page["highest-processed-timestamp-ms"] == found[-1]["timestamp-ms"]


def test_reader_chooses_by_name_and_kind(http: httpx.Client, client: Client, services: Services) -> None:
    for levels in (["ns", "in"], ["other"]):
        http.post("/v1/namespaces", json={"namespace": levels}).raise_for_status()
        path = f"/v1/namespaces/{'%1F'.join(levels)}/tables"
        http.post(path, json={"name": "t", "schema": SCHEMA}).raise_for_status()
    client.append((1, "a"))
    uuid = client.metadata()["table-uuid"]
    everything = settled(http, 8)  # main is there from the beginning

    def names(**query: Any) -> list[tuple[str, str]]:
        return [brief(event) for event in read_all(http, **query)]

    def post(**asked: Any) -> list[tuple[str, str]]:
        asked = {name.replace("_", "-"): value for name, value in asked.items()}
        return [brief(event) for event in http.post(EVENTS, json=asked).raise_for_status().json()["events"]]

    of_t = [("create-table", "ns.t"), ("append", "ns.t")]
    below = [("create-namespace", "ns.in"), ("create-table", "ns.in.t")]
    of_ns = [("create-namespace", "ns"), of_t[0], *below, of_t[1]]
    assert names(namespace="ns") == of_ns == post(catalog_objects_by_name=[["ns"]])
    assert names(namespace="ns", table="t") == of_t == post(catalog_objects_by_name=[["ns", "t"]])
    assert names(namespace="ns\x1fin") == below == post(catalog_objects_by_name=[["ns", "in"]])
    assert names(kind="append") == of_t[1:] == post(operation_types=["update-table"])
    assert names(kind="append,create-table", namespace="ns") == [of_t[0], below[1], of_t[1]]
    assert post(catalog_objects_by_id=[{"uuid": uuid, "type": "table"}]) == of_t
    assert post(object_types=["namespace"], catalog_objects_by_name=[["ns"]]) == [of_ns[0], below[0]]
    assert post(after_timestamp_ms=everything[-1]["timestamp-ms"] + 1) == post(operation_types=["x-own"]) == []
    assert names(kind="append", namespace="other") == []


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"kind": "apend"}, "Invalid kind of event 'apend': expected "),
        ({"table": "t"}, "The parameter table needs the parameter namespace"),
        ({"from": "x"}, "'x' is no position"),
        ({"form": "17"}, "query.form: there is no such parameter"),
        ({"from": "999999"}, "has not come to 999999"),
        ({"from": "2.999"}, "has not come to 2.999"),
        ({"wait": "1000"}, "wait"),
    ],
)
def test_question_without_sense_is_400(http: httpx.Client, query: dict[str, str], says: str) -> None:
    status, message = error(http.get(EVENTS, params=query))
    assert status == 400
    assert says in message


def test_filters_of_others_are_refused(http: httpx.Client) -> None:
    assert error(http.post(EVENTS, json={"custom-filters": {"x": 1}}))[0] == 400
    assert error(http.post(EVENTS, json={"operation-types": ["delete-table"]}))[0] == 400


def test_reader_waits_for_an_event_that_it_asks_for(http: httpx.Client, client: Client) -> None:
    settled(http, 3)
    begun, before = time.monotonic(), newest(http)
    assert http.get(EVENTS, params={"from": before, "wait": "0.2"}).json()["events"] == []
    assert 0.2 <= time.monotonic() - begun < 5
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(http.get, EVENTS, params={"from": before, "wait": "20", "kind": "append"})
        commit(http, set_properties(k="v"))
        client.append((1, "a"))
        page = waiting.result(SECONDS).json()
    assert [brief(event) for event in page["events"]] == [("append", "ns.t")]
    assert page["continuation-token"] == page["events"][-1]["event-id"]


def test_snapshot_that_a_commit_has_just_made_is_where_one_reads_on(http: httpx.Client, client: Client) -> None:
    for number in range(5):
        posted = http.post("/v1/namespaces/ns/tables/t/rows", json=[{"id": number, "name": "a"}]).json()
        page = http.get(EVENTS, params={"from": posted["snapshot-id"]})
        assert page.json()["events"] == [], page.text
    client.append((9, "z"))
    found = settled(http, 1, **{"from": str(posted["snapshot-id"])})
    assert [brief(event) for event in found] == [("append", "ns.t")]


def test_stream_goes_on_where_a_lost_one_was(http: httpx.Client, client: Client) -> None:
    uri = str(http.base_url)
    first = Stream(uri)
    report = first.until(3)
    client.append((1, "a"))
    first.until(4)
    first.kill()
    client.append((2, "b"))
    client.append((3, "c"))
    with streams(uri, "?from=newest", **{"Last-Event-ID": report.last_id or ""}) as (again,):
        again.until(2)
        client.append((4, "d"))
        again.until(3)
        assert report.events + again.report.events == settled(http, len(report.events) + 3)
        assert again.report.last_id == again.report.positions[-1]


def test_changes_of_duckdb_arrive_as_well(
    http: httpx.Client, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    settled(http, 3)
    with streams(str(http.base_url), "?from=newest", "?from=newest&namespace=ns&table=t") as (everything, of_t):
        ducklake.execute("CREATE SCHEMA duck; CREATE TABLE duck.d (i BIGINT)")
        ducklake.execute("BEGIN; INSERT INTO duck.d VALUES (1); INSERT INTO ns.t VALUES (1, 'a'); COMMIT")
        ducklake.execute("DROP TABLE duck.d")
        report = everything.until(5)
        assert report.brief == [
            ("create-namespace", "duck"),
            ("create-table", "duck.d"),
            *sorted([("append", "ns.t"), ("append", "duck.d")], reverse=True),
            ("drop-table", "duck.d"),
        ]
        together = report.events[2:4]
        assert {event["request-event-count"] for event in together} == {2}
        assert len({event["request-id"] for event in together}) == 1
        assert {event["duckicelake"]["source"] for event in report.events} == {"duckdb"}
        assert all("actor" not in event for event in report.events)
        assert of_t.until(1).brief == [("append", "ns.t")]


def test_changes_of_one_transaction_say_that_they_are(http: httpx.Client, client: Client) -> None:
    client.create("u")
    before = settled(http, 4)[-1]["event-id"]
    changes = []
    for name in "tu":
        body = append(client.metadata(name), (1, "a"))
        changes.append({"identifier": {"namespace": ["ns"], "name": name}, **body})
    http.post("/v1/transactions/commit", json={"table-changes": changes}).raise_for_status()
    found = settled(http, 2, **{"from": before})
    assert sorted(brief(event) for event in found) == [("append", "ns.t"), ("append", "ns.u")]
    assert {event["request-event-count"] for event in found} == {2}
    assert len({event["request-id"] for event in found}) == 1


def test_all_readers_are_reported_everything_once_and_in_order_while_all_write(
    http: httpx.Client, client: Client, services: Services, attach: Attach
) -> None:
    uri, each = str(http.base_url), 12
    for name in ("u", "v"):
        client.create(name)
    lake = attach()

    def by_rest(name: str) -> None:
        for number in range(each):
            Client(services).append((number, name), name=name)

    def by_duckdb() -> None:
        for number in range(each):
            lake.execute(f"INSERT INTO ns.v VALUES ({number}, 'v')")

    with streams(uri, *["?from=0"] * 5, *["?from=0&kind=append"] * 3) as opened:
        lost = Stream(uri, "?from=0")
        with ThreadPoolExecutor(3) as threads:
            done = [threads.submit(by_rest, "t"), threads.submit(by_rest, "u"), threads.submit(by_duckdb)]
            lost.until(8)
            first = lost.kill()
            again = Stream(uri, **{"Last-Event-ID": first.last_id or ""})
            for each_done in done:
                each_done.result(SECONDS)
        found = settled(http, 4 + 3 * each, **{"from": "0"})
        assert len([event for event in found if brief(event)[0] == "append"]) == 3 * each
        assert [event["event-id"] for event in found] == read_event_ids(services, after=0)
        for stream in opened[:5]:
            assert stream.until(len(found)).events == found
        for stream in opened[5:]:
            assert stream.until(3 * each).events == [event for event in found if brief(event)[0] == "append"]
        again.when(lambda report: len(first.events) + len(report.events) >= len(found))
        assert first.events + again.kill().events == found


def read_event_ids(services: Services, after: int) -> list[str]:
    """Positions of all that there is, in order."""
    with services.database.statement() as cursor:
        rows = cursor.execute(
            "SELECT snapshot_id, ordinal FROM duckicelake_change WHERE snapshot_id > %s ORDER BY 1, 2", [after]
        ).fetchall()
    return [f"{snapshot_id}.{ordinal}" for snapshot_id, ordinal in rows]


@dataclass
class Guarded:
    """A server that asks who reads."""

    http: httpx.Client
    server: Server
    tokens: dict[str, str]

    def headers(self, who: str) -> dict[str, str]:
        return bearing(self.tokens[who])

    def stream(self, who: str, query: str = "?from=0") -> Stream:
        return Stream(str(self.http.base_url), query, **self.headers(who))

    def events(self, who: str, query: str = "") -> list[tuple[str, str]]:
        answer = self.http.get(EVENTS + query, headers=self.headers(who))
        return [brief(event) for event in answer.raise_for_status().json()["events"]]


SCOPES = {
    "root": ("*",),
    "left": ("ns:a:r",),
    "right": ("ns:b:r",),
    "both": ("ns:a:r", "ns:b:r"),
    "writer": ("ns:a:w",),
}


@pytest.fixture
def guarded(services: Services, followed: None) -> Iterator[Guarded]:
    server = Server()
    logins = [Login(name, SECRET, scopes) for name, scopes in SCOPES.items()]
    with running(server.app(services, server.authentication(*logins))) as uri, httpx.Client(base_url=uri) as http:
        found = Guarded(http, server, {name: token(http, name) for name in SCOPES})
        for namespace in "ab":
            http.post(
                "/v1/namespaces", json={"namespace": [namespace]}, headers=found.headers("root")
            ).raise_for_status()
        yield found


def test_reader_is_reported_of_namespaces_that_it_may_read(guarded: Guarded) -> None:
    root = guarded.headers("root")
    with ExitStack() as stack:
        readers = {who: guarded.stream(who) for who in SCOPES}
        for stream in readers.values():
            stack.callback(stream.kill)
        guarded.http.post("/v1/namespaces/a/tables", json={"name": "t", "schema": SCHEMA}, headers=root)
        ends = {"source": {"namespace": ["a"], "name": "t"}, "destination": {"namespace": ["b"], "name": "u"}}
        guarded.http.post("/v1/tables/rename", json=ends, headers=root).raise_for_status()
        guarded.http.delete("/v1/namespaces/b/tables/u", headers=root).raise_for_status()
        report = {
            who: readers[who].until(number) for who, number in (("root", 5), ("both", 5), ("left", 3), ("right", 3))
        }
        everything = [
            ("create-namespace", "a"),
            ("create-namespace", "b"),
            ("create-table", "a.t"),
            ("rename-table", "b.u"),
            ("drop-table", "b.u"),
        ]
        assert report["root"].brief == report["both"].brief == everything
        assert report["left"].brief == [everything[0], everything[2], ("drop-table", "a.t")]
        assert report["right"].brief == [everything[1], ("create-table", "b.u"), everything[4]]
        assert "b" not in json.dumps(
            [event["operation"]["identifier"]["namespace"] for event in report["left"].events[1:]]
        )
        assert '"u"' not in json.dumps(report["left"].events)
        assert '"t"' not in json.dumps(report["right"].events)
        renamed = report["root"].events[3]
        assert renamed["operation"]["source"] == ends["source"]
        assert renamed["actor"]["id"] == "root"
        for who, stream in readers.items():
            assert guarded.events(who, "?from=0") == stream.report.brief
        assert readers["writer"].report.events == []
    answer = guarded.http.get(f"{EVENTS}?namespace=b", headers=guarded.headers("left"))
    assert error(answer)[0] == 403
    assert guarded.http.get(EVENTS).status_code == 401


def test_request_counts_the_events_that_its_reader_is_reported(guarded: Guarded) -> None:
    root, changes = guarded.headers("root"), []
    for namespace, name in (("a", "t"), ("b", "t"), ("b", "u")):
        path = f"/v1/namespaces/{namespace}/tables"
        guarded.http.post(path, json={"name": name, "schema": SCHEMA}, headers=root).raise_for_status()
        update = {"action": "set-properties", "updates": {"k": "v"}}
        identifier = {"namespace": [namespace], "name": name}
        changes.append({"identifier": identifier, "requirements": [], "updates": [update]})
    body = {"table-changes": changes}
    guarded.http.post("/v1/transactions/commit", json=body, headers=root).raise_for_status()
    for who, number in (("root", 3), ("both", 3), ("left", 1), ("right", 2)):
        query = "?from=0&kind=update-table&wait=20"
        answer = guarded.http.get(EVENTS + query, headers=guarded.headers(who), timeout=SECONDS)
        assert [event["request-event-count"] for event in answer.json()["events"]] == [number] * number


def test_client_that_gives_all_its_requests_one_id_is_read_in_parts(
    guarded: Guarded, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "PAGE_CHANGES", 4)
    monkeypatch.setattr(change_feed, "MAX_CHANGES", 8)
    headers = {**guarded.headers("root"), "X-Request-Id": "always-the-same"}
    for number in range(20):
        body = {"updates": {"k": str(number)}}
        guarded.http.post("/v1/namespaces/a/properties", json=body, headers=headers).raise_for_status()
    deadline = time.monotonic() + SECONDS
    while len(read_event_ids(services, -1)) < 22:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    after, found = change_feed.START_POSITION, []
    while part := change_feed.read_older_changes(services.database, after, 0):
        assert len(part) <= 8
        after = part[-1].position
        found += [str(each.position) for each in part]
    assert found == read_event_ids(services, -1)


def test_stream_ends_with_its_token(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_hub, "TICK_SECONDS", 0.05)
    stream = guarded.stream("root")
    last = stream.until(2).positions[-1]
    with ThreadPoolExecutor(1) as threads:
        polled = threads.submit(
            guarded.http.get, f"{EVENTS}?from=newest&wait=20", headers=guarded.headers("left"), timeout=SECONDS
        )
        time.sleep(0.3)
        guarded.server.clock.now += 4000
        ended = stream.ended()
        assert ended.end == {"reason": "token", "position": last}
        assert polled.result(SECONDS).status_code == 401
    assert guarded.http.get(EVENTS, headers=guarded.headers("root")).status_code == 401


def test_what_is_too_long_ago_for_memory_is_read_from_postgres(
    http: httpx.Client, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "MAX_CHANGES", 3)
    monkeypatch.setattr(change_feed, "PAGE_CHANGES", 2)
    slow = Stream(str(http.base_url))
    for number in range(8):
        client.append((number, "a"))
    found = settled(http, 11)
    with streams(str(http.base_url), "", "?from=1", f"?from={found[-1]['event-id']}") as (everything, later, nothing):
        assert everything.until(11).events == slow.until(11).events == found
        assert later.until(9).events == found[2:]
        assert nothing.report.events == []
    slow.kill()


def test_reader_that_takes_nothing_keeps_no_one_waiting_and_misses_nothing(
    services: Services, followed: None, serve: Callable[[Any], httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "MAX_CHANGES", 20)
    http, number = serve(create_app(services, log=QUIET)), 100
    settled(http, 1)
    uri, note = str(http.base_url), "x" * 100_000  # more than the sockets' buffers hold
    with socket.create_connection((http.base_url.host, http.base_url.port or 0)) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        slow.sendall(b"GET /v1/events?from=newest HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n")
        slow.recv(1000)
        with streams(uri, "?from=newest") as (quick,), psycopg.connect(services.database.url) as connection:
            for each in range(number):
                with connection.transaction():
                    tell(connection, 1000 + each, {"message": note})
            expected = quick.until(number).positions
        received = bytearray()
        slow.settimeout(SECONDS)
        while b'"event-id":"%b"' % expected[-1].encode() not in received[-200_000:]:
            piece = slow.recv(1 << 20)
            assert piece
            received += piece
    assert re.findall(rb'"event-id":"([\d.]+)"', received) == [each.encode() for each in expected]


def tell(connection: psycopg.Connection, snapshot_id: int, facts: Json) -> None:
    """Add a change to the changelog, as the follower does."""
    connection.execute(
        """INSERT INTO duckicelake_change (snapshot_id, ordinal, at, kind, namespace, name, source, facts)
           VALUES (%s, 0, now(), 'append', 'ns', 't', 'duckdb', %s)""",
        [snapshot_id, json.dumps(facts)],
    )
    connection.execute("SELECT pg_notify('duckicelake_change', '')")


def test_nothing_is_missed_while_postgres_is_away(http: httpx.Client, client: Client, services: Services) -> None:
    with streams(str(http.base_url), "?from=0") as (stream,):
        stream.until(2)
        for number in range(4):
            assert listeners(services, "pg_terminate_backend(pid)") >= 1
            client.append((number, "a"))
        assert stream.until(6).events == settled(http, 7)[1:]
        client.append((4, "a"))
        assert stream.until(7).brief[-1] == ("append", "ns.t")


def test_streams_end_where_the_lake_was_put_back_behind_them(
    services: Services, client: Client, serve: Callable[[Any], httpx.Client]
) -> None:
    http = serve(create_app(services, log=QUIET))
    settled(http, 3)
    with streams(str(http.base_url), "?from=0") as (stream,):
        with services.database.transaction() as cursor:
            tell(cursor.connection, 1000, {})
        assert stream.until(3).positions[-1] == "1000.0"
        with services.database.transaction() as cursor:
            cursor.execute("DELETE FROM duckicelake_change WHERE snapshot_id = 1000")
        listeners(services, "pg_terminate_backend(pid)")
        assert stream.ended().end == {"reason": "rewound", "position": "1000.0"}
    assert len(settled(http, 3)) == 3
    again = http.get(EVENTS, headers=STREAM | {"Last-Event-ID": "1000.0"})
    assert error(again)[0] == 400


def listeners(services: Services, act: str) -> int:
    """Do something to each connection that reads what is new; how many there are."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        with services.database.statement() as cursor:
            found = cursor.execute(
                f"SELECT {act} FROM pg_stat_activity WHERE query LIKE 'SELECT snapshot_id, ordinal, at, kind%'"
            ).fetchall()
        if found:
            return len(found)
        time.sleep(0.01)
    raise AssertionError("nobody listens")


def test_changes_that_were_pruned_are_410(
    http: httpx.Client, client: Client, services: Services, serve: Callable[[Any], httpx.Client]
) -> None:
    for number in range(3):
        client.append((number, "a"))
    found = settled(http, 6)
    with services.database.transaction() as cursor:
        cursor.execute("DELETE FROM duckicelake_change WHERE snapshot_id < 4")
    assert read_all(http, **{"from": "1"}) == found[2:]  # memory has them
    http = serve(create_app(services, log=QUIET))
    assert error(http.get(EVENTS, params={"from": "1"}))[0] == 410
    assert read_all(http, **{"from": "4"}) == found[-1:]


def test_streams_leave_room_for_requests_and_have_limits_of_their_own(
    services: Services, client: Client, serve: Callable[[Any], httpx.Client]
) -> None:
    edge = Edge(max_requests=2, readers=ReaderLimits(total=4, per_principal=3))
    http = serve(create_app(services, edge=edge, log=QUIET))
    with streams(str(http.base_url), *["?from=newest"] * 3):
        refused = http.get(EVENTS, headers=STREAM)
        assert error(refused)[0] == 429
        assert refused.headers["retry-after"] == "10"
        assert http.get(EVENTS, params={"from": "newest", "wait": "5"}).status_code == 429
        assert http.get("/v1/namespaces").status_code == 200
        settled(http, 3)
        assert "duckicelake_feed_readers 3.0" in http.get("/metrics").text
    until = time.monotonic() + SECONDS
    while "duckicelake_feed_readers 0.0" not in http.get("/metrics").text:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_stream_outlasts_what_a_request_may_take(services: Services, client: Client) -> None:
    with behind(create_app(services, log=QUIET), receive_seconds=0.3, keep_alive_seconds=1) as uri:
        stream = Stream(uri)
        stream.until(3)
        time.sleep(1.5)
        client.append((1, "a"))
        assert stream.until(4).brief[-1] == ("append", "ns.t")
        stream.kill()


def test_server_that_ends_ends_its_streams_at_once(services: Services, client: Client) -> None:
    with ThreadPoolExecutor(1) as threads:
        with running(create_app(services, log=QUIET)) as uri:
            stream = Stream(uri)
            stream.until(3)
            polled = threads.submit(httpx.get, f"{uri}{EVENTS}?from=newest&wait=60", timeout=SECONDS)
            time.sleep(0.3)
            begun = time.monotonic()
        assert time.monotonic() - begun < 5
        assert stream.ended().end == {"reason": "shutdown", "position": stream.report.positions[-1]}
        assert polled.result(SECONDS).json()["events"] == []
