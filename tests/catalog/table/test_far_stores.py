"""Stores that take their time: the manifest that a client most likely uploaded is read while its list is."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import BoundedSemaphore, Event
from uuid import uuid4

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequestError, StoreDeniedError, UnavailableError
from duckicelake.server.app import create_app
from tests.catalog.table.test_materialize import Recorded
from tests.support.client import Client, Draft, Json, assert_whole, duckdb_rows, local, set_properties
from tests.support.seams import fresh
from tests.support.servers import running

REBASED = {"ducklake.append-rebase": "true"}
TIMEOUT = 30


@dataclass(slots=True)
class Far(Recorded):
    """A store as if it weren't on this machine."""

    reads: list[str] = field(default_factory=list)
    gates: dict[str, Event] = field(default_factory=dict)
    """What a read waits for, by the end of the file's name."""
    opens: dict[str, Event] = field(default_factory=dict)
    """What a read makes come true."""
    failures: dict[str, Exception] = field(default_factory=dict)

    def read(self, location: str, at_most: int | None = None) -> bytes:
        self.reads.append(location)
        for ending in filter(location.endswith, self.opens):
            self.opens[ending].set()
        for ending in filter(location.endswith, self.gates):
            assert self.gates[ending].wait(TIMEOUT)
        for ending in filter(location.endswith, self.failures):
            raise self.failures[ending]
        return Recorded.read(self, location, at_most)

    def local_path(self, location: str) -> Path | None:  # noqa: ARG002
        return None


class Usual(Draft):
    """Uploads files that are named as Java's library and PyIceberg name them; manifests are numbered from `first`."""

    def __init__(self, metadata: Json, first: int = 0) -> None:
        super().__init__(metadata)
        self.commit, self.following = uuid4(), first

    def new_file(self, suffix: str, data: bytes) -> str:
        name = f"snap-{self.snapshot_id}-0-{self.commit}.avro"
        if suffix == "m0.avro":
            name, self.following = f"{self.commit}-m{self.following}.avro", self.following + 1
        path = f"{self.metadata['location']}/metadata/{name}"
        local(path).parent.mkdir(parents=True, exist_ok=True)
        local(path).write_bytes(data)
        return path

    def append(self, *rows: int) -> Json:
        """The commit that appends rows, each in a manifest of its own."""
        new = [self.manifest([self.data_file([(row, None)])]) for row in rows]
        return self.body([*new, *self.parent_manifests])


def list_of(body: Json) -> str:
    (snapshot,) = (update["snapshot"] for update in body["updates"] if update["action"] == "add-snapshot")
    path: str = snapshot["manifest-list"]
    return path


def manifest_of(body: Json, number: int = 0) -> str:
    """The name that a manifest of the commit has."""
    folder, _, name = list_of(body).rpartition("/")
    return f"{folder}/{name.split('-', 3)[3].removesuffix('.avro')}-m{number}.avro"


@pytest.fixture
def far(services: Services) -> Far:
    return Far(services.store)


@pytest.fixture(params=[False, True], ids=["plain", "append-rebase"])
def distant(request: pytest.FixtureRequest, client: Client, far: Far) -> Client:
    """A client of a server whose store is far away."""
    client.create()
    client.append((0, None))
    if request.param:
        client.commit(set_properties(**REBASED))
    distant = Client(replace(fresh(client.services), store=far))
    distant.load()
    return distant


def test_manifest_is_read_while_its_list_is(distant: Client, far: Far, ducklake: duckdb.DuckDBPyConnection) -> None:
    body, is_begun = Usual(distant.metadata()).append(1), Event()
    listed, manifest = list_of(body), manifest_of(body)
    far.reads.clear()
    far.opens[manifest], far.gates[listed] = is_begun, is_begun
    assert_whole(distant.commit(body))
    assert sorted(far.reads) == sorted([listed, manifest])
    assert duckdb_rows(ducklake) == [(0, None), (1, None)]


def test_others_are_read_when_the_list_has_named_them(
    distant: Client, far: Far, ducklake: duckdb.DuckDBPyConnection
) -> None:
    body = Usual(distant.metadata()).append(1, 2)
    far.reads.clear()
    assert_whole(distant.commit(body))
    assert sorted(far.reads) == sorted([list_of(body), manifest_of(body), manifest_of(body, 1)])
    assert duckdb_rows(ducklake) == [(0, None), (1, None), (2, None)]


def test_one_that_the_list_does_not_name_is_not_waited_for(
    distant: Client, far: Far, ducklake: duckdb.DuckDBPyConnection
) -> None:
    body, is_done = Usual(distant.metadata(), first=1).append(1), Event()
    unnamed = manifest_of(body)
    local(unnamed).write_bytes(b"of another commit")
    far.gates[unnamed] = is_done
    try:
        assert_whole(distant.commit(body))
    finally:
        is_done.set()
    assert duckdb_rows(ducklake) == [(0, None), (1, None)]


