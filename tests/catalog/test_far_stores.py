"""Stores that take their time: what a commit reads and writes there is begun before it must be there."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

import duckdb
import pytest

from duckicelake.catalog.commits.groups import CommitQueue
from duckicelake.catalog.commits.planning import plan_all
from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest, StoreDenied, Unavailable
from duckicelake.iceberg.manifest import read_manifest_list
from tests.catalog.client import Client, Json, append, assert_whole, duckdb_rows, local, set_properties
from tests.catalog.seams import fresh
from tests.catalog.test_materialize import Recorded

REBASED = {"ducklake.append-rebase": "true"}


@dataclass(slots=True)
class Far(Recorded):
    """A store as if it weren't on this machine. `reading` and `writing` are told what is about to be."""

    reading: Callable[[str], object] = lambda _: None
    writing: Callable[[str], object] = lambda _: None
    read_from: list[str] = field(default_factory=list)

    def read(self, location: str, at_most: int | None = None) -> bytes:
        self.read_from.append(location)
        self.reading(location)
        return Recorded.read(self, location, at_most)

    def write(self, location: str, data: bytes) -> None:
        self.writing(location)
        Recorded.write(self, location, data)

    def local_path(self, location: str) -> Path | None:  # noqa: ARG002
        return None


@pytest.fixture
def far(services: Services) -> Far:
    return Far(services.store)


@pytest.fixture
def distant(client: Client, far: Far) -> Client:
    """A client of a server whose store is far away, and whose commits come to what they are planned for."""
    client.create()
    client.append((0, None))
    return Client(replace(fresh(client.services), store=far, commits=CommitQueue()))


def uploads(body: Json) -> list[str]:
    """The manifest list of an append, and its new manifest."""
    (snapshot,) = (update["snapshot"] for update in body["updates"] if update["action"] == "add-snapshot")
    path: str = snapshot["manifest-list"]
    (new, *_) = read_manifest_list(local(path).read_bytes())
    return [path, new.manifest_path]


def test_manifests_and_lists_are_being_written_while_metadata_is_encoded(
    distant: Client, far: Far, ducklake: duckdb.DuckDBPyConnection
) -> None:
    is_encoded = Event()

    def writing(location: str) -> None:
        if location.endswith(".json"):
            is_encoded.set()
        assert is_encoded.wait(30)

    far.writing = writing
    answer = distant.append((1, None))
    assert_whole(answer)
    assert sorted(Path(location).suffix for location, _ in far.written) == [".avro", ".avro", ".json"]
    assert duckdb_rows(ducklake) == [(0, None), (1, None)]


@pytest.mark.parametrize("lost", ["-m0-data.avro", "snap-", ".json"])
def test_commit_one_of_whose_files_cannot_be_written_is_refused(distant: Client, far: Far, lost: str) -> None:
    before = distant.load()

    def writing(location: str) -> None:
        if lost in location:
            raise Unavailable("the store doesn't answer")

    far.writing = writing
    with pytest.raises(Unavailable, match="doesn't answer"):
        distant.append((1, None))
    assert Client(fresh(distant.services)).load() == before
    far.writing = lambda _: None
    assert_whole(distant.append((1, None)))


def test_uploads_are_read_once_and_before_it_is_known_what_to_do_with_them(
    distant: Client, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, is_read = append(distant.metadata(), (1, None)), Event()
    listed, manifest = uploads(body)
    far.read_from.clear()
    far.reading = lambda location: is_read.set() if location == manifest else None

    def plan(*given: object, **more: object) -> object:
        assert is_read.wait(30)
        return plan_all(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("duckicelake.catalog.commits.committing.plan_all", plan)
    assert_whole(distant.commit(body))
    assert far.read_from == [listed, manifest]


def test_uploads_of_what_is_computed_again_are_not_read_again(distant: Client, far: Far) -> None:
    body = append(distant.metadata(), (1, None))
    Client(fresh(distant.services)).create("other")
    far.read_from.clear()
    assert_whole(distant.commit(body))
    assert far.read_from == uploads(body)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("is_rebased", [False, True])
def test_missing_upload_is_named(distant: Client, is_rebased: bool, which: int) -> None:
    if is_rebased:
        distant.commit(set_properties(**REBASED))
    body = append(distant.metadata(), (1, None))
    path = uploads(body)[which]
    local(path).unlink()
    with pytest.raises(InvalidRequest, match=f"{Path(path).name} does not exist: upload it"):
        distant.commit(body)


@pytest.mark.parametrize("is_rebased", [False, True])
@pytest.mark.parametrize("error", [Unavailable, StoreDenied])
def test_store_that_gives_nothing_is_told_of(
    distant: Client, far: Far, is_rebased: bool, error: type[Exception]
) -> None:
    if is_rebased:
        distant.commit(set_properties(**REBASED))
    body = append(distant.metadata(), (1, None))

    def reading(_: str) -> None:
        raise error("not today")

    far.reading = reading
    with pytest.raises(error, match="not today"):
        distant.commit(body)
    far.reading = lambda _: None
    assert_whole(distant.commit(body))
