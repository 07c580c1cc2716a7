"""The server is killed after each thing that it writes: acknowledged commits stay, others are all there or not at all.

What it leaves behind is orphans and nothing else: `gc` takes them, and all that is needed stays.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pytest

from duckicelake.catalog import tables
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.doctor import examine_files, examine_tables
from duckicelake.catalog.gc import delete_orphans, find_orphans
from duckicelake.changelog.doctor import diagnose
from duckicelake.errors import CommitStateUnknownError, NoSuchTableError, UnavailableError
from tests.support.client import (
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
from tests.support.killed_process import CREATING, Ending, Mortal, Work, mortal
from tests.support.seams import Fuse, FusedStore, fresh

MOST_STEPS = 100
FIRST: tuple[Row, ...] = tuple((number, "first") for number in range(1000, 1100))
COMMITTING = {"before COMMIT", "after COMMIT", CREATING, "os.rename"}
FLUSHING = {"before COMMIT", "after COMMIT", CREATING, "os.link", "os.remove"}
NOW = 2**62


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one commit wants: its body, and the rows that the table then has."""

    body: Json
    rows: list[Row]


@pytest.fixture
def server(services: Services, client: Client) -> Iterator[Mortal]:
    with mortal(services) as opened:
        yield opened


def deaths(server: Mortal, work: Callable[[int], Work]) -> Iterator[tuple[int, Ending]]:
    """Serve a work that dies at its first step, then one at its second and so on, until one comes to its answer."""
    for step in range(MOST_STEPS):
        ending = server.serve(replace(work(step), steps=step))
        yield step, ending
        if ending.answered:
            return
    raise AssertionError(f"a work takes more than {MOST_STEPS} steps: {ending.log}")


def assert_whole_catalog(services: Services, kept: str = "") -> None:
    """Nothing is damaged, every file that is needed is there; and the same once orphans are collected, all of them.

    kept: a table with `gc.enabled=false`, of whose folder nothing is collected.
    """
    for _ in range(2):
        damage, needed = examine_tables(services.database)
        findings = [*diagnose(services.database), *damage, *examine_files(services.store, needed)]
        assert [finding for finding in findings if finding is not None and not finding.ok] == []
        delete_orphans(services, find_orphans(fresh(services), NOW))
        assert find_orphans(fresh(services), NOW) == []
    left = Path(services.policy.warehouse).rglob(".tmp-*")
    assert [path for path in left if not kept or f"/{kept}-" not in str(path)] == []


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


@pytest.mark.parametrize(
    ("wanted", "alone"),
    [
        (appended, True),
        pytest.param(deleted, True, marks=pytest.mark.crash),
        pytest.param(rewritten, True, marks=pytest.mark.crash),
        pytest.param(appended, False, marks=pytest.mark.crash),
    ],
)
def test_commit_killed_at_any_step_is_there_or_not_and_if_acknowledged_it_is(
    services: Services,
    client: Client,
    ducklake: duckdb.DuckDBPyConnection,
    server: Mortal,
    wanted: Callable[[Json, list[Row], int], Attempt],
    alone: bool,
) -> None:
    client.create()
    client.append(*FIRST)
    client.append((0, "new"))
    rows, attempts = sorted([*FIRST, (0, "new")]), []

    def work(step: int) -> Work:
        attempts.append(wanted(Client(fresh(services)).metadata(), rows, step))
        return Work("commit", body=attempts[-1].body, alone=alone)

    for _, ending in deaths(server, work):
        answer = Client(fresh(services)).load()
        found = pyiceberg_rows(answer)
        assert found in ((attempts[-1].rows,) if ending.answered else (rows, attempts[-1].rows)), ending.log
        assert duckdb_rows(ducklake) == found, ending.log
        assert_whole(answer)
        rows = found
    assert set(ending.log) >= COMMITTING
    assert alone == (ending.log[-1] == "after COMMIT"), "all files are written before, if it is known for what"
    assert_whole_catalog(services)
    assert pyiceberg_rows(Client(fresh(services)).load()) == duckdb_rows(ducklake) == rows


