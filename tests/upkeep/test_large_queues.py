"""What is looked for twice a second in the queue is found by an index, however many tasks are done."""

import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.delta.import_ import sources
from duckicelake.postgres.queries import Transaction
from duckicelake.upkeep import queue

_ROWS = 100_000


@pytest.fixture
def large_queue(services: Services) -> Services:
    """A lake with a queue of tasks that are done, and a few others."""
    with services.database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO duckicelake_upkeep_task (table_id, kind, state, why, digest, target_size) "
            "SELECT i, 'follow-delta', CASE WHEN i > %(rows)s THEN 'waiting' ELSE 'done' END, 'w', 'd', 0 "
            "FROM generate_series(1, %(rows)s + 10) i",
            {"rows": _ROWS},
        )
        cursor.execute("UPDATE duckicelake_upkeep_task SET available = 'infinity' WHERE state = 'waiting'")
    with services.database.statement() as cursor:
        cursor.execute("ANALYZE duckicelake_upkeep_task")
    return services


def count_rows_read(services: Services, table: str = "duckicelake_upkeep_task") -> int:
    """Count the rows of the queue that scans of the whole table have read, by what Postgres itself says."""
    with services.database.statement() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
    with services.database.statement() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        ((rows,),) = cursor.execute(
            "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relid = %s::text::regclass", [table]
        ).fetchall()
    return int(rows)


def look(cursor: Transaction) -> tuple[bool, int]:
    return queue.watch_lake(cursor).has_open_task, len(sources.read_open_tasks(cursor))


def test_look_at_a_queue_reads_no_task_that_is_done(large_queue: Services) -> None:
    with large_queue.database.statement() as cursor:
        before = count_rows_read(large_queue)
        assert look(cursor) == (False, 10)
        cursor.execute("SELECT pg_stat_force_next_flush()")
    assert count_rows_read(large_queue) == before
    with large_queue.database.transaction() as cursor:
        make_ready = "UPDATE duckicelake_upkeep_task SET available = clock_timestamp() WHERE table_id = %s"
        cursor.execute(make_ready, [_ROWS + 1])
        assert look(cursor) == (True, 10)
