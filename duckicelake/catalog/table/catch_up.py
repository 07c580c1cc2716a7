"""Fold DuckDB's changes into a table's Iceberg history (design §6.13, §6.17)."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from duckicelake.bridge.native.change_set import show_options
from duckicelake.bridge.native.schema import build_first_metadata
from duckicelake.bridge.native.steps import DEFINES
from duckicelake.bridge.project import build_target, project_metadata
from duckicelake.catalog.context.cache import ManifestCache, TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.derived_files import open_background_writer
from duckicelake.catalog.table.materialize import (
    PendingVersion,
    build_next_pending,
    encode_version,
    forget_lost,
    record,
    write_files,
)
from duckicelake.catalog.table.native_change_set import build_mended_change_set, fold_native_changes
from duckicelake.catalog.table.native_changes import (
    Examination,
    NativeChanges,
    read_native_changes,
    read_unexamined,
    renew_some,
)
from duckicelake.catalog.table.reclaim import release_files
from duckicelake.errors import DamagedTableError, NoSuchTableError, UnsupportedError
from duckicelake.iceberg.identifiers import parse_schema_name
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.changes import CatchUpProgress, ChangeSet, WrittenCommit
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake import native
from duckicelake.lake.ducklake.snapshots import retry_transaction
from duckicelake.lake.model import ObjectTag, TableDefinition
from duckicelake.lake.side_tables import reader
from duckicelake.lake.side_tables import writer as side_tables
from duckicelake.lake.state import TableRow, TableState
from duckicelake.lake.writer import change_sets
from duckicelake.postgres.queries import Transaction
from duckicelake.properties import merge_options
from duckicelake.storage.threads import start_in_thread

Encoding: TypeAlias = Callable[[], TableVersion]
"""Waits for the version, whose files are written then."""
ADVANCE_AFTER = 100
"""Snapshots of other tables after which a table's progress is recorded, so that they aren't scanned again."""


def encode_ahead(
    services: Services, before: tuple[TableState, TableMetadata], change: ChangeSet, progress: CatchUpProgress
) -> Encoding | None:
    """Begin to write the version that the change makes of the one before; None if it can't be predicted."""
    state, metadata = before
    row, cached = state.row, services.cache.get(state.row.table_id)
    if cached is None and forget_lost(services, row):
        return None
    is_known = cached is not None and cached.row.version == row.version
    known = ManifestCache(cached.known.manifests) if cached is not None and is_known else ManifestCache()
    state = replace(state, row=replace(row, epoch=progress.epoch))
    snapshots = tuple(step.ducklake_id for step in change.steps if step.ducklake_id is not None)
    written = WrittenCommit(row.table_id, snapshots, progress.upto, change)
    pending = build_next_pending(services, state, known, change, written)
    return None if pending is None else start_in_thread(partial(_write_encoded, services, pending, (state, metadata)))


def _write_encoded(
    services: Services, pending: PendingVersion, before: tuple[TableState, TableMetadata]
) -> TableVersion:
    version = encode_version(pending, before)
    write_files(services, version)
    return version


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """How far a table is caught up.

    Attributes:
        upto: The DuckLake snapshot.
        epoch: The expiry epoch.
        tags: Those that DuckLake has of the table, besides comments.
        version: The version that catching up made, its files recorded; None if it is unknown or not the newest.
        row: The table's row, if catching up wrote nothing.

    """

    upto: int
    epoch: int
    tags: tuple[ObjectTag, ...]
    version: TableVersion | None = None
    row: TableRow | None = None


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable the garbage collector while many objects are made, hardly any of them in a cycle.

    It is off for the whole process. Of threads that overlap here the first one to leave enables it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def catch_up(services: Services, table_id: int) -> CaughtUp:
    """Fold every native change into the table; NoSuchTableError if it has gone."""
    with services.meter.phase("catch_up"), gc_disabled():
        caught_up, encoding = _fold_changes(services, table_id)
    if encoding is None:
        return caught_up
    with services.meter.phase("materialize"):
        return replace(caught_up, version=record(services, encoding()))


