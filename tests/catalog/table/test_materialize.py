"""Materialisation: the same bytes from every worker, nothing written twice, and flat costs however many commits."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from threading import Event
from time import sleep
from typing import Any

import duckdb
import pytest

from duckicelake.catalog import tables
from duckicelake.catalog.context.commit_queue import CommitQueue
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import UnavailableError
from duckicelake.lake.changes import WrittenFile
from duckicelake.lake.side_tables import written_files as lake_artifacts
from duckicelake.lake.side_tables.written_files import record_versions
from duckicelake.storage.local import LocalStore
from duckicelake.storage.protocol import NewObject, ObjectStore, StoredFile
from tests.support.client import (
    NS,
    Client,
    Draft,
    Json,
    append,
    assert_whole,
    data_files,
    delete,
    duckdb_rows,
    local,
    pyiceberg_rows,
    set_properties,
    set_ref,
)
from tests.support.seams import Killed, fresh

COMMITS = 60


@dataclass(slots=True)
class Recorded:
    """A store that remembers what was written through it, in order, and what was looked for."""

    store: ObjectStore
    written: list[tuple[str, bytes]] = field(default_factory=list)
    looked_for: list[str] = field(default_factory=list)

    def read(self, location: str, at_most: int | None = None) -> bytes:
        return self.store.read(location, at_most)

    def write(self, location: str, data: bytes) -> None:
        self.written.append((location, bytes(data)))
        self.store.write(location, data)

    def write_derived(self, files: Sequence[NewObject]) -> None:
        for location, data in files:
            self.write(location, data)

    def exists(self, location: str) -> bool:
        return self.store.exists(location)

    def size(self, location: str) -> int:
        return self.store.size(location)

    def sizes(self, locations: Sequence[str]) -> list[int | None]:
        self.looked_for += locations
        return self.store.sizes(locations)

    def delete(self, location: str) -> None:
        self.store.delete(location)

    def files_below(self, folder: str) -> Iterator[StoredFile]:
        return self.store.files_below(folder)

    def local_path(self, location: str) -> Path | None:
        return self.store.local_path(location)

    def download(self, location: str, path: Path) -> None:
        self.store.download(location, path)

    def close(self) -> None:
        self.store.close()

    def check(self) -> None:
        self.store.check()


def recorded(services: Services) -> tuple[Client, Recorded]:
    """A client of a server that has just started, and what the server writes."""
    store = Recorded(services.store)
    return Client(replace(fresh(services), store=store)), store


def commit_without_materialising(services: Services, body: Json) -> None:
    """Commit through a server that dies at its first write, which is after COMMIT."""
    busy = CommitQueue(expected_commits=0)
    with pytest.raises(Killed):
        Client(replace(fresh(services), store=Unwritable(services.store), commits=busy)).commit(body)


class Unwritable(Recorded):
    def write(self, location: str, data: bytes) -> None:
        raise Killed(f"{len(data)} bytes to {location}")


def test_workers_that_materialise_the_same_version_write_the_same_files(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append(*((number, "x") for number in range(30)))
    path = data_files(client.metadata())[0]
    ducklake.execute("INSERT INTO lake.ns.t VALUES (100, 'inlined')")
    client.load()
    ducklake.execute("DELETE FROM lake.ns.t WHERE id IN (3, 100)")
    client.load()
    commit_without_materialising(services, append(client.metadata(), (200, "new")))
    workers = [recorded(services) for _ in range(3)]
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda worker: worker[0].load(), workers))
    assert answers[0] == answers[1] == answers[2]
    written = [sorted(store.written) for _, store in workers]
    assert {location.rsplit(".", 1)[-1] for location, _ in written[0] or written[1] or written[2]} == {"avro", "json"}
    contents = dict(entry for each in written for entry in each)
    assert all(contents[location] == data for each in written for location, data in each)
    assert all(local(location).read_bytes() == data for location, data in contents.items())
    assert path in data_files(answers[0]["metadata"])
    assert_whole(answers[0])


def test_nothing_is_written_by_a_load_of_what_is_materialised(services: Services, client: Client) -> None:
    client.create()
    client.append((1, "one"))
    again, store = recorded(services)
    assert again.load() == client.load()
    assert store.written == []


def test_change_of_properties_writes_metadata_only(services: Services, client: Client) -> None:
    client.create()
    client.append((1, "one"))
    other, store = recorded(services)
    other.commit(set_properties(a="b"))
    assert [Path(location).suffixes[-2:] for location, _ in store.written] == [[".metadata", ".json"]]


@dataclass(slots=True)
class Superseded(Recorded):
    """A store whose user is overtaken by others while it writes."""

    others: Callable[[], object] = lambda: None

    def write_derived(self, files: Sequence[NewObject]) -> None:
        Recorded.write_derived(self, files)
        self.others()


def recorded_metadata(services: Services) -> list[tuple[int, bool]]:
    """(version, whether the file is there) of each metadata.json that is recorded."""
    query = "SELECT object_id, path FROM duckicelake_artifact WHERE kind = 'metadata' ORDER BY 1"
    with services.database.reading() as cursor:
        return [(version, services.store.exists(path)) for version, path in cursor.execute(query).fetchall()]


def test_files_of_a_commit_that_no_one_supersedes_are_recorded_by_its_transaction(
    services: Services, client: Client
) -> None:
    client.create()
    before: list[list[tuple[int, bool]]] = []
    store = Superseded(services.store, others=lambda: before.append(recorded_metadata(services)))
    answer = Client(replace(fresh(services), store=store, commits=CommitQueue())).append((1, "one"))
    assert before == [[(0, True)]]
    assert recorded_metadata(services) == [(0, True), (1, True)]
    assert [location for location, _ in store.written if location == answer["metadata-location"]]
    assert_whole(answer)


def test_commit_that_others_overtake_after_its_files_were_written_is_shown_as_it_came_to_be(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    ducklake.execute("CREATE TABLE lake.ns.other (id BIGINT)")
    queue, superseders = CommitQueue(), iter(range(1))

    def superseded(*arguments: Any) -> Any:
        for number in superseders:
            ducklake.execute(f"INSERT INTO lake.ns.other VALUES ({number})")
        return write(*arguments)

    store, write = Recorded(services.store), queue.write
    queue.write = superseded  # type: ignore[method-assign,assignment]
    answer = Client(replace(fresh(services), store=store, commits=queue)).append((1, "one"))
    assert not queue.is_calm
    ((newest,),) = ducklake.sql("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall()
    assert answer["metadata"]["properties"]["ducklake.snapshot-id"] == str(newest)
    assert answer == {key: value for key, value in Client(fresh(services)).load().items() if key in answer}
    assert recorded_metadata(services) == [(0, True), (1, True)]
    assert sum(location.endswith(".metadata.json") for location, _ in store.written) == 2
    assert_whole(answer)


def test_files_that_take_long_keep_no_other_commit_waiting(services: Services, client: Client) -> None:
    client.create("slow")
    client.create("quick")
    may_end, quick = Event(), Client(replace(fresh(services), commits=CommitQueue()))
    slow_store = Superseded(services.store, others=lambda: may_end.wait(60))
    slow = Client(replace(fresh(services), store=slow_store, commits=CommitQueue()))
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(slow.append, (1, "one"), name="slow")
        while not slow_store.written:
            sleep(0.01)
        assert_whole(quick.append((2, "two"), name="quick"))
        assert not answer.done()
        may_end.set()
        assert_whole(answer.result())


def test_commit_whose_files_cannot_be_written_is_refused_and_not_there(services: Services, client: Client) -> None:
    before = client.create()

    def fail() -> None:
        raise UnavailableError("the disk is full")

    store = Superseded(services.store, others=fail)
    with pytest.raises(UnavailableError, match="disk is full"):
        Client(replace(fresh(services), store=store, commits=CommitQueue())).append((1, "one"))
    assert client.load()["metadata"] == before["metadata"]
    assert_whole(client.append((1, "one")))


def test_many_commits_write_each_manifest_once_and_cost_the_same(services: Services, client: Client) -> None:
    client.create()
    worker, store = recorded(services)
    costs, paths = [], []
    for number in range(COMMITS):
        worker.append((number, None))
        avro = [(location, len(data)) for location, data in store.written if location.endswith(".avro")]
        costs.append(sum(size for _, size in avro))
        paths += [location for location, _ in avro]
        store.written.clear()
    assert len(set(paths)) == len(paths)
    assert mean(costs[-20:]) < 1.2 * mean(costs[10:30])
    assert len(paths) <= 2.2 * COMMITS
    answer = worker.load()
    assert pyiceberg_rows(answer) == [(number, None) for number in range(COMMITS)]
    assert_whole(answer)


def test_many_deletes_in_one_file_stay_one_manifest_each(services: Services, client: Client) -> None:
    client.create()
    worker, store = recorded(services)
    worker.append(*((number, None) for number in range(100)))
    (path,) = data_files(worker.metadata())
    store.written.clear()
    for number in range(12):
        worker.commit(delete(worker.metadata(), (path, number)))
    manifests = [location for location, _ in store.written if location.endswith("-m1-deletes.avro")]
    assert len(set(manifests)) == len(manifests) <= 14
    assert pyiceberg_rows(worker.load()) == [(number, None) for number in range(12, 100)]


def artifacts(client: Client) -> list[Path]:
    """Every file that the server wrote for the table's current metadata."""
    answer = client.load()
    lists = [local(snapshot["manifest-list"]) for snapshot in answer["metadata"]["snapshots"]]
    folder = local(answer["metadata"]["location"]) / "metadata"
    manifests = [path for path in folder.iterdir() if path.name.endswith(("-m0-data.avro", "-m1-deletes.avro"))]
    return [local(answer["metadata-location"]), *lists, *manifests]


