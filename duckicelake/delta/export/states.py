"""Read what differs between a state of main and the newest version of its Delta log."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from duckicelake.bridge import main_diff
from duckicelake.catalog.authz.locations import check_readable
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.delta.export import logs
from duckicelake.delta.export.commits import FileDifference, LiveDataFile, LoggedVector
from duckicelake.delta.export.field_names import NamesInFile, read_field_names
from duckicelake.delta.log.actions import AddFile
from duckicelake.delta.log.decoder import parse_vector
from duckicelake.delta.log.paths import relativize
from duckicelake.delta.log.reader import DeltaLog
from duckicelake.errors import UnavailableError
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.lake.ducklake import native
from duckicelake.lake.side_tables import reader
from duckicelake.lake.state import FileRow, SnapshotRow, TableState
from duckicelake.postgres.queries import Transaction
from duckicelake.storage.policy import canonicalize


@dataclass(frozen=True, slots=True)
class LoggedBase:
    """The newest version of a log, and the snapshot that it shows."""

    root: str
    version: int
    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class _Ids:
    """Ids of data files that may differ, in the state before and in the one after."""

    before: frozenset[int]
    after: frozenset[int]


NO_DIFFERENCE = FileDifference({}, {}, {})


def read_differences(
    services: Services, state: TableState, base: LoggedBase | None, root: str, after: SnapshotRow | None
) -> FileDifference:
    """Read the data files that may differ between the log's newest version and a snapshot.

    Without a base, read all.
    """
    if after is None:
        return NO_DIFFERENCE
    table_id = state.row.table_id
    before = None if base is None else _read_snapshot(state, base.snapshot_id)
    with services.database.reading() as cursor:
        if not _has_manifests(cursor, after.manifest_ids):
            raise UnavailableError(f"Snapshot {after.snapshot_id} has just been expired; try again")
        if base is not None and base.snapshot_id is None:
            base = None
        if base is None or (before is not None and _has_manifests(cursor, before.manifest_ids)):
            ids = _find_differing(cursor, table_id, before.manifest_ids if before else (), after.manifest_ids)
            return _load_files(cursor, table_id, root, ids, after.manifest_ids)
        ids = _Ids(frozenset(), frozenset(_list_live_ids(cursor, after.manifest_ids, FileContent.DATA)))
        whole = _load_files(cursor, table_id, root, ids, after.manifest_ids)
        logged = _read_logged(services, base)
        known = _read_vectors(cursor, table_id, list(logged))
    return FileDifference(logged, whole.after, known)


def _read_snapshot(state: TableState, snapshot_id: int | None) -> SnapshotRow | None:
    return next((row for row in state.snapshots if row.snapshot_id == snapshot_id), None)


def _read_logged(services: Services, base: LoggedBase) -> dict[str, AddFile]:
    """Read all files of the version from the log itself: its snapshot isn't known any more."""
    snapshot = DeltaLog(services.store, base.root).snapshot(base.version)
    return {add.path: add for add in snapshot.files.values()}


def _has_manifests(cursor: Transaction, manifest_ids: Sequence[int]) -> bool:
    return len(reader.read_manifests(cursor, manifest_ids)) == len(set(manifest_ids))


def _find_differing(cursor: Transaction, table_id: int, before: Sequence[int], after: Sequence[int]) -> _Ids:
    """Find differing files by manifests that only one of the snapshots lists, and by targets of their delete files."""
    gone_manifests, new_manifests = sorted({*before} - {*after}), sorted({*after} - {*before})
    gone = _list_live_ids(cursor, gone_manifests, FileContent.DATA)
    new = _list_live_ids(cursor, new_manifests, FileContent.DATA)
    deletes = _list_live_ids(cursor, gone_manifests, *_DELETES) ^ _list_live_ids(cursor, new_manifests, *_DELETES)
    affected = {row.data_file_id for row in reader.read_deletions(cursor, table_id, sorted(deletes))}
    live_before = {file_id for _, file_id in reader.find_live_among(cursor, before, affected)}
    live_after = {file_id for _, file_id in reader.find_live_among(cursor, after, affected)}
    return _Ids(frozenset((gone - new) | live_before), frozenset((new - gone) | live_after))


