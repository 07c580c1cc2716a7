"""Tasks of the upkeep that follow Delta tables: what is due, what comes of it, and what keeps a table where it is."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.jobs import list_jobs
from duckicelake.catalog.namespaces import update_namespace
from duckicelake.catalog.tables import drop_table, rename_table
from duckicelake.cli.serve.hooks import TaskReporter
from duckicelake.cli.wiring.services import build_warehouse_wiring, open_services
from duckicelake.delta.import_ import follower, sync
from duckicelake.delta.import_.follower import find_asked, find_due
from duckicelake.delta.import_.store_rests import find_rests
from duckicelake.delta.import_.sync import adopt_table, read_statuses
from duckicelake.errors import UnavailableError
from duckicelake.iceberg.rest import RenameTableRequest
from duckicelake.maintenance.policy import QUIET_HOURS
from duckicelake.settings.model import Settings
from duckicelake.storage.protocol import ObjectStore, StoredFile, StoreWrapper
from duckicelake.upkeep import queue, service
from duckicelake.upkeep.planner import request_tasks
from duckicelake.upkeep.process import LakeRounds
from duckicelake.upkeep.queue import QueuedTask, TaskFilter
from duckicelake.upkeep.sources import SourcePlanner
from duckicelake.upkeep.worker import Worker, WorkerLimits
from tests.support.followed_table import Following, batch
from tests.support.waits import wait_until

LIMITS = WorkerLimits(memory_bytes=256 * 1024**2, disk_bytes=1024**3, at_once=2)
SOON_SECONDS = 4.0
"""On a busy machine; a look at an idle lake would take 5 to 60 s."""
SOON = Settings(delta_sync_seconds=1e-6)
ALWAYS_QUIET = ("00:00-12:00", "12:00-00:00")
INFO = {"commitInfo": {"timestamp": 1, "operation": "UPGRADE PROTOCOL"}}


@pytest.fixture
def make(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Callable[[str], Following]:
    """Make a Delta table of one version, and a table here that follows it."""
    ducklake.execute("USE lake")

    def make_followed(name: str) -> Following:
        following = Following(services, ducklake, name)
        following.append()
        following.begin()
        assert not find_due(services), "its log was listed"
        return following

    return make_followed


@pytest.fixture
def table(make: Callable[[str], Following]) -> Following:
    return make("t")


def build_protocol(feature: str) -> dict[str, object]:
    features = [feature]
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
    }


def work(services: Services) -> int:
    """Do what is due; how many tasks that were."""
    SourcePlanner(SOON).plan(services, is_look=True)
    count = 0
    while Worker(LIMITS).work(services):
        count += 1
    return count


def find_tasks(services: Services) -> dict[str, QueuedTask]:
    with services.database.reading() as cursor:
        return {task.table_name: task for task in queue.list_tasks(cursor, TaskFilter(), None)}


def change(services: Services, statement: str) -> None:
    with services.database.transaction() as cursor:
        cursor.execute(statement.encode())


def age_listings(services: Services, age: str = "1 hour") -> None:
    """Let so much time go by that logs are listed again, and what failed is tried again."""
    change(services, f"UPDATE duckicelake_delta_source SET listed = listed - interval '{age}'")


def test_version_is_due_done_and_in_the_history_once(table: Following) -> None:
    services = table.services
    assert work(services) == 0
    for number in range(3):
        table.append(batch(10 * number, 5))
    (due,) = find_due(services)
    assert (due.kind, due.namespace, due.table, due.why) == ("follow-delta", ("main",), "t", "version 1 is there")
    assert work(services) == 1
    assert table.versions() == [0, 1, 2, 3]
    table.assert_alike()
    task = find_tasks(services)["t"]
    assert (task.state, task.message, task.counts) == ("done", "versions 1 to 3 came", {"versions": 3})
    (job,) = list_jobs(services, PageRequest(), kind="follow-delta").items
    assert (job.result, job.message) == ("done", "versions 1 to 3 came")
    assert work(services) == 0
    table.append()
    assert work(services) == 1
    assert find_tasks(services)["t"].message == "version 4 came"
    table.assert_alike()


def test_table_that_always_has_more_lets_others_have_their_turns(
    make: Callable[[str], Following], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that is faster than the import would keep a worker for ever."""
    busy, calm = make("busy"), make("calm")
    services = busy.services
    monkeypatch.setattr(follower, "_TURN_SECONDS", 0.0)
    monkeypatch.setattr(sync, "MAX_SYNC_VERSIONS", 1)
    for _ in range(3):
        busy.append()
    assert SourcePlanner(SOON).plan(services, is_look=False) == 1
    calm.append()
    assert SourcePlanner(SOON).plan(services, is_look=False) == 1
    assert Worker(LIMITS).work(services)
    task = find_tasks(services)["busy"]
    assert (task.state, task.message, task.attempts) == ("queued", "version 1 came, and more are there", 0)
    assert Worker(LIMITS).work(services)
    assert [table.source().position.version for table in (busy, calm)] == [1, 1]
    assert work(services) == 2
    assert find_tasks(services)["busy"].message == "version 3 came"
    assert {str(job.result) for job in list_jobs(services, PageRequest(), kind="follow-delta").items} == {"done"}
    busy.assert_alike()


