"""Rows that take the place of those with the same keys: one transaction deletes these and inserts the new ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from duckicelake.catalog.auditing import touched
from duckicelake.catalog.commits.overtaken import Outdated, until_written
from duckicelake.catalog.deletes.equality_commits import key_file
from duckicelake.catalog.files.discarding import discarding
from duckicelake.catalog.loads.loading import current_table
from duckicelake.catalog.rows.deletes import RowDelete, commit_delete, fresh_target
from duckicelake.catalog.rows.files import locations_of
from duckicelake.catalog.rows.inserts import PostedRows, RowsAnswer, answer, nothing_posted, prepared_rows, write_rows
from duckicelake.catalog.rows.keys import key_layout, with_keys
from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.changes import Written
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.rows import inserts as inlined_rows
from duckicelake.lake.rows.batches import RowBatch, WrittenRows
from duckicelake.lake.rows.memory import Memory
from duckicelake.lake.writing.files import StaleBase
from duckicelake.rows.batch import Batch
from duckicelake.rows.constraint_rows import check_rows
from duckicelake.rows.layout import Layout
from duckicelake.rows.reading import read_batch


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
        target = fresh_target(services, posted.namespace, posted.table)
        table = current_table(services, posted.namespace, posted.table)
        metadata = table.materialized.metadata
        layout = key_layout(metadata, target.layout, names)
        whole = with_keys(target.layout, layout)
        batch = read_batch(posted.body, posted.content_type, whole, on_unknown=posted.on_unknown)
        check_rows(target.constraints, batch)
        keys = _keys(layout, batch)
        if not batch.num_rows:
            return nothing_posted(services, posted)
        rows = prepared_rows(services, posted, target, batch)
        with discarding(services, locations_of(target, rows.files)):
            if metadata.current_snapshot_id is None:
                first = replace(rows, untouched_since=table.checked_upto)
                return answer(write_rows(services, posted, first, is_alone=is_alone))
            return _replace(services, posted, _Prepared(metadata, keys, rows), is_alone=is_alone)

    return until_written(services, posted.table, attempt)


def _replace(services: Services, posted: PostedRows, prepared: _Prepared, *, is_alone: bool) -> RowsAnswer:
    """Two DuckLake snapshots in one transaction: no reader sees the table between them."""
    answers: list[RowsAnswer] = []

    def settle(cursor: Transaction, written: Sequence[Written]) -> None:
        group = inlined_rows.Group(cursor, [prepared.rows], Memory())
        try:
            (inserted,) = group.write()
        except StaleBase as error:
            raise Outdated from error
        assert isinstance(inserted, WrittenRows)
        group.finish()
        entry = touched(posted.namespace, posted.table, {"rows": inserted.count, "mode": "upsert"})
        entry = replace(entry, table_id=written[0].table_id, snapshot_id=inserted.snapshot_id)
        services.settle(cursor, [entry], (inserted.snapshot_id, inserted.count, inserted.first_row_id))
        answers[:] = [answer(inserted)]

    table = RowDelete(posted.namespace, posted.table, prepared.metadata)
    commit_delete(services, table, key_file(prepared.keys), settle, is_alone=is_alone)
    return answers[0]


def _keys(layout: Layout, batch: Batch) -> Batch:
    """The keys of the rows; InvalidRequest if two rows have the same."""
    by_id = {column.field_id: values for column, values in zip(batch.layout.stored, batch.values, strict=True)}
    values = [by_id[column.field_id] for column in layout.stored]
    seen: dict[tuple[object, ...], int] = {}
    for index, key in enumerate(zip(*values, strict=True)):
        first = seen.setdefault(key, index)
        if first != index:
            raise InvalidRequest(f"Rows {first} and {index} have the same key {key}: only one of them can stay")
    return Batch(layout, batch.num_rows, values=values)
