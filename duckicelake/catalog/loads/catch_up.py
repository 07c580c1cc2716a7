"""Catching up: folds what DuckDB did since we last looked into a table's Iceberg history (design §6.13, §6.17).

Computed from one read transaction and written by a short one that holds only if nobody was faster; no DuckLake snapshot
is made and no lock is held while computing. A table that no Iceberg client has seen yet is adopted the same way.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from duckicelake.bridge.caught_up import (
    Line,
    ServedFiles,
    caught_up,
    native_files,
    native_step,
    redefined,
    upgraded,
    with_row_ids,
    without_snapshots,
)
from duckicelake.bridge.evolve import first_metadata
from duckicelake.bridge.history import hold
from duckicelake.bridge.live_deletes import LiveDeletes
from duckicelake.bridge.manifests import ListedManifest
from duckicelake.bridge.native import SAME_ROWS, NativeStep, replay
from duckicelake.bridge.numbering import Numbering, next_row_id, numbering
from duckicelake.bridge.project import project, target_of
from duckicelake.bridge.retention import within_limit
from duckicelake.catalog.commits.constraints import unverified_natively
from duckicelake.catalog.commits.ids import file_ids, manifest_ids
from duckicelake.catalog.commits.listing import listed_manifests
from duckicelake.catalog.deletes.ducklake import read_lake_deletes
from duckicelake.catalog.deletes.served import NewlyDeleted, serve_deletes
from duckicelake.catalog.files.readable import ReadableCopies
from duckicelake.catalog.files.releasing import release_files
from duckicelake.catalog.files.served import serve_rows
from duckicelake.catalog.loads.ahead import Encoding, encode_ahead
from duckicelake.catalog.loads.missed import Missed, missed
from duckicelake.catalog.services import Services
from duckicelake.errors import DamagedTable, NoSuchTable
from duckicelake.iceberg.deletes import DELETION_VECTOR_VERSION
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.names import namespace_of
from duckicelake.lake import native, reader
from duckicelake.lake.additions import NewFile
from duckicelake.lake.changes import ChangeSet, LakeStep, Progress
from duckicelake.lake.state import FileRow, NativeWindow, TableRow, TableState
from duckicelake.lake.writing import side_tables, writer
from duckicelake.lake.writing.files import StaleBase

ADVANCE_AFTER = 100
"""Snapshots of other tables after which a table's progress is written down, so that they aren't scanned again."""

_INSERTS = frozenset({"inserted_into_table", "inlined_insert"})
_NOT_RECORDED = frozenset({"compacted_table", "altered_table"})
"""What a snapshot is said to have changed if others before it have expired."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The DuckLake snapshot and the expiry epoch that a table is up to, and the version that this made, if known."""

    upto: int
    epoch: int
    version: Encoding | None = None


def catch_up(services: Services, table_id: int) -> CaughtUp:
    """Fold every native change into the table; NoSuchTable if it has gone."""
    while True:
        pending = _pending(services, table_id)
        if pending.row is None:
            return CaughtUp(pending.upto, pending.epoch)
        progress = pending.progress
        change, version = _folded(services, pending.missed, progress) if pending.missed else (None, None)
        try:
            with services.database.transaction() as cursor:
                if change is None:
                    writer.advance(cursor, table_id, pending.row.caught_up_to, progress)
                else:
                    writer.write_caught_up(cursor, change, progress)
        except StaleBase:
            continue
        if change is not None and change.target.removed_snapshots:
            with suppress(Exception):  # best effort, as after a commit: the next release takes what this one leaves
                release_files(services, table_id)
        return CaughtUp(pending.upto, pending.epoch, version)


@dataclass(frozen=True, slots=True)
class _Pending:
    """How far DuckLake is; `row` is the table's if something is to be written down, `missed` what if it is a change."""

    upto: int
    epoch: int
    row: TableRow | None = None
    missed: Missed | None = None

    @property
    def progress(self) -> Progress:
        """How far the table will be once that is written down."""
        seen = tuple(file.file_id for file in self.missed.window.delete_files) if self.missed else ()
        return Progress(self.upto, self.epoch, seen)