class CountingStore(StoreWrapper):
    """A store that counts its listings, and may not answer."""

    is_away = False
    listings = 0
    refusals = 0

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.looks: list[str] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)

    def size(self, location: str) -> int:
        if self.is_away:
            self.refusals += 1
            raise UnavailableError("the store doesn't answer")
        self.looks.append(location)
        return self.store.size(location)

    def files_below(self, folder: str) -> Iterator[StoredFile]:
        if self.is_away:
            self.refusals += 1
            raise UnavailableError("the store doesn't answer")
        self.listings += 1
        return self.store.files_below(folder)


def test_look_lists_no_log_but_once_a_minute(table: Following) -> None:
    store = CountingStore(table.services.store)
    services = replace(table.services, store=store)
    for _ in range(5):
        assert not find_due(services)
    table.append()
    assert find_due(services)
    assert store.listings == 0
    age_listings(services)
    (due,) = find_due(services)
    assert (due.why, store.listings) == ("version 1 is there", 1)


def test_request_asks_the_store_of_no_table_that_it_is_not_about(make: Callable[[str], Following]) -> None:
    one, other = make("one"), make("other")
    for table in (one, other):
        table.append()
    store = CountingStore(one.services.store)
    services = replace(one.services, store=store)
    assert request_tasks(services, ("main",), "one", []) == []
    assert request_tasks(services, None, None, ["flush"]) == []
    assert not store.looks
    (asked,) = request_tasks(services, ("main",), "one", ["follow-delta"])
    assert asked.task.table == "one"
    assert [str(one.root) in location for location in store.looks] == [True]
    assert len(request_tasks(services, ("main",), None, ["follow-delta"])) == 2


def test_store_that_does_not_answer_is_asked_again_later_by_the_queue(table: Following) -> None:
    store = CountingStore(table.services.store)
    services = replace(table.services, store=store)
    table.append()
    store.is_away = True
    assert work(services) == 1
    task = find_tasks(services)["t"]
    why = "the store doesn't answer; its store is left alone for a while"
    assert (task.state, task.message, task.attempts) == ("waiting", why, 0)
    assert find_rests(services.database).find(table.source().root)
    assert not find_due(services), "the queue knows when to try it again"
    store.is_away = False
    find_rests(services.database).note_answer(table.source().root)
    change(services, "UPDATE duckicelake_upkeep_task SET available = clock_timestamp()")
    assert work(services) == 1
    task = find_tasks(services)["t"]
    assert task.state == "done", task.message
    assert (table.source().error, table.source().position.version) == (None, 1)


def test_store_that_does_not_answer_is_waited_for_once_and_not_for_each_table(
    make: Callable[[str], Following],
) -> None:
    """Each table would hold the worker for as long as a request to the store may take."""
    tables = [make(name) for name in ("first", "second", "third")]
    services = tables[0].services
    for table in tables:
        table.append()
    assert SourcePlanner(SOON).plan(services, is_look=False) == 3
    store = CountingStore(services.store)
    store.is_away = True
    away = replace(services, store=store)
    for _ in range(3):
        assert Worker(LIMITS).work(away)
    assert store.refusals == 1
    assert {task.state for task in find_tasks(services).values()} == {"waiting"}
    assert all("is left alone for a while" in (task.message or "") for task in find_tasks(services).values())
    change(services, "DELETE FROM duckicelake_upkeep_task")
    assert (len(find_due(away)), store.refusals) == (0, 1)
    whys = {one.why for one in find_asked(away, lambda *_: True)}
    assert whys == {f"the store of {table.source().root} did not answer just now" for table in tables}
    find_rests(services.database).note_answer(tables[0].source().root)
    assert len(find_due(away)) == 1, "one task finds out when the store is back"
    store.is_away = False
    find_rests(services.database).note_answer(tables[0].source().root)
    assert work(services) == 3
    assert [table.source().position.version for table in tables] == [1, 1, 1]


