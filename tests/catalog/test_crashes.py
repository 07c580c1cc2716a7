"""The server dies at each of its I/Os in turn: acknowledged commits stay, others are all there or not at all."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pytest

from duckicelake.catalog import tables
from duckicelake.catalog.services import Services
from duckicelake.errors import CommitStateUnknown, NoSuchTable, Unavailable
from tests.catalog.client import (
    NS,
    Client,
    Json,
    Row,
    append,
    assert_whole,
    data_files,
    delete,
    duckdb_rows,
    pyiceberg_rows,
    remove,
)
from tests.catalog.seams import Fuse, FusedStore, Killed, fresh, fused

MOST_STEPS = 100
FIRST: tuple[Row, ...] = tuple((number, "first") for number in range(1000, 1100))


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one commit wants: its body, and the rows that the table then has."""

    body: Json
    rows: list[Row]


def appended(metadata: Json, rows: list[Row], number: int) -> Attempt:
    return Attempt(append(metadata, (number, "new")), sorted([*rows, (number, "new")]))


def deleted(metadata: Json, rows: list[Row], number: int) -> Attempt:
    path = data_files(metadata)[0]
    return Attempt(delete(metadata, (path, number)), [row for row in rows if row != (1000 + number, "first")])


def rewritten(metadata: Json, rows: list[Row], number: int) -> Attempt:
    """Remove the newest file and, in the next snapshot of the same commit, add another."""
    path = data_files(metadata)[-1]
    first = remove(metadata, path)
    snapshot = first["updates"][0]["snapshot"]
    between = {
        **metadata,
        "current-snapshot-id": snapshot["snapshot-id"],
        "refs": {"main": {"snapshot-id": snapshot["snapshot-id"], "type": "branch"}},
        "snapshots": [*metadata["snapshots"], snapshot],
        "last-sequence-number": snapshot["sequence-number"],
    }
    second = append(between, (number, "new"))
    body = {**first, "updates": [*first["updates"], *second["updates"]]}
    return Attempt(body, sorted([*(row for row in rows if row[1] != "new"), (number, "new")]))


@pytest.mark.parametrize("work", [appended, deleted, rewritten])
def test_commit_killed_at_any_step_is_there_or_not_and_if_acknowledged_it_is(
    services: Services,
    client: Client,
    ducklake: duckdb.DuckDBPyConnection,
    work: Callable[[Json, list[Row], int], Attempt],
) -> None:
    client.create()
    client.append(*FIRST)
    client.append((0, "new"))
    rows = sorted([*FIRST, (0, "new")])
    for step in range(MOST_STEPS):
        attempt = work(Client(fresh(services)).metadata(), rows, step)
        fuse = Fuse(step)
        acknowledged = survives(Client(fused(services, fuse)).commit, attempt.body)
        answer = Client(fresh(services)).load()
        found = pyiceberg_rows(answer)
        assert found in ((attempt.rows,) if acknowledged else (rows, attempt.rows)), fuse.log
        assert duckdb_rows(ducklake) == found, fuse.log
        assert_whole(answer)
        rows = found
        if not fuse.burnt:
            assert {"before COMMIT", "after COMMIT", "after writing .json"} <= set(fuse.log)
            return
    raise AssertionError(f"a commit takes more than {MOST_STEPS} steps: {fuse.log}")


def survives(act: Callable[..., object], *arguments: object) -> bool:
    """Whether the act came to its end, so that its client has an answer."""
    try:
        act(*arguments)
    except Killed:
        return False
    return True


def test_creation_killed_at_any_step_is_there_or_not(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    for step in range(MOST_STEPS):
        fuse, name = Fuse(step), f"t{step}"
        acknowledged = survives(Client(fused(services, fuse)).create, name)
        known = {
            row[0] for row in ducklake.sql("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'ns'").fetchall()
        }
        assert name in known or not acknowledged
        if name not in known:
            Client(fresh(services)).create(name)
        answer = Client(fresh(services)).append((1, "one"), name=name)
        assert pyiceberg_rows(answer) == duckdb_rows(ducklake, name) == [(1, "one")]
        if not fuse.burnt:
            return
    raise AssertionError(f"a creation takes more than {MOST_STEPS} steps")


def test_load_killed_at_any_step_is_done_by_the_next_one(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append(*FIRST[:10])
    for step in range(MOST_STEPS):
        ducklake.execute(f"INSERT INTO lake.ns.t VALUES ({step}, 'inlined'), ({step}, 'gone')")
        ducklake.execute(f"DELETE FROM lake.ns.t WHERE name = 'gone' OR id = {1000 + step}")
        ducklake.execute(f"INSERT INTO lake.ns.t SELECT {step}, 'file' FROM range(12)")
        fuse = Fuse(step)
        survives(Client(fused(services, fuse)).load)
        answer = Client(fresh(services)).load()
        assert pyiceberg_rows(answer) == duckdb_rows(ducklake), fuse.log
        assert_whole(answer)
        if not fuse.burnt:
            return
    raise AssertionError(f"a load takes more than {MOST_STEPS} steps")


def test_drop_killed_at_any_step_happens_or_not(services: Services, client: Client) -> None:
    for step in range(MOST_STEPS):
        client.create("gone")
        fuse = Fuse(step)
        survives(tables.drop_table, fused(services, fuse), NS, "gone", True)
        if client_has(services, "gone"):
            assert_whole(Client(fresh(services)).load("gone"))
            tables.drop_table(services, NS, "gone", purge=True)
        if not fuse.burnt:
            return


def client_has(services: Services, name: str) -> bool:
    try:
        tables.load_table(fresh(services), NS, name)
    except NoSuchTable:
        return False
    return True


@pytest.mark.parametrize("steps", [5, 12, 15])
def test_process_that_exits_hard_loses_nothing(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, steps: int
) -> None:
    client.create()
    client.append((1, "one"))
    root = Path(__file__).parents[2]
    command = [
        sys.executable,
        "-m",
        "tests.catalog.dying",
        services.database.url,
        services.policy.warehouse,
        str(steps),
    ]
    died = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True, timeout=60)
    assert died.returncode in (0, 9), died.stderr
    answer = client.load()
    found = pyiceberg_rows(answer)
    assert found in ([(1, "one"), (2, "two")], [(1, "one")] if died.returncode else [(1, "one"), (2, "two")])
    assert duckdb_rows(ducklake) == found
    assert_whole(answer)
    assert (3, "three") in pyiceberg_rows(client.append((3, "three")))


def silent() -> None:
    raise Unavailable("the store does not answer")


@pytest.mark.parametrize("work", [appended, deleted])
def test_failing_store_is_unknown_after_the_commit_and_harmless_before(
    services: Services, client: Client, work: Callable[[Json, list[Row], int], Attempt]
) -> None:
    client.create()
    client.append(*FIRST)
    rows, seen = list(FIRST), set()
    for step in range(MOST_STEPS):
        attempt = work(Client(fresh(services)).metadata(), rows, step)
        fuse = Fuse(step, silent)
        try:
            Client(replace(fresh(services), store=FusedStore(services.store, fuse))).commit(attempt.body)
        except (Unavailable, CommitStateUnknown) as error:
            seen.add(type(error))
            expected = rows if isinstance(error, Unavailable) else attempt.rows
        else:
            expected = attempt.rows
        answer = Client(fresh(services)).load()
        assert pyiceberg_rows(answer) == expected, fuse.log
        assert_whole(answer)
        rows = expected
        if not fuse.burnt:
            break
    assert seen == {Unavailable, CommitStateUnknown}