def _pending(services: Services, table_id: int) -> _Pending:
    with services.database.reading() as cursor:
        row = reader.table_row(cursor, table_id)
        upto, epoch = native.newest_snapshot(cursor), reader.epoch(cursor)
        if row is not None:
            if row.caught_up_to > upto:
                raise DamagedTable(f"it has seen snapshot {row.caught_up_to}, but DuckLake's newest is {upto}")
            touching = native.changes(cursor, table_id, row.caught_up_to, upto)
            if touching:
                services.meter.caught_up(len(touching))
            if any("dropped_table" in change.kinds for change in touching):
                raise NoSuchTable(f"Table {table_id} does not exist any more")
            leaving = reader.overdue_snapshots(cursor, table_id)
            if row.epoch != epoch:
                leaving |= reader.expired_snapshots(cursor, table_id)
            if not (touching or leaving):
                is_behind = row.epoch != epoch or upto - row.caught_up_to >= ADVANCE_AFTER
                return _Pending(upto, epoch, row if is_behind else None)
            known = services.cache.version(table_id)
            state = reader.table_state(cursor, row, known[0] if known else None)
            found = missed(cursor, state, upto, touching, leaving, expired=row.epoch != epoch)
            return _Pending(upto, epoch, row, found)
    _adopt(services, table_id)
    return _pending(services, table_id)


def _adopt(services: Services, table_id: int) -> None:
    """Give a table that DuckDB created its side-table row, as it was when it was created."""
    with services.database.transaction() as cursor:
        created = native.created_at(cursor, table_id)
        if native.definition(cursor, table_id, native.newest_snapshot(cursor)) is None:
            created = None  # dropped: its row was purged while somebody loaded it
        definition = None if created is None else native.definition(cursor, table_id, created)
        if created is None or definition is None:
            raise NoSuchTable(f"Table {table_id} does not exist")
        time = native.time_of(cursor, created)
        namespace = namespace_of(definition.schema_name)
        location = services.policy.table_location(namespace, definition.table_name, definition.table_uuid)
        target = target_of(None, first_metadata(definition, location, time))
        epoch = reader.epoch(cursor)
        side_tables.insert_table(cursor, table_id, definition.table_uuid, target, created, created - 1, epoch)


def _folded(services: Services, missed: Missed, progress: Progress) -> tuple[ChangeSet | None, Encoding | None]:
    """The change that takes the table there, if there is anything to say, and what it makes of the table."""
    base = project(missed.state, services.cache.version(missed.state.row.table_id))
    change = _compute(services, missed, base)
    return change, encode_ahead(services, (missed.state, base), change, progress) if change else None


def _compute(services: Services, missed: Missed, base: TableMetadata) -> ChangeSet | None:
    """The side-table rows of the window's steps, their served files written; None if there is nothing to say."""
    row, window = missed.state.row, missed.window
    deleted = {file.file_id: read_lake_deletes(services, file) for file in window.delete_files}
    steps = replay(window, missed.live, deleted, file_ids(services))
    metadata, deletes = upgraded(base, steps, window.next_row_id), LiveDeletes(missed.live)
    manifests, known = _referenced(services, missed.state, steps, deletes, metadata.format_version)
    builder = _Builder(services, row, window, metadata, manifests, known, deletes)
    builder.add_all(steps)
    target = within_limit(without_snapshots(with_row_ids(builder.made(), window.next_row_id), missed.leaving))
    if not builder.steps and target is base:
        return None
    return caught_up(base, target, row.table_id, row.version, row.caught_up_to, builder.steps)


def _referenced(
    services: Services, state: TableState, steps: Sequence[NativeStep], deletes: LiveDeletes, format_version: int
) -> tuple[tuple[ListedManifest, ...], dict[int, FileRow]]:
    """(the current manifests, those to be rewritten with their files; the existing files that the steps refer to)."""
    removed = {file_id for step in steps for file_id in step.removed}
    targets = {file_id for step in steps for file_id in step.positions}
    superseded = targets if format_version >= DELETION_VECTOR_VERSION else set[int]()
    leaving = removed | deletes.idle_without(removed | superseded)
    current = state.current()
    with services.database.reading() as cursor:
        listed = current.manifest_ids if current else ()
        manifests = listed_manifests(cursor, listed, leaving, format_version)
        return manifests, reader.files(cursor, leaving | targets)