def test_feature_that_is_not_read_blocks_its_table_alone(make: Callable[[str], Following]) -> None:
    stuck, other = make("stuck"), make("other")
    before = stuck.append()
    stuck.log(build_protocol("fromTheFuture"), INFO)
    other.append()
    services = stuck.services
    assert work(services) == 2
    assert (stuck.source().position.version, other.source().position.version) == (before, 1)
    tasks = find_tasks(services)
    assert (tasks["other"].state, tasks["stuck"].state) == ("done", "blocked")
    why = tasks["stuck"].message or ""
    assert "fromTheFuture" in why
    assert str(stuck.root) in why
    (status,) = [one for one in read_statuses(services) if one.source.table_name == "stuck"]
    assert (status.behind, status.problem) == (1, why)
    assert work(services) == 0, "it is left alone for a while"
    age_listings(services)
    assert work(services) == 1
    assert find_tasks(services)["stuck"].state == "blocked"
    adopt_table(services, "main.stuck")
    assert find_tasks(services).keys() == {"other"}
    stuck.duck.execute("INSERT INTO stuck VALUES (1, 'ours')")
    age_listings(services)
    assert work(services) == 0


def test_error_that_postgres_can_not_keep_is_kept_without_what_it_can_not(make: Callable[[str], Following]) -> None:
    odd, other = make("odd"), make("beside")
    odd.log(build_protocol("a\0b"))
    other.append()
    assert work(odd.services) == 2
    task = find_tasks(odd.services)["odd"]
    assert task.state == "blocked"
    assert "a\ufffdb" in (task.message or "")
    assert "a\ufffdb" in (odd.source().error or "")
    assert other.source().position.version == 1


def test_folder_that_is_gone_blocks_until_it_is_back(table: Following, tmp_path: Path) -> None:
    services = table.services
    shutil.move(table.root, tmp_path / "moved")
    assert not find_due(services)
    age_listings(services)
    assert work(services) == 1
    task = find_tasks(services)["t"]
    assert (task.state, task.why) == ("blocked", "its log can not be listed")
    assert "isn't a Delta table" in (task.message or "")
    shutil.move(tmp_path / "moved", table.root)
    assert [one.why for one in find_asked(services, lambda *_: True)] == ["it stands still"]
    assert request_tasks(services, ("other",), None, ["follow-delta"]) == []
    assert request_tasks(services, ("main",), "t", ["flush"]) == []
    (asked,) = request_tasks(services, ("main",), "t", ["follow-delta"])
    assert asked.task.table == "t"
    assert work(services) == 1
    task = find_tasks(services)["t"]
    assert (task.state, task.message) == ("done", "it is at version 0, the newest")
    assert table.source().error is None


def test_other_table_in_the_place_blocks(table: Following) -> None:
    table.append()
    work(table.services)
    table.replace()
    assert work(table.services) == 0
    age_listings(table.services)
    assert work(table.services) == 1
    task = find_tasks(table.services)["t"]
    assert (task.state, task.why) == ("blocked", "version 1 is gone")
    assert "it was replaced" in (task.message or "")


def test_sync_by_hand_ends_what_the_queue_says_of_it(table: Following) -> None:
    version = table.append()
    log = table.root / "_delta_log" / f"{version:020}.json"
    text = log.read_text()
    log.write_text(text[:-20])
    assert work(table.services) == 1
    assert find_tasks(table.services)["t"].state == "blocked"
    log.write_text(text)
    assert table.sync() == version
    age_listings(table.services)
    assert work(table.services) == 1
    assert find_tasks(table.services)["t"].state == "done"


