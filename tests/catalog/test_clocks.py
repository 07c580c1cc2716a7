"""Clocks that differ: of several servers, of their clients and of Postgres. No log ever goes back (design §6.20)."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from tests.support import engine
from tests.support.client import Client, Json, append, duckdb_rows, pyiceberg_rows, set_properties
from tests.support.seams import fresh

HOUR_MS = 3_600_000
SKEWS = (HOUR_MS, 0, -HOUR_MS, 0, HOUR_MS)


def skewed(services: Services, by_ms: int) -> Client:
    """A client of another server, whose clock is wrong."""
    return Client(replace(fresh(services), clock=lambda: services.clock() + by_ms))


def logs(metadata: Json) -> Iterator[list[int]]:
    """All times of a table that follow each other."""
    yield [each["timestamp-ms"] for each in metadata["snapshots"]]
    yield [each["timestamp-ms"] for each in metadata["snapshot-log"]]
    yield [*(each["timestamp-ms"] for each in metadata["metadata-log"]), metadata["last-updated-ms"]]


def assert_never_back(metadata: Json) -> None:
    for log in logs(metadata):
        assert all(before <= after for before, after in pairwise(log)), log
    assert metadata["last-updated-ms"] >= metadata["snapshots"][-1]["timestamp-ms"]


@pytest.mark.parametrize("version", ["2", "3"])
def test_servers_whose_clocks_differ_make_one_history_that_never_goes_back(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, version: str
) -> None:
    client.create(properties={"format-version": version})
    for number, by_ms in enumerate(SKEWS):
        server = skewed(services, by_ms)
        server.commit(engine.append((number, "iceberg"))(server.metadata()))
        ducklake.execute(f"INSERT INTO lake.ns.t SELECT {number}, 'duckdb' FROM range(12)")
        server.load()
        server.commit(set_properties(**{f"p{number}": "yes"}))
        assert_never_back(server.metadata())
    answer = Client(fresh(services)).load()
    assert len(answer["metadata"]["snapshots"]) == 2 * len(SKEWS)
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake)


@pytest.mark.parametrize("by_ms", [24 * HOUR_MS, -24 * HOUR_MS])
def test_client_whose_clock_is_wrong_is_put_right(services: Services, client: Client, by_ms: int) -> None:
    client.create()
    client.append((1, "one"))
    body = append(client.metadata(), (2, "two"))
    body["updates"][0]["snapshot"]["timestamp-ms"] += by_ms
    client.commit(body)
    client.append((3, "three"))
    metadata = client.metadata()
    assert_never_back(metadata)
    assert abs(metadata["last-updated-ms"] - services.clock()) < HOUR_MS


def test_postgres_whose_clock_was_ahead_goes_on_from_its_newest_time(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE ducklake_snapshot SET snapshot_time = snapshot_time + interval '1 hour'")
    client.append((1, "one"))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (2, 'two')")
    client.append((3, "three"))
    with services.database.reading() as cursor:
        times = cursor.execute("SELECT snapshot_time FROM ducklake_snapshot ORDER BY snapshot_id").fetchall()
    ours = [time for (time,) in times[:-2]]
    assert all(before <= after for before, after in pairwise(ours))
    assert_never_back(client.metadata())
    assert pyiceberg_rows(client.load()) == duckdb_rows(ducklake) == [(1, "one"), (2, "two"), (3, "three")]
