"""Rows posted to a table, inlined or as files, alone or in groups."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from uuid import uuid4

from duckicelake.catalog.commit.run import OutdatedPlanError, retry_on_conflict
from duckicelake.catalog.context.audit_notes import AuditNote, build_origin, build_touched
from duckicelake.catalog.context.commit_queue import QueuedRows
from duckicelake.catalog.context.row_targets import RowTarget
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.reclaim import discard_on_error
from duckicelake.catalog.table.row_target import pack_columns, read_row_target
from duckicelake.errors import CommitStateUnknownError, InvalidRequestError, NoSuchTableError, UnavailableError
from duckicelake.iceberg.identifiers import Namespace, format_full_name, to_schema_name
from duckicelake.lake.additions import NewDataFile
from duckicelake.lake.inlined.batches import PackedRows, RowBatch, WrittenRows
from duckicelake.lake.side_tables import idempotency
from duckicelake.lake.side_tables.idempotency import AppliedTxn
from duckicelake.lake.state import PackedStats
from duckicelake.lake.txn import TxnId
from duckicelake.postgres.failures import is_unfit_statement
from duckicelake.rows import row_batch
from duckicelake.rows.bodies import read_batch
from duckicelake.rows.files import RowFile, write_row_files
from duckicelake.rows.problems import OnUnknown
from duckicelake.rows.row_batch import Batch, join_batches

NOT_YET = 0
"""In place of ids that a file gets when its transaction has them."""
MAX_GROUPED_BODY_BYTES: Final = 16 * 1024
"""Bytes of a request that is read within a few hundred microseconds: whoever reads it does nothing else meanwhile."""


def write_files(services: Services, target: RowTarget, batch: Batch) -> list[NewDataFile]:
    """Write the batch's files, each of one partition and in the table's order.

    Raises UnsupportedError, InvalidRequestError.
    """
    metadata = target.metadata
    made = write_row_files(batch, target.lake.definition.partition_keys, metadata.spec(), metadata.sort_order())
    named = [(f"ducklake-{uuid4()}.parquet", file) for file in made]
    services.store.write_all([(f"{target.folder}{name}", file.data) for name, file in named])
    return [_build_new_file(name, file) for name, file in named]


def list_locations(target: RowTarget, files: Sequence[NewDataFile]) -> list[str]:
    return [f"{target.folder}{file.path}" for file in files]


def _build_new_file(name: str, file: RowFile) -> NewDataFile:
    return NewDataFile(
        file_id=NOT_YET,
        path=name,
        record_count=file.record_count,
        file_size_bytes=len(file.data),
        row_id_start=NOT_YET,
        stats=PackedStats(file.stats),
        partition_values=file.partition_values or None,
        path_is_relative=True,
        row_group_count=file.row_group_count,
    )


@dataclass(frozen=True, slots=True)
class PostedRows:
    """A request for rows to be inserted into a table."""

    namespace: Namespace
    table: str
    body: bytes
    content_type: str
    on_unknown: OnUnknown = "reject"
    txn: TxnId | None = None


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

    Raises NoSuchTableError, InvalidRequestError naming rows that don't fit, TxnAlreadyAppliedError, UnsupportedError,
    DamagedTableError.
    """
    services.database.gate.require_open()
    return services.run_once(lambda: _append(services, posted), lambda result: RowsAnswer(*result), is_new=True)


def read_last_applied(services: Services, namespace: Namespace, table: str, app_id: str) -> AppliedTxn | None:
    """Read the last version of a producer in a table; None before the first. Raises NoSuchTableError."""
    with services.database.reading() as cursor:
        is_there, found = idempotency.read_newest_txn(cursor, to_schema_name(namespace), table, app_id)
    if not is_there:
        raise NoSuchTableError(f"Table does not exist: {format_full_name(namespace, table)}")
    return found


def _append(services: Services, posted: PostedRows) -> RowsAnswer:
    target: RowTarget | None = None
    is_misfit = False

    def attempt(is_alone: bool) -> RowsAnswer:
        nonlocal target, is_misfit
        target = read_row_target(services, posted.namespace, posted.table, target)
        batch = _read(services, posted, target)
        if not batch.num_rows:
            return build_empty_answer(services, posted)
        prepared = prepare_rows(services, posted, target, batch)
        try:
            with discard_on_error(services, list_locations(target, prepared.files)):
                return build_answer(write_rows(services, posted, prepared, is_alone=is_alone))
        except Exception as error:
            if is_misfit or not is_unfit_statement(error):
                raise
            is_misfit = True  # the table of inlined rows isn't as it was: reading it anew says what is wrong with it
            raise OutdatedPlanError from error

    return retry_on_conflict(services, format_full_name(posted.namespace, posted.table), attempt)