def test_task_goes_on_after_a_rename_and_ends_with_a_drop(make: Callable[[str], Following]) -> None:
    table, dropped = make("named"), make("doomed")
    services = table.services
    table.append()
    dropped.append()
    assert SourcePlanner(SOON).plan(services, is_look=False) == 2
    names = [{"namespace": ["main"], "name": name} for name in ("named", "renamed")]
    rename_table(services, RenameTableRequest.model_validate({"source": names[0], "destination": names[1]}))
    table.name = "renamed"
    drop_table(services, ("main",), "doomed", purge=True)
    assert work(services) == 2
    assert table.source().position.version == 1
    assert find_tasks(services).keys() == {"renamed"}
    assert (dropped.root / "_delta_log").is_dir()
    assert len(dropped.delta().file_uris()) == 2


def test_table_that_was_adopted_since_its_task_was_planned_stays_as_it_is(table: Following) -> None:
    table.append()
    SourcePlanner(SOON).plan(table.services, is_look=False)
    change(table.services, "UPDATE duckicelake_delta_source SET following = false")
    assert Worker(LIMITS).work(table.services)
    task = find_tasks(table.services)["t"]
    assert (task.state, task.message) == ("done", "it follows no Delta table any more")
    assert table.source().position.version == 0


def test_quiet_hours_hold_until_the_namespace_has_none(table: Following) -> None:
    services = table.services
    ((hour,),) = table.duck.execute("SELECT extract(hour FROM now() AT TIME ZONE 'UTC')").fetchall()
    with services.database.transaction() as cursor:
        queue.write_policies(cursor, {QUIET_HOURS: ALWAYS_QUIET[hour >= 12]})
    table.append()
    assert work(services) == 1
    task = find_tasks(services)["t"]
    assert (task.state, task.message, task.attempts) == ("waiting", "quiet hours", 0)
    assert work(services) == 0
    update_namespace(services, ("main",), (), {QUIET_HOURS: ""})
    age_listings(services)
    assert work(services) == 1
    assert table.source().position.version == 1


def test_feature_that_fails_rests_and_takes_no_other_with_it(table: Following) -> None:
    failures: list[Exception] = []
    planner = SourcePlanner(Settings(delta_sync_seconds=0.05), failures.append)
    with table.services.database.transaction() as cursor:
        cursor.execute("ALTER TABLE duckicelake_materialized_view RENAME COLUMN on_change TO of_the_future")
    table.append()
    assert planner.plan(table.services, is_look=True) == 1
    assert [find_tasks(table.services)["t"].kind, len(failures)] == ["follow-delta", 1]
    assert "on_change" in str(failures[0])
    assert Worker(LIMITS).work(table.services)
    table.append()
    time.sleep(0.1)
    assert planner.plan(table.services, is_look=True) == 1
    assert len(failures) == 1, "a source that failed is asked again at once"


