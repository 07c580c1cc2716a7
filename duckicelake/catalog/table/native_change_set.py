"""Build the change set of DuckDB's changes: snapshots and the files that serve them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from duckicelake.bridge.manifest_lists import ListedManifest, parse_packing
from duckicelake.bridge.native.change_set import (
    ServedFiles,
    SnapshotLine,
    build_native_change_set,
    build_native_files,
    build_native_step,
    drop_snapshots,
    redefine,
    show_options,
    skip_given_row_ids,
    upgrade_for_steps,
)
from duckicelake.bridge.native.required_fields import find_newly_required, find_unproved, make_optional, require_proved
from duckicelake.bridge.native.steps import SAME_ROWS, LiveDeletes, NativeStep, find_held_files, replay_window
from duckicelake.bridge.snapshots import SnapshotNumbers, build_numbering, drop_snapshots_over_limit, find_next_row_id
from duckicelake.catalog.context.cache import ManifestCache
from duckicelake.catalog.context.hooks import find_unverified
from duckicelake.catalog.context.services import Services, take_file_ids, take_manifest_ids
from duckicelake.catalog.table.derived_files import (
    BackgroundWriter,
    NewlyDeleted,
    read_lake_deletes,
    write_deletes,
    write_inlined_rows,
)
from duckicelake.catalog.table.duckdb_files import DuckDBTable, ReadableCopies, WrittenTypes
from duckicelake.catalog.table.native_changes import Examination, NativeChanges, examine, read_listed_manifests
from duckicelake.errors import UnsupportedError
from duckicelake.iceberg.manifest.entry import FileContent, ManifestContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.puffin import DELETION_VECTOR_VERSION
from duckicelake.lake.changes import ChangeSet, LakeStep
from duckicelake.lake.ducklake import native
from duckicelake.lake.model import ADDITION_KINDS
from duckicelake.lake.side_tables import reader
from duckicelake.lake.state import FileRow, NativeWindow, TableRow, TableState

_NOT_RECORDED = frozenset({"compacted_table", "altered_table"})
"""What a snapshot is said to have changed if others before it have expired."""


def fold_native_changes(
    services: Services, missed: NativeChanges, base: TableMetadata, beside: BackgroundWriter
) -> ChangeSet | None:
    """Return the side-table rows of the window's steps, None if there is nothing to say.

    beside: gets their served files, which must exist before a client gets their names.
    """
    window = missed.window
    deleted = {file.file_id: read_lake_deletes(services, file) for file in window.delete_files}
    steps = replay_window(window, missed.live, deleted, take_file_ids(services))
    return _build_changed(services, missed, base, base, steps, beside)


def build_mended_change_set(
    services: Services, found: Examination, base: TableMetadata, beside: BackgroundWriter
) -> tuple[ChangeSet | None, frozenset[int]]:
    """Return (the rows of a snapshot that replaces what Iceberg clients misread, None if that is nothing.

    Replaced files).
    """
    findings = examine(
        services, found, base, ReadableCopies(services, beside, DuckDBTable(services, found.missed.state.row.table_id))
    )
    start = make_optional(base, findings.optional) if findings.optional else base
    steps = () if findings.step is None else (findings.step,)
    replaced = frozenset[int]() if findings.step is None else findings.step.removed
    return _build_changed(services, found.missed, base, start, steps, beside), replaced


def _build_changed(
    services: Services,
    missed: NativeChanges,
    base: TableMetadata,
    start: TableMetadata,
    steps: Sequence[NativeStep],
    beside: BackgroundWriter,
) -> ChangeSet | None:
    """Return the rows of steps on metadata that may differ from the base already."""
    row, window = missed.state.row, missed.window
    metadata, deletes = upgrade_for_steps(start, steps, window.next_row_id), LiveDeletes(missed.live)
    manifests, known = _find_referenced(services, missed.state, steps, deletes, metadata)
    builder = _NativeChangeBuilder(services, beside, row, window, metadata, manifests, known, deletes)
    builder.add_all(steps)
    target = drop_snapshots_over_limit(
        drop_snapshots(skip_given_row_ids(builder.build_metadata(), window.next_row_id), missed.leaving)
    )
    if missed.options is not None:
        target = show_options(target, missed.options, services.clock())
    if not builder.steps and target is base:
        return None
    return build_native_change_set(base, target, row.table_id, row.version, row.caught_up_to, builder.steps)


def _find_referenced(
    services: Services, state: TableState, steps: Sequence[NativeStep], deletes: LiveDeletes, metadata: TableMetadata
) -> tuple[tuple[ListedManifest, ...], dict[int, FileRow]]:
    """Return (the current manifests, those to be rewritten with their files.

    The existing files that the steps refer to).
    """
    removed = {file_id for step in steps for file_id in step.removed}
    targets = {file_id for step in steps for file_id in step.positions}
    superseded = targets if metadata.format_version >= DELETION_VECTOR_VERSION else set[int]()
    leaving = removed | deletes.find_idle(removed | superseded)
    current, cached = state.current(), services.cache.get(state.row.table_id)
    known = ManifestCache() if cached is None else cached.known
    listed = known.manifests_of(services.database, current.manifest_ids if current else ())
    manifests = read_listed_manifests(
        services.database, listed.values(), leaving, metadata.format_version, parse_packing(metadata.properties)
    )
    if not (leaving or targets):
        return manifests, {}
    with services.database.statement(only_reads=True) as cursor:
        return manifests, reader.read_files(cursor, leaving | targets)


class _NativeChangeBuilder:
    """Turns steps into rows one after the other, each on the metadata and manifests that the one before left."""

    def __init__(
        self,
        services: Services,
        beside: BackgroundWriter,
        row: TableRow,
        window: NativeWindow,
        metadata: TableMetadata,
        manifests: tuple[ListedManifest, ...],
        known: Mapping[int, FileRow],
        deletes: LiveDeletes,
    ) -> None:
        self.steps: list[LakeStep] = []
        self._metadata = metadata
        self._line = SnapshotLine(metadata)
        self._services = services
        self._beside = beside
        self._row = row
        self._window = window
        self._first = self._manifests = manifests
        self._gone: set[int] = set()
        self._known: dict[int, FileRow] = dict(known)
        self._deletes = deletes
        self._file_ids = take_file_ids(services)
        self._manifest_ids = take_manifest_ids(services)
        table = DuckDBTable(services, row.table_id)
        self._copies = ReadableCopies(services, beside, table)
        self._written = WrittenTypes(services, table)
        self._upto = window.after

    def build_metadata(self) -> TableMetadata:
        """Return the metadata after the steps."""
        return self._line.list_added(self._metadata)

    def add_all(self, steps: Sequence[NativeStep]) -> None:
        """Add the steps; those that change no file change the metadata only.

        A step that Iceberg has no word for is folded into the next. Raises UnsupportedError if the last step is one.
        """
        last = max((index for index, step in enumerate(steps) if step.changes_files), default=0)
        pending: NativeStep | None = None
        problem: UnsupportedError | None = None
        for index, following in enumerate(steps):
            step = following if pending is None else pending.merge_later(following)
            try:
                self._add(step, is_last=index >= last)
                pending, problem = None, None
            except UnsupportedError as error:
                pending, problem = step, error
        if problem is not None:
            raise problem

    def _add(self, step: NativeStep, *, is_last: bool) -> None:
        """Add a step, or nothing of it: UnsupportedError if Iceberg has no word for it."""
        metadata = self._metadata
        if step.definition is not None:
            manifests = (manifest for manifest in self._manifests if manifest.content == ManifestContent.DATA)
            files = sum(manifest.live_count for manifest in manifests)
            metadata = redefine(metadata, step, holds_rows=files > len(step.removed))
            metadata = self._relax_required(self._metadata, metadata)
        if step.changes_files:
            self._add_snapshot(step, metadata, is_last=is_last)
        else:
            self._metadata = metadata

    def _relax_required(self, before: TableMetadata, after: TableMetadata) -> TableMetadata:
        """Return the metadata after a changed definition, which requires no more than what the live files prove."""
        fields = find_newly_required(before.schema(), after.schema())
        if not fields or after.current_snapshot_id is None:
            return after
        with self._services.database.reading() as cursor:
            listed = reader.read_live_files(cursor, [manifest.manifest_id for manifest in self._first])
            live = {**reader.read_files(cursor, [file.file_id for file in listed]), **self._known}
        data = (file for id_, file in live.items() if file.content == FileContent.DATA and id_ not in self._gone)
        doubtful = fields & frozenset[int]().union(
            *(find_unproved(after.schema(), item, is_checked=False) for item in data)
        )
        return make_optional(after, doubtful, before) if doubtful else after

    def _add_snapshot(self, step: NativeStep, metadata: TableMetadata, *, is_last: bool) -> None:
        services, window = self._services, self._window
        types = self._written.find(step, metadata)
        numbers = build_numbering(metadata, step.change.snapshot_id, services.snapshot_ids, self._line.ids)
        served = self._copies.find(step, window, metadata, numbers, types)
        metadata, data = build_native_files(step, window, metadata, numbers, served)
        metadata, rows = write_inlined_rows(services, self._beside, self._row.table_id, step, metadata, numbers)
        self._learn((*data, *rows.files))
        metadata = require_proved(metadata, (*data, *rows.files), served.added)
        removed, deletes = self._delete(step, metadata, numbers)
        self._gone |= removed
        added = (*data, *rows.files, *deletes.files)
        lake_step, self._metadata, self._manifests = build_native_step(
            step,
            metadata,
            self._line,
            numbers,
            self._manifests,
            added=added,
            removed=[self._known[file_id] for file_id in sorted(removed)],
            served=ServedFiles(deletions=deletes.deletions, virtual_files=rows.virtual_files),
            next_row_id=window.next_row_id if is_last else find_next_row_id(added, window.next_row_id),
            manifest_ids=self._manifest_ids,
            unverified=self._find_unverified(step, metadata, added),
        )
        self._upto = step.change.snapshot_id
        held = find_held_files(step, window, self._known, self._metadata.properties)
        self.steps.append(replace(lake_step, hold=held))

    def _find_unverified(self, step: NativeStep, metadata: TableMetadata, added: Sequence[FileRow]) -> list[str]:
        """Return the constraints that the step's rows may violate: those that were posted have been checked."""
        names = [] if step.change.kinds <= SAME_ROWS else find_unverified(metadata, added)
        if not names:
            return []
        folded = [c for c in self._window.changes if self._upto < c.snapshot_id <= step.change.snapshot_id]
        inserts = [change.snapshot_id for change in folded if change.kinds & ADDITION_KINDS]
        if not inserts or any(change.kinds >= _NOT_RECORDED for change in folded):
            return names
        with self._services.database.reading() as cursor:
            return [] if native.are_rows_checked(cursor, inserts) else names

    def _delete(
        self, step: NativeStep, metadata: TableMetadata, numbers: SnapshotNumbers
    ) -> tuple[frozenset[int], ServedFiles]:
        """Return (the files that leave, delete files with nothing left to delete from among them.

        The new delete files).
        """
        superseded = step.positions if metadata.format_version >= DELETION_VECTOR_VERSION else ()
        idle = self._deletes.leave(step.removed.union(superseded))
        deleted = NewlyDeleted(step.positions, self._deletes.deleted, self._known)
        served = write_deletes(self._beside, metadata, numbers, deleted, self._file_ids)
        self._learn(served.files)
        self._deletes.join(served.deletions)
        return step.removed | idle, served

    def _learn(self, files: Sequence[FileRow]) -> None:
        self._known |= {file.file_id: file for file in files}