def _fold_changes(services: Services, table_id: int) -> tuple[CaughtUp, Encoding | None]:
    while True:
        pending = _read_pending(services, table_id)
        if pending.is_unchecked:
            renew_some(services, pending.row)
            continue
        if pending.unexamined is not None:
            _mend(services, pending, pending.unexamined)
            continue
        if not pending.is_due:
            return CaughtUp(pending.upto, pending.epoch, pending.tags, row=pending.row), None
        progress = pending.progress
        change, encoding = _build_change(services, pending.missed, progress) if pending.missed else (None, None)
        try:
            retry_transaction(partial(_record_progress, services, pending, change))
        except StaleBaseError:
            continue
        if change is not None and change.target.removed_snapshots:
            with suppress(Exception):  # best effort, as after a commit: the next release takes what this one leaves
                release_files(services, table_id)
        if pending.is_unexamined:
            continue
        return CaughtUp(pending.upto, pending.epoch, pending.tags), encoding


def _record_progress(services: Services, pending: "_Pending", change: ChangeSet | None) -> None:
    """Record the change, or only how far the table is caught up; StaleBaseError if it has changed meanwhile."""
    with services.database.transaction() as cursor:
        if change is None:
            change_sets.advance_progress(cursor, pending.row.table_id, pending.row.caught_up_to, pending.progress)
        else:
            change_sets.write_caught_up(cursor, change, pending.progress)


@dataclass(frozen=True, slots=True)
class _Pending:
    """How far DuckLake is ahead of a table.

    Attributes:
        tags: Those that DuckLake has of the table, besides comments.
        is_due: Whether something must be recorded.
        is_unchecked: Manifests of an older contract of metrics must be checked first.
        is_unexamined: Added files that were served before must be examined last.
        missed: What changes the table.
        unexamined: The files to examine, once all else is done.

    """

    upto: int
    epoch: int
    row: TableRow
    tags: tuple[ObjectTag, ...]
    is_due: bool = True
    is_unchecked: bool = False
    is_unexamined: bool = False
    missed: NativeChanges | None = None
    unexamined: Examination | None = None

    @property
    def progress(self) -> CatchUpProgress:
        """How far the table is caught up after the write."""
        seen = tuple(file.file_id for file in self.missed.window.delete_files) if self.missed else ()
        return CatchUpProgress(self.upto, self.epoch, seen)


def _read_pending(services: Services, table_id: int) -> _Pending:
    with services.database.reading() as cursor:
        upto, epoch, leaving, is_unchecked, is_unexamined, tags, row = reader.read_standing(cursor, table_id)
        if row is not None:
            if row.caught_up_to > upto:
                raise DamagedTableError(f"it has seen snapshot {row.caught_up_to}, but DuckLake's newest is {upto}")
            is_behind = row.caught_up_to < upto
            touching = native.read_changes(cursor, table_id, row.caught_up_to, upto) if is_behind else ()
            if touching:
                services.meter.caught_up(len(touching))
            if any("dropped_table" in change.kinds for change in touching):
                raise NoSuchTableError(f"Table {table_id} does not exist any more")
            if is_unchecked:
                return _Pending(upto, epoch, row, tags, is_unchecked=True)
            options = None
            if row.epoch != epoch:
                leaving |= reader.find_expired_snapshots(cursor, table_id)
                options = _read_changed_options(cursor, row)
            is_changed = bool(touching or leaving) or options is not None
            if not is_changed and is_unexamined:
                state = _read_state(services, cursor, row)
                return _Pending(
                    upto, epoch, row, tags, unexamined=read_unexamined(cursor, state, project_metadata(state), upto)
                )
            if not is_changed:
                is_due = row.epoch != epoch or upto - row.caught_up_to >= ADVANCE_AFTER
                return _Pending(upto, epoch, row, tags, is_due=is_due)
            state = _read_state(services, cursor, row)
            found = read_native_changes(cursor, state, upto, touching, leaving, expired=row.epoch != epoch)
            return _Pending(upto, epoch, row, tags, is_unexamined=is_unexamined, missed=replace(found, options=options))
    retry_transaction(partial(_adopt, services, table_id))
    return _read_pending(services, table_id)


