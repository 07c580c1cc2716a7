"""Delete rows by keys or by a filter."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from duckicelake.bridge.equality_deletes import EqualityKey, build_field_names, find_equality_key, find_range, may_match
from duckicelake.catalog.commit.deletes import FoundRows, Targets
from duckicelake.catalog.commit.equality_deletes import check_sizes, data_rows, key_column
from duckicelake.catalog.commit.run import CommitPlan, OutdatedPlanError, commit_all, retry_on_conflict
from duckicelake.catalog.commit.workspace import Workspace
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.commit_queue import Settle
from duckicelake.catalog.context.row_targets import RowTarget
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.delete_commit import KeyFile, delete_by_key, delete_found, write_key_file
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.table.reclaim import discard, discard_on_error
from duckicelake.catalog.table.row_target import read_row_target
from duckicelake.errors import CommitFailedError, InvalidRequestError, UnsupportedError
from duckicelake.iceberg.expressions import Predicate, collect_tests, parse_predicate
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.changes import WrittenCommit
from duckicelake.lake.state import FileRow
from duckicelake.parquet.local_copies import open_local_copies
from duckicelake.parquet.row_filter import RowFilter, find_rows
from duckicelake.postgres.queries import Transaction
from duckicelake.rows.bodies import parse_object, read_objects
from duckicelake.rows.columns import is_storable
from duckicelake.rows.filters import FilterColumn, bind_filter, build_condition
from duckicelake.rows.layout import Layout
from duckicelake.rows.row_batch import Batch

INEXACT: Final = {"float", "double"}
"""Types of which different values are equal, and equal ones are not: Iceberg has no identifier fields of them."""


def parse_deletion(body: bytes) -> list[Any] | Predicate:
    """Return the keys that a request lists, whatever they are, with all digits, or its filter.

    Raises InvalidRequestError, UnsupportedError.
    """
    request = parse_object(body)
    if request.keys() == {"filter"}:
        return parse_predicate(request["filter"])
    if request.keys() != {"keys"} or type(request["keys"]) is not list:
        raise InvalidRequestError(
            'The body is {"keys": [{…}, …]}, with a value for each key column in each object, or {"filter": …}, '
            "with an expression of Iceberg's"
        )
    keys: list[Any] = request["keys"]
    return keys


def build_key_layout(metadata: TableMetadata, layout: Layout, names: Sequence[str]) -> Layout:
    """Return the key columns alone, each of them required: those with the names, else the table's identifier fields.

    InvalidRequestError if there are none, or one that can't identify rows.
    """
    by_name = {column.name: column for column in layout.columns}
    keys = tuple(dict.fromkeys(names)) or _identifiers(metadata, layout)
    for name in keys:
        column = by_name.get(name)
        if column is None or column.children or not is_storable(column):
            raise InvalidRequestError(f"Cannot match rows by column {name!r}: expected one of {', '.join(by_name)}")
        if str(column.type) in INEXACT:
            raise InvalidRequestError(
                f"Column {name} is a {column.type}, which can't tell rows apart: name others as keys"
            )
    return Layout([replace(by_name[name], required=True, default=None, computed_default=None) for name in keys])


def read_keys(objects: Sequence[Any], layout: Layout) -> Batch:
    """Return the objects as keys of the layout; InvalidRequestError names those that are none."""
    try:
        return read_objects(objects, layout, "reject")
    except InvalidRequestError as error:
        names = ", ".join(column.name for column in layout.columns)
        raise InvalidRequestError(
            f"A key is an object with a value for each of {names}, and no more: {error}"
        ) from error


def build_required_key_layout(layout: Layout, keys: Layout) -> Layout:
    """Return the table's layout for rows that must have a value in each key column."""
    required = {column.field_id: column for column in keys.columns}
    return Layout([required.get(column.field_id, column) for column in layout.columns])


def _identifiers(metadata: TableMetadata, layout: Layout) -> tuple[str, ...]:
    """Return the names of the identifier fields, full ones for those in structs.

    Raises InvalidRequestError if there are none.
    """
    schema = metadata.schema()
    names = schema.full_names() | {column.field_id: column.name for column in layout.columns}
    if not schema.identifier_field_ids:
        raise InvalidRequestError(
            "The table has no identifier fields: name the columns that tell rows apart, as ?key=a,b"
        )
    return tuple(names[field_id] for field_id in schema.identifier_field_ids)


def find_matching_rows(
    services: Services, table: TableVersion, layout: Layout, predicate: Predicate
) -> tuple[FoundRows, int]:
    """Return the rows of main that the filter finds, and how many combinations of values its columns have in them.

    Reads the data files that may have such rows, each once. InvalidRequestError for columns and constants that the
    table doesn't have, and for more to read than it allows; UnsupportedError.
    """
    bound, metadata = bind_filter(predicate, layout.columns), table.metadata
    keys = _keys(bound, metadata, layout)
    files = [file for file in _live_files(services, table) if _may_match(bound, keys, file)]
    space = Workspace(services, table.row.table_id, table.known)
    check_sizes(services, metadata, space.folders(), (), files)
    names = build_field_names(metadata)
    with open_local_copies(services.store, (file.path for file in files)) as paths:
        rows = [data_rows(file, keys, names, paths) for file in files]
        matches = find_rows(_build_row_filter(bound, keys), rows)
    current = table.state.current()
    return FoundRows(tuple(current.manifest_ids) if current else (), matches.positions), matches.values


