"""Read a Delta table's history: which files exist, where they may lie, and what to warn about."""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import duckdb

from duckicelake.catalog.authz.locations import check_may_read, real_place
from duckicelake.catalog.context.services import Services
from duckicelake.delta.import_.versions import DeltaVersion, build_first_version
from duckicelake.delta.log.actions import AddFile, DeltaCommit, DeltaSnapshot
from duckicelake.delta.log.paths import resolve_location
from duckicelake.delta.log.reader import DeltaLog
from duckicelake.delta.log.segments import FOLDER
from duckicelake.delta.log.vectors import locate_vector_file
from duckicelake.errors import DamagedLogError, FileMissingError, InvalidRequestError
from duckicelake.lake.side_tables import locations
from duckicelake.parquet.footer import read_row_count
from duckicelake.parquet.local_copies import open_local_copies
from duckicelake.storage.local import is_link
from duckicelake.storage.policy import canonicalize, check_file, is_within
from duckicelake.storage.threads import run_in_parallel

_LOCAL = "file://"
_TIMESTAMPS: Final = re.compile(r'"(?:type|elementType|keyType|valueType)"\s*:\s*"timestamp"')
_COLLECTIONS: Final = re.compile(r'"type"\s*:\s*"(?:array|map)"')
_GREGORIAN_YEAR: Final = "SELECT count(*) FROM parquet_schema($file) WHERE type = 'INT96'"


def check_root(services: Services, root: str) -> None:
    """Raise InvalidRequestError unless a Delta table's folder may be imported."""
    services.policy.check_readable(root, services.policy.warehouse)
    zones, place = _find_zones(services), real_place(services, root)
    for zone in zones:
        if is_within(place, zone) or is_within(zone, place):
            raise InvalidRequestError(
                f"{root} overlaps {zone}, where the lake keeps tables of its own: to have one of those twice, "
                "`duckicelake clone` it; any other Delta table must lie elsewhere"
            )
    if not _is_below(place, _find_allowed_places(services)):
        raise InvalidRequestError(f"{root} leads elsewhere by a symbolic link: name the Delta table's own folder")


def check_files(services: Services, root: str, files: Iterable[str]) -> None:
    """Raise InvalidRequestError unless all files in the log of the table in `root` are in allowed places.

    Missing files may be named. The log's own folder is checked, too.
    """
    named = {f"{root}/{FOLDER}/x": root, f"{root}/{FOLDER}/_sidecars/x": root}
    for file in files:
        named.setdefault(file if is_link(services.store, file) else file.rpartition("/")[0] or "/", file)
    zones, places, folder = _find_zones(services), _find_allowed_places(services), real_place(services, root)
    for spelled, file in named.items():
        place = real_place(services, spelled)
        if is_within(place, folder):
            continue
        if _is_below(place, zones):
            raise InvalidRequestError(
                f"{file} is where the lake keeps tables of its own: the Delta table {root} may have no files there"
            )
        if not _is_below(place, places):
            services.policy.check_readable(file, services.policy.warehouse)
            raise InvalidRequestError(f"{file} leads elsewhere by a symbolic link: put the file itself there")


def _find_zones(services: Services) -> Sequence[str]:
    """Find the folders to which only the lake's own writers write."""
    with services.database.reading() as cursor:
        data_path = locations.read_data_path(cursor)
    return [real_place(services, zone) for zone in (data_path, services.policy.data_zone)]


def _find_allowed_places(services: Services) -> Sequence[str]:
    return [real_place(services, place) for place in services.policy.places]


def _is_below(place: str, zones: Iterable[str]) -> bool:
    return any(is_within(place, zone) for zone in zones)