class _Builder:
    """Turns steps into rows one after the other, each on the metadata and manifests that the one before left."""

    def __init__(
        self,
        services: Services,
        row: TableRow,
        window: NativeWindow,
        metadata: TableMetadata,
        manifests: tuple[ListedManifest, ...],
        known: Mapping[int, FileRow],
        deletes: LiveDeletes,
    ) -> None:
        self.steps: list[LakeStep] = []
        self._metadata = metadata
        self._line = Line(metadata)
        self._services = services
        self._row = row
        self._window = window
        self._manifests = manifests
        self._known: dict[int, FileRow | NewFile] = dict(known)
        self._deletes = deletes
        self._file_ids = file_ids(services)
        self._manifest_ids = manifest_ids(services)
        self._copies = ReadableCopies(services, row.table_id)
        self._upto = window.after

    def made(self) -> TableMetadata:
        """The metadata after the steps."""
        return self._line.listed(self._metadata)

    def add_all(self, steps: Sequence[NativeStep]) -> None:
        """Add the steps; those that change no file change the metadata only."""
        last = max((index for index, step in enumerate(steps) if step.changes_files), default=0)
        for index, step in enumerate(steps):
            self._metadata = redefined(self._metadata, step)
            if step.changes_files:
                self._add_snapshot(step, is_last=index == last)

    def _add_snapshot(self, step: NativeStep, *, is_last: bool) -> None:
        services, window = self._services, self._window
        numbers = numbering(self._metadata, step.change.snapshot_id, services.snapshot_ids, self._line.ids)
        copies = self._copies.of(step, self._metadata, numbers)
        metadata, data = native_files(step, window, self._metadata, numbers, copies)
        metadata, rows = serve_rows(services, self._row.table_id, step, metadata, numbers)
        self._learn((*data, *rows.files))
        removed, deletes = self._delete(step, metadata, numbers)
        added = (*data, *rows.files, *deletes.files)
        lake_step, self._metadata, self._manifests = native_step(
            step,
            metadata,
            self._line,
            numbers,
            self._manifests,
            added=added,
            removed=[self._known[file_id] for file_id in sorted(removed)],
            served=ServedFiles(deletions=deletes.deletions, virtual_files=rows.virtual_files),
            next_row_id=window.next_row_id if is_last else next_row_id(added, window.next_row_id),
            manifest_ids=self._manifest_ids,
            unverified=self._unverified(step, metadata, added),
        )
        self._upto = step.change.snapshot_id
        held = hold(step, window, self._known, self._metadata.properties)
        self.steps.append(replace(lake_step, hold=held))

    def _unverified(self, step: NativeStep, metadata: TableMetadata, added: Sequence[NewFile]) -> list[str]:
        """The constraints that the step's rows may violate: those that were posted have been checked."""
        names = [] if step.change.kinds <= SAME_ROWS else unverified_natively(metadata, added)
        if not names:
            return []
        folded = [c for c in self._window.changes if self._upto < c.snapshot_id <= step.change.snapshot_id]
        inserts = [change.snapshot_id for change in folded if change.kinds & _INSERTS]
        if not inserts or any(change.kinds >= _NOT_RECORDED for change in folded):
            return names
        with self._services.database.reading() as cursor:
            return [] if native.were_checked(cursor, inserts) else names

    def _delete(
        self, step: NativeStep, metadata: TableMetadata, numbers: Numbering
    ) -> tuple[frozenset[int], ServedFiles]:
        """(the files that leave, delete files with nothing left to delete from among them; the new delete files)."""
        superseded = step.positions if metadata.format_version >= DELETION_VECTOR_VERSION else ()
        idle = self._deletes.leave(step.removed.union(superseded))
        deleted = NewlyDeleted(step.positions, self._deletes.deleted, self._known)
        served = serve_deletes(self._services, metadata, numbers, deleted, self._file_ids)
        self._learn(served.files)
        self._deletes.join(served.deletions)
        return step.removed | idle, served

    def _learn(self, files: Sequence[NewFile]) -> None:
        self._known |= {file.file_id: file for file in files}