def test_feature_that_has_failed_for_days_is_still_asked(table: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[Exception] = []
    planner, now = SourcePlanner(Settings(), failures.append), [0.0]
    monkeypatch.setattr("duckicelake.upkeep.sources.monotonic", lambda: now[0])
    with table.services.database.transaction() as cursor:
        cursor.execute("ALTER TABLE duckicelake_materialized_view RENAME COLUMN on_change TO of_the_future")
    for _ in range(2000):
        planner.plan(table.services, is_look=True)
        now[0] += 60
    assert len(failures) == 2000
    assert {type(error).__name__ for error in failures} == {"UndefinedColumn"}


def test_table_that_kills_its_workers_is_left_alone_for_a_day_or_until_it_is_asked_for(table: Following) -> None:
    services = table.services
    killed = "state = 'running', attempts = 6, lease_until = clock_timestamp() - interval '1 second'"
    table.append()
    assert SourcePlanner(SOON).plan(services, is_look=True) == 1
    change(services, f"UPDATE duckicelake_upkeep_task SET {killed}")
    assert Worker(LIMITS).work(services)
    task = find_tasks(services)["t"]
    assert (task.state, "was killed at it" in str(task.message)) == ("failed", True)
    change(services, "UPDATE duckicelake_upkeep_task SET changed = changed - interval '23 hours'")
    for _ in range(2):
        age_listings(services)
        assert work(services) == 0
    assert len(request_tasks(services, ("main",), "t", ["follow-delta"])) == 1
    change(services, f"UPDATE duckicelake_upkeep_task SET {killed}")
    assert Worker(LIMITS).work(services)
    change(services, "UPDATE duckicelake_upkeep_task SET available = available - interval '1 day'")
    age_listings(services)
    assert work(services) == 1
    assert table.source().position.version == 1


def test_of_all_processes_one_looks_at_a_time(table: Following) -> None:
    services = table.services
    planners = [SourcePlanner(Settings(delta_sync_seconds=60)) for _ in range(3)]
    table.append()
    assert [planner.plan(services, is_look=False) for planner in planners] == [1, 0, 0]
    assert all(planner.is_used and planner.next_at > time.monotonic() + 50 for planner in planners)
    change(services, "UPDATE duckicelake_upkeep_look SET next_look = clock_timestamp()")
    assert [planner.plan(services, is_look=True) for planner in planners] == [0, 0, 0], "each knows when it is due"


def test_look_that_takes_long_keeps_other_processes_from_theirs(table: Following) -> None:
    """A store that hangs would have each process hang in a look of its own."""
    table.append()
    other, found = SourcePlanner(SOON), []

    class SlowStore(CountingStore):
        def size(self, location: str) -> int:
            time.sleep(0.2)  # longer than the pause between two looks
            found.append(other.plan(table.services, is_look=False))
            return self.store.size(location)

    services = replace(table.services, store=SlowStore(table.services.store))
    assert SourcePlanner(SOON).plan(services, is_look=False) == 1
    assert found == [0]
    table.append()
    time.sleep(0.1)
    assert Worker(LIMITS).work(table.services)
    table.append()
    assert other.plan(table.services, is_look=False) == 1, "the first look has ended"


def test_clock_that_was_set_back_or_a_smaller_setting_ends_no_following(table: Following) -> None:
    services = table.services
    with services.database.transaction() as cursor:
        assert queue.take_look(cursor, "delta_sync_seconds", 3600)
        assert queue.take_look(cursor, "delta_sync_seconds", 60)
        assert not queue.take_look(cursor, "delta_sync_seconds", 60)
    age_listings(services, "-1 hour")
    store = CountingStore(services.store)
    find_due(replace(services, store=store))
    assert store.listings == 1


def test_nothing_is_followed_where_the_setting_or_the_lake_says_so(table: Following) -> None:
    services = table.services
    off = SourcePlanner(Settings(delta_sync_seconds=0))
    table.append()
    assert (off.plan(services, is_look=True), off.next_at) == (0, float("inf"))
    adopt_table(services, "main.t")
    planner = SourcePlanner(SOON)
    assert planner.plan(services, is_look=True) == 0
    assert not planner.is_used
    assert planner.next_at > time.monotonic() + 3
    with services.database.reading() as cursor:
        assert not cursor.execute("SELECT FROM duckicelake_upkeep_look").fetchall()


def test_server_brings_each_version_soon(table: Following, database_url: str, warehouse: Path) -> None:
    failures: list[object] = []
    report = TaskReporter(lambda *_: failures.append, lambda _: failures.append, print)
    settings = Settings(database_url=database_url, warehouse=str(warehouse), delta_sync_seconds=0.1)
    with service.SERVICE.run_tasks(settings, table.services, report):
        arrived = [measure_arrival(table) for _ in range(5)]
    assert failures == []
    assert min(arrived[1:]) < SOON_SECONDS, arrived
    table.assert_alike()


@contextmanager
def run_rounds(database_url: str, warehouse: Path) -> Iterator[None]:
    """Do as `duckicelake work`, in a thread."""
    worker = Worker(LIMITS)
    settings = Settings(database_url=database_url, warehouse=str(warehouse), delta_sync_seconds=0.1)
    with open_services(settings) as services:
        rounds = LakeRounds(services, build_warehouse_wiring(settings), worker, settings)
        thread = threading.Thread(target=rounds.run)
        thread.start()
        try:
            yield
        finally:
            worker.stopped.set()
            rounds.stop()
            thread.join()


def test_worker_without_a_server_brings_each_version_soon(table: Following, database_url: str, warehouse: Path) -> None:
    with run_rounds(database_url, warehouse):
        arrived = [measure_arrival(table) for _ in range(5)]
    assert min(arrived) < SOON_SECONDS, arrived
    table.assert_alike()


def measure_arrival(table: Following) -> float:
    """Append to the Delta table; the seconds until a client sees the version here."""
    version, began = table.append(), time.monotonic()
    wait_until(lambda: table.source().position.version == version, 60)
    return time.monotonic() - began