@pytest.mark.crash
def test_transaction_killed_at_any_step_is_all_there_or_not_at_all(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, server: Mortal
) -> None:
    names = ("t", "u")
    rows: list[Row] = []
    for name in names:
        client.create(name)

    def work(step: int) -> Work:
        loaded = {name: Client(fresh(services)).metadata(name) for name in names}
        changes = [
            {"identifier": {"namespace": NS, "name": name}, **append(metadata, (step, name))}
            for name, metadata in loaded.items()
        ]
        return Work("commit to two", body={"table-changes": changes})

    for step, ending in deaths(server, work):
        answers = {name: Client(fresh(services)).load(name) for name in names}
        found = {name: pyiceberg_rows(answer) for name, answer in answers.items()}
        wanted = [*rows, (step, "")]
        assert [id_ for id_, _ in found["t"]] == [id_ for id_, _ in found["u"]], ending.log
        assert [id_ for id_, _ in found["t"]] in ([id_ for id_, _ in each] for each in (rows, wanted)), ending.log
        assert len(found["t"]) == len(wanted) or not ending.answered
        for name, answer in answers.items():
            assert duckdb_rows(ducklake, name) == found[name]
            assert_whole(answer)
        rows = found["t"]
    assert {"before COMMIT", "after COMMIT"} <= set(ending.log)
    assert_whole_catalog(services)


def test_creation_killed_at_any_step_is_there_or_not(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, server: Mortal
) -> None:
    for step, ending in deaths(server, lambda step: Work("create", name=f"t{step}")):
        name = f"t{step}"
        known = {
            row[0] for row in ducklake.sql("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'ns'").fetchall()
        }
        assert name in known or not ending.answered
        if name not in known:
            Client(fresh(services)).create(name)
        answer = Client(fresh(services)).append((1, "one"), name=name)
        assert pyiceberg_rows(answer) == duckdb_rows(ducklake, name) == [(1, "one")]
    assert set(ending.log) >= COMMITTING
    assert_whole_catalog(services)


@pytest.mark.crash
def test_load_killed_at_any_step_is_done_by_the_next_one(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, server: Mortal
) -> None:
    def work(step: int) -> Work:
        name = f"t{step}"
        client.create(name)
        client.append(*FIRST[:10], name=name)
        ducklake.execute(f"INSERT INTO lake.ns.{name} VALUES (1, 'inlined'), (2, 'gone')")
        ducklake.execute(f"DELETE FROM lake.ns.{name} WHERE name = 'gone' OR id = 1003")
        ducklake.execute(f"INSERT INTO lake.ns.{name} SELECT 3, 'file' FROM range(12)")
        return Work("load", name=name)

    for step, ending in deaths(server, work):
        answer = Client(fresh(services)).load(f"t{step}")
        assert pyiceberg_rows(answer) == duckdb_rows(ducklake, f"t{step}"), ending.log
        assert_whole(answer)
    assert set(ending.log) >= COMMITTING
    assert_whole_catalog(services)
    assert_whole(Client(fresh(services)).load(f"t{step}"))


@pytest.mark.crash
def test_flush_killed_at_any_step_happens_or_not(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, server: Mortal
) -> None:
    client.create()
    client.append(*FIRST)
    before: list[list[Row]] = []

    def work(step: int) -> Work:
        ducklake.execute(f"INSERT INTO lake.ns.t VALUES ({step}, 'inlined'), ({step}, 'gone')")
        ducklake.execute(f"DELETE FROM lake.ns.t WHERE name = 'gone' OR id = 1000 + {step}")
        before.append(duckdb_rows(ducklake))
        return Work("flush")

    for _, ending in deaths(server, work):
        assert duckdb_rows(ducklake) == before[-1], ending.log
        answer = Client(fresh(services)).load()
        virtual = [path for path in data_files(answer["metadata"]) if path.endswith("-inlined.parquet")]
        assert (virtual == []) == ("after COMMIT" in ending.log), ending.log
    assert set(ending.log) >= FLUSHING
    assert pyiceberg_rows(answer) == before[-1]
    assert_whole(answer)
    assert_whole_catalog(services)


def test_purge_killed_at_any_step_happens_or_not(services: Services, client: Client, server: Mortal) -> None:
    def work(step: int) -> Work:
        if not client_has(services, "gone"):
            client.create("gone")
        return Work("purge", name="gone")

    for _, ending in deaths(server, work):
        if client_has(services, "gone"):
            assert_whole(Client(fresh(services)).load("gone"))
            assert not ending.answered
    assert "after COMMIT" in ending.log
    assert_whole_catalog(services)


def client_has(services: Services, name: str) -> bool:
    try:
        tables.load_table(fresh(services), NS, name)
    except NoSuchTableError:
        return False
    return True


def silent() -> None:
    raise UnavailableError("the store does not answer")


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
        except (UnavailableError, CommitStateUnknownError) as error:
            seen.add(type(error))
            expected = rows if isinstance(error, UnavailableError) else attempt.rows
        else:
            expected = attempt.rows
        answer = Client(fresh(services)).load()
        assert pyiceberg_rows(answer) == expected, fuse.log
        assert_whole(answer)
        rows = expected
        if not fuse.burnt:
            break
    assert seen == {UnavailableError, CommitStateUnknownError}