@dataclass(frozen=True, slots=True)
class DeltaFiles:
    """A Delta table: its log, and row counts of files whose statistics lack them, by the log's path.

    missing: the log's paths of files that are gone, or whose deletion vectors are.
    """

    log: DeltaLog
    counts: Mapping[str, int] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()

    def locate(self, path: str) -> str:
        """Convert a path of the log to a location for clients."""
        is_plain = ":" not in path and ".." not in path and not path.startswith("/")  # as most are
        return f"{self.log.root}/{path}" if is_plain else format_root(resolve_location(self.log.root, path))


@dataclass(frozen=True, slots=True)
class DeltaHistory:
    """The history to import: the table at a version, that commit's info, and the later commits."""

    files: DeltaFiles
    start: DeltaSnapshot
    info: Mapping[str, Any]
    commits: Sequence[DeltaCommit]

    @property
    def newest(self) -> int:
        return self.commits[-1].version if self.commits else self.start.version

    def first(self) -> DeltaVersion:
        """Return the first version."""
        return build_first_version(self.start, self.info)

    def adds(self) -> Iterator[AddFile]:
        """Yield the files of all versions."""
        yield from self.start.files.values()
        for commit in self.commits:
            yield from commit.adds


def format_root(location: str) -> str:
    """Format a location for engines.

    On this machine a plain path, since some engines don't decode URIs; else a URI.
    """
    return canonicalize(location).removeprefix(_LOCAL)


def open_log(services: Services, root: str) -> DeltaLog:
    """Open the log of the Delta table in a folder.

    Raises NoDeltaLogError, InvalidRequestError or ForbiddenError for one that may not be read.
    """
    place = format_root(root)
    with services.database.reading() as cursor:
        data_path = locations.read_data_path(cursor)
    if is_within(place, data_path) or is_within(data_path, place):
        raise InvalidRequestError(
            f"{place} overlaps {data_path}, where DuckDB deletes what it doesn't know: move the Delta table elsewhere"
        )
    check_root(services, place)
    check_may_read(services, [f"{place}/x"])
    return DeltaLog(services.store, place)


def read_history(services: Services, log: DeltaLog, from_version: int | None) -> DeltaHistory:
    """Read the whole readable history, or from a version on.

    Raises InvalidRequestError, ExpiredError, DamagedLogError, FileMissingError.
    """
    start = max(log.oldest(), from_version or 0)
    snapshot = log.snapshot(start)
    commits = list(log.commits(start, log.newest()))
    history = DeltaHistory(DeltaFiles(log), snapshot, _read_info(log, start), commits)
    return replace(history, files=read_version_files(services, log, list(history.adds())))


def read_version_files(
    services: Services,
    log: DeltaLog,
    adds: Sequence[AddFile],
    known: Callable[[Iterable[str]], AbstractSet[str]] | None = None,
) -> DeltaFiles:
    """Check that files exist in allowed places; count rows that the log doesn't have.

    known: files that an existing table has; for a new one the whole folder is listed.
    """
    places = DeltaFiles(log)
    paths = {add.path: places.locate(add.path) for add in adds}
    vectors = {add.path: at for add in adds if (at := _locate_vector(log.root, add)) is not None}
    wanted = {*paths.values(), *vectors.values()}
    foreign = {at for at in wanted if not at.startswith(f"{log.root}/")}
    there = None if known else _list_present(services, log.root)
    for at in wanted:
        check_file(at)
    check_files(services, log.root, wanted - there if there else wanted)
    check_may_read(services, foreign - known(foreign) if known and foreign else foreign)
    gone = _find_missing(services, log.root, wanted, there)
    missing = frozenset(path for path, at in paths.items() if at in gone or (path in vectors and vectors[path] in gone))
    uncounted = [add.path for add in adds if not _is_counted(add) and add.path not in missing]
    return DeltaFiles(log, _count_rows(services, {path: paths[path] for path in uncounted}), missing)


def hash_commit(services: Services, log: DeltaLog, version: int) -> str | None:
    """Hash a version's file in the log (SHA-256, hex); None if it is gone."""
    try:
        return hashlib.sha256(services.store.read(f"{log.root}/_delta_log/{version:020}.json")).hexdigest()
    except FileMissingError:
        return None


