"""A task that is due and isn't taken: the queue says what keeps it."""

from uuid import uuid4

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.upkeep import queue
from duckicelake.upkeep.planner import request_tasks
from tests.support.client import NS, Client
from tests.upkeep.test_queue import insert, set_policies, tasks

KINDS = ("flush", "statistics")


@pytest.fixture
def filled(client: Client, ducklake: duckdb.DuckDBPyConnection) -> Services:
    """A lake with two tables, and two tasks for each."""
    services = client.services
    set_policies(services, {"maintenance.flush.min-rows": "3"})
    for name in ("t", "u"):
        client.create(name)
        insert(ducklake, 5, name)
        client.metadata(name)
        request_tasks(services, NS, name, KINDS)
    assert len(tasks(services)) == 4
    return services


def claim(services: Services) -> str:
    with services.database.transaction() as cursor:
        claimed = queue.claim_task(cursor, uuid4(), "a worker", KINDS, 10, 30)
        assert claimed is not None
        (name,) = cursor.execute(
            "SELECT table_name FROM ducklake_table WHERE table_id = %s AND end_snapshot IS NULL", [claimed.table_id]
        ).fetchone() or ("",)
    return f"{name} {claimed.kind}"


def age(services: Services, changes: str) -> None:
    with services.database.transaction() as cursor:
        cursor.execute(f"UPDATE duckicelake_upkeep_task SET {changes}".encode())


def read_messages(services: Services) -> dict[str, str | None]:
    return {f"{task.table_name} {task.kind}": task.message for task in tasks(services)}


def test_queue_says_why_a_due_task_is_not_taken(filled: Services) -> None:
    assert set(read_messages(filled).values()) == {None}
    age(filled, "available = available - interval '50 s', changed = changed - interval '45 s'")
    assert all("no worker has taken it for 4" in str(message) for message in read_messages(filled).values())
    taken = claim(filled)
    table, kind = taken.split()
    messages = read_messages(filled)
    assert messages.pop(taken) is None
    for name, message in messages.items():
        beside = f"waits for the task {kind} of the same table, which runs"
        expected = beside if name.startswith(table) else "waits for 1 task of the warehouse"
        assert str(message).startswith(expected), name
    age(filled, "lease_until = clock_timestamp() - interval '1 s'")
    assert "its worker was killed or is frozen" in str(read_messages(filled)[taken])


def test_task_that_waits_until_a_time_has_the_reason_of_its_last_attempt_alone(filled: Services) -> None:
    age(filled, "available = clock_timestamp() + interval '1 hour', state = 'waiting', message = 'the disk is full'")
    assert set(read_messages(filled).values()) == {"the disk is full"}
    age(filled, "message = NULL")
    assert set(read_messages(filled).values()) == {None}


def test_due_task_says_what_keeps_it_now_and_then_what_did_before(filled: Services) -> None:
    age(filled, "state = 'waiting', message = 'quiet hours', available = available - interval '5 s'")
    assert set(read_messages(filled).values()) == {"quiet hours"}, "a worker is about to take it"
    age(filled, "available = available - interval '50 s', changed = changed - interval '45 s'")
    for message in map(str, read_messages(filled).values()):
        assert message.startswith("no worker has taken it for 4"), message
        assert message.endswith("duckicelake work; before: quiet hours")
    table, kind = claim(filled).split()
    beside = [message for name, message in read_messages(filled).items() if name.startswith(table)]
    assert f"waits for the task {kind} of the same table, which runs; before: quiet hours" in beside
