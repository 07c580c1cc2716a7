"""A worker is frozen at each step of a task, and wakes once another has done it: nothing comes of that."""

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.jobs import JobAnswer
from duckicelake.catalog.warehouse import settle
from duckicelake.upkeep.worker import Worker
from tests.catalog.commit.test_crashes import MOST_STEPS, assert_whole_catalog
from tests.support.client import Client
from tests.support.killed_process import Work, mortal
from tests.support.seams import fresh
from tests.support.waits import wait_until
from tests.upkeep.test_killed_tasks import KINDS, ROWS, check_table, end_leases, enqueue, find_task
from tests.upkeep.test_queue import LIMITS, jobs

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]
STATEMENT_SECONDS = 2.0
"""After which Postgres ends an idle transaction or lease, and with it the locks of a worker that is frozen."""


@pytest.mark.parametrize("name", KINDS)
def test_worker_that_wakes_after_another_has_done_its_task_changes_nothing(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, name: str
) -> None:
    kind = KINDS[name]
    settle(services)
    client.create()
    client.append((-1, "first"))
    kind.begin(services)
    with mortal(services) as server:
        for step in range(MOST_STEPS):
            kind.prepare(client, ducklake, step)
            before, known = ducklake.execute(ROWS).fetchall(), {job.id for job in jobs(services)}
            enqueue(services, name, kind)
            ending = server.serve(Work("upkeep", step, is_frozen=True, statement_seconds=STATEMENT_SECONDS))
            if ending.answered:
                break
            wait_until(lambda: do_again(services), 180)
            done = find_task(services)
            assert kind.is_done(Client(fresh(services)), ducklake), ending.log
            ending = server.thaw()
            assert find_task(services) == done, ending.log
            check_successes([job for job in jobs(services) if job.id not in known], Client(fresh(services)))
            check_table(services, ducklake, before, ending)
    assert ending.answered
    assert find_task(services).state == "done"
    assert_whole_catalog(services, kept="followed")


def do_again(services: Services) -> bool:
    """Let another worker do the task, unless it is done; return whether it is."""
    end_leases(services)
    if find_task(services).state != "done":
        assert Worker(LIMITS).work(fresh(services))
    return find_task(services).state == "done"


def check_successes(found: list[JobAnswer], client: Client) -> None:
    """Check that no two workers say that they did the task, but where each made snapshots, as two sorts do."""
    done = [job for job in found if job.result == "done"]
    made = [snapshot_id for job in done for snapshot_id in job.snapshot_ids]
    assert len(done) <= 1 or all(job.snapshot_ids for job in done), done
    assert len(made) == len(set(made)), done
    assert {*made} <= {snapshot["snapshot-id"] for snapshot in client.metadata()["snapshots"]}, done
