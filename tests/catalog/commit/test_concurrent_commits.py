"""Many writers at the same time, over HTTP and in DuckDB: what was acknowledged is there exactly once, in one chain."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import httpx
import pytest

from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.services import Services
from duckicelake.lake.writer import change_sets
from duckicelake.server.app import create_app
from tests.conftest import Attach
from tests.support.client import (
    NS,
    SCHEMA,
    Client,
    Json,
    Row,
    append,
    assert_whole,
    data_files,
    duckdb_rows,
    pyiceberg_rows,
    remove,
)
from tests.support.servers import running

THREADS = 16
TABLES = f"/v1/namespaces/{NS[0]}/tables"
CONFLICT = re.compile("conflict|Conflict|concurrent|TransactionContext")


@dataclass(frozen=True, slots=True)
class HttpClient:
    """Retries as engines do: on 409 load and try again; anything else but 200 is a failure."""

    http: httpx.Client

    def append(self, name: str, *rows: Row) -> Json:
        while True:
            metadata = self.http.get(f"{TABLES}/{name}").raise_for_status().json()["metadata"]
            answer = self.http.post(f"{TABLES}/{name}", json=append(metadata, *rows))
            if answer.status_code != 409:
                body: Json = answer.raise_for_status().json()
                return body
            assert answer.json()["error"]["message"].startswith("Requirement failed: "), answer.text


@contextmanager
def two_servers(services: Services) -> Iterator[Sequence[HttpClient]]:
    """Clients of two servers on one lake."""
    others = replace(services, cache=TableCache())
    with (
        running(create_app(services)) as first,
        running(create_app(others)) as second,
        httpx.Client(base_url=first, timeout=60) as one,
        httpx.Client(base_url=second, timeout=60) as two,
    ):
        yield HttpClient(one), HttpClient(two)


def at_once(count: int, work: Callable[[int], object]) -> None:
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(work, number) for number in range(count)]:
            done.result()


def assert_one_chain(metadata: Json) -> None:
    """Every snapshot builds on the one before, with the next sequence number and a later DuckLake snapshot."""
    snapshots = metadata["snapshots"]
    assert [each.get("parent-snapshot-id") for each in snapshots] == [
        None,
        *(each["snapshot-id"] for each in snapshots[:-1]),
    ]
    assert [each["sequence-number"] for each in snapshots] == list(range(1, len(snapshots) + 1))
    numbers = [int(each["summary"]["ducklake.snapshot-id"]) for each in snapshots]
    assert numbers == sorted(set(numbers))
    assert metadata["current-snapshot-id"] == snapshots[-1]["snapshot-id"]


def assert_contiguous(services: Services) -> None:
    """No DuckLake snapshot id is skipped, and each has its row of changes."""
    with services.database.reading() as cursor:
        rows = cursor.execute(
            "SELECT s.snapshot_id, c.snapshot_id FROM ducklake_snapshot s "
            "FULL JOIN ducklake_snapshot_changes c USING (snapshot_id) ORDER BY 1"
        ).fetchall()
    assert rows == [(number, number) for number in range(len(rows))]


def test_threads_append_to_one_table_through_two_servers(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    with two_servers(services) as servers:
        at_once(THREADS, lambda number: servers[number % 2].append("t", (number, None)))
    answer = client.load()
    expected = [(number, None) for number in range(THREADS)]
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == expected
    assert len(answer["metadata"]["snapshots"]) == THREADS
    assert_one_chain(answer["metadata"])
    assert_contiguous(services)
    assert_whole(answer)


def test_threads_append_to_a_table_each_through_two_servers(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    names = [f"t{number}" for number in range(THREADS)]
    for name in names:
        client.create(name)

    def work(number: int) -> None:
        for round_ in range(3):
            servers[(number + round_) % 2].append(names[number], (round_, None))

    with two_servers(services) as servers:
        at_once(THREADS, work)
    assert_contiguous(services)
    for name in names:
        answer = client.load(name)
        assert pyiceberg_rows(answer) == duckdb_rows(ducklake, name) == [(0, None), (1, None), (2, None)]
        assert_one_chain(answer["metadata"])


def retried(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Run a statement as a careful DuckDB user does: a conflict is tried again, any other error fails."""
    while True:
        try:
            connection.execute(statement)
        except duckdb.TransactionException as error:
            if not CONFLICT.search(str(error)):
                raise
        else:
            return


