"""One suite over all object stores, and what is particular to the two that need no server."""

import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from duckicelake.errors import AlreadyExistsError, FileMissingError, InvalidRequestError, UnavailableError
from duckicelake.storage.azure import AzureStore
from duckicelake.storage.bucket_store import BucketStore
from duckicelake.storage.gcs import GcsStore
from duckicelake.storage.local import LocalStore
from duckicelake.storage.memory import MemoryStore
from duckicelake.storage.policy import canonicalize
from duckicelake.storage.protocol import ObjectStore
from duckicelake.storage.s3 import S3Store
from tests.support.backends import Bucket
from tests.support.s3_lakes import now_ms
from tests.support.stores import AzureContainer, GcsBucket

NAMES = (
    "plain.avro",
    "a b/c+d.avro",
    "%41%2F%20.avro",
    "é/日本/🦆.avro",
    "e\u0301.avro",
    "hash-free/=&;:@$,'()!~*[]{}^`|<>.avro",
    "back\\slash.avro",
    '"quoted".avro',
    "x" * 200,
)
SPELLINGS = {
    "file": ("", "file:", "file://", "FILE://"),
    "s3": ("s3://", "s3a://", "s3n://", "S3://"),
    "gs": ("gs://", "gcs://", "GS://"),
    "abfss": ("abfss://", "abfs://", "wasbs://", "wasb://"),
}


@pytest.fixture
def s3(bucket: Bucket) -> Iterator[S3Store]:
    with closing(S3Store(f"{bucket.uri}/wh", bucket.options())) as store:
        yield store


@pytest.fixture
def gcs(gcs_bucket: GcsBucket) -> Iterator[GcsStore]:
    with closing(GcsStore(f"{gcs_bucket.uri}/wh", gcs_bucket.options(), now_ms)) as store:
        yield store


@pytest.fixture
def azure(azure_container: AzureContainer) -> Iterator[AzureStore]:
    with closing(AzureStore(f"{azure_container.uri}/wh", azure_container.options(), now_ms)) as store:
        yield store


@pytest.fixture(
    params=["memory", "local", "s3", *(pytest.param(name, marks=pytest.mark.stores) for name in ("gcs", "azure"))]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    match request.param:
        case "memory":
            return MemoryStore()
        case "local":
            return LocalStore(tmp_path)
    bucket_store: ObjectStore = request.getfixturevalue(request.param)
    return bucket_store


@pytest.fixture
def root(store: ObjectStore, tmp_path: Path) -> str:
    return store.root if isinstance(store, BucketStore) else f"file://{tmp_path}"


def list_names(store: ObjectStore) -> tuple[str, ...]:
    """The names that a store takes: Azure makes a slash of a backslash."""
    return tuple(name for name in NAMES if not (isinstance(store, AzureStore) and "\\" in name))


def test_written_file_is_read_back_under_its_literal_name(store: ObjectStore, root: str, tmp_path: Path) -> None:
    for name in list_names(store):
        store.write(f"{root}/{name}", name.encode())
    for number, name in enumerate(list_names(store)):
        location = f"{root}/{name}"
        assert store.read(location) == name.encode()
        assert store.exists(location)
        assert store.size(location) == len(name.encode())
        store.download(location, tmp_path / str(number))
        assert (tmp_path / str(number)).read_bytes() == name.encode()


def test_file_has_one_name_in_all_spellings_of_its_scheme(store: ObjectStore, root: str) -> None:
    store.write(f"{root}/x", b"content")
    path = root.partition("://")[2]
    spellings = SPELLINGS[root.partition("://")[0]]
    assert {store.read(f"{spelling}{path}/x") for spelling in spellings} == {b"content"}


def test_missing_file_is_named(store: ObjectStore, root: str, tmp_path: Path) -> None:
    missing = f"{root}/missing"
    assert not store.exists(missing)
    for act in (store.read, store.size, lambda location: store.download(location, tmp_path / "copy")):
        with pytest.raises(FileMissingError, match=missing):
            act(missing)
    store.delete(missing)
    store.delete(missing)


def test_files_below_a_folder_are_listed_with_their_canonical_locations(store: ObjectStore, root: str) -> None:
    assert list(store.files_below(f"{root}/folder")) == []
    before = time.time_ns() // 1_000_000
    names = [f"{number}/{name}" for number, name in enumerate(list_names(store))]
    for name in (*names, "folder2/sibling"):
        store.write(f"{root}/folder/{name}" if name in names else f"{root}/{name}", name.encode())
    found = {file.location: file for file in store.files_below(f"{root}/folder/")}
    assert set(found) == {canonicalize(f"{root}/folder/{name}") for name in names}
    for name in names:
        file = found[canonicalize(f"{root}/folder/{name}")]
        assert file.size == len(name.encode())
        assert before - 2000 <= file.modified_ms <= time.time_ns() // 1_000_000 + 2000
        assert store.read(file.location) == name.encode()


def test_deleted_file_is_gone(store: ObjectStore, root: str) -> None:
    store.write(f"{root}/x", b"1")
    store.delete(f"{root}/x")
    assert not store.exists(f"{root}/x")
    store.write(f"{root}/x", b"another length")
    assert store.read(f"{root}/x") == b"another length"


def test_write_over_same_length_changes_nothing_and_over_another_length_is_refused(
    store: ObjectStore, root: str
) -> None:
    location = f"{root}/x"
    store.write(location, b"first")
    store.write(location, b"other")
    with pytest.raises(AlreadyExistsError, match=r"5 bytes .* 6"):
        store.write(location, b"longer")
    assert store.read(location) == b"first"


def test_upload_of_a_local_file_is_a_write_of_what_it_has(store: ObjectStore, root: str, tmp_path: Path) -> None:
    for name, content in (("a", b"first"), ("b", b""), ("c", bytes(range(256)) * 10_000)):
        (tmp_path / "made").write_bytes(content)
        store.upload(f"{root}/new/{name}", tmp_path / "made")
        assert store.read(f"{root}/new/{name}") == content
        (tmp_path / "made").unlink()
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"other")
    store.upload(f"{root}/new/a", tmp_path / "a")
    assert store.read(f"{root}/new/a") == b"first"
    with pytest.raises(AlreadyExistsError, match=r"0 bytes .* 5"):
        store.upload(f"{root}/new/b", tmp_path / "b")
    assert {file.location.rpartition("/")[2] for file in store.files_below(f"{root}/new")} == {"a", "b", "c"}


