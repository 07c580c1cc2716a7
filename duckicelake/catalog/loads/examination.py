"""What was served before added files and requirements were examined: after an upgrade, once for each table.

Files that Iceberg clients misread leave by a snapshot that replaces them with the same rows, and with the deletes that
there are; older snapshots stay as they were. Fields that the files don't prove to be required become optional.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from duckicelake.bridge.entries import partition_json
from duckicelake.bridge.native import NativeStep
from duckicelake.bridge.numbering import is_native
from duckicelake.bridge.required import has_unchecked, unproved
from duckicelake.catalog.commits.ids import file_ids
from duckicelake.catalog.files.readable import ReadableCopies
from duckicelake.catalog.loads.missed import Missed, live_with_deletes
from duckicelake.catalog.services import Services
from duckicelake.iceberg.manifest import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.partition import partition_type
from duckicelake.lake import native, reader
from duckicelake.lake.model import LakeChange, LakeFile
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.state import FileRow, NativeWindow, Reach, TableState

_KINDS = frozenset({"rewrite_delete"})


@dataclass(frozen=True, slots=True)
class Examination:
    """What is to be examined: files that DuckDB added, by DuckLake's id, and those that it wrote, for requirements."""

    missed: Missed
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
    ground = native.Ground(None, None, (), has_deletes=False)
    window = native.window(cursor, row.table_id, upto, upto, (), ground, Reach(served=0))
    lake_ids = [file.file_id for file in window.data_files if file.mapping_id is not None]
    data = reader.live_data(cursor, row.table_id, upto, lake_ids=lake_ids) if lake_ids else ()
    rows = reader.files(cursor, [file.file_id for file in data])
    own = {snapshot.snapshot_id: is_native(snapshot.snapshot_id, snapshot.ducklake_id) for snapshot in state.snapshots}
    added = {
        file.ducklake_id: file for file in rows.values() if file.ducklake_id and own.get(file.added_snapshot_id, True)
    }
    live = live_with_deletes(cursor, row, listed, [file for file in data if file.ducklake_id in added])
    written: tuple[FileRow, ...] = ()
    if has_unchecked(base.schema()):
        folders = (native.path_prefix(cursor, row.table_id), f"{row.location}/metadata/")
        ids = [file.file_id for file in reader.live_files(cursor, listed) if file.content == FileContent.DATA]
        written = tuple(file for file in reader.files(cursor, ids).values() if file.path.startswith(folders))
    return Examination(Missed(state, window, live, frozenset()), added, written)


def examine(services: Services, found: Examination, base: TableMetadata, copies: ReadableCopies) -> Findings:
    """Find what Iceberg clients misread. Raises as `ReadableCopies.of`."""
    window, live = found.missed.window, found.missed.live
    files = [file for file in window.data_files if file.file_id in found.added]
    step = _step(window, [(0, file) for file in files])
    misread = copies.misread(step, window, base)
    wrong = [file for file in files if file.file_id in misread or not _is_as_placed(found, file, copies, base)]
    optional = {field for file in found.written for field in unproved(base.schema(), file, is_checked=True)}
    for file in found.added.values():
        optional |= unproved(base.schema(), file, is_checked=False)
    if not wrong:
        return Findings(None, frozenset(optional))
    ids = file_ids(services)
    pairs = [(next(ids), file) for file in wrong]
    old = {new_id: found.added[file.file_id].file_id for new_id, file in pairs}
    deleted = {new_id: live.deleted[old_id] for new_id, old_id in old.items() if live.deleted.get(old_id)}
    return Findings(_step(window, pairs, deleted, frozenset(old.values())), frozenset(optional))


def _step(
    window: NativeWindow,
    files: list[tuple[int, LakeFile]],
    positions: Mapping[int, frozenset[int]] | None = None,
    removed: frozenset[int] = frozenset(),
) -> NativeStep:
    """A step as after DuckDB's rewrite of these files at the end of the window."""
    return NativeStep(
        change=LakeChange(window.upto, 0, _KINDS), data_files=tuple(files), positions=positions or {}, removed=removed
    )


def _is_as_placed(found: Examination, file: LakeFile, copies: ReadableCopies, base: TableMetadata) -> bool:
    """Whether the file's row says the partition that it would be given now."""
    row = found.added[file.file_id]
    metadata, spec, partition = copies.placed(file, found.missed.window, base)
    type_ = partition_type(spec, metadata.schema())
    return (row.spec_id, list(row.partition)) == (spec.spec_id, list(partition_json(partition, type_)))
