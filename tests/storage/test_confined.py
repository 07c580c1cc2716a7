"""A confined store reaches its own places alone, by each of its methods, and through no symbolic link."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duckicelake.errors import InvalidRequestError
from duckicelake.storage.confined import ConfinedStore, confine
from duckicelake.storage.local import LocalStore
from duckicelake.storage.policy import LocationPolicy
from duckicelake.storage.protocol import MeasuredStore, ObjectStore, unwrap

CALLS: dict[str, Callable[[ObjectStore, str, Path], Any]] = {
    "read": lambda store, location, _: store.read(location),
    "read_end": lambda store, location, _: store.read_end(location, 4),
    "download": lambda store, location, folder: store.download(location, folder / "copy"),
    "write": lambda store, location, _: store.write(location, b"text"),
    "upload": lambda store, location, folder: store.upload(location, folder / "landing" / "x"),
    "write_all": lambda store, location, _: store.write_all([(location, b"text")]),
    "write_derived": lambda store, location, _: store.write_derived([(location, b"other")]),
    "exists": lambda store, location, _: store.exists(location),
    "size": lambda store, location, _: store.size(location),
    "sizes": lambda store, location, _: store.sizes([location]),
    "delete": lambda store, location, _: store.delete(location),
    "files_below": lambda store, location, _: list(store.files_below(location)),
    "local_path": lambda store, location, _: store.local_path(location),
}
UNCONFINED = {"check", "close"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("north", "south", "lake", "landing"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text("text")
    for name, target in {"file": "south/x", "folder": "south", "own": "landing/x", "dangling": "south/none"}.items():
        (tmp_path / "north" / name).symlink_to(tmp_path / target)
    return tmp_path


def build_stores(folder: Path) -> list[ObjectStore]:
    """Confine a store to all but the others' places, and to its own."""
    own = {"allowed": (f"{folder}/landing",), "lake_path": f"{folder}/lake/"}
    policies = [
        LocationPolicy(f"{folder}/north", foreign=None, **own),  # type: ignore[arg-type]
        LocationPolicy(f"{folder}/north", foreign=(f"{folder}",), **own),  # type: ignore[arg-type]
    ]
    return [confine(LocalStore(folder), policy) for policy in policies]


def test_each_method_is_confined() -> None:
    methods = {name for name in vars(ObjectStore) if not name.startswith("_")}
    assert methods - UNCONFINED == CALLS.keys()


@pytest.mark.parametrize("name", CALLS)
def test_no_method_reaches_another_place(folder: Path, name: str) -> None:
    places = [
        *(f"{folder}/south/x", f"file:{folder}/south/x", f"{folder}/north/../south/x", f"{folder}/northern/x"),
        *(f"{folder}/north/file", f"{folder}/north/folder/x", f"{folder}/north/folder/new/y"),
        *(f"{folder}/north/dangling", f"{folder}/north/folder", f"{folder}", f"{folder}/north/..", f"{folder}/south"),
    ]
    for store in build_stores(folder):
        for place in places:
            with pytest.raises(InvalidRequestError, match=r"isn't in the warehouse|leads out of the warehouse"):
                CALLS[name](store, place, folder)
    assert (folder / "south" / "x").read_text() == "text"
    assert [path.name for path in (folder / "south").iterdir()] == ["x"]


def test_own_places_are_reached(folder: Path) -> None:
    for store in build_stores(folder):
        for place in ("north/x", "north/../lake/x", "landing/x", "north/own"):
            assert store.read(f"{folder}/{place}") == b"text"
        store.write(f"{folder}/north/new/deep/y", b"y")
        assert {file.location.rpartition("/")[2] for file in store.files_below(f"{folder}/north")} == {"x", "y"}
        store.delete(f"{folder}/north/new/deep/y")


def test_places_behind_links_are_those_that_they_lead_to(folder: Path) -> None:
    (folder / "alias").symlink_to(folder / "north")
    store = confine(LocalStore(folder), LocationPolicy(f"{folder}/alias", foreign=None))
    assert store.read(f"{folder}/alias/x") == b"text"
    for place in ("alias/file", "alias/own", "north/x"):
        with pytest.raises(InvalidRequestError):
            store.read(f"{folder}/{place}")


def test_confined_store_is_confined_anew(folder: Path) -> None:
    first, _ = build_stores(folder)
    measured = MeasuredStore(first, lambda _: open("/dev/null"))  # noqa: PTH123, SIM115
    south = confine(measured, LocationPolicy(f"{folder}/south", foreign=None))
    assert isinstance(south, MeasuredStore)
    assert isinstance(south.store, ConfinedStore)
    assert south.read(f"{folder}/south/x") == b"text"
    assert unwrap(south) is unwrap(first)