def _keys(bound: Predicate, metadata: TableMetadata, layout: Layout) -> list[EqualityKey]:
    """Return the columns that the filter tests; where it tests none, any that identifies rows."""
    field_ids = sorted({test.column for test in collect_tests(bound) if isinstance(test.column, int)})
    if field_ids:
        return [find_equality_key(field_id, metadata, "The filter") for field_id in field_ids]
    for column in layout.stored:
        try:
            return [find_equality_key(column.field_id, metadata, "The filter")]
        except (InvalidRequestError, UnsupportedError):
            continue
    raise InvalidRequestError("The table has no column by whose values rows can be deleted")


def _live_files(services: Services, table: TableVersion) -> Sequence[FileRow]:
    current = table.state.current()
    if current is None:
        return ()
    space = Workspace(services, table.row.table_id, table.known)
    return Targets(space, space.list_manifests(current.manifest_ids), frozenset(), ()).of_parent()


def _may_match(bound: Predicate, keys: Sequence[EqualityKey], file: FileRow) -> bool:
    return may_match(bound, {key.field.id: find_range(file, key) for key in keys})


def _build_row_filter(bound: Predicate, keys: Sequence[EqualityKey]) -> RowFilter:
    columns: dict[int, FilterColumn] = {}
    for number, key in enumerate(keys):
        assert isinstance(key.field.type, PrimitiveType)
        columns[key.field.id] = FilterColumn(key.field.type, f"v{number}", key.duckdb_type)
    where = build_condition(bound, columns)
    return RowFilter(tuple(map(key_column, keys)), where.sql, where.parameters)


class _NoRowsError(Exception):
    """There is no row with one of the keys."""


@dataclass(frozen=True, slots=True)
class DeleteRequest:
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
class DeleteAnswer:
    """The DuckLake snapshot in which no row has one of the keys; None if nothing had to be done.

    Of a filter: the different values that its columns had where it held.
    """

    snapshot_id: int | None
    keys: int

    def as_json(self) -> dict[str, Any]:
        return {"snapshot-id": self.snapshot_id, "keys": self.keys}


def delete_rows(services: Services, deleted: DeleteRequest) -> DeleteAnswer:
    """Delete all rows with the keys, or that the filter finds; there need not be any.

    Raises NoSuchTableError, InvalidRequestError, UnsupportedError, DamagedTableError.
    """
    return services.run_once(lambda: _delete(services, deleted), lambda result: DeleteAnswer(*result))


def _delete(services: Services, deleted: DeleteRequest) -> DeleteAnswer:
    wanted = parse_deletion(deleted.body)
    if deleted.keys and not isinstance(wanted, list):
        raise InvalidRequestError("A filter names its columns itself: leave ?key= out")

    def attempt(is_alone: bool) -> DeleteAnswer:
        target = read_fresh_target(services, deleted.namespace, deleted.table)
        table = load_current_table(services, deleted.namespace, deleted.table)
        rows = RowDelete(deleted.namespace, deleted.table, table.metadata)
        if not isinstance(wanted, list):
            found, count = find_matching_rows(services, table, target.layout, wanted)
            return _write(services, rows, found if found.positions else None, count, is_alone=is_alone)
        layout = build_key_layout(table.metadata, target.layout, deleted.keys)
        batch = read_keys(wanted, layout)
        keys = write_key_file(batch) if batch.num_rows else None
        return _write(services, rows, keys, batch.num_rows, is_alone=is_alone)

    return retry_on_conflict(services, deleted.table, attempt)


def _write(
    services: Services, deleted: RowDelete, rows: KeyFile | FoundRows | None, count: int, *, is_alone: bool
) -> DeleteAnswer:
    entry = build_touched(deleted.namespace, deleted.table, {"keys": count})

    def settle(cursor: Transaction, written: Sequence[WrittenCommit]) -> None:
        (change,) = written
        if not any("deleted_from_table" in step.kinds for step in change.change.steps):
            raise _NoRowsError
        at = change.snapshots[-1]
        services.settle(cursor, [replace(entry, table_id=change.table_id, snapshot_id=at)], (at, count))

    if rows is not None and deleted.metadata.current_snapshot_id is not None:
        with suppress(_NoRowsError):
            outcome = commit_delete(services, deleted, rows, settle, is_alone=is_alone)
            assert outcome.written is not None
            return DeleteAnswer(outcome.written.snapshots[-1], count)
    services.settle_unchanged([entry], (None, count))
    return DeleteAnswer(None, count)


def commit_delete(
    services: Services, deleted: RowDelete, rows: KeyFile | FoundRows, settle: Settle, *, is_alone: bool
) -> CommitPlan:
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
    with discard_on_error(services, paths):
        try:
            (outcome,) = commit_all(services, [request], settle, is_alone=is_alone)
        except CommitFailedError as error:
            raise OutdatedPlanError from error
    discard(services, paths)
    return outcome


def read_fresh_target(services: Services, namespace: Namespace, table: str) -> RowTarget:
    """Return the table as it is now."""
    return read_row_target(services, namespace, table, services.rows.find(namespace, table))