def test_racing_writers_leave_one_whole_file(store: ObjectStore, root: str) -> None:
    contents = [bytes([letter]) * 100_000 for letter in b"abcdefgh"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: store.write(f"{root}/deep/er/x", content), contents))
    assert store.read(f"{root}/deep/er/x") in contents


def test_of_racing_writers_of_unlike_lengths_one_wins_and_the_others_are_reported(
    store: ObjectStore, root: str
) -> None:
    contents = [b"x" * length for length in range(1, 9)]

    def write(content: bytes) -> bytes | None:
        try:
            store.write(f"{root}/x", content)
        except AlreadyExistsError:
            return None
        return content

    with ThreadPoolExecutor(8) as pool:
        won = [content for content in pool.map(write, contents) if content is not None]
    assert won == [store.read(f"{root}/x")]


@pytest.mark.parametrize("length", [0, 20 << 20])
def test_file_of_any_length_comes_back_whole(store: ObjectStore, root: str, tmp_path: Path, length: int) -> None:
    data = os.urandom(length)
    store.write(f"{root}/x", data)
    assert store.size(f"{root}/x") == length
    assert store.read(f"{root}/x") == data
    store.download(f"{root}/x", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data


def test_no_more_is_read_than_asked_for(store: ObjectStore, root: str) -> None:
    store.write(f"{root}/x", b"12345")
    assert store.read(f"{root}/x", at_most=5) == b"12345"
    with pytest.raises(InvalidRequestError, match=r"5 bytes.*4"):
        store.read(f"{root}/x", at_most=4)


@pytest.mark.parametrize(("data", "at_most", "end"), [(b"12345", 2, b"45"), (b"12345", 9, b"12345"), (b"", 9, b"")])
def test_end_of_a_file_is_read_alone(store: ObjectStore, root: str, data: bytes, at_most: int, end: bytes) -> None:
    store.write(f"{root}/x", data)
    assert store.read_end(f"{root}/x", at_most) == (end, len(data))
    with pytest.raises(FileMissingError):
        store.read_end(f"{root}/y", at_most)


def test_relative_location_is_refused(store: ObjectStore) -> None:
    with pytest.raises(InvalidRequestError, match="relative/x"):
        store.read("relative/x")


def test_check_passes_on_a_working_store_as_often_as_it_is_asked(store: ObjectStore) -> None:
    store.check()
    store.check()


def test_local_check_leaves_nothing(tmp_path: Path) -> None:
    LocalStore(tmp_path).check()
    assert list(tmp_path.iterdir()) == []


def test_local_path_is_only_of_local_files(tmp_path: Path) -> None:
    assert LocalStore(tmp_path).local_path(f"file:{tmp_path}/x") == tmp_path / "x"
    assert MemoryStore().local_path("s3://b/x") is None
    with pytest.raises(InvalidRequestError, match="s3://b/x"):
        LocalStore(tmp_path).local_path("s3://b/x")


def test_memory_store_takes_s3_spellings() -> None:
    store = MemoryStore()
    store.write("s3a://b/x", b"1")
    assert store.read("s3://b/x") == b"1"


def test_local_write_leaves_no_temporary_file_and_a_readable_mode(tmp_path: Path) -> None:
    LocalStore(tmp_path).write(f"{tmp_path}/new/folder/x", b"1")
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["x"]
    assert (tmp_path / "new" / "folder" / "x").stat().st_mode & 0o777 == 0o644


def test_derived_file_is_written_over_one_of_another_length_alone(store: ObjectStore, root: str) -> None:
    store.write_derived([(f"{root}/x", b"cut o"), (f"{root}/new/y", b"1")])
    store.write_derived([(f"{root}/x", b"cut off no more"), (f"{root}/new/y", b"2")])
    assert store.read(f"{root}/x") == b"cut off no more"
    assert store.read(f"{root}/new/y") == b"1"


def _refuse_links(*_: object) -> None:
    raise PermissionError(1, "no hard links here")


def test_local_write_without_hard_links_renames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _refuse_links)
    LocalStore(tmp_path).write(f"{tmp_path}/x", b"1")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"1")]