_DELETES = (FileContent.POSITION_DELETES, FileContent.EQUALITY_DELETES)


def _list_live_ids(cursor: Transaction, manifest_ids: Sequence[int], *contents: FileContent) -> set[int]:
    if not manifest_ids:
        return set()
    return {file.file_id for file in reader.read_live_files(cursor, manifest_ids) if file.content in contents}


def _load_files(
    cursor: Transaction, table_id: int, root: str, ids: _Ids, manifest_ids: Sequence[int]
) -> FileDifference:
    rows = reader.read_files(cursor, ids.before | ids.after)
    paths = {file_id: relativize(root, canonicalize(row.path)) for file_id, row in rows.items()}
    known = _read_vectors(cursor, table_id, sorted(set(paths.values())))
    deleted = _read_deleted(cursor, table_id, {file_id: rows[file_id] for file_id in ids.after}, manifest_ids)
    before = {paths[file_id]: _build_add(paths[file_id], rows[file_id], known) for file_id in ids.before}
    after = {paths[file_id]: LiveDataFile(rows[file_id], deleted.get(file_id, b"")) for file_id in ids.after}
    return FileDifference(before, after, known)


def _build_add(path: str, row: FileRow, known: dict[str, LoggedVector]) -> AddFile:
    """Build an `add` with the fields that its removal must name."""
    vector = known[path].vector if path in known else None
    return AddFile(path, {}, row.file_size_in_bytes, 0, data_change=True, deletion_vector=vector)


def _read_vectors(cursor: Transaction, table_id: int, paths: Sequence[str]) -> dict[str, LoggedVector]:
    found = logs.read_vectors(cursor, table_id, paths)
    return {path: LoggedVector(digest, parse_vector(descriptor)) for path, (digest, descriptor) in found.items()}


def _read_deleted(
    cursor: Transaction, table_id: int, files: dict[int, FileRow], manifest_ids: Sequence[int]
) -> dict[int, bytes]:
    """Read the deleted positions of data files at the snapshot of these manifests, by file id."""
    rows = reader.read_data_file_deletions(cursor, table_id, files)
    deletes = sorted({row.delete_file_id for row in rows})
    live = {file_id for _, file_id in reader.find_live_among(cursor, manifest_ids, deletes)} if deletes else set()
    sequences = {file_id: row.sequence_number for file_id, row in reader.read_files(cursor, live).items()}
    found: defaultdict[int, set[int]] = defaultdict(set)
    for row in rows:
        if sequences.get(row.delete_file_id, -1) >= files[row.data_file_id].sequence_number:
            found[row.data_file_id] |= main_diff.decode_positions(row.positions)
    return {file_id: main_diff.encode_positions(sorted(rows_of)) for file_id, rows_of in found.items() if rows_of}


def list_paths(services: Services, snapshot: SnapshotRow) -> list[str]:
    """List the paths of a snapshot's data files."""
    with services.database.reading() as cursor:
        rows = reader.read_files(cursor, _list_live_ids(cursor, snapshot.manifest_ids, FileContent.DATA))
    return [row.path for row in rows.values()]


def read_names_in_files(
    services: Services, table: TableVersion, locations: Iterable[str]
) -> Iterator[tuple[str, NamesInFile]]:
    """Yield the field names in each data file, with its path. Reads every footer."""
    with services.database.reading() as cursor:
        folder = native.read_path_prefix(cursor, table.row.table_id)
    for location in sorted(locations):
        check_readable(services, location, table.metadata.location, [folder])
        path = services.store.local_path(location)
        yield location, read_field_names(location, services.store.read(location) if path is None else path)