def _read_info(log: DeltaLog, version: int) -> Mapping[str, Any]:
    """Read the `commitInfo` of a version; empty if only a checkpoint is left of it."""
    try:
        return next(iter(log.commits(version - 1, version))).info
    except DamagedLogError:
        return {}


def _locate_vector(root: str, add: AddFile) -> str | None:
    if add.deletion_vector is None:
        return None
    try:
        found = locate_vector_file(root, add.deletion_vector)
    except ValueError:
        return None
    return None if found is None else format_root(found)


def _list_present(services: Services, root: str) -> set[str]:
    """List the files in the table's folder, log and all."""
    local = services.store.local_path(root)
    if local is None:
        return {file.location for file in services.store.files_below(root)}
    return set(_list_names(str(local)))


def _list_names(folder: str) -> Iterator[str]:
    """Yield the paths of all files except links. Asking each for its size would take longer than all else."""
    folders = [folder]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif not entry.is_symlink():
                    yield entry.path


def _find_missing(services: Services, root: str, wanted: Iterable[str], there: set[str] | None) -> set[str]:
    """Find missing files. Those that weren't listed may lie elsewhere, or behind a link."""
    absent = [at for at in wanted if there is None or at not in there]
    if there is not None and services.store.local_path(root) is None:
        gone = {at for at in absent if at.startswith(f"{root}/")}
        absent = [at for at in absent if at not in gone]
    else:
        gone = set()
    found = run_in_parallel(services.store.exists, absent)
    return gone | {at for at, is_there in zip(absent, found, strict=True) if not is_there}


def _is_counted(add: AddFile) -> bool:
    return add.stats is not None and '"numRecords"' in add.stats


def _count_rows(services: Services, places: Mapping[str, str]) -> dict[str, int]:
    """Count the rows of files, from their footers."""

    def count(pair: tuple[str, str]) -> tuple[str, int]:
        path, location = pair
        with open_local_copies(services.store, [location]) as copies:
            return path, read_row_count(copies[location], location)

    return dict(run_in_parallel(count, places.items()))


def collect_warnings(services: Services, history: DeltaHistory) -> tuple[str, ...]:
    """Collect warnings about readers, one sentence each.

    One file of the newest version is opened: the smallest of the last added ones.
    """
    return tuple(_build_warnings(services, history))


def _build_warnings(services: Services, history: DeltaHistory) -> Iterator[str]:
    definitions = [commit.metadata for commit in history.commits if commit.metadata is not None]
    newest = definitions[-1] if definitions else history.start.metadata
    if newest.column_mapping != "none" and _COLLECTIONS.search(newest.schema_string):
        yield (
            "it has lists or maps and mapped columns: Iceberg's Java library (Spark, Trino, Flink) fails at those, "
            "PyIceberg and DuckDB read them"
        )
    if _TIMESTAMPS.search(newest.schema_string) and _has_old_timestamps(services, history):
        yield (
            "its timestamps are in Parquet's old form INT96, which DuckDB takes for local time: "
            "SET TimeZone = 'UTC' in DuckDB where it reads the table"
        )


def _has_old_timestamps(services: Services, history: DeltaHistory) -> bool:
    file = _find_recent(history)
    if file is None:
        return False
    location = history.files.locate(file.path)
    with open_local_copies(services.store, [location]) as paths, duckdb.connect() as connection:
        ((count,),) = connection.execute(_GREGORIAN_YEAR, {"file": str(paths[location])}).fetchall()
    return bool(count)


def _find_recent(history: DeltaHistory) -> AddFile | None:
    for adds in (*(commit.adds for commit in reversed(history.commits)), tuple(history.start.files.values())):
        there = [add for add in adds if add.path not in history.files.missing]
        if there:
            return min(there, key=lambda add: add.size)
    return None
