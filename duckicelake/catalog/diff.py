"""Compare a table at two of its snapshots, from the catalog's rows alone; no data file or manifest is opened."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, Literal

from pydantic import ConfigDict

from duckicelake.bridge.definitions import FormerDefinition, find_former_definition
from duckicelake.bridge.main_diff import ChangedFile, list_changed_files
from duckicelake.catalog.commit.workspace import Listed, Workspace
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.table.time_travel import resolve_snapshot
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace, format_full_name
from duckicelake.iceberg.manifest.entry import ManifestContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.model import Json, SpecModel
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.snapshot import MAIN, Snapshot
from duckicelake.iceberg.sort import SortOrder
from duckicelake.iceberg.types import NestedField, PrimitiveType
from duckicelake.lake.ducklake import native

MAX_COMPARED_FILES: Final = 200_000
"""Data and delete files of one snapshot alone; more would take more than a gigabyte."""


class ComparedState(SpecModel):
    """One side of a comparison. snapshot_id: None before the first snapshot."""

    model_config = ConfigDict(frozen=True)

    snapshot_id: int | None = None
    timestamp: datetime | None = None
    schema_id: int
    spec_id: int
    sort_order_id: int


class ComparedFile(SpecModel):
    """A data file that one side alone has, or of which other rows are deleted."""

    model_config = ConfigDict(frozen=True)

    change: Literal["added", "removed", "rows-changed"]
    path: str
    bytes: int
    rows_added: int
    rows_removed: int


class ComparedColumn(SpecModel):
    """A column, or a field in one, before and after, as Iceberg's JSON; one of them None if it came or went.

    name: its full name, as it is or was.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    before: Json = None
    after: Json = None


class TableComparison(SpecModel):
    """What changed in a table from one snapshot to another.

    Attributes:
        files: the first ones, as many as were wanted.
        partition_spec, sort_order: (before, after) as Iceberg's JSON; None where they are alike.

    """

    model_config = ConfigDict(frozen=True)

    table: str
    from_: ComparedState
    to: ComparedState
    rows_added: int
    rows_removed: int
    files_added: int
    files_removed: int
    bytes_added: int
    bytes_removed: int
    columns: tuple[ComparedColumn, ...]
    partition_spec: tuple[Json, Json] | None = None
    sort_order: tuple[Json, Json] | None = None
    files: tuple[ComparedFile, ...]
    unlisted_files: int


def diff_table(
    services: Services, namespace: Namespace, name: str, since: str | None, until: str | None, max_files: int
) -> TableComparison:
    """Compare a table at two states that `resolve_snapshot` finds; list at most so many files that differ.

    since: None for the parent of the other. until: None for main as it is, with a definition that no snapshot has yet.

    Raises:
        NoSuchTableError, NotFoundError, ExpiredError: for a table or snapshot that isn't there.
        InvalidRequestError: too many files differ, or a text names no snapshot.

    """
    table = load_current_table(services, namespace, name)
    after = None if until is None or until == MAIN else resolve_snapshot(services, table, until)
    after = after or table.metadata.current_snapshot()
    before = _find_parent(table, after) if since is None else resolve_snapshot(services, table, since)
    space = Workspace(services, table.row.table_id, table.known)
    old, new = (_list_manifests(table, space, snapshot) for snapshot in (before, after))
    definitions = (
        _find_definition(services, table, before, old),
        _find_current(table.metadata) if until in {None, MAIN} else _find_definition(services, table, after, new),
    )
    changed = _compare_files(space, old, new)
    return TableComparison(
        table=format_full_name(namespace, name),
        from_=_describe_state(before, definitions[0]),
        to=_describe_state(after, definitions[1]),
        rows_added=sum(change.rows_added for change in changed),
        rows_removed=sum(change.rows_removed for change in changed),
        files_added=sum(change.kind == "added" for change in changed),
        files_removed=sum(change.kind == "removed" for change in changed),
        bytes_added=sum(change.file.file_size_in_bytes for change in changed if change.kind == "added"),
        bytes_removed=sum(change.file.file_size_in_bytes for change in changed if change.kind == "removed"),
        files=tuple(map(_describe_file, changed[:max_files])),
        unlisted_files=max(len(changed) - max_files, 0),
        **_compare_definitions(table.metadata, *definitions),
    )


