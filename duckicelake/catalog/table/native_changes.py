"""Read what DuckDB did to a table since the last catch-up, and the manifests that the next version rewrites."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from duckicelake.bridge.artifacts import ManifestRenewal, get_definitions, sort_manifests
from duckicelake.bridge.data_files import CONTRACT_VERSION, serialize_partition
from duckicelake.bridge.main_diff import DELETION_VECTOR, collect_deleted_positions
from duckicelake.bridge.manifest_lists import ListedManifest, ManifestPacking, find_manifests_to_load
from duckicelake.bridge.native.required_fields import find_unproved, has_unchecked
from duckicelake.bridge.native.steps import NativeStep
from duckicelake.bridge.project import apply_definitions
from duckicelake.bridge.snapshots import is_native_snapshot
from duckicelake.catalog.context.services import Services, take_file_ids
from duckicelake.catalog.table.duckdb_files import ReadableCopies
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.partition import build_partition_type
from duckicelake.lake.ducklake import native, native_window
from duckicelake.lake.ducklake.snapshots import retry_transaction
from duckicelake.lake.model import LakeChange, LakeFile
from duckicelake.lake.side_tables import reader, written_files
from duckicelake.lake.state import FileRow, LiveFile, LiveFiles, ManifestRow, NativeWindow, Reach, TableRow, TableState
from duckicelake.postgres.database import Database
from duckicelake.postgres.pipeline import fetch_all_batched
from duckicelake.postgres.queries import Transaction

_REWRITE_KINDS = frozenset({"rewrite_delete"})


@dataclass(frozen=True, slots=True)
class NativeChanges:
    """The table as it is known, what DuckDB did to it since, and the snapshots that leave its history.

    options: DuckLake's of the table, if its properties say something else.
    """

    state: TableState
    window: NativeWindow
    live: LiveFiles
    leaving: frozenset[int]
    options: Mapping[str, str] | None = None


def read_native_changes(
    cursor: Transaction,
    state: TableState,
    upto: int,
    touching: Sequence[LakeChange],
    leaving: frozenset[int],
    *,
    expired: bool,
) -> NativeChanges:
    """Return what the snapshots up to `upto` that touch the table did; expired: since it was caught up, some were."""
    row, current = state.row, state.current()
    listed = current.manifest_ids if current else ()
    is_known = current is not None and not (expired and touching)
    asked = (
        native_window.build_basis_query(row.table_id, row.caught_up_to, upto),
        reader.build_virtual_files_query(row.table_id, listed),
    )
    [found], virtual = fetch_all_batched(cursor, *asked)
    ground, sizes = (
        native_window.WindowBasis(*found),
        {LiveFile(*virtual_file): size for size, *virtual_file in virtual},
    )
    reach = native_window.compute_reach(ground, row.caught_up_to, touching) if is_known else None
    if reach is None:
        is_whole, files = True, reader.read_live_files(cursor, listed)
        reach = Reach(live=tuple(file.ducklake_id for file in files if file.ducklake_id is not None))
    else:
        is_whole, files = False, _add_deletes(cursor, row, listed, tuple(sizes))
    live = _read_live(cursor, row, files)
    serving = [file for file in files if file.content == FileContent.DATA and file.ducklake_id is None]
    if all(change.only_adds for change in touching):
        reach = replace(reach, served=_find_served(sizes, live))
    window = native_window.read_window(cursor, row.table_id, row.caught_up_to, upto, touching, ground, reach)
    lake_ids = set[int]() if is_whole else _find_touched(window)
    if lake_ids:
        touched = reader.read_live_data_files(cursor, row.table_id, row.caught_up_to, lake_ids=lake_ids)
        live = _read_live(cursor, row, _add_deletes(cursor, row, listed, (*serving, *touched))) if touched else live
    if window.all_rows:
        ids = [file.file_id for file in serving]
        live = replace(live, virtual=reader.read_virtual_files(cursor, row.table_id, ids))
    return NativeChanges(state, window, live, leaving)


def _find_touched(window: NativeWindow) -> set[int]:
    """Return DuckLake's ids of the data files that end in the window or get deletes; new ones among them."""
    deleted_from = {file.target_id for file in window.delete_files if file.target_id is not None}
    ended = {file.file_id for file in window.data_files if file.end_snapshot is not None}
    return ended | deleted_from | {delete.data_file_id for delete in window.deletes}