def test_those_that_no_one_waits_for_are_few_at_a_time(
    distant: Client, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duckicelake.catalog.commit.uploads._slots", slots := BoundedSemaphore(1))
    body, is_done = Usual(distant.metadata(), first=1).append(1), Event()
    far.gates[manifest_of(body)] = is_done
    try:
        assert_whole(distant.commit(body))
        body = Usual(distant.metadata()).append(2)
        far.reads.clear()
        assert_whole(distant.commit(body))
        assert far.reads == [list_of(body), manifest_of(body)]  # nothing was begun before the list was read
    finally:
        is_done.set()
    assert slots.acquire(timeout=TIMEOUT)
    slots.release()
    body, is_begun = Usual(distant.metadata()).append(3), Event()
    far.opens[manifest_of(body)], far.gates[list_of(body)] = is_begun, is_begun
    assert_whole(distant.commit(body))


def test_list_that_names_a_manifest_twice_frees_one_slot_while_all_threads_are_busy(
    distant: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = Usual(distant.metadata())
    line = draft.manifest([draft.data_file([(1, None)])])
    body = draft.body([line, line, *draft.parent_manifests])
    monkeypatch.setattr("duckicelake.catalog.commit.uploads._slots", slots := BoundedSemaphore(1))
    is_done = Event()
    with ThreadPoolExecutor(1) as busy:
        monkeypatch.setattr("duckicelake.storage.threads._open_pool", lambda: busy)
        busy.submit(is_done.wait, TIMEOUT)
        try:
            with pytest.raises(InvalidRequestError, match="is listed 2 times: list it once"):
                distant.commit(body)
        finally:
            is_done.set()
    assert slots.acquire(blocking=False)


@pytest.mark.parametrize("name", ["snap-1-{}.avro", "snap-1-0-{}.txt", "client-{}-list.avro", "snap-1-0-{}-0.avro"])
def test_nothing_is_expected_of_lists_with_other_names(distant: Client, far: Far, name: str) -> None:
    draft = Usual(distant.metadata())
    lines = [draft.manifest([draft.data_file([(1, None)])]), *draft.parent_manifests]
    path = f"{draft.metadata['location']}/metadata/{name.format(draft.commit)}"
    local(path).write_bytes(local(draft.manifest_list(lines)).read_bytes())
    far.reads.clear()
    assert_whole(distant.commit(draft.body(path)))
    assert far.reads == [path, f"{draft.metadata['location']}/metadata/{draft.commit}-m0.avro"]


def test_near_files_are_read_one_after_the_other(client: Client) -> None:
    client.create()
    near = Near(client.services.store)
    distant = Client(replace(fresh(client.services), store=near))
    body = Usual(distant.metadata()).append(1)
    near.reads.clear()
    assert_whole(distant.commit(body))
    assert near.reads == [list_of(body), manifest_of(body)]


@dataclass(slots=True)
class Near(Far):
    def local_path(self, location: str) -> Path | None:
        return Recorded.local_path(self, location)


@pytest.mark.parametrize("which", [list_of, manifest_of])
def test_upload_that_is_missing_is_named(distant: Client, which: Callable[[Json], str]) -> None:
    body = Usual(distant.metadata()).append(1)
    path = which(body)
    local(path).unlink()
    with pytest.raises(InvalidRequestError, match=f"{Path(path).name} does not exist: upload it"):
        distant.commit(body)


@pytest.mark.parametrize("change", [-1, 1])
def test_manifest_of_another_length_than_its_list_says_is_refused(distant: Client, change: int) -> None:
    draft = Usual(distant.metadata())
    line = draft.manifest([draft.data_file([(1, None)])])
    said = line.manifest_length + change
    body = draft.body([replace(line, manifest_length=said), *draft.parent_manifests])
    with pytest.raises(InvalidRequestError, match=f"-m0.avro has {line.manifest_length} bytes, .* {said}"):
        distant.commit(body)


def test_manifest_that_is_longer_than_expected_is_read_when_its_length_is_known(
    distant: Client, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duckicelake.catalog.commit.uploads.EXPECTED_BYTES", 10)
    body = Usual(distant.metadata()).append(1)
    far.reads.clear()
    assert_whole(distant.commit(body))
    assert far.reads.count(manifest_of(body)) == 2


@pytest.mark.parametrize("which", [list_of, manifest_of])
@pytest.mark.parametrize("error", [UnavailableError, StoreDeniedError])
def test_store_that_gives_nothing_is_notified_of(
    distant: Client, far: Far, which: Callable[[Json], str], error: type[Exception]
) -> None:
    body = Usual(distant.metadata()).append(1)
    far.failures[which(body)] = error("not today")
    with pytest.raises(error, match="not today"):
        distant.commit(body)
    far.failures.clear()
    assert_whole(distant.commit(body))


@pytest.fixture
def pyiceberg(services: Services, far: Far) -> Iterator[RestCatalog]:
    with running(create_app(replace(services, store=far))) as uri, RestCatalog("lake", uri=uri) as catalog:
        yield catalog


def test_names_are_those_that_pyiceberg_gives(pyiceberg: RestCatalog, far: Far) -> None:
    pyiceberg.create_namespace("ns")
    rows = pa.table({"id": pa.array(range(10), pa.int64())})
    table = pyiceberg.create_table("ns.t", rows.schema)
    far.opens["-m0.avro"] = far.gates[".avro"] = Event()
    table.append(rows)
    assert len([location for location in far.reads if location.endswith(".avro")]) == 2
    assert pyiceberg.load_table("ns.t").scan().to_arrow().num_rows == 10
