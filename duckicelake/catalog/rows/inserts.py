"""Rows posted to a table: in one Postgres transaction what DuckDB would have written for the same INSERT.

Nothing is written to the side tables: Iceberg clients see the rows at their next load, as they see what DuckDB wrote.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from duckicelake.catalog.auditing import Noted, origin, touched
from duckicelake.catalog.commits.groups import RowsCommit
from duckicelake.catalog.commits.overtaken import Outdated, until_written
from duckicelake.catalog.files.discarding import discarding
from duckicelake.catalog.rows.files import locations_of, write_files
from duckicelake.catalog.rows.target import RowTarget
from duckicelake.catalog.rows.targets import row_target
from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest, NoSuchTable
from duckicelake.iceberg.names import Namespace, full_name, schema_name
from duckicelake.lake.rows import producers
from duckicelake.lake.rows.batches import Packed, RowBatch, WrittenRows, packed
from duckicelake.lake.rows.producers import LONGEST_APP_ID, Applied, Producer
from duckicelake.rows import encoding, inlining, statistics
from duckicelake.rows.batch import Batch, joined
from duckicelake.rows.constraint_rows import check_rows
from duckicelake.rows.problems import OnUnknown
from duckicelake.rows.reading import read_batch


@dataclass(frozen=True, slots=True)
class Counted:
    """The producer of a batch, and its own number for it: only one above that of its last batch is applied."""

    app_id: str
    sequence: int

    def __post_init__(self) -> None:
        if not self.app_id or len(self.app_id) > LONGEST_APP_ID or "\0" in self.app_id:
            raise InvalidRequest(f"app-id takes 1 to {LONGEST_APP_ID} letters, none of them NUL")


@dataclass(frozen=True, slots=True)
class PostedRows:
    """A request for rows to be inserted into a table."""

    namespace: Namespace
    table: str
    body: bytes
    content_type: str
    on_unknown: OnUnknown = "reject"
    counted: Counted | None = None


@dataclass(frozen=True, slots=True)
class RowsAnswer:
    """What became of posted rows: the DuckLake snapshot that has them and the first of their row ids; None of none."""

    snapshot_id: int | None
    rows: int
    first_row_id: int | None

    def as_json(self) -> dict[str, Any]:
        row_ids = {"first": self.first_row_id, "count": self.rows}
        return {"snapshot-id": self.snapshot_id, "rows": self.rows, "row-ids": row_ids}


def append_rows(services: Services, posted: PostedRows) -> RowsAnswer:
    """Insert the rows, all of them or none.

    Raises NoSuchTable, InvalidRequest naming rows that don't fit, AlreadyApplied, Unsupported, DamagedTable.
    """
    services.database.gate.require_open()
    return services.run_once(lambda: _append(services, posted), lambda result: RowsAnswer(*result), is_new=True)


def last_applied(services: Services, namespace: Namespace, table: str, app_id: str) -> Applied | None:
    """The last batch of a producer that the table has; None before the first one. NoSuchTable."""
    with services.database.reading() as cursor:
        is_there, found = producers.newest(cursor, schema_name(namespace), table, app_id)
    if not is_there:
        raise NoSuchTable(f"Table does not exist: {full_name(namespace, table)}")
    return found


def _append(services: Services, posted: PostedRows) -> RowsAnswer:
    target: RowTarget | None = None

    def attempt(is_alone: bool) -> RowsAnswer:
        nonlocal target
        target = row_target(services, posted.namespace, posted.table, target)
        batch = _read(services, posted, target)
        if not batch.num_rows:
            return nothing_posted(services, posted)
        prepared = prepared_rows(services, posted, target, batch)
        with discarding(services, locations_of(target, prepared.files)):
            return answer(write_rows(services, posted, prepared, is_alone=is_alone))

    return until_written(services, full_name(posted.namespace, posted.table), attempt)


def _read(services: Services, posted: PostedRows, target: RowTarget) -> Batch:
    """The rows; Outdated for rows that don't fit columns, or constraints, which the table no longer has."""
    try:
        with services.meter.phase("rows_read"):
            batch = read_batch(posted.body, posted.content_type, target.layout, on_unknown=posted.on_unknown)
            check_rows(target.constraints, batch)
            return batch
    except InvalidRequest as error:
        if row_target(services, posted.namespace, posted.table, target).layout is target.layout:
            raise
        raise Outdated from error


def nothing_posted(services: Services, posted: PostedRows) -> RowsAnswer:
    """The end of a request without rows."""
    services.settle_unchanged([touched(posted.namespace, posted.table)], (None, 0, None))
    return RowsAnswer(None, 0, None)


def write_rows(services: Services, posted: PostedRows, batch: RowBatch, *, is_alone: bool = False) -> WrittenRows:
    """Write a prepared batch, StaleBase if it doesn't hold; is_alone: the caller keeps all other commits waiting."""
    write = services.commits.write_alone if is_alone else services.commits.write
    return write(services.database, services.meter, commit_of(services, posted, batch))


def prepared_rows(services: Services, posted: PostedRows, target: RowTarget, batch: Batch) -> RowBatch:
    """The batch as DuckDB would store it: inlined if it is small enough and can be, else in files that this writes."""
    table_id, counted = target.lake.definition.table_id, posted.counted
    prepared = partial(
        RowBatch,
        target.lake,
        origin(services.caller),
        batch.num_rows,
        target.widen,
        partial(_packed, target),
        key=None if services.once is None else services.once.key,
        producer=None if counted is None else Producer(table_id, counted.app_id),
        sequence=0 if counted is None else counted.sequence,
    )
    if batch.num_rows > target.lake.limit or inlining.obstacle(batch) is not None:
        return prepared(files=write_files(services, target, batch))
    return prepared(batch)


def _packed(target: RowTarget, batches: Sequence[Batch]) -> Packed:
    batch = joined(batches)
    return Packed(packed_columns(target, batch), statistics.extents(batch))


def packed_columns(target: RowTarget, batch: Batch) -> list[str]:
    """The batch's columns in the order of their ids, which is DuckDB's."""
    assert target.lake.inlined is not None
    ids = [column.field_id for column in batch.layout.stored]
    by_id = sorted(range(len(ids)), key=ids.__getitem__)
    return [_elements(batch, index, kind) for index, kind in zip(by_id, target.lake.inlined.types, strict=True)]


def _elements(batch: Batch, index: int, kind: str) -> str:
    numbers = encoding.elements(batch.layout.stored[index], batch.column(index))
    return packed(batch.encoded(index), kind) if numbers is None else numbers


def commit_of(services: Services, posted: PostedRows, batch: RowBatch) -> RowsCommit:
    """The batch with the last steps of its transaction."""
    what, who = touched(posted.namespace, posted.table, {"rows": batch.count}), batch.origin

    def noted(written: WrittenRows) -> Noted:
        at = written.snapshot_id
        return Noted(who, replace(what, table_id=batch.table_id, snapshot_id=at), services.journal)

    return RowsCommit(batch, once=services.once, noted=noted)


def answer(written: WrittenRows) -> RowsAnswer:
    """What the client is told of written rows."""
    return RowsAnswer(written.snapshot_id, written.count, written.first_row_id)