def _read(services: Services, posted: PostedRows, target: RowTarget) -> Batch:
    """Return the rows; Outdated for rows that don't fit columns, or constraints, which the table no longer has."""
    try:
        with services.meter.phase("rows_read"):
            batch = read_batch(posted.body, posted.content_type, target.layout, on_unknown=posted.on_unknown)
            target.check_rows(batch)
            return batch
    except InvalidRequestError as error:
        if read_row_target(services, posted.namespace, posted.table, target).layout is target.layout:
            raise
        raise OutdatedPlanError from error


def build_empty_answer(services: Services, posted: PostedRows) -> RowsAnswer:
    """Return the end of a request without rows."""
    services.settle_unchanged([build_touched(posted.namespace, posted.table)], (None, 0, None))
    return RowsAnswer(None, 0, None)


def write_rows(services: Services, posted: PostedRows, batch: RowBatch, *, is_alone: bool = False) -> WrittenRows:
    """Write a prepared batch, or raise StaleBaseError. is_alone: the caller keeps all other commits waiting."""
    write = services.commits.write_alone if is_alone else services.commits.write
    return write(services.database, services.meter, build_commit(services, posted, batch))


def prepare_rows(services: Services, posted: PostedRows, target: RowTarget, batch: Batch) -> RowBatch:
    """Return the batch as DuckDB would store it.

    Inlined if it is small enough and can be, else in files that this writes.
    """
    prepared = partial(
        RowBatch,
        target.lake,
        build_origin(services.caller),
        batch.num_rows,
        target.widen,
        partial(_pack, target),
        key=None if services.once is None else services.once.key,
        txn=posted.txn,
    )
    if batch.num_rows > target.lake.limit or row_batch.find_inlining_obstacle(batch) is not None:
        return prepared(files=write_files(services, target, batch))
    return prepared(batch)


def _pack(target: RowTarget, batches: Sequence[Batch]) -> PackedRows:
    batch = join_batches(batches)
    return PackedRows(pack_columns(target, batch), row_batch.build_extents(batch))


def build_commit(services: Services, posted: PostedRows, batch: RowBatch) -> QueuedRows:
    """Return the batch with the last steps of its transaction."""
    what, who = build_touched(posted.namespace, posted.table, {"rows": batch.count}), batch.origin

    def build_note(written: WrittenRows) -> AuditNote:
        at = written.snapshot_id
        return AuditNote(who, replace(what, table_id=batch.table_id, snapshot_id=at), services.publish_audit)

    return QueuedRows(batch, once=services.once, noted=build_note)


def build_answer(written: WrittenRows) -> RowsAnswer:
    """Build the answer to a request whose rows are written."""
    return RowsAnswer(written.snapshot_id, written.count, written.first_row_id)


def prepare_to_join(services: Services, posted: PostedRows) -> QueuedRows | None:
    """Prepare the rows if they may be written with others: nothing is asked of the database, so it takes no time.

    Returns None for rows that `append_rows` must take.
    """
    if len(posted.body) > MAX_GROUPED_BODY_BYTES:
        return None
    target = services.rows.find(posted.namespace, posted.table)
    if target is None or target.is_constrained:  # else they are checked by their types alone
        return None
    try:
        with services.meter.phase("rows_read"):
            batch = read_batch(posted.body, posted.content_type, target.layout, on_unknown=posted.on_unknown)
    except InvalidRequestError:
        return None
    if not 0 < batch.num_rows <= target.lake.limit or row_batch.find_inlining_obstacle(batch) is not None:
        return None
    return build_commit(services, posted, prepare_rows(services, posted, target, batch))


def enqueue_rows(services: Services, commit: QueuedRows, finish: Callable[[], None]) -> None:
    """Have prepared rows written with others that wait. finish: called afterwards, in another thread."""
    services.commits.enqueue(services.database, services.meter, commit, finish)


def find_answer(commit: QueuedRows) -> RowsAnswer | None:
    """Return the answer to rows that `enqueue_rows` has written; None if `append_rows` must take them.

    Raises CommitStateUnknownError, UnavailableError.
    """
    try:
        return build_answer(commit.result())
    except (CommitStateUnknownError, UnavailableError):
        raise
    except Exception:  # noqa: BLE001 - whatever it was, `append_rows` meets it again
        return None