def _add_deletes(
    cursor: Transaction, row: TableRow, listed: Sequence[int], data: Sequence[LiveFile]
) -> tuple[LiveFile, ...]:
    """Return the data files with all that deletes from them, what else that deletes from, and its vectors."""
    ids = {file.file_id for file in data}
    deletes = reader.read_live_delete_files(cursor, row.table_id, listed, ids) if ids else ()
    rows = reader.read_deletions(cursor, row.table_id, [file.file_id for file in deletes]) if deletes else ()
    further = {row.data_file_id for row in rows} - ids
    if not further:
        return (*data, *deletes)
    others = reader.read_live_data_files(cursor, row.table_id, row.caught_up_to, file_ids=further)
    theirs = reader.read_live_delete_files(cursor, row.table_id, listed, further)
    vectors = (file for file in theirs if file.file_format == DELETION_VECTOR and file not in deletes)
    return (*data, *deletes, *others, *vectors)


def read_live_with_deletes(
    cursor: Transaction, row: TableRow, listed: Sequence[int], data: Sequence[LiveFile]
) -> LiveFiles:
    """Return data files with all that is deleted from them; `listed` are the current snapshot's manifests."""
    return _read_live(cursor, row, _add_deletes(cursor, row, listed, data))


def _read_live(cursor: Transaction, row: TableRow, files: Sequence[LiveFile]) -> LiveFiles:
    """Return the files with what the delete files among them delete."""
    deletes = {file.file_id: file for file in files if file.content != FileContent.DATA}
    deletions = reader.read_deletions(cursor, row.table_id, deletes) if deletes else ()
    targets: dict[int, frozenset[int]] = {}
    for deletion in deletions:
        targets[deletion.delete_file_id] = targets.get(deletion.delete_file_id, frozenset()) | {deletion.data_file_id}
    return LiveFiles(tuple(files), {}, collect_deleted_positions(deletions, deletes), targets)


def _find_served(sizes: Mapping[LiveFile, int], live: LiveFiles) -> int:
    """Return how many inlined rows files of these sizes serve that aren't DuckLake's by now."""
    own = ((file.file_id, size) for file, size in sizes.items() if file.ducklake_id is None)
    return sum(size - len(live.deleted.get(file_id, ())) for file_id, size in own)


