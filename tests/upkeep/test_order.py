"""In which order workers take tasks."""

from duckicelake.lake.ducklake.maintenance import read_table_ids
from duckicelake.maintenance.policy import parse_policy
from duckicelake.maintenance.task import TaskEstimate, UpkeepTask
from duckicelake.upkeep import queue
from duckicelake.upkeep.queue import DueTask
from duckicelake.upkeep.worker import Worker
from tests.support.client import NS, Client
from tests.upkeep.test_queue import LIMITS, tasks


def test_order_of_tasks(client: Client) -> None:
    """What was asked for is done first, then what has been due for more than a day, then the best gain for the cost."""
    services, ranks = client.services, {"requested": 1, "old": 2, "older": 1, "best": 9, "good": 8}
    for name in ranks:
        client.create(name)
    policy = parse_policy({})
    with services.database.transaction() as cursor:
        for number, (name, saved) in enumerate(ranks.items()):
            ((table_id, _),) = read_table_ids(cursor, "ns", name, 0, None)
            task = UpkeepTask("flush", NS, name, "", policy, 1, estimate=TaskEstimate(10, 0, saved))
            queue.enqueue(cursor, [DueTask(table_id, task, "", {})], requested_by=None if number else "me")
        for name, hours in (("old", 25), ("older", 50), ("good", 23)):
            ((table_id, _),) = read_table_ids(cursor, "ns", name, 0, None)
            cursor.execute(
                "UPDATE duckicelake_upkeep_task SET created = created - %(hours)s * interval '1 hour' "
                "WHERE table_id = %(table_id)s",
                {"hours": hours, "table_id": table_id},
            )
    expected = ["requested", "older", "old", "best", "good"]
    for number in range(1, len(expected) + 1):
        assert Worker(LIMITS).work(services)
        done = {task.table_name for task in tasks(services) if task.state == "done"}
        assert done == set(expected[:number])
