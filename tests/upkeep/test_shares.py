"""What a task may take of its machine."""

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
from tests.upkeep.test_queue import LIMITS, insert, set_policies, use_action


def test_half_of_the_cores_while_others_write(
    client: Client, ducklake: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers are who makes snapshots again and again; upkeep's own snapshots and those of a while ago are no sign."""
    cores: list[int] = []

    def act(_: Services, __: UpkeepTask, control: TaskControl) -> TaskOutcome:
        cores.append(control.cores)
        return TaskOutcome("done")

    def work(kind: str) -> None:
        with client.services.database.transaction() as cursor:
            ((table_id, _),) = read_table_ids(cursor, "ns", "t", 0, None)
            task = UpkeepTask(kind, NS, "t", "", parse_policy({}), 1)
            queue.enqueue(cursor, [DueTask(table_id, task, "", {})], requested_by="me")
        assert Worker(LIMITS).work(client.services)

    def age_inserts() -> None:
        with client.services.database.transaction() as cursor:
            cursor.execute(
                "UPDATE ducklake_snapshot SET snapshot_time = snapshot_time - interval '1 minute' WHERE snapshot_id IN "
                "(SELECT snapshot_id FROM ducklake_snapshot_changes WHERE changes_made LIKE 'inlined_insert%')"
            )

    use_action(monkeypatch, act, "expire")
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    set_policies(client.services, {AUTOMATIC: "none"})
    client.create()
    work("expire")
    for _ in range(5):
        insert(ducklake, 4)
        age_inserts()
        work("flush")
    work("expire")
    for _ in range(5):
        insert(ducklake, 1)
    work("expire")
    age_inserts()
    work("expire")
    assert cores == [8, 8, 4, 8]
