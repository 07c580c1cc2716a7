"""Catching up: folds what DuckDB did since we last looked into a table's Iceberg history (design §6.13, §6.17).

Computed from one read transaction and written by a short one that holds only if nobody was faster; no DuckLake snapshot
is made and no lock is held while computing. A table that no Iceberg client has seen yet is adopted the same way.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from duckicelake.bridge.evolve import first_metadata
from duckicelake.bridge.native import DEFINES
from duckicelake.bridge.project import project, target_of
from duckicelake.catalog.files.beside import files_beside
from duckicelake.catalog.files.releasing import release_files
from duckicelake.catalog.files.renewal import renew_some
from duckicelake.catalog.loads.ahead import Encoding, encode_ahead
from duckicelake.catalog.loads.examination import Examination, read_unexamined
from duckicelake.catalog.loads.folding import folded, mended
from duckicelake.catalog.loads.missed import Missed, missed
from duckicelake.catalog.services import Services
from duckicelake.catalog.uncollected import uncollected
from duckicelake.errors import DamagedTable, NoSuchTable, Unsupported
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.names import namespace_of
from duckicelake.lake import native, reader
from duckicelake.lake.changes import ChangeSet, Progress
from duckicelake.lake.model import TableDefinition
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.state import TableRow, TableState
from duckicelake.lake.writing import side_tables, writer
from duckicelake.lake.writing.files import StaleBase

ADVANCE_AFTER = 100
"""Snapshots of other tables after which a table's progress is written down, so that they aren't scanned again."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The DuckLake snapshot and the expiry epoch that a table is up to.

    version: what this made of the table, if that is known. row: the table's, if this wrote nothing.
    """

    upto: int
    epoch: int
    version: Encoding | None = None
    row: TableRow | None = None


def catch_up(services: Services, table_id: int) -> CaughtUp:
    """Fold every native change into the table; NoSuchTable if it has gone."""
    with uncollected():
        return _caught_up(services, table_id)


def _caught_up(services: Services, table_id: int) -> CaughtUp:
    while True:
        pending = _pending(services, table_id)
        if pending.is_unchecked:
            renew_some(services, pending.row)
            continue
        if pending.unexamined is not None:
            _mend(services, pending, pending.unexamined)
            continue
        if not pending.is_due:
            return CaughtUp(pending.upto, pending.epoch, row=pending.row)
        progress = pending.progress
        change, version = _change_of(services, pending.missed, progress) if pending.missed else (None, None)
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
        if pending.is_unexamined:
            continue
        return CaughtUp(pending.upto, pending.epoch, version)


@dataclass(frozen=True, slots=True)
class _Pending:
    """How far DuckLake is; `is_due` if something of the table is to be noted, `missed` what if it is a change.

    is_unchecked: manifests of an older contract of metrics come first. is_unexamined: what was served before added
    files were examined comes last; it is read once all else is done.
    """

    upto: int
    epoch: int
    row: TableRow
    is_due: bool = True
    is_unchecked: bool = False
    is_unexamined: bool = False
    missed: Missed | None = None
    unexamined: Examination | None = None

    @property
    def progress(self) -> Progress:
        """How far the table will be once that is written down."""
        seen = tuple(file.file_id for file in self.missed.window.delete_files) if self.missed else ()
        return Progress(self.upto, self.epoch, seen)


def _pending(services: Services, table_id: int) -> _Pending:
    with services.database.reading() as cursor:
        upto, epoch, leaving, is_unchecked, is_unexamined, row = reader.standing(cursor, table_id)
        if row is not None:
            if row.caught_up_to > upto:
                raise DamagedTable(f"it has seen snapshot {row.caught_up_to}, but DuckLake's newest is {upto}")
            touching = native.changes(cursor, table_id, row.caught_up_to, upto)
            if touching:
                services.meter.caught_up(len(touching))
            if any("dropped_table" in change.kinds for change in touching):
                raise NoSuchTable(f"Table {table_id} does not exist any more")
            if is_unchecked:
                return _Pending(upto, epoch, row, is_unchecked=True)
            if row.epoch != epoch:
                leaving |= reader.expired_snapshots(cursor, table_id)
            if not (touching or leaving) and is_unexamined:
                state = _state(services, cursor, row)
                return _Pending(upto, epoch, row, unexamined=read_unexamined(cursor, state, project(state), upto))
            if not (touching or leaving):
                is_behind = row.epoch != epoch or upto - row.caught_up_to >= ADVANCE_AFTER
                return _Pending(upto, epoch, row, is_due=is_behind)
            state = _state(services, cursor, row)
            found = missed(cursor, state, upto, touching, leaving, expired=row.epoch != epoch)
            return _Pending(upto, epoch, row, is_unexamined=is_unexamined, missed=found)
    _adopt(services, table_id)
    return _pending(services, table_id)


def _mend(services: Services, pending: _Pending, found: Examination) -> None:
    """Replace what Iceberg clients misread; nothing happens if the table has changed meanwhile."""
    with files_beside(services) as beside:
        change, replaced = mended(services, found, project(found.missed.state), beside)
    with suppress(StaleBase), services.database.transaction() as cursor:
        if change is not None:
            writer.write_caught_up(cursor, change, pending.progress)
        reader.set_examined(cursor, pending.row.table_id, replaced)


def _state(services: Services, cursor: Transaction, row: TableRow) -> TableState:
    """The table's, read as far as it isn't known."""
    known = services.cache.version(row.table_id)
    if known is None:
        return reader.table_state(cursor, row)
    state, _ = known
    is_same = (state.row.table_uuid, state.row.version) == (row.table_uuid, row.version)
    return replace(state, row=row) if is_same else reader.table_state(cursor, row, state)


def _adopt(services: Services, table_id: int) -> None:
    """Give a table that DuckDB created its side-table row, as it was when it was created."""
    with services.database.transaction() as cursor:
        is_there = native.keep(cursor, table_id)  # else its row may have been purged while somebody loaded it
        created = native.created_at(cursor, table_id) if is_there else None
        definition = None if created is None else native.definition(cursor, table_id, created)
        if created is None or definition is None:
            raise NoSuchTable(f"Table {table_id} does not exist")
        namespace = namespace_of(definition.schema_name)
        location = services.policy.table_location(namespace, definition.table_name, definition.table_uuid)
        target = target_of(None, _first_metadata(cursor, definition, created, location))
        epoch = reader.epoch(cursor)
        side_tables.insert_table(cursor, table_id, definition.table_uuid, target, created, created - 1, epoch)


def _first_metadata(cursor: Transaction, created: TableDefinition, at: int, location: str) -> TableMetadata:
    """Make the metadata of the first definition that Iceberg has words for; Unsupported if it has none for any."""
    began = [column.column_id for column in created.columns]
    problem: Unsupported | None = None
    for snapshot_id, definition in _definitions(cursor, created, at):
        try:
            return first_metadata(definition, location, native.time_of(cursor, snapshot_id), began)
        except Unsupported as error:
            problem = error
    assert problem is not None
    raise problem


def _definitions(cursor: Transaction, created: TableDefinition, at: int) -> Iterator[tuple[int, TableDefinition]]:
    """The definition with which a table was created, then those that it got, each with its snapshot."""
    yield at, created
    for change in native.changes(cursor, created.table_id, at, native.newest_snapshot(cursor)):
        definition = native.definition(cursor, created.table_id, change.snapshot_id) if change.kinds & DEFINES else None
        if definition is not None:
            yield change.snapshot_id, definition


def _change_of(services: Services, missed: Missed, progress: Progress) -> tuple[ChangeSet | None, Encoding | None]:
    """The change that takes the table there, if there is anything to say, and what it makes of the table."""
    base = project(missed.state, services.cache.version(missed.state.row.table_id))
    with files_beside(services) as beside:
        change = folded(services, missed, base, beside)
        beside.begin()
        return change, encode_ahead(services, (missed.state, base), change, progress) if change else None