def _find_parent(table: TableVersion, snapshot: Snapshot | None) -> Snapshot | None:
    """Return the parent, None of a first snapshot. Raises InvalidRequestError for one that has expired."""
    if snapshot is None or snapshot.parent_snapshot_id is None:
        return None
    parent = table.metadata.snapshot(snapshot.parent_snapshot_id)
    if parent is None:
        raise InvalidRequestError(
            f"The snapshot before {snapshot.snapshot_id} has expired: name an older state to compare with"
        )
    return parent


def _list_manifests(table: TableVersion, space: Workspace, snapshot: Snapshot | None) -> Listed:
    if snapshot is None:
        return ()
    row = next(row for row in table.state.snapshots if row.snapshot_id == snapshot.snapshot_id)
    return space.list_manifests(row.manifest_ids)


def _find_current(metadata: TableMetadata) -> FormerDefinition:
    return FormerDefinition(metadata.current_schema_id, metadata.default_spec_id, metadata.default_sort_order_id)


def _find_definition(
    services: Services, table: TableVersion, snapshot: Snapshot | None, manifests: Listed
) -> FormerDefinition:
    """Return what the table's definition was with a snapshot, or what it is now where there is none."""
    if snapshot is None:
        return _find_current(table.metadata)
    number = next(row.ducklake_id for row in table.state.snapshots if row.snapshot_id == snapshot.snapshot_id)
    with services.database.reading() as cursor:
        then = native.read_definition(cursor, table.row.table_id, number)
    used = {manifest.spec_id for manifest in manifests if manifest.content == ManifestContent.DATA}
    return find_former_definition(table.metadata, snapshot, used, then)


def _compare_files(space: Workspace, old: Listed, new: Listed) -> list[ChangedFile]:
    gone, come = space.find_changed_files(old, new)
    if len(gone) + len(come) > MAX_COMPARED_FILES:
        raise InvalidRequestError(
            f"{len(gone) + len(come):,} files differ, more than {MAX_COMPARED_FILES:,}: compare states that lie closer"
        )
    difference = space.build_difference(old, new)
    return list(list_changed_files(difference, space.files(difference.left)))


def _describe_state(snapshot: Snapshot | None, definition: FormerDefinition) -> ComparedState:
    return ComparedState(
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        timestamp=None if snapshot is None else datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
        schema_id=definition.schema_id,
        spec_id=definition.spec_id,
        sort_order_id=definition.order_id,
    )


def _describe_file(changed: ChangedFile) -> ComparedFile:
    return ComparedFile(
        change=changed.kind,
        path=changed.file.path,
        bytes=changed.file.file_size_in_bytes,
        rows_added=changed.rows_added,
        rows_removed=changed.rows_removed,
    )


def _compare_definitions(metadata: TableMetadata, old: FormerDefinition, new: FormerDefinition) -> dict[str, Json]:
    schemas = {schema.schema_id: schema for schema in metadata.schemas}
    specs = {spec.spec_id: spec for spec in metadata.partition_specs}
    orders = {order.order_id: order for order in metadata.sort_orders}
    return {
        "columns": tuple(_compare_schemas(schemas[old.schema_id], schemas[new.schema_id])),
        "partition_spec": _pair(specs[old.spec_id], specs[new.spec_id]),
        "sort_order": _pair(orders[old.order_id], orders[new.order_id]),
    }


def _pair(old: PartitionSpec | SortOrder, new: PartitionSpec | SortOrder) -> tuple[Json, Json] | None:
    before, after = old.to_json(), new.to_json()
    return None if before["fields"] == after["fields"] else (before, after)


def _compare_schemas(old: Schema, new: Schema) -> Iterator[ComparedColumn]:
    """Yield the fields at any depth that differ, by id: a struct doesn't differ by what its fields are."""
    before, after = old.map_fields_by_id(), new.map_fields_by_id()
    old_names, new_names = old.full_names(), new.full_names()
    for field_id in before | after:
        was, now = (_describe_field(fields.get(field_id)) for fields in (before, after))
        if was != now:
            yield ComparedColumn(name=(new_names if now else old_names)[field_id], before=was, after=now)


def _describe_field(field: NestedField | None) -> Json:
    if field is None:
        return None
    found = field.to_json()
    return found if isinstance(field.type, PrimitiveType) else found | {"type": field.type.type}