def test_duckdb_inserts_and_deletes_while_threads_append(services: Services, client: Client, attach: Attach) -> None:
    client.create()
    connections = [attach(), attach()]
    each = 5

    def native(number: int) -> None:
        connection, first = connections[number], 1000 * (number + 1)
        for step in range(each):
            last = first + 20 * (step % 2) + 2
            retried(connection, f"INSERT INTO lake.ns.t SELECT range, 'd' FROM range({first}, {last})")
            retried(connection, f"DELETE FROM lake.ns.t WHERE id = {first} OR id = {number}")
            first += 100

    def work(number: int) -> None:
        if number < len(connections):
            native(number)
        else:
            for step in range(2):
                servers[number % 2].append("t", (100 * number + step, "c"))

    with two_servers(services) as servers:
        at_once(8, work)
    answer = client.load()
    rows = pyiceberg_rows(answer)
    assert rows == duckdb_rows(connections[0])
    native_ids = {
        1000 * (number + 1) + 100 * step + offset
        for number in range(2)
        for step in range(each)
        for offset in range(1, 20 * (step % 2) + 2)
    }
    client_ids = {100 * number + step for number in range(2, 8) for step in range(2)}
    assert Counter(row[0] for row in rows) == Counter(native_ids | client_ids)
    assert_one_chain(answer["metadata"])
    assert_contiguous(services)
    assert_whole(answer)


def test_threads_that_delete_the_same_file_succeed_once(services: Services, client: Client) -> None:
    client.create()
    metadata = client.append((1, "one"))["metadata"]
    bodies = [remove(metadata, *data_files(metadata)) for _ in range(6)]
    with two_servers(services) as (server, _), ThreadPoolExecutor() as pool:
        statuses = list(pool.map(lambda body: server.http.post(f"{TABLES}/t", json=body).status_code, bodies))
    assert Counter(statuses) == {200: 1, 409: 5}
    assert pyiceberg_rows(client.load()) == []


def test_threads_that_create_one_table_succeed_once(services: Services, client: Client) -> None:
    body = {"name": "t", "schema": SCHEMA}
    with two_servers(services) as (server, _), ThreadPoolExecutor() as pool:
        statuses = list(pool.map(lambda _: server.http.post(TABLES, json=body).status_code, range(6)))
    assert Counter(statuses) == {200: 1, 409: 5}
    assert_contiguous(services)


@pytest.mark.parametrize("attempt", range(2))
def test_properties_and_appends_at_once_all_succeed(services: Services, client: Client, attempt: int) -> None:
    client.create()

    def work(number: int) -> None:
        if number % 2:
            server.append("t", (number, None))
        else:
            body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {f"p{number}": "x"}}]}
            server.http.post(f"{TABLES}/t", json=body).raise_for_status()

    with two_servers(services) as (server, _):
        at_once(8, work)
    answer = client.load()
    assert pyiceberg_rows(answer) == [(number, None) for number in range(1, 8, 2)]
    assert {f"p{number}" for number in range(0, 8, 2)} <= answer["metadata"]["properties"].keys()


@pytest.mark.parametrize(("rows", "snapshots"), [(1, 1), (100, 3)])
def test_two_workers_that_catch_up_at_the_same_time_find_one_history(
    client: Client, ducklake: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, rows: int, snapshots: int
) -> None:
    """Inlined rows that no one was served collapse to a step (design §6.17); files are a step for each snapshot."""
    client.create()
    for number in range(3):
        ducklake.execute(f"INSERT INTO lake.ns.t SELECT {number}, 'native' FROM range({rows})")
    other = Client(replace(client.services, cache=TableCache()))
    written, seen = change_sets.write_caught_up, []

    def write_after_the_other(*arguments: Any) -> None:
        monkeypatch.setattr(change_sets, "write_caught_up", written)
        seen.append(other.load())
        written(*arguments)

    monkeypatch.setattr(change_sets, "write_caught_up", write_after_the_other)
    assert [client.load()] == seen
    assert len(client.metadata()["snapshots"]) == snapshots
    expected = [(number, "native") for number in range(3) for _ in range(rows)]
    assert pyiceberg_rows(client.load()) == duckdb_rows(ducklake) == expected