def cut_off(path: Path) -> None:
    """As after a power loss: the name is there, and not all of the file."""
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("lose", [Path.unlink, cut_off, emptied])
def test_lost_files_are_written_again_byte_for_byte_by_a_server_that_starts(
    services: Services, client: Client, lose: Callable[[Path], object]
) -> None:
    client.create()
    for number in range(3):
        client.append((number, None))
    (first, *_) = data_files(client.metadata())
    client.commit(delete(client.metadata(), (first, 0)))
    before = client.load()
    contents = {path: path.read_bytes() for path in artifacts(client)}
    for path in contents:
        lose(path)
    assert Client(fresh(services)).load() == before
    assert {path: path.read_bytes() for path in contents if path.exists()} == contents
    assert_whole(before)


def test_lost_files_are_written_again_where_duckdb_has_committed_since(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((0, None))
    client.append((1, None))
    for path in artifacts(client)[1:]:
        path.unlink()
    ducklake.execute("INSERT INTO lake.ns.t VALUES (2, NULL)")
    worker = Client(fresh(services))
    assert pyiceberg_rows(worker.load()) == [(number, None) for number in range(3)]
    assert_whole(worker.load())


def test_commit_of_a_worker_beneath_which_postgres_forgot_what_was_written(services: Services, client: Client) -> None:
    """As when Postgres loses the last moments in a failover, and this worker had read of them."""
    client.create()
    for number in range(3):
        client.append((number, None))
    worker = Client(fresh(services))
    worker.load()
    with services.database.transaction() as cursor:
        cursor.execute("DELETE FROM duckicelake_artifact")
    worker.append((3, None))
    assert_whole(worker.load())
    worker.append((4, None))
    assert pyiceberg_rows(client.load()) == [(number, None) for number in range(5)]
    assert_whole(client.load())


def test_files_of_a_table_that_was_purged_while_they_were_written_are_not_recorded(
    services: Services, client: Client
) -> None:
    """Rows that nothing takes away would keep them for ever."""
    client.create()
    table = load_current_table(services, NS, "t").row
    tables.drop_table(services, NS, "t", purge=True)
    file = WrittenFile("manifest", 1, f"{table.location}/metadata/m.avro", 1, b"", 0, {})
    with services.database.transaction() as cursor:
        assert record_versions(cursor, [(table, [file])]) == [False]
        assert cursor.execute("SELECT path FROM duckicelake_artifact").fetchall() == []


def test_list_that_is_recorded_late_is_not_that_of_another_snapshot_of_the_same_id(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create()
    first = client.append((1, "one"))["metadata"]
    body = append(first, (2, "two"))
    id_ = body["updates"][0]["snapshot"]["snapshot-id"]
    client.commit(body)
    forget_list(services, id_)

    def record_late(*about: Any) -> list[bool]:
        monkeypatch.setattr(lake_artifacts, "record_versions", record_versions)
        gone = {"action": "remove-snapshots", "snapshot-ids": [id_]}
        client.commit({"requirements": [], "updates": [set_ref("main", first["current-snapshot-id"]), gone]})
        draft = Draft(client.metadata(), snapshot_id=id_)
        client.commit(draft.body([draft.manifest([draft.data_file([(3, "three")])]), *draft.parent_manifests]))
        forget_list(services, id_)
        return record_versions(*about)

    monkeypatch.setattr(lake_artifacts, "record_versions", record_late)
    Client(fresh(services)).load()
    answer = Client(fresh(services)).load()
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [(1, "one"), (3, "three")]


def forget_list(services: Services, snapshot_id: int) -> None:
    """As a server leaves it that dies before it has recorded what it wrote."""
    with services.database.transaction() as cursor:
        cursor.execute(
            "DELETE FROM duckicelake_artifact WHERE kind = 'manifest-list' AND object_id = %s "
            "OR kind = 'metadata' AND object_id = (SELECT version FROM duckicelake_table)",
            [snapshot_id],
        )


class FlickeringStore(LocalStore):
    """Doesn't find files at the first look, as a folder of a server that restarts."""

    def __init__(self, root: Path, looks: list[int]) -> None:
        super().__init__(root)
        object.__setattr__(self, "looks", looks)

    def sizes(self, locations: Sequence[str]) -> list[int | None]:
        looks: list[int] = self.looks  # type: ignore[attr-defined]
        looks.append(len(locations))
        return [None for _ in locations] if len(looks) == 1 else super().sizes(locations)


def test_nothing_is_forgotten_of_files_that_are_found_at_the_second_look(services: Services, client: Client) -> None:
    client.create()
    client.append((1, None))
    before = client.load()
    recorded = "SELECT * FROM duckicelake_artifact ORDER BY path"
    with services.database.reading() as cursor:
        artifacts_before = cursor.execute(recorded).fetchall()
    looks: list[int] = []
    assert isinstance(services.store, LocalStore)
    store = FlickeringStore(services.store.root, looks)
    assert Client(replace(fresh(services), store=store)).load() == before
    assert len(looks) > 1
    with services.database.reading() as cursor:
        assert cursor.execute(recorded).fetchall() == artifacts_before


@pytest.mark.parametrize("which", [0, 1, 2])
def test_lost_file_of_an_older_snapshot_alone_is_written_again(services: Services, client: Client, which: int) -> None:
    """As after a power loss, which takes files in any order."""
    client.create()
    for number in range(3):
        client.append((number, None))
    lists = [local(snapshot["manifest-list"]) for snapshot in client.load()["metadata"]["snapshots"]]
    content = lists[which].read_bytes()
    lists[which].unlink()
    Client(fresh(services)).load()
    assert lists[which].read_bytes() == content


def test_server_that_starts_looks_at_what_main_needs_and_at_what_was_written_last(
    services: Services, client: Client
) -> None:
    client.create()
    for number in range(6):
        client.append((number, None))
    lists = [snapshot["manifest-list"] for snapshot in client.load()["metadata"]["snapshots"]]
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_artifact SET written_at = now() - interval '1 hour'")
        recently = "UPDATE duckicelake_artifact SET written_at = now() - interval '1 minute' WHERE path = ANY(%s)"
        cursor.execute(recently, [lists[3:]])
    store: Any = Recorded(services.store)
    Client(replace(fresh(services), store=store)).load()
    assert [path for path in lists if path in store.looked_for] == lists[3:]
    assert len(store.looked_for) == len(set(store.looked_for)) == 3 + 6 + 1


def forget_metadata(services: Services, version: int) -> None:
    with services.database.transaction() as cursor:
        cursor.execute("DELETE FROM duckicelake_artifact WHERE kind = 'metadata' AND object_id = %s", [version])


def read_version(services: Services) -> int:
    with services.database.reading() as cursor:
        [[version]] = cursor.execute("SELECT version FROM duckicelake_table").fetchall()
    return int(version)


def test_load_has_the_log_of_the_file_though_records_of_older_files_are_gone(
    services: Services, client: Client
) -> None:
    """As where a server finds a file lost, and forgets its record, while another one writes the next version."""
    client.create()
    client.append((1, None))
    older = read_version(services)
    newest = client.append((2, None))
    forget_metadata(services, older)
    for other in (fresh(services), fresh(services)):
        answer = Client(other).load()
        assert answer["metadata"] == newest["metadata"]
        assert_whole(answer)
    answer = Client(fresh(services)).append((3, None))
    assert newest["metadata"]["metadata-log"] == answer["metadata"]["metadata-log"][:-1]
    assert_whole(answer)
    assert_whole(Client(fresh(services)).load())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format-version": 9}', b'{"format-version": 2}', b"\xff\x00"])
def test_spoilt_metadata_file_fails_no_load(services: Services, client: Client, data: bytes) -> None:
    """The log can't be taken from the file then; all else is in Postgres."""
    client.create()
    client.append((1, None))
    older = read_version(services)
    newest = client.append((2, None))
    forget_metadata(services, older)
    file = local(newest["metadata-location"])
    file.write_bytes(data.ljust(file.stat().st_size))  # of another length it would count as lost
    answer = Client(fresh(services)).load()
    assert answer["metadata-location"] == newest["metadata-location"]
    assert answer["metadata"]["snapshots"] == newest["metadata"]["snapshots"]


def test_warm_server_has_the_log_of_the_file_that_another_wrote(services: Services, client: Client) -> None:
    client.create()
    client.append((1, None))
    warm, writer = Client(fresh(services)), Client(fresh(services))
    warm.load()
    writer.append((2, None))
    between = read_version(services)
    newest = writer.append((3, None))
    forget_metadata(services, between)
    answer = warm.load()
    assert answer["metadata"] == newest["metadata"]
    assert_whole(answer)


def test_late_cleanup_of_a_shorter_log_leaves_the_log_of_the_file(services: Services, client: Client) -> None:
    """As where a server deletes old files by the properties of the version before, once the log has grown."""
    client.create()
    for number in range(4):
        client.append((number, None))
    newest = client.load()
    oldest = newest["metadata"]["metadata-log"][:2]
    with services.database.transaction() as cursor:
        cursor.execute(
            "DELETE FROM duckicelake_artifact WHERE path = ANY(%s)", [[entry["metadata-file"] for entry in oldest]]
        )
    answer = Client(fresh(services)).load()
    assert answer["metadata"] == newest["metadata"]
    assert_whole(answer)


def test_server_that_encodes_another_file_for_a_version_answers_with_the_recorded_one(
    services: Services, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create()
    client.append((1, None))
    older = read_version(services)
    client.append((2, None))
    forget_metadata(services, read_version(services))
    recorded: list[Json] = []

    def record_late(*about: Any) -> list[bool]:
        monkeypatch.setattr(lake_artifacts, "record_versions", record_versions)
        forget_metadata(services, older)
        recorded.append(Client(fresh(services)).load())
        counted = record_versions(*about)
        assert counted == [False]
        return counted

    monkeypatch.setattr(lake_artifacts, "record_versions", record_late)
    late = Client(fresh(services)).load()
    assert recorded == [late]
    assert_whole(late)
    assert_whole(Client(fresh(services)).load())


def test_file_that_is_recorded_twice_counts_twice(services: Services, client: Client) -> None:
    client.create()
    client.append((1, None))
    table = load_current_table(services, NS, "t")
    with services.database.reading() as cursor:
        [[path, sha256, time]] = cursor.execute(
            "SELECT path, sha256, timestamp_ms FROM duckicelake_artifact WHERE kind = 'metadata' AND object_id = %s",
            [table.row.version],
        ).fetchall()
    same = WrittenFile("metadata", table.row.version, path, len(table.body), sha256, time, None)
    with services.database.transaction() as cursor:
        assert record_versions(cursor, [(table.row, [same])]) == [True]
        other = replace(same, path=f"{path}.other")
        assert record_versions(cursor, [(table.row, [other])]) == [False]
    forget_metadata(services, table.row.version)
    with services.database.transaction() as cursor:
        assert record_versions(cursor, [(table.row, [same]), (table.row, [same])]) == [True, True]
