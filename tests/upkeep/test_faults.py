"""What fails while a task runs leaves a state that says what it was, and nothing behind; the next attempt succeeds."""

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.flush import find_waiting_tables, flush_if_free, flush_rows
from duckicelake.catalog.tables import drop_table, rename_table
from duckicelake.catalog.upkeep_tasks import TaskControl
from duckicelake.errors import StoreDeniedError, UnavailableError
from duckicelake.iceberg.rest import RenameTableRequest
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.upkeep import actions
from duckicelake.upkeep.planner import request_tasks
from duckicelake.upkeep.queue import QueuedTask
from duckicelake.upkeep.worker import Worker
from tests.catalog.commit.test_crashes import assert_whole_catalog
from tests.support.client import NS, Client, duckdb_rows
from tests.support.seams import RefusingStore, fresh
from tests.upkeep.test_queue import ALL, LIMITS, insert, make_ready, only, plan, set_policies, use_action


@pytest.fixture
def lake(client: Client, ducklake: duckdb.DuckDBPyConnection) -> Client:
    """A lake that keeps itself, with a table whose rows are to go from Postgres to a file."""
    set_policies(client.services, ALL)
    client.create()
    insert(ducklake, 5)
    plan(client.services)
    return client


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (StoreDeniedError("The store refuses to write: AccessDenied"), "refuses to write"),
        (UnavailableError("The store does not answer: 503 SlowDown"), "503 SlowDown"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk of"),
    ],
    ids=["403", "503", "full disk"],
)
def test_store_that_takes_no_file_keeps_a_task_waiting(
    lake: Client, ducklake: duckdb.DuckDBPyConnection, error: Exception, says: str
) -> None:
    rows = duckdb_rows(ducklake)
    store: Any = RefusingStore(lake.services.store, [error])
    refused = fresh(replace(lake.services, store=store))
    assert Worker(LIMITS).work(refused)
    assert (only(lake.services).state, says in str(only(lake.services).message)) == ("waiting", True)
    assert duckdb_rows(ducklake) == rows
    assert_whole_catalog(lake.services)
    store.errors.clear()
    assert finish(refused).state == "done"
    assert duckdb_rows(ducklake) == rows
    assert_whole_catalog(lake.services)


def rename(services: Services) -> None:
    request = {"source": {"namespace": NS, "name": "t"}, "destination": {"namespace": NS, "name": "renamed"}}
    rename_table(services, RenameTableRequest.model_validate(request))


def drop(services: Services) -> None:
    drop_table(services, NS, "t", purge=False)


@pytest.mark.parametrize("change", [rename, drop])
def test_table_that_leaves_its_name_in_the_middle_is_found_again_or_done(
    lake: Client, monkeypatch: pytest.MonkeyPatch, change: Callable[[Services], None]
) -> None:
    changes = [change]

    def flush(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
        if changes:
            changes.pop()(lake.services)
        return actions.flush(services, task, control)

    use_action(monkeypatch, flush, "flush")
    assert Worker(LIMITS).work(lake.services)
    with lake.services.database.reading() as cursor:
        ((state, message),) = cursor.execute("SELECT state, message FROM duckicelake_upkeep_task").fetchall()
    assert (state, "dropped or renamed meanwhile" in message) == ("waiting", True)
    make_ready(lake.services)
    assert Worker(LIMITS).work(lake.services)
    with lake.services.database.reading() as cursor:
        ended = cursor.execute("SELECT state, message, counts ->> 'rows in Postgres' FROM duckicelake_upkeep_task")
        assert ended.fetchall() == [("done", None, "5") if change is rename else ("done", "the table is gone", None)]


@pytest.mark.parametrize(
    "change",
    ["ALTER TABLE lake.ns.t ADD COLUMN more INT", "ALTER TABLE lake.ns.t RENAME COLUMN name TO called"],
    ids=["add column", "rename column"],
)
def test_table_that_is_altered_in_the_middle_is_flushed(
    lake: Client, ducklake: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    def flush(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
        ducklake.execute(change)
        insert_one = "INSERT INTO lake.ns.t BY NAME SELECT 77 AS id"
        ducklake.execute(insert_one)
        return actions.flush(services, task, control)

    use_action(monkeypatch, flush, "flush")
    assert finish(lake.services).state == "done"
    assert sorted(ducklake.sql("SELECT id FROM lake.ns.t").fetchall()) == [(0,), (1,), (2,), (3,), (4,), (77,)]
    assert_whole_catalog(lake.services)


def finish(services: Services) -> QueuedTask:
    """Let a worker do the task that waits."""
    make_ready(services)
    assert Worker(LIMITS).work(services)
    return only(services)


def test_flusher_and_worker_beside_each_other_flush_each_row_once(
    lake: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    """The thread of `DUCKICELAKE_FLUSH_ROWS` and the task have one lease of the table."""
    services = lake.services
    worked = []
    with ThreadPoolExecutor() as pool:
        for number in range(1, 8):
            request_tasks(services, NS, "t", ("flush",))
            make_ready(services)
            working = pool.submit(Worker(LIMITS).work, fresh(services))
            flushed = [flush_if_free(services, table) for table in find_waiting_tables(services)]
            worked.append(working.result())
            assert worked[-1] or any(flushed)
            insert(ducklake, number)
    assert any(worked)
    flush_rows(services, NS, "t")
    assert len(duckdb_rows(ducklake)) == 5 + sum(range(1, 8))
    files = "SELECT sum(record_count) FROM ducklake_data_file WHERE end_snapshot IS NULL"
    with services.database.reading() as cursor:
        assert cursor.execute(files).fetchall() == [(5 + sum(range(1, 8)),)]
    assert_whole_catalog(services)
