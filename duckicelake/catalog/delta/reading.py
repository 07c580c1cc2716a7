"""A Delta table's log and what it needs besides: which of its files are there, and rows of those it doesn't count."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from duckicelake.bridge.delta.versions import DeltaVersion, whole
from duckicelake.catalog.access.ownership import check_may_read
from duckicelake.catalog.delta.places import check_files, check_root
from duckicelake.catalog.services import Services
from duckicelake.delta.actions import AddFile, Commit, DeltaSnapshot
from duckicelake.delta.log import DeltaLog
from duckicelake.delta.paths import location
from duckicelake.delta.vectors import file_of
from duckicelake.errors import DamagedLog, FileMissing, InvalidRequest
from duckicelake.lake import ownership
from duckicelake.storage.local_copies import local_copies
from duckicelake.storage.parallel import in_parallel
from duckicelake.storage.parquet_counts import rows_in
from duckicelake.storage.policy import canonical, check_file, is_within

_LOCAL = "file://"


@dataclass(frozen=True, slots=True)
class DeltaFiles:
    """A Delta table: its log, and the rows of files whose statistics don't say how many, by the log's path.

    missing: paths in the log of files that aren't there any more, they or their deletion vectors.
    """

    log: DeltaLog
    counts: Mapping[str, int] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()

    def located(self, path: str) -> str:
        """Where the log's path is, as clients are told."""
        is_plain = ":" not in path and ".." not in path and not path.startswith("/")  # most are
        return f"{self.log.root}/{path}" if is_plain else spelled(location(self.log.root, path))


@dataclass(frozen=True, slots=True)
class History:
    """What is to be imported: the table at a version, what its commit says of itself, and the commits after it."""

    files: DeltaFiles
    start: DeltaSnapshot
    info: Mapping[str, Any]
    commits: Sequence[Commit]

    @property
    def newest(self) -> int:
        return self.commits[-1].version if self.commits else self.start.version

    def first(self) -> DeltaVersion:
        """The first version, to go on from."""
        return whole(self.start, self.info)

    def adds(self) -> Iterator[AddFile]:
        """The files of all versions."""
        yield from self.start.files.values()
        for commit in self.commits:
            yield from commit.adds


def spelled(location: str) -> str:
    """A location as engines are given it: a plain path on this machine, as some take no URI's escapes, or a URI."""
    return canonical(location).removeprefix(_LOCAL)


def open_log(services: Services, root: str) -> DeltaLog:
    """The log of the Delta table in a folder; NotDelta, InvalidRequest or Forbidden for one that may not be read."""
    place = spelled(root)
    with services.database.reading() as cursor:
        data_path = ownership.data_path(cursor)
    if is_within(place, data_path) or is_within(data_path, place):
        raise InvalidRequest(
            f"{place} overlaps {data_path}, where DuckDB deletes what it doesn't know: move the Delta table elsewhere"
        )
    check_root(services, place)
    check_may_read(services, [f"{place}/x"])
    return DeltaLog(services.store, place)


def read_history(services: Services, log: DeltaLog, from_version: int | None) -> History:
    """The whole history that can be told, or from a version on. InvalidRequest, Forgotten, DamagedLog, FileMissing."""
    start = max(log.oldest(), from_version or 0)
    snapshot = log.snapshot(start)
    commits = list(log.commits(start, log.newest()))
    history = History(DeltaFiles(log), snapshot, _info(log, start), commits)
    return replace(history, files=look(services, log, list(history.adds())))


def look(
    services: Services,
    log: DeltaLog,
    adds: Sequence[AddFile],
    known: Callable[[Iterable[str]], AbstractSet[str]] | None = None,
) -> DeltaFiles:
    """Look whether files are there, and where they may be; count uncounted rows.

    known: which files the table has already, for one that is there; for a new one the whole folder is listed.
    """
    places = DeltaFiles(log)
    paths = {add.path: places.located(add.path) for add in adds}
    vectors = {add.path: at for add in adds if (at := _vector_file(log.root, add)) is not None}
    wanted = {*paths.values(), *vectors.values()}
    foreign = {at for at in wanted if not at.startswith(f"{log.root}/")}
    there = None if known else _there(services, log.root)
    for at in wanted:
        check_file(at)
    check_files(services, log.root, wanted - there if there else wanted)
    check_may_read(services, foreign - known(foreign) if known and foreign else foreign)
    gone = _gone(services, log.root, wanted, there)
    missing = frozenset(path for path, at in paths.items() if at in gone or (path in vectors and vectors[path] in gone))
    uncounted = [add.path for add in adds if not _is_counted(add) and add.path not in missing]
    return DeltaFiles(log, _counted(services, {path: paths[path] for path in uncounted}), missing)


def digest(services: Services, log: DeltaLog, version: int) -> str | None:
    """The SHA-256 of a version's file in the log, in hex; None if it has none any more."""
    try:
        return hashlib.sha256(services.store.read(f"{log.root}/_delta_log/{version:020}.json")).hexdigest()
    except FileMissing:
        return None


def _info(log: DeltaLog, version: int) -> Mapping[str, Any]:
    """What the version's commit says of itself; nothing, where only a checkpoint is left of it."""
    try:
        return next(iter(log.commits(version - 1, version))).info
    except DamagedLog:
        return {}


def _vector_file(root: str, add: AddFile) -> str | None:
    if add.deletion_vector is None:
        return None
    try:
        found = file_of(root, add.deletion_vector)
    except ValueError:
        return None
    return None if found is None else spelled(found)


def _there(services: Services, root: str) -> set[str]:
    """The files in the table's folder, log and all."""
    local = services.store.local_path(root)
    if local is None:
        return {file.location for file in services.store.files_below(root)}
    return set(_names_below(str(local)))


def _names_below(folder: str) -> Iterator[str]:
    """The paths of all files but links; to ask each for its size takes longer than all else."""
    folders = [folder]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif not entry.is_symlink():
                    yield entry.path


def _gone(services: Services, root: str, wanted: Iterable[str], there: set[str] | None) -> set[str]:
    """Those of the files that aren't there; what wasn't listed may lie elsewhere, or behind a link."""
    absent = [at for at in wanted if there is None or at not in there]
    if there is not None and services.store.local_path(root) is None:
        gone = {at for at in absent if at.startswith(f"{root}/")}
        absent = [at for at in absent if at not in gone]
    else:
        gone = set()
    found = in_parallel(services.store.exists, absent)
    return gone | {at for at, is_there in zip(absent, found, strict=True) if not is_there}


def _is_counted(add: AddFile) -> bool:
    return add.stats is not None and '"numRecords"' in add.stats


def _counted(services: Services, places: Mapping[str, str]) -> dict[str, int]:
    """The rows of files, from their footers."""

    def count(pair: tuple[str, str]) -> tuple[str, int]:
        path, location = pair
        with local_copies(services.store, [location]) as copies:
            return path, rows_in(copies[location], location)

    return dict(in_parallel(count, places.items()))
