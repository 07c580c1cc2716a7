import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from duckicelake.errors import AlreadyExists, FileMissing, InvalidRequest, InvalidSettings, Unavailable
from duckicelake.storage.objects import LocalStore, MemoryStore, ObjectStore, open_store


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return LocalStore(tmp_path) if request.param == "local" else MemoryStore()


def test_written_file_is_read_back_under_any_spelling(store: ObjectStore, tmp_path: Path) -> None:
    path = tmp_path / "a b" / "%41" / "é?#.avro"
    store.write(f"file://{path}", b"content")
    for spelling in (str(path), f"file:{path}", f"file://{path}", f"{path.parent}//x/../{path.name}"):
        assert store.read(spelling) == b"content"
        assert store.exists(spelling)
        assert store.size(spelling) == 7


def test_missing_file_is_named(store: ObjectStore, tmp_path: Path) -> None:
    missing = f"{tmp_path}/missing"
    assert not store.exists(missing)
    for act in (store.read, store.size):
        with pytest.raises(FileMissing, match=missing):
            act(missing)
    store.delete(missing)


def test_deleted_file_is_gone(store: ObjectStore, tmp_path: Path) -> None:
    store.write(f"{tmp_path}/x", b"1")
    store.delete(f"{tmp_path}/x")
    assert not store.exists(f"{tmp_path}/x")


def test_write_over_same_length_changes_nothing_and_over_another_length_is_refused(
    store: ObjectStore, tmp_path: Path
) -> None:
    location = f"{tmp_path}/x"
    store.write(location, b"first")
    store.write(location, b"other")
    with pytest.raises(AlreadyExists, match=r"5 bytes .* 6"):
        store.write(location, b"longer")
    assert store.read(location) == b"first"


def test_empty_file_is_a_file(store: ObjectStore, tmp_path: Path) -> None:
    store.write(f"{tmp_path}/empty", b"")
    assert (store.read(f"{tmp_path}/empty"), store.size(f"{tmp_path}/empty")) == (b"", 0)


def test_relative_location_is_refused(store: ObjectStore) -> None:
    with pytest.raises(InvalidRequest, match="relative/x"):
        store.read("relative/x")


def test_check_passes_on_a_working_store(store: ObjectStore, tmp_path: Path) -> None:
    store.check()
    assert list(tmp_path.iterdir()) == []


def test_local_path_is_only_of_local_files(tmp_path: Path) -> None:
    assert LocalStore(tmp_path).local_path(f"file:{tmp_path}/x") == tmp_path / "x"
    assert MemoryStore().local_path("s3://b/x") is None
    with pytest.raises(InvalidRequest, match="s3://b/x"):
        LocalStore(tmp_path).local_path("s3://b/x")


def test_memory_store_takes_s3_spellings() -> None:
    store = MemoryStore()
    store.write("s3a://b/x", b"1")
    assert store.read("s3://b/x") == b"1"


def test_local_write_leaves_no_temporary_file_and_a_readable_mode(tmp_path: Path) -> None:
    LocalStore(tmp_path).write(f"{tmp_path}/new/folder/x", b"1")
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["x"]
    assert (tmp_path / "new" / "folder" / "x").stat().st_mode & 0o777 == 0o644


def test_racing_local_writers_leave_one_whole_file(tmp_path: Path) -> None:
    store, contents = LocalStore(tmp_path), [bytes([letter]) * 100_000 for letter in b"abcdefgh"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: store.write(f"{tmp_path}/deep/er/x", content), contents))
    assert store.read(f"{tmp_path}/deep/er/x") in contents
    assert len(list((tmp_path / "deep" / "er").iterdir())) == 1


def test_local_write_without_hard_links_renames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    LocalStore(tmp_path).write(f"{tmp_path}/x", b"1")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"1")]


def test_folder_is_not_a_file(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    (tmp_path / "folder").mkdir()
    assert not store.exists(f"{tmp_path}/folder")
    with pytest.raises(FileMissing, match="folder"):
        store.read(f"{tmp_path}/folder")


def test_overlong_name_is_a_bad_request(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="file name"):
        LocalStore(tmp_path).read(f"{tmp_path}/{'x' * 300}")


def test_file_below_a_file_is_missing_and_can_not_be_written(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.write(f"{tmp_path}/x", b"1")
    assert not store.exists(f"{tmp_path}/x/y")
    with pytest.raises((FileMissing, Unavailable), match="x/y"):
        store.write(f"{tmp_path}/x/y", b"1")


def test_check_creates_the_warehouse_and_fails_where_it_can_not(tmp_path: Path) -> None:
    LocalStore(tmp_path / "new" / "warehouse").check()
    assert (tmp_path / "new" / "warehouse").is_dir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable, match="file"):
        LocalStore(tmp_path / "file" / "warehouse").check()


def test_open_store_takes_local_warehouses(tmp_path: Path) -> None:
    for warehouse in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}/"):
        assert open_store(warehouse) == LocalStore(tmp_path)


@pytest.mark.parametrize("warehouse", ["s3://bucket/wh", "hdfs://x/y", "relative", ""])
def test_open_store_refuses_others_naming_what_is_supported(warehouse: str) -> None:
    with pytest.raises(InvalidSettings, match=r"file://") as caught:
        open_store(warehouse)
    assert repr(warehouse) in str(caught.value)
