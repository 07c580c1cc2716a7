"""What a task takes of its machine while others write to the lake."""

from collections.abc import Callable
from dataclasses import replace

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.upkeep_tasks import TaskControl
from duckicelake.lake.ducklake.maintenance import read_table_ids
from duckicelake.maintenance.policy import AUTOMATIC, parse_policy
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.upkeep import queue
from duckicelake.upkeep.queue import DueTask
from duckicelake.upkeep.worker import Worker
from tests.support.client import NS, Client
from tests.support.waits import wait_until
from tests.upkeep.test_queue import LIMITS, insert, set_policies, use_action


def test_a_task_takes_less_beside_writers(
    client: Client, ducklake: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers are who makes snapshots again and again; upkeep's own snapshots and those of a while ago are no sign."""
    found: list[float] = []
    meanwhile: list[Callable[[], object]] = []

    def act(_: Services, __: UpkeepTask, control: TaskControl) -> TaskOutcome:
        found.append(control.share)
        for change in meanwhile:
            change()
            wait_until(lambda before=found[-1]: control.share != before)  # type: ignore[misc]
            found.append(control.share)
        return TaskOutcome("done")

    def work(kind: str, days: int = 0) -> None:
        with client.services.database.transaction() as cursor:
            ((table_id, _),) = read_table_ids(cursor, "ns", "t", 0, None)
            task = UpkeepTask(kind, NS, "t", "", parse_policy({}), 1)
            queue.enqueue(cursor, [DueTask(table_id, task, "", {})], requested_by="me")
            cursor.execute(
                "UPDATE duckicelake_upkeep_task SET created = created - make_interval(days => %s), available = created",
                [days],
            )
        assert Worker(replace(LIMITS, share=0.25)).work(client.services)

    def age_inserts() -> None:
        with client.services.database.transaction() as cursor:
            cursor.execute(
                "UPDATE ducklake_snapshot SET snapshot_time = snapshot_time - interval '1 minute' WHERE snapshot_id IN "
                "(SELECT snapshot_id FROM ducklake_snapshot_changes WHERE changes_made LIKE 'inlined_insert%')"
            )

    def write() -> None:
        for _ in range(5):
            insert(ducklake, 1)

    use_action(monkeypatch, act, "statistics")
    monkeypatch.setattr("duckicelake.upkeep.worker.LEASE_SECONDS", 3)
    set_policies(client.services, {AUTOMATIC: "none"})
    client.create()
    work("statistics")
    for _ in range(5):
        insert(ducklake, 4)
        age_inserts()
        work("flush")
    work("statistics")
    write()
    work("statistics")
    work("statistics", days=2)
    age_inserts()
    meanwhile += [write, age_inserts]  # heartbeats say so
    work("statistics")
    assert found == [1, 1, 0.25, 1, 1, 0.25, 1], "what has been due for a day is slowed no more"
