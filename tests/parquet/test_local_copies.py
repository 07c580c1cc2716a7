"""Files of a store under local paths."""

from pathlib import Path

import pytest

from duckicelake.errors import FileMissingError
from duckicelake.parquet.local_copies import open_local_copies
from duckicelake.storage.local import LocalStore
from duckicelake.storage.memory import MemoryStore
from duckicelake.storage.protocol import ObjectStore


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return LocalStore(tmp_path) if request.param == "local" else MemoryStore()


def test_copies_last_as_long_as_the_context(store: ObjectStore, tmp_path: Path) -> None:
    names = [f"file://{tmp_path}/{name}" for name in ("a", "b'*[", "a")]
    for number, location in enumerate(names[:2]):
        store.write(location, b"content"[: number + 1])
    with open_local_copies(store, names) as paths:
        assert {location: path.read_bytes() for location, path in paths.items()} == {names[0]: b"c", names[1]: b"co"}
        assert all(path.name in {"0.parquet", "1.parquet"} for path in paths.values())
        folder = paths[names[0]].parent
    assert not folder.exists()
    assert store.read(names[0]) == b"c"


def test_missing_file_is_missing_when_it_is_copied() -> None:
    with pytest.raises(FileMissingError), open_local_copies(MemoryStore(), ["file:///nowhere"]):
        pass
