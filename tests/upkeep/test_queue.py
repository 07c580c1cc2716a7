"""The queue of upkeep: what is due comes in once, is done once, and each fault leaves a state that says what it is."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from uuid import uuid4

import duckdb
import pytest

from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.jobs import MOST_SNAPSHOTS, BeginJob, JobAnswer, begin_job, list_jobs
from duckicelake.catalog.maintenance import table_statistics
from duckicelake.catalog.tables import drop_table, rename_table
from duckicelake.catalog.upkeep_tasks import TaskControl
from duckicelake.catalog.warehouse import settle
from duckicelake.errors import QueryMemoryError, StoreDeniedError, TaskStoppedError, UnavailableError, UnsupportedError
from duckicelake.iceberg.rest import RenameTableRequest
from duckicelake.lake.ducklake import snapshots
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.ducklake.maintenance import read_table_ids
from duckicelake.lake.inlined.flush_writer import hold_flush_lease
from duckicelake.lake.setup.format import prepare_catalog
from duckicelake.maintenance.policy import AUTOMATIC, parse_policy
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.upkeep import actions, queue
from duckicelake.upkeep.planner import find_due, keeps_itself, plan_lake, request_tasks
from duckicelake.upkeep.queue import DueTask, QueuedTask, TaskFilter
from duckicelake.upkeep.worker import MAINTENANCE_LEASE, MAX_ATTEMPTS, Worker, WorkerLimits
from tests.support.client import NS, Client, duckdb_rows, local, set_properties
from tests.support.waits import wait_until

LIMITS = WorkerLimits(memory_bytes=256 * 1024**2, disk_bytes=1024**3, at_once=2)
ALL = {AUTOMATIC: "flush,expire", "maintenance.flush.min-rows": "3"}


@pytest.fixture
def lake(client: Client, ducklake: duckdb.DuckDBPyConnection) -> Client:
    """A lake that keeps itself, with a table whose rows are in Postgres."""
    set_policies(client.services, ALL)
    client.create()
    insert(ducklake, 5)
    return client


def set_policies(services: Services, policies: dict[str, str]) -> None:
    with services.database.transaction() as cursor:
        queue.write_policies(cursor, policies)


def insert(ducklake: duckdb.DuckDBPyConnection, rows: int, table: str = "t") -> None:
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 1000)")
    ducklake.execute(f"INSERT INTO lake.ns.{table} SELECT range, 'x' FROM range({rows})")


def plan(services: Services) -> int | None:
    return plan_lake(services, 0.001, is_forced=True)


def tasks(services: Services) -> list[QueuedTask]:
    with services.database.reading() as cursor:
        return queue.list_tasks(cursor, TaskFilter(), None)


def states(services: Services) -> dict[str, str]:
    return {task.kind: task.state for task in tasks(services)}


def only(services: Services) -> QueuedTask:
    (found,) = tasks(services)
    return found


def jobs(services: Services) -> list[JobAnswer]:
    return list(list_jobs(services, PageRequest()).items)


def make_ready(services: Services) -> None:
    """Let no task wait any longer."""
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_upkeep_task SET available = clock_timestamp()")


def test_due_task_is_planned_done_and_in_the_history_and_comes_no_second_time(lake: Client) -> None:
    services = lake.services
    assert plan(services) == 1
    assert plan(services) in (0, 1)
    assert [(task.kind, task.state, task.table_name) for task in tasks(services)] == [("flush", "queued", "t")]
    assert Worker(LIMITS).work(services)
    assert not Worker(LIMITS).work(services)
    assert (only(services).state, only(services).counts["rows in Postgres"]) == ("done", 5)
    (job,) = jobs(services)
    assert (job.kind, job.result, job.principal, job.lease) == ("flush", "done", "duckicelake", MAINTENANCE_LEASE)
    assert "5 rows" in job.parameters["why"]
    (found,) = table_statistics(services, PageRequest(), NS, "t").items
    assert (found.inlined_rows, found.files) == (0, 1)
    plan(services)
    assert not Worker(LIMITS).work(services)


def test_lake_without_the_policy_is_left_alone(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    set_policies(client.services, {})
    client.create(properties=ALL)
    insert(ducklake, 5)
    assert not keeps_itself(client.services, {})
    set_policies(client.services, {AUTOMATIC: "none"})
    client.commit(set_properties(**{AUTOMATIC: "none"}))
    plan(client.services)
    assert tasks(client.services) == []


def test_new_lake_flushes_and_compacts_alone_and_one_from_before_does_nothing(empty_database_url: str) -> None:
    with closing(open_lake_database(empty_database_url, pool_size=1)) as database:
        prepare_catalog(database, "/nowhere/")
        with database.transaction() as cursor:
            assert queue.read_policies(cursor) == {AUTOMATIC: "flush,compact"}
            cursor.execute("DROP TABLE duckicelake_upkeep, duckicelake_upkeep_task")
            cursor.execute("DELETE FROM duckicelake_migration WHERE number = 76")
        prepare_catalog(database, "/nowhere/")
        with database.reading() as cursor:
            assert queue.read_policies(cursor) == {}


def test_what_deletes_for_ever_is_done_only_where_it_is_named(lake: Client) -> None:
    services = lake.services

    def ask(*kinds: str, **policies: str) -> set[str]:
        set_policies(
            services, {"maintenance.flush.min-rows": "3", "maintenance.statistics.enabled": "false", **policies}
        )
        return {item.task.kind for item in request_tasks(services, None, None, kinds)}

    assert ask() == {"flush"}, "as lakes of before, which have no policy at all"
    assert ask("expire") == set(), "no policy says how long snapshots are kept"
    assert ask("remove-orphans") == {"remove-orphans"}
    assert ask(**{"maintenance.orphans.older-than": "7d"}) == {"flush"}
    assert ask(**{"maintenance.orphans.enabled": "true"}) == {"flush", "remove-orphans"}
    assert ask(**{AUTOMATIC: "remove-orphans"}) == {"flush", "remove-orphans"}
    assert ask(**{AUTOMATIC: "remove-orphans", "maintenance.orphans.enabled": "false"}) == {"flush"}


def test_two_workers_never_do_one_table_at_once(lake: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    under_way, most = [], []
    lock = threading.Lock()

    def act(_: Services, task: UpkeepTask, __: TaskControl) -> TaskOutcome:
        with lock:
            under_way.append(task.kind)
            most.append(len(under_way))
        time.sleep(0.05)
        with lock:
            under_way.remove(task.kind)
        return TaskOutcome("done")

    use_action(monkeypatch, act, "flush", "statistics")
    queue_kinds(lake.services, "flush", "statistics")
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda _: Worker(LIMITS).work(lake.services), range(4))]
    make_ready(lake.services)
    while Worker(LIMITS).work(lake.services):
        pass
    assert max(most) == 1
    assert any(found)
    assert states(lake.services) == {"flush": "done", "statistics": "done"}


def use_action(monkeypatch: pytest.MonkeyPatch, act: object, *kinds: str) -> None:
    """Let workers do this for tasks of these kinds."""
    monkeypatch.setattr(actions, "tried", act, raising=False)
    for kind in kinds:
        monkeypatch.setitem(actions.list_actions(), kind, "duckicelake.upkeep.actions:tried")


def queue_kinds(services: Services, *kinds: str) -> None:
    plan(services)
    (task,) = tasks(services)
    with services.database.transaction() as cursor:
        for kind in kinds:
            cursor.execute(
                "INSERT INTO duckicelake_upkeep_task (table_id, kind, why, digest, target_size, estimate) "
                "SELECT table_id, %(kind)s, 'a test', '', target_size, estimate FROM duckicelake_upkeep_task "
                "WHERE task_id = %(id)s ON CONFLICT DO NOTHING",
                {"kind": kind, "id": task.number},
            )


def test_table_that_spark_has_waits_until_that_has_ended(lake: Client) -> None:
    plan(lake.services)
    begin = BeginJob(id=uuid4(), kind="compact", lease=MAINTENANCE_LEASE, engine="Spark")
    begin_job(lake.services, NS, "t", begin)
    assert Worker(LIMITS).work(lake.services)
    found = only(lake.services)
    assert (found.state, found.attempts) == ("waiting", 0)
    assert "is held by job" in str(found.message)
    assert [job.kind for job in jobs(lake.services)] == ["compact"]


@pytest.mark.parametrize(
    ("error", "state", "says"),
    [
        (UnavailableError("the store does not answer"), "waiting", "does not answer"),
        (StoreDeniedError("the store refuses to write"), "waiting", "refuses to write"),
        (OSError(28, "No space left on device"), "waiting", "is full"),
        (UnsupportedError("columns", "variant can't be rewritten"), "blocked", "variant can't be rewritten"),
        (QueryMemoryError("DuckDB took 512 MB"), "blocked", "Raise DUCKICELAKE_UPKEEP_MEMORY_BYTES"),
        (TaskStoppedError("the worker stops"), "queued", "the worker stops"),
        (ValueError("a bug"), "waiting", "ValueError: a bug"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_fault_leaves_a_state_that_says_what_it_is(
    lake: Client, monkeypatch: pytest.MonkeyPatch, error: Exception, state: str, says: str
) -> None:
    def act(*_: object) -> TaskOutcome:
        raise error

    use_action(monkeypatch, act, "flush")
    plan(lake.services)
    assert Worker(LIMITS).work(lake.services)
    found = only(lake.services)
    assert found.state == state
    assert says in str(found.message)
    assert jobs(lake.services)[0].result == ("failed" if state == "blocked" else "skipped")
    if state != "waiting":
        return
    assert found.available > found.changed
    for _ in range(MAX_ATTEMPTS):
        make_ready(lake.services)
        Worker(LIMITS).work(lake.services)
    assert only(lake.services).state == "failed"
    assert says in str(only(lake.services).message)
    with lake.services.database.reading() as cursor:
        assert queue.count_failures(cursor) == {"flush": MAX_ATTEMPTS}


def test_flush_waits_for_one_that_the_flusher_is_at(lake: Client) -> None:
    plan(lake.services)
    table_id = find_table_id(lake.services)
    with lake.services.database.statement() as cursor, hold_flush_lease(cursor, table_id) as is_ours:
        assert is_ours
        assert Worker(LIMITS).work(lake.services)
    assert (only(lake.services).state, only(lake.services).message) == ("waiting", "another process flushes the table")
    make_ready(lake.services)
    assert Worker(LIMITS).work(lake.services)
    assert only(lake.services).state == "done"


def find_table_id(services: Services) -> int:
    with services.database.reading() as cursor:
        ((table_id, *_),) = read_table_ids(cursor, "ns", "t", 0, None)
    return table_id


def test_task_whose_worker_was_killed_is_taken_by_another_and_by_no_third(lake: Client) -> None:
    plan(lake.services)
    with lake.services.database.transaction() as cursor:
        dead = queue.claim_task(cursor, uuid4(), "gone", ["flush"], 1, 1)
    assert dead is not None
    assert not Worker(LIMITS).work(lake.services)
    with lake.services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_upkeep_task SET lease_until = clock_timestamp() - interval '1 second'")
        assert queue.list_tasks(cursor, TaskFilter(state="running"), None) == []
        assert [task.state for task in queue.list_tasks(cursor, TaskFilter(state="queued"), None)] == ["queued"]
    assert Worker(LIMITS).work(lake.services)
    assert only(lake.services).state == "done"
    with lake.services.database.transaction() as cursor:
        assert queue.renew_claim(cursor, dead.claim, 30, {}) is None
        assert not queue.finish_task(cursor, dead.claim, "failed", "late")
    assert only(lake.services).state == "done"


def test_task_that_kills_every_worker_fails(lake: Client) -> None:
    plan(lake.services)
    for _ in range(MAX_ATTEMPTS):
        with lake.services.database.transaction() as cursor:
            assert queue.claim_task(cursor, uuid4(), "gone", ["flush"], 1, 1) is not None
            cursor.execute("UPDATE duckicelake_upkeep_task SET lease_until = clock_timestamp() - interval '1 second'")
    assert Worker(LIMITS).work(lake.services)
    assert only(lake.services).state == "failed"
    assert "was killed" in str(only(lake.services).message)


def test_stopped_task_goes_back_to_the_queue(lake: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, began = Worker(LIMITS), threading.Event()

    def act(_: Services, __: UpkeepTask, control: TaskControl) -> TaskOutcome:
        began.set()
        while True:
            control.check()
            time.sleep(0.005)

    use_action(monkeypatch, act, "flush")
    plan(lake.services)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(worker.work, lake.services)
        assert began.wait(10)
        worker.stopped.set()
        assert working.result(10)
    assert (only(lake.services).state, only(lake.services).attempts) == ("queued", 0)
    assert jobs(lake.services)[0].result == "skipped"


def test_dropped_and_renamed_tables(lake: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    plan(lake.services)
    request = {"source": {"namespace": NS, "name": "t"}, "destination": {"namespace": NS, "name": "renamed"}}
    rename_table(lake.services, RenameTableRequest.model_validate(request))
    assert only(lake.services).table_name == "renamed"
    assert Worker(LIMITS).work(lake.services)
    assert only(lake.services).state == "done"
    assert jobs(lake.services)[0].table == "renamed"
    ducklake.execute("INSERT INTO lake.ns.renamed SELECT range, 'x' FROM range(7)")
    plan(lake.services)
    assert only(lake.services).state == "queued"
    drop_table(lake.services, NS, "renamed", purge=False)
    assert Worker(LIMITS).work(lake.services)
    assert tasks(lake.services) == []
    plan(lake.services)
    with lake.services.database.reading() as cursor:
        assert cursor.execute("SELECT state, message FROM duckicelake_upkeep_task").fetchall() == [
            ("done", "the table is gone")
        ]


def test_wrong_policy_blocks_the_table_until_it_is_right(lake: Client) -> None:
    lake.commit(set_properties(**{"maintenance.flush.min-row": "5"}))
    plan(lake.services)
    assert states(lake.services) == {"policy": "blocked"}
    assert "did you mean maintenance.flush.min-rows?" in str(only(lake.services).message)
    removal = {"action": "remove-properties", "removals": ["maintenance.flush.min-row"]}
    lake.commit({"requirements": [], "updates": [removal]})
    plan(lake.services)
    assert states(lake.services) == {"flush": "queued"}


def test_quiet_hours_keep_a_task_waiting_until_they_end(lake: Client) -> None:
    set_policies(lake.services, ALL | {"maintenance.quiet-hours": "00:00-23:59 Pacific/Kiritimati"})
    plan(lake.services)
    Worker(LIMITS).work(lake.services)
    found = only(lake.services)
    if found.state == "waiting":  # but for one minute of the day
        assert (found.message, found.attempts) == ("quiet hours", 0)
        assert found.available > found.changed
        plan(lake.services)
        assert not Worker(LIMITS).work(lake.services)
    set_policies(lake.services, ALL)
    plan(lake.services)
    assert Worker(LIMITS).work(lake.services), "what waited for the end of quiet hours that are gone"
    assert only(lake.services).state == "done"


def test_request_needs_no_policy_and_repeats_what_is_done(lake: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    set_policies(lake.services, {"maintenance.flush.min-rows": "3"})
    assert [item.task.kind for item in request_tasks(lake.services, NS, "t", ("flush",))] == ["flush"]
    plan(lake.services)
    assert [task.requested_by for task in tasks(lake.services)] == [lake.services.caller.principal.name]
    assert Worker(LIMITS).work(lake.services)
    insert(ducklake, 4)
    assert len(request_tasks(lake.services, NS, "t", ("flush",))) == 1
    assert Worker(LIMITS).work(lake.services)
    assert len(jobs(lake.services)) == 2


@pytest.mark.parametrize("days", [-30, 30])
def test_clock_of_a_worker_decides_nothing(lake: Client, days: int) -> None:
    """Neither what is old enough to go, nor when a lease ends."""
    services = lake.services
    settle(services)
    wrong = replace(services, clock=lambda: services.clock() + days * 24 * 3600 * 1000)
    lake.append((100, "a"))
    lake.append((101, "b"))
    snapshots = len(lake.metadata()["snapshots"])
    young = local(lake.metadata()["location"]) / "data" / "of-a-commit-under-way.parquet"
    young.write_bytes(b"rows")
    task_of = partial(UpkeepTask, namespace=NS, table="t", why="a test", target_size=1)
    policies = {"history.expire.max-snapshot-age-ms": str(24 * 3600 * 1000), "maintenance.orphans.older-than": "1d"}
    set_policies(services, policies)
    due = [
        DueTask(find_table_id(services), task_of(kind, policy=parse_policy(policies)), "", policies)
        for kind in ("expire", "remove-orphans")
    ]
    with services.database.transaction() as cursor:
        queue.enqueue(cursor, due, requested_by="a test")
    assert Worker(LIMITS).work(wrong)
    assert Worker(LIMITS).work(wrong)
    assert [(task.kind, task.state, task.message) for task in tasks(services)] == [
        ("expire", "done", None),
        ("remove-orphans", "done", None),
    ], tasks(services)
    assert (len(lake.metadata()["snapshots"]), young.exists()) == (snapshots, True)


def test_plan_is_due_though_the_clock_was_set_back(lake: Client) -> None:
    assert plan(lake.services) == 1
    with lake.services.database.transaction() as cursor:
        cursor.execute(
            "UPDATE duckicelake_upkeep SET (planned, next_plan) = (now() + interval '1 day', now() + interval '1 day')"
        )
        assert queue.watch_lake(cursor).is_plan_due
    assert plan_lake(lake.services, 60) is not None
    assert plan_lake(lake.services, 60) is None


def test_one_of_many_processes_plans(lake: Client) -> None:
    def try_to_plan(_: int) -> int | None:
        return plan_lake(lake.services, 60)

    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(try_to_plan, range(4))]
    assert sorted(count is None for count in found) == [False, True, True, True]
    assert len(tasks(lake.services)) == 1


def test_heartbeat_reports_how_far_a_task_is(lake: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def act(_: Services, __: UpkeepTask, control: TaskControl) -> TaskOutcome:
        control.report({"files": 3})
        assert go_on.wait(20)
        return TaskOutcome("done", None, (), {"files": 4})

    use_action(monkeypatch, act, "flush")
    monkeypatch.setattr("duckicelake.upkeep.worker._HEARTBEATS", 3000)
    plan(lake.services)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(Worker(LIMITS).work, lake.services)
        wait_until(lambda: only(lake.services).counts == {"files": 3})
        assert only(lake.services).state == "running"
        go_on.set()
        assert working.result(20)
    assert only(lake.services).counts == {"files": 4}


def test_rows_are_the_same_after_upkeep(lake: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    before = duckdb_rows(ducklake)
    plan(lake.services)
    while Worker(replace(LIMITS, at_once=1)).work(lake.services):
        pass
    assert duckdb_rows(ducklake) == before


def test_table_that_was_compacted_is_not_due_again(client: Client) -> None:
    """Whatever small files there were: those of equal size that hold them give no task."""
    target, chance = 1000, random.Random(7)
    client.create(properties={"write.target-file-size-bytes": str(target), "maintenance.compaction.min-files": "2"})
    is_due_once = False
    for _ in range(25):
        sizes = [chance.randint(1, target * 3 // 4 - 1) for _ in range(chance.randint(1, 12))]
        is_due_once |= is_compaction_due(client.services, sizes)
        left = -(-sum(sizes) // target)
        assert not is_compaction_due(client.services, [sum(sizes) // left] * left), sizes
    assert is_due_once


def is_compaction_due(services: Services, sizes: list[int]) -> bool:
    """Return whether a table with files of these sizes alone is to be compacted."""
    with services.database.transaction() as cursor:
        cursor.execute("DELETE FROM ducklake_data_file")
        cursor.execute(
            "INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, "
            "file_format, record_count, file_size_bytes, footer_size) "
            "SELECT n, t.table_id, t.begin_snapshot, n::text, true, 'parquet', 1, size, 1 "
            "FROM ducklake_table t, unnest(%(sizes)s::bigint[]) WITH ORDINALITY AS f (size, n)",
            {"sizes": sizes},
        )
        now_ms = snapshots.read_clock(cursor)
    return bool(find_due(services, now_ms, NS, "t", ("compact",)))


def test_task_that_others_kept_from_its_work_is_tried_again(lake: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    use_action(monkeypatch, lambda *_: TaskOutcome("skipped", "others changed the same files"), "flush")
    plan(lake.services)
    for state in (*["waiting"] * (MAX_ATTEMPTS - 1), "failed"):
        make_ready(lake.services)
        assert Worker(LIMITS).work(lake.services)
        assert (only(lake.services).state, only(lake.services).message) == (state, "others changed the same files")
    assert {job.result for job in jobs(lake.services)} == {"skipped"}


def test_task_of_more_snapshots_than_a_job_lists_keeps_all_of_them(
    lake: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tuple(range(MOST_SNAPSHOTS + 5))
    use_action(monkeypatch, lambda *_: TaskOutcome("done", None, made), "flush")
    plan(lake.services)
    assert Worker(LIMITS).work(lake.services)
    assert only(lake.services).state == "done"
    (job,) = jobs(lake.services)
    assert tuple(job.snapshot_ids) == made[5:]
    with lake.services.database.reading() as cursor:
        kept = cursor.execute("SELECT snapshot_ids FROM duckicelake_job").fetchall()
    assert kept == [([*made],)]