@dataclass(frozen=True, slots=True)
class Examination:
    """What is to be examined: files that DuckDB added, by DuckLake's id, and those that it wrote, for requirements."""

    missed: NativeChanges
    added: Mapping[int, FileRow]
    written: tuple[FileRow, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """The step that replaces misread files, if there are any, and the fields that become optional."""

    step: NativeStep | None
    optional: frozenset[int]


def read_unexamined(cursor: Transaction, state: TableState, base: TableMetadata, upto: int) -> Examination:
    """Read what of a table is to be examined; it is caught up to that snapshot of DuckLake's."""
    row, current = state.row, state.current()
    listed = current.manifest_ids if current else ()
    ground = native_window.WindowBasis(None, None, (), has_deletes=False)
    window = native_window.read_window(cursor, row.table_id, upto, upto, (), ground, Reach(served=0))
    lake_ids = [file.file_id for file in window.data_files if file.mapping_id is not None]
    data = reader.read_live_data_files(cursor, row.table_id, upto, lake_ids=lake_ids) if lake_ids else ()
    rows = reader.read_files(cursor, [file.file_id for file in data])
    own = {
        snapshot.snapshot_id: is_native_snapshot(snapshot.snapshot_id, snapshot.ducklake_id)
        for snapshot in state.snapshots
    }
    added = {
        file.ducklake_id: file for file in rows.values() if file.ducklake_id and own.get(file.added_snapshot_id, True)
    }
    live = read_live_with_deletes(cursor, row, listed, [file for file in data if file.ducklake_id in added])
    written: tuple[FileRow, ...] = ()
    if has_unchecked(base.schema()):
        folders = (native.read_path_prefix(cursor, row.table_id), f"{row.location}/metadata/")
        ids = [file.file_id for file in reader.read_live_files(cursor, listed) if file.content == FileContent.DATA]
        written = tuple(file for file in reader.read_files(cursor, ids).values() if file.path.startswith(folders))
    return Examination(NativeChanges(state, window, live, frozenset()), added, written)


def examine(services: Services, found: Examination, base: TableMetadata, copies: ReadableCopies) -> Findings:
    """Find what Iceberg clients misread. Raises as `ReadableCopies.find`."""
    window, live = found.missed.window, found.missed.live
    files = [file for file in window.data_files if file.file_id in found.added]
    step = _build_rewrite_step(window, [(0, file) for file in files])
    misread = copies.misread(step, window, base)
    wrong = [file for file in files if file.file_id in misread or not _is_as_placed(found, file, copies, base)]
    optional = {field for file in found.written for field in find_unproved(base.schema(), file, is_checked=True)}
    for file in found.added.values():
        optional |= find_unproved(base.schema(), file, is_checked=False)
    if not wrong:
        return Findings(None, frozenset(optional))
    ids = take_file_ids(services)
    pairs = [(next(ids), file) for file in wrong]
    old = {new_id: found.added[file.file_id].file_id for new_id, file in pairs}
    deleted = {new_id: live.deleted[old_id] for new_id, old_id in old.items() if live.deleted.get(old_id)}
    return Findings(_build_rewrite_step(window, pairs, deleted, frozenset(old.values())), frozenset(optional))


def _build_rewrite_step(
    window: NativeWindow,
    files: list[tuple[int, LakeFile]],
    positions: Mapping[int, frozenset[int]] | None = None,
    removed: frozenset[int] = frozenset(),
) -> NativeStep:
    """Return a step as after DuckDB's rewrite of these files at the end of the window."""
    return NativeStep(
        change=LakeChange(window.upto, 0, _REWRITE_KINDS),
        data_files=tuple(files),
        positions=positions or {},
        removed=removed,
    )


def _is_as_placed(found: Examination, file: LakeFile, copies: ReadableCopies, base: TableMetadata) -> bool:
    """Return whether the file's row says the partition that it would be given now."""
    row = found.added[file.file_id]
    metadata, spec, partition = copies.place_file(file, found.missed.window, base)
    type_ = build_partition_type(spec, metadata.schema())
    return (row.spec_id, list(row.partition)) == (spec.spec_id, list(serialize_partition(partition, type_)))


MAX_FILES: Final = 10_000
"""Files whose metrics are looked at in one transaction, but those of one manifest at least."""


def read_listed_manifests(
    database: Database,
    rows: Iterable[ManifestRow],
    removed: AbstractSet[int],
    format_version: int,
    packing: ManifestPacking,
) -> tuple[ListedManifest, ...]:
    """Return manifests as they are listed.

    Those that a next list of this format version rewrites with their live files.
    """
    bare = [ListedManifest.from_row(row) for row in rows]
    wanted = find_manifests_to_load(bare, format_version, packing)
    if not (wanted or removed):
        return tuple(bare)
    with database.reading() as cursor:
        found = reader.find_live_among(cursor, [manifest.manifest_id for manifest in bare], removed) if removed else ()
        wanted |= {manifest_id for manifest_id, _ in found}
        live: dict[int, dict[int, int]] = {manifest_id: {} for manifest_id in wanted}
        for file in reader.read_live_files(cursor, sorted(wanted)) if wanted else ():
            live[file.manifest_id][file.file_id] = file.sequence_number
    return tuple(replace(manifest, live=live.get(manifest.manifest_id)) for manifest in bare)


def renew_some(services: Services, row: TableRow) -> None:
    """Check some manifests of an older contract; nothing happens if the table has changed meanwhile.

    If one breaks the contract, the table gets a new version: all its listed snapshots are then served with new
    manifests, and what was written before is named by nothing any more.
    """
    definitions = get_definitions(apply_definitions(row, None))
    with services.database.reading() as cursor:
        manifest_ids = written_files.find_unchecked_manifests(cursor, row.table_id, MAX_FILES)
        manifests = reader.read_manifests(cursor, manifest_ids)
        entries = reader.read_manifest_entries(cursor, manifest_ids)
        files = [file for found in entries.values() for _, file in found if file.content == FileContent.DATA]
        known = written_files.read_known_columns(
            cursor, {file.ducklake_id for file in files if file.ducklake_id is not None}
        )
    found = sort_manifests(manifests, entries, definitions, known)
    unlisted = [id_ for id_ in manifest_ids if id_ not in manifests]

    def attempt() -> None:
        with services.database.transaction() as cursor:
            if written_files.is_at_version(cursor, row.table_id, row.version):
                _write(cursor, row.table_id, found, unlisted)

    retry_transaction(attempt)


def _write(cursor: Transaction, table_id: int, found: ManifestRenewal, unlisted: list[int]) -> None:
    """Record renewed manifests. Unlisted ones have no row any more and are never read."""
    if found.metrics:
        written_files.replace_metrics(cursor, table_id, found.metrics)
    written_files.mark_contract(cursor, table_id, [*found.kept, *unlisted], CONTRACT_VERSION)
    if found.forgotten:
        written_files.forget_manifests(cursor, table_id, found.forgotten)