def test_local_upload_links_a_file_and_copies_what_it_can_not_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, made, inodes = LocalStore(tmp_path), tmp_path / "made", []
    for folder in ("linked", "copied"):
        made.write_bytes(b"rows")
        made.chmod(0o600)
        inodes.append(made.stat().st_ino)
        store.upload(f"{tmp_path}/{folder}/x", made)
        made.unlink()
        monkeypatch.setattr(os, "link", _refuse_links)
    linked, copied = tmp_path / "linked" / "x", tmp_path / "copied" / "x"
    assert (linked.stat().st_ino == inodes[0], copied.stat().st_ino == inodes[1]) == (True, False)
    assert {(path.read_bytes(), path.stat().st_mode & 0o777) for path in (linked, copied)} == {(b"rows", 0o644)}
    assert {path.name for path in tmp_path.iterdir()} == {"linked", "copied"}


def test_folder_is_not_a_file(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    (tmp_path / "folder").mkdir()
    assert not store.exists(f"{tmp_path}/folder")
    with pytest.raises(FileMissingError, match="folder"):
        store.read(f"{tmp_path}/folder")


def test_overlong_name_is_a_bad_request(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="file name"):
        LocalStore(tmp_path).read(f"{tmp_path}/{'x' * 300}")


def test_file_below_a_file_is_missing_and_can_not_be_written(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.write(f"{tmp_path}/x", b"1")
    assert not store.exists(f"{tmp_path}/x/y")
    with pytest.raises((FileMissingError, UnavailableError), match="x/y"):
        store.write(f"{tmp_path}/x/y", b"1")


def test_check_creates_the_warehouse_and_fails_where_it_can_not(tmp_path: Path) -> None:
    LocalStore(tmp_path / "new" / "warehouse").check()
    assert (tmp_path / "new" / "warehouse").is_dir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnavailableError, match="file"):
        LocalStore(tmp_path / "file" / "warehouse").check()


def test_each_kind_of_unusable_local_place_has_its_answer(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Nothing that stays as it is may look like an outage, for which clients would try again."""
    store = LocalStore(tmp_path)
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        with temporary_folder(tmp_path):  # addresses of sockets are short
            listener.bind("socket")
        for name, reading, writing in (
            ("none", FileMissingError, None),
            ("dangling", FileMissingError, FileMissingError),
            ("dangling/x", FileMissingError, InvalidRequestError),
            ("dangling/deep/x", FileMissingError, InvalidRequestError),
            ("loop", InvalidRequestError, InvalidRequestError),
            ("loop/x", InvalidRequestError, InvalidRequestError),
            ("file/x", FileMissingError, FileMissingError),
            ("pipe", FileMissingError, AlreadyExistsError),
            ("socket", FileMissingError, AlreadyExistsError),
            ("n" * 300, InvalidRequestError, InvalidRequestError),
            ("a\ud800", InvalidRequestError, InvalidRequestError),
        ):
            place = f"{tmp_path}/{name}"
            with subtests.test(ascii(name)[:20]):
                with pytest.raises(reading):
                    store.read(place)
                if writing is not None:
                    with pytest.raises(writing):
                        store.write(place, b"text")
    assert not (tmp_path / "nowhere").exists()


@contextmanager
def temporary_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
