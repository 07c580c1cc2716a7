"""Rows deleted by their keys or by a filter, and rows that take the place of those with the same keys (upsert).

Unlike inserts, these are commits of Iceberg's: each makes a snapshot of the table, with all its files.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from duckicelake.catalog.auditing import touched
from duckicelake.catalog.commits.committing import Outcome, commit_all
from duckicelake.catalog.commits.groups import Settle
from duckicelake.catalog.commits.overtaken import Outdated, until_written
from duckicelake.catalog.deletes.equality_commits import KeyFile, delete_by_key, delete_found, key_file
from duckicelake.catalog.deletes.found import FoundRows
from duckicelake.catalog.files.discarding import discard, discarding
from duckicelake.catalog.loads.loading import current_table
from duckicelake.catalog.rows.filters import rows_where
from duckicelake.catalog.rows.keys import key_layout, parse_deletion, read_keys
from duckicelake.catalog.rows.target import RowTarget
from duckicelake.catalog.rows.targets import row_target
from duckicelake.catalog.services import Services
from duckicelake.errors import CommitFailed, InvalidRequest
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.names import Namespace
from duckicelake.lake.changes import Written
from duckicelake.lake.postgres.database import Transaction


class _NoRows(Exception):  # noqa: N818 - says what was found; never leaves this module
    """There is no row with one of the keys."""


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """A request for rows to be deleted.

    keys: what the body's keys are of, names of columns; none: the table's identifier fields.
    """

    namespace: Namespace
    table: str
    body: bytes
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowDelete:
    """The table that rows are to go from, as the metadata says it is."""

    namespace: Namespace
    table: str
    metadata: TableMetadata


@dataclass(frozen=True, slots=True)
class DeletedAnswer:
    """The DuckLake snapshot in which no row has one of the keys; None if nothing had to be done.

    Of a filter: the different values that its columns had where it held.
    """

    snapshot_id: int | None
    keys: int

    def as_json(self) -> dict[str, Any]:
        return {"snapshot-id": self.snapshot_id, "keys": self.keys}


def delete_rows(services: Services, deleted: DeletedRows) -> DeletedAnswer:
    """Delete all rows with the keys, or that the filter finds; there need not be any.

    Raises NoSuchTable, InvalidRequest, Unsupported, DamagedTable.
    """
    return services.run_once(lambda: _delete(services, deleted), lambda result: DeletedAnswer(*result))


def _delete(services: Services, deleted: DeletedRows) -> DeletedAnswer:
    wanted = parse_deletion(deleted.body)
    if deleted.keys and not isinstance(wanted, list):
        raise InvalidRequest("A filter names its columns itself: leave ?key= out")

    def attempt(is_alone: bool) -> DeletedAnswer:
        target = fresh_target(services, deleted.namespace, deleted.table)
        table = current_table(services, deleted.namespace, deleted.table).materialized
        rows = RowDelete(deleted.namespace, deleted.table, table.metadata)
        if not isinstance(wanted, list):
            found, count = rows_where(services, table, target.layout, wanted)
            return _write(services, rows, found if found.positions else None, count, is_alone=is_alone)
        layout = key_layout(table.metadata, target.layout, deleted.keys)
        batch = read_keys(wanted, layout)
        keys = key_file(batch) if batch.num_rows else None
        return _write(services, rows, keys, batch.num_rows, is_alone=is_alone)

    return until_written(services, deleted.table, attempt)


def _write(
    services: Services, deleted: RowDelete, rows: KeyFile | FoundRows | None, count: int, *, is_alone: bool
) -> DeletedAnswer:
    entry = touched(deleted.namespace, deleted.table, {"keys": count})

    def settle(cursor: Transaction, written: Sequence[Written]) -> None:
        (change,) = written
        if not any("deleted_from_table" in step.kinds for step in change.change.steps):
            raise _NoRows
        at = change.snapshots[-1]
        services.settle(cursor, [replace(entry, table_id=change.table_id, snapshot_id=at)], (at, count))

    if rows is not None and deleted.metadata.current_snapshot_id is not None:
        with suppress(_NoRows):
            outcome = commit_delete(services, deleted, rows, settle, is_alone=is_alone)
            assert outcome.written is not None
            return DeletedAnswer(outcome.written.snapshots[-1], count)
    services.settle_unchanged([entry], (None, count))
    return DeletedAnswer(None, count)


def commit_delete(
    services: Services, deleted: RowDelete, rows: KeyFile | FoundRows, settle: Settle, *, is_alone: bool
) -> Outcome:
    """Delete the rows with the keys, or that were found; Outdated if main isn't the snapshot of the metadata any more.

    is_alone: the caller keeps all other commits waiting.
    """
    namespace, table, metadata = deleted.namespace, deleted.table, deleted.metadata
    assert metadata.current_snapshot_id is not None
    parent = metadata.snapshot(metadata.current_snapshot_id)
    assert parent is not None
    paths: list[str] = []
    if isinstance(rows, FoundRows):
        request = delete_found(services, namespace, table, metadata, parent, rows)
    else:
        request, paths = delete_by_key(services, namespace, table, metadata, parent, rows)
    with discarding(services, paths):
        try:
            (outcome,) = commit_all(services, [request], settle, is_alone=is_alone)
        except CommitFailed as error:
            raise Outdated from error
    discard(services, paths)
    return outcome


def fresh_target(services: Services, namespace: Namespace, table: str) -> RowTarget:
    """The table as it is now."""
    return row_target(services, namespace, table, services.rows.find(namespace, table))