def _read_changed_options(cursor: Transaction, row: TableRow) -> dict[str, str] | None:
    """Read DuckLake's options of the table; None if its properties say the same."""
    options, properties = native.read_options(cursor, row.table_id), row.metadata["properties"]
    return None if merge_options(properties, options) == properties else options


def _mend(services: Services, pending: _Pending, found: Examination) -> None:
    """Replace what Iceberg clients misread; nothing happens if the table has changed meanwhile."""
    with open_background_writer(services) as beside:
        change, replaced = build_mended_change_set(services, found, project_metadata(found.missed.state), beside)

    def attempt() -> None:
        with services.database.transaction() as cursor:
            if change is not None:
                change_sets.write_caught_up(cursor, change, pending.progress)
            reader.mark_examined(cursor, pending.row.table_id, replaced)

    with suppress(StaleBaseError):
        retry_transaction(attempt)


def _read_state(services: Services, cursor: Transaction, row: TableRow) -> TableState:
    """Return the table's state, and read what the cache doesn't have of it."""
    known = services.cache.version(row.table_id)
    if known is None:
        return reader.read_table_state(cursor, row)
    state, _ = known
    is_same = (state.row.table_uuid, state.row.version) == (row.table_uuid, row.version)
    return replace(state, row=row) if is_same else reader.read_table_state(cursor, row, state)


def _adopt(services: Services, table_id: int) -> None:
    """Give a table that DuckDB created its side-table row, as it was when it was created."""
    with services.database.transaction() as cursor:
        is_there = native.lock_against_drop(cursor, table_id)  # else its row may have been purged during the load
        created = native.read_created_at(cursor, table_id) if is_there else None
        definition = None if created is None else native.read_definition(cursor, table_id, created)
        if created is None or definition is None:
            raise NoSuchTableError(f"Table {table_id} does not exist")
        namespace = parse_schema_name(definition.schema_name)
        location = services.policy.table_location(namespace, definition.table_name, definition.table_uuid)
        metadata = _build_first_metadata(cursor, definition, created, location)
        epoch = reader.read_epoch(cursor)  # before the options: the next load reads those that are set from now on
        metadata = show_options(metadata, native.read_options(cursor, table_id), metadata.last_updated_ms)
        target = build_target(None, metadata)
        side_tables.insert_table(cursor, table_id, definition.table_uuid, target, created, created - 1, epoch)


def _build_first_metadata(cursor: Transaction, created: TableDefinition, at: int, location: str) -> TableMetadata:
    """Make the metadata of the first definition that Iceberg has words for; UnsupportedError if it has none for any."""
    began = [column.column_id for column in created.columns]
    problem: UnsupportedError | None = None
    for snapshot_id, definition in _read_definitions(cursor, created, at):
        try:
            return build_first_metadata(definition, location, native.read_snapshot_time(cursor, snapshot_id), began)
        except UnsupportedError as error:
            problem = error
    assert problem is not None
    raise problem


def _read_definitions(cursor: Transaction, created: TableDefinition, at: int) -> Iterator[tuple[int, TableDefinition]]:
    """Yield the definition with which a table was created, then those that it got, each with its snapshot."""
    yield at, created
    for change in native.read_changes(cursor, created.table_id, at, native.read_newest_snapshot(cursor)):
        definition = (
            native.read_definition(cursor, created.table_id, change.snapshot_id) if change.kinds & DEFINES else None
        )
        if definition is not None:
            yield change.snapshot_id, definition


def _build_change(
    services: Services, missed: NativeChanges, progress: CatchUpProgress
) -> tuple[ChangeSet | None, Encoding | None]:
    """Build the change that catches the table up, and begin to encode its version; None where there is none."""
    base = project_metadata(missed.state, services.cache.version(missed.state.row.table_id))
    with open_background_writer(services) as beside:
        change = fold_native_changes(services, missed, base, beside)
        beside.begin()
        if change is None or missed.options is not None:  # of when the options changed, each worker has its own time
            return change, None
        return change, encode_ahead(services, (missed.state, base), change, progress)
