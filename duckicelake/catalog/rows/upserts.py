"""Rows that take the place of those with the same keys: one transaction deletes these and inserts the new ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from duckicelake.catalog.commit.run import OutdatedPlanError, retry_on_conflict
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.delete_commit import write_key_file
from duckicelake.catalog.rows.deletes import (
    RowDelete,
    build_key_layout,
    build_required_key_layout,
    commit_delete,
    read_fresh_target,
)
from duckicelake.catalog.rows.inserts import (
    PostedRows,
    RowsAnswer,
    build_answer,
    build_empty_answer,
    list_locations,
    prepare_rows,
    write_rows,
)
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.table.reclaim import discard_on_error
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.changes import WrittenCommit
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.inlined import inserts as inlined_rows
from duckicelake.lake.inlined.batches import RowBatch, WrittenRows
from duckicelake.lake.inlined.last_commit import LastCommit
from duckicelake.postgres.queries import Transaction
from duckicelake.rows.bodies import read_batch
from duckicelake.rows.layout import Layout
from duckicelake.rows.row_batch import Batch


@dataclass(frozen=True, slots=True)
class _Prepared:
    """An upsert, computed for the table as it is by `metadata`."""

    metadata: TableMetadata
    keys: Batch
    rows: RowBatch


def upsert_rows(services: Services, posted: PostedRows, keys: tuple[str, ...] = ()) -> RowsAnswer:
    """Insert the rows, and delete those that have the same keys; as `append_rows` and `delete_rows`."""
    return services.run_once(lambda: _upsert(services, posted, keys), lambda result: RowsAnswer(*result))


def _upsert(services: Services, posted: PostedRows, names: tuple[str, ...]) -> RowsAnswer:
    def attempt(is_alone: bool) -> RowsAnswer:
        target = read_fresh_target(services, posted.namespace, posted.table)
        table = load_current_table(services, posted.namespace, posted.table)
        metadata = table.metadata
        layout = build_key_layout(metadata, target.layout, names)
        whole = build_required_key_layout(target.layout, layout)
        batch = read_batch(posted.body, posted.content_type, whole, on_unknown=posted.on_unknown)
        target.check_rows(batch)
        keys = _keys(layout, batch)
        if not batch.num_rows:
            return build_empty_answer(services, posted)
        rows = prepare_rows(services, posted, target, batch)
        with discard_on_error(services, list_locations(target, rows.files)):
            if metadata.current_snapshot_id is None:
                first = replace(rows, untouched_since=table.checked_upto)
                return build_answer(write_rows(services, posted, first, is_alone=is_alone))
            return _replace(services, posted, _Prepared(metadata, keys, rows), is_alone=is_alone)

    return retry_on_conflict(services, posted.table, attempt)


def _replace(services: Services, posted: PostedRows, prepared: _Prepared, *, is_alone: bool) -> RowsAnswer:
    """Return two DuckLake snapshots in one transaction: no reader sees the table between them."""
    answers: list[RowsAnswer] = []

    def settle(cursor: Transaction, written: Sequence[WrittenCommit]) -> None:
        group = inlined_rows.RowsGroup(cursor, [prepared.rows], LastCommit())
        try:
            (inserted,) = group.write()
        except StaleBaseError as error:
            raise OutdatedPlanError from error
        assert isinstance(inserted, WrittenRows)
        group.finish()
        entry = build_touched(posted.namespace, posted.table, {"rows": inserted.count, "mode": "upsert"})
        entry = replace(entry, table_id=written[0].table_id, snapshot_id=inserted.snapshot_id)
        services.settle(cursor, [entry], (inserted.snapshot_id, inserted.count, inserted.first_row_id))
        answers[:] = [build_answer(inserted)]

    table = RowDelete(posted.namespace, posted.table, prepared.metadata)
    commit_delete(services, table, write_key_file(prepared.keys), settle, is_alone=is_alone)
    return answers[0]


def _keys(layout: Layout, batch: Batch) -> Batch:
    """Return the keys of the rows; InvalidRequestError if two rows have the same."""
    by_id = {column.field_id: values for column, values in zip(batch.layout.stored, batch.values, strict=True)}
    values = [by_id[column.field_id] for column in layout.stored]
    seen: dict[tuple[object, ...], int] = {}
    for index, key in enumerate(zip(*values, strict=True)):
        first = seen.setdefault(key, index)
        if first != index:
            raise InvalidRequestError(f"Rows {first} and {index} have the same key {key}: only one of them can stay")
    return Batch(layout, batch.num_rows, values=values)
