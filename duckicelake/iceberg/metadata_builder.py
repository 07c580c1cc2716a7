"""Apply the updates of a commit to table metadata, and build the metadata of new tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import count
from typing import Any, Final

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg import metadata_draft, updates
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, SUPPORTED_FORMAT_VERSION, TableMetadata
from duckicelake.iceberg.metadata_draft import MetadataDraft, begin_draft, begin_new_draft, finish_draft
from duckicelake.iceberg.partition import (
    FIRST_PARTITION_FIELD_ID,
    PartitionField,
    PartitionSpec,
    UnboundPartitionField,
    UnboundPartitionSpec,
    check_spec,
)
from duckicelake.iceberg.schema import Schema, assign_fresh_ids, check_schema, check_schema_size
from duckicelake.iceberg.sort import (
    FIRST_SORT_ORDER_ID,
    UNSORTED,
    SortOrder,
    check_order,
    parse_named_order,
)
from duckicelake.iceberg.updates import (
    LAST_ADDED,
    AddSchema,
    AddSortOrder,
    AddSpec,
    AssignUuid,
    RemovePartitionSpecs,
    RemoveProperties,
    RemoveSchemas,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetProperties,
    TableUpdate,
    UpgradeFormatVersion,
)
from duckicelake.properties import COMPRESSION_CODEC, FORMAT_VERSION, SORT_ORDER

RESERVED_PROPERTIES: Final = frozenset(
    (
        FORMAT_VERSION,
        "uuid",
        "snapshot-count",
        "current-snapshot-summary",
        "current-snapshot-id",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
        SORT_ORDER,
    )
)
_SEQUENTIAL_IDS_VERSION = 1
FIRST_ID: Final = 0  # of the schema and the partition spec
_CREATE_ONLY_PROPERTIES: Final = {COMPRESSION_CODEC: "zstd"}
"""Properties that Iceberg's own catalogs give new tables; without it Iceberg's writers take gzip."""
DEFAULT_FORMAT_VERSION: Final = 2


def assign_uuid(draft: MetadataDraft, update: AssignUuid) -> None:
    if draft.table_uuid is not None and draft.table_uuid.lower() != update.uuid.lower():
        raise InvalidRequestError(f"Cannot reassign uuid: the table's is {draft.table_uuid}")
    draft.table_uuid = draft.table_uuid or update.uuid


def upgrade_format_version(draft: MetadataDraft, update: UpgradeFormatVersion) -> None:
    old, new = draft.format_version, update.format_version
    if new > SUPPORTED_FORMAT_VERSION:
        supported = f"(supported: v{SUPPORTED_FORMAT_VERSION})"
        raise InvalidRequestError(f"Cannot upgrade table to unsupported format version: v{new} {supported}")
    if new < old:
        raise InvalidRequestError(f"Cannot downgrade v{old} table to v{new}")
    if old < ROW_LINEAGE_VERSION <= new:
        draft.next_row_id = 0
    draft.format_version = new


def set_location(draft: MetadataDraft, update: SetLocation) -> None:
    location = update.location.rstrip("/")  # paths add a slash; two slashes are another key in S3
    if not location:
        raise InvalidRequestError("set-location: the location is empty")
    draft.location = location


def set_properties(draft: MetadataDraft, update: SetProperties) -> None:
    """Set properties. `format-version` upgrades the table, as the Java client does."""
    reserved = sorted(update.updates.keys() & (RESERVED_PROPERTIES - {FORMAT_VERSION}))
    if reserved:
        raise InvalidRequestError(f"properties {', '.join(reserved)} are reserved: the table's metadata says them")
    if FORMAT_VERSION in update.updates:
        wanted = parse_format_version(update.updates, draft.format_version)
        upgrade_format_version(draft, UpgradeFormatVersion(format_version=wanted))
    draft.properties.update(drop_reserved(update.updates))


def remove_properties(draft: MetadataDraft, update: RemoveProperties) -> None:
    for key in update.removals:
        draft.properties.pop(key, None)


def drop_reserved(properties: dict[str, str]) -> dict[str, str]:
    """Return the properties that a table may store."""
    return {key: value for key, value in properties.items() if key not in RESERVED_PROPERTIES}


def parse_format_version(properties: dict[str, str], default: int) -> int:
    """Return the format version that the properties ask for; InvalidRequestError if it isn't a number."""
    text = properties.get(FORMAT_VERSION)
    if text is not None and not (text.isascii() and text.isdigit() and len(text) <= 3):
        raise InvalidRequestError(f"property {FORMAT_VERSION} is {text!r}, expected 1, 2 or 3")
    return default if text is None else int(text)


def add_schema(draft: MetadataDraft, update: AddSchema) -> None:
    served = draft.current_schema().map_fields_by_id() if draft.current_schema_id is not None else {}
    check_schema(update.schema_, draft.format_version, served)
    schema_id = next((schema.schema_id for schema in draft.schemas.values() if schema.same_as(update.schema_)), None)
    if schema_id is None:
        schema_id = _next_id(draft.schemas, first=0)
        draft.schemas[schema_id] = update.schema_.replace_fields(schema_id=schema_id)
        draft.last_column_id = max(draft.last_column_id, update.schema_.highest_field_id())
    draft.last_added_schema_id = schema_id


def set_current_schema(draft: MetadataDraft, update: SetCurrentSchema) -> None:
    draft.current_schema_id = _resolve_last_added(update.schema_id, draft.last_added_schema_id, draft.schemas, "schema")


def remove_schemas(draft: MetadataDraft, update: RemoveSchemas) -> None:
    if draft.current_schema_id in update.schema_ids:
        raise InvalidRequestError("Cannot remove the current schema")
    for schema_id in update.schema_ids:
        draft.schemas.pop(schema_id, None)


def add_spec(draft: MetadataDraft, update: AddSpec) -> None:
    schema = draft.current_schema()
    spec_id = next((spec.spec_id for spec in draft.specs.values() if spec.same_as(update.spec)), None)
    if spec_id is None:
        check_spec(update.spec, schema)
        spec_id = _next_id(draft.specs, first=0)
        spec = _bind_spec(draft, spec_id, update.spec)
        draft.specs[spec_id] = spec
        draft.last_partition_id = max(draft.last_partition_id, spec.highest_field_id())
    draft.last_added_spec_id = spec_id


def set_default_spec(draft: MetadataDraft, update: SetDefaultSpec) -> None:
    draft.default_spec_id = _resolve_last_added(update.spec_id, draft.last_added_spec_id, draft.specs, "partition spec")


def remove_partition_specs(draft: MetadataDraft, update: RemovePartitionSpecs) -> None:
    if draft.default_spec_id in update.spec_ids:
        raise InvalidRequestError("Cannot remove the default partition spec")
    for spec_id in update.spec_ids:
        draft.specs.pop(spec_id, None)


def add_sort_order(draft: MetadataDraft, update: AddSortOrder) -> None:
    order = update.sort_order
    order_id = next((item.order_id for item in draft.orders.values() if item.same_as(order)), None)
    if order_id is None:
        check_order(order, draft.current_schema())
        order_id = _next_id(draft.orders, first=FIRST_SORT_ORDER_ID) if order.fields else UNSORTED.order_id
        draft.orders[order_id] = order.replace_fields(order_id=order_id)
    draft.last_added_order_id = order_id


def set_default_sort_order(draft: MetadataDraft, update: SetDefaultSortOrder) -> None:
    draft.default_sort_order_id = _resolve_last_added(
        update.sort_order_id, draft.last_added_order_id, draft.orders, "sort order"
    )


def _next_id(ids: Iterable[int], first: int) -> int:
    return max(ids, default=first - 1) + 1


def _resolve_last_added(wanted: int, last_added: int | None, known: Iterable[int], what: str) -> int:
    if wanted == LAST_ADDED:
        if last_added is None:
            raise InvalidRequestError(f"Cannot set last added {what}: no {what} has been added")
        return last_added
    if wanted not in known:
        raise InvalidRequestError(f"Cannot set default or current {what} to unknown {what}: {wanted}")
    return wanted


def _bind_spec(draft: MetadataDraft, spec_id: int, spec: UnboundPartitionSpec) -> PartitionSpec:
    """Give each field an id: the client's, that of an equal field of another spec, or the next free one."""
    known = [field for spec in draft.specs.values() for field in spec.fields]
    taken = [field.field_id for field in spec.fields if field.field_id is not None]
    if draft.format_version == _SEQUENTIAL_IDS_VERSION:
        fresh, known = count(FIRST_PARTITION_FIELD_ID), []
    else:
        fresh = count(max([draft.last_partition_id, *taken]) + 1)
    fields = []
    for field in spec.fields:
        chosen = field.field_id if field.field_id is not None else _find_known_id(known, field, taken)
        taken.append(next(fresh) if chosen is None else chosen)
        fields.append(_set_field_id(field, taken[-1]))
    bound = PartitionSpec(spec_id=spec_id, fields=tuple(fields))
    _check_field_ids(draft, bound, known)
    return bound


def _set_field_id(field: UnboundPartitionField, field_id: int) -> PartitionField:
    return PartitionField(source_id=field.source_id, field_id=field_id, name=field.name, transform=field.transform)


def _find_known_id(known: Sequence[PartitionField], field: UnboundPartitionField, taken: Sequence[int]) -> int | None:
    same = [
        known_field
        for known_field in known
        if _have_same_meaning(known_field, field) and known_field.field_id not in taken
    ]
    named = [item for item in same if item.name == field.name]
    return (named or same)[0].field_id if same else None


def _have_same_meaning(one: UnboundPartitionField, other: UnboundPartitionField) -> bool:
    return one.source_id == other.source_id and one.transform == other.transform


def _check_field_ids(draft: MetadataDraft, spec: PartitionSpec, known: Sequence[PartitionField]) -> None:
    ids = [field.field_id for field in spec.fields]
    if len(set(ids)) < len(ids):
        raise InvalidRequestError(f"two partition fields have the same id: {ids}")
    if draft.format_version == _SEQUENTIAL_IDS_VERSION and ids != list(
        range(FIRST_PARTITION_FIELD_ID, FIRST_PARTITION_FIELD_ID + len(ids))
    ):
        raise InvalidRequestError(f"Spec does not use sequential IDs that are required in v1: {ids}")
    for field in spec.fields:
        holders = [known_spec for known_spec in known if known_spec.field_id == field.field_id]
        if holders and not any(_are_compatible(holder, field) for holder in holders):
            raise InvalidRequestError(
                f"partition field id {field.field_id} of {field.name!r} belongs to {holders[0].name!r}"
            )


def _are_compatible(one: PartitionField, other: PartitionField) -> bool:
    dropped = "void" in {one.transform.name, other.transform.name}
    return one.source_id == other.source_id and (dropped or one.transform == other.transform)


def build_new_table_metadata(
    *,
    table_uuid: str,
    location: str,
    schema: Schema,
    spec: PartitionSpec | UnboundPartitionSpec | None,
    sort_order: SortOrder | None,
    properties: dict[str, str],
    format_version: int,
    now_ms: int,
) -> TableMetadata:
    """Make a table's first metadata. Field ids are assigned anew, and the sources of spec and order follow them.

    The property `format-version` wins over the argument. It isn't stored, and neither are `duckicelake.sort-order` and
    other reserved properties. Parquet is compressed with zstd unless the properties say otherwise, as in Iceberg's own
    catalogs since 1.4.

    Raises:
        InvalidRequestError: the schema, spec or order breaks a rule, or the format version isn't supported.

    """
    version = parse_format_version(properties, format_version)
    if not 1 <= version <= SUPPORTED_FORMAT_VERSION:
        raise InvalidRequestError(f"unsupported format version {version}: expected 1 to {SUPPORTED_FORMAT_VERSION}")
    if SORT_ORDER in properties:
        sort_order = parse_named_order(properties[SORT_ORDER], schema)
    check_schema_size(schema)
    fresh, ids = assign_fresh_ids(schema.replace_fields(schema_id=FIRST_ID))
    check_schema(fresh, version)
    fresh_spec, fresh_order = _renumber_spec(spec, ids), _renumber_order(sort_order, ids)
    check_spec(fresh_spec, fresh)
    check_order(fresh_order, fresh)
    return TableMetadata(
        format_version=version,  # type: ignore[arg-type]  # checked above
        table_uuid=table_uuid,
        location=location,
        last_sequence_number=0,
        last_updated_ms=now_ms,
        last_column_id=fresh.highest_field_id(),
        schemas=(fresh,),
        current_schema_id=fresh.schema_id,
        partition_specs=(fresh_spec,),
        default_spec_id=fresh_spec.spec_id,
        last_partition_id=fresh_spec.highest_field_id(),
        sort_orders=(fresh_order,),
        default_sort_order_id=fresh_order.order_id,
        properties=_CREATE_ONLY_PROPERTIES | drop_reserved(properties),
        next_row_id=0 if version >= ROW_LINEAGE_VERSION else None,
    )


def _renumber_spec(spec: PartitionSpec | UnboundPartitionSpec | None, ids: dict[int, int]) -> PartitionSpec:
    fields = () if spec is None else spec.fields
    return PartitionSpec(
        spec_id=FIRST_ID,
        fields=tuple(
            PartitionField(
                source_id=_translate_source(field.source_id, ids, f"partition field {field.name!r}"),
                field_id=field_id,
                name=field.name,
                transform=field.transform,
            )
            for field_id, field in enumerate(fields, FIRST_PARTITION_FIELD_ID)
        ),
    )


def _renumber_order(order: SortOrder | None, ids: dict[int, int]) -> SortOrder:
    if order is None or not order.fields:
        return UNSORTED
    fields = tuple(
        field.replace_fields(source_id=_translate_source(field.source_id, ids, "sort field")) for field in order.fields
    )
    return SortOrder(order_id=FIRST_SORT_ORDER_ID, fields=fields)


def _translate_source(source_id: int, ids: dict[int, int], what: str) -> int:
    if source_id not in ids:
        raise InvalidRequestError(f"{what}: source field {source_id} doesn't exist in the schema")
    return ids[source_id]


_APPLY: Final[Mapping[type, Callable[[MetadataDraft, Any], None]]] = {
    updates.AssignUuid: assign_uuid,
    updates.UpgradeFormatVersion: upgrade_format_version,
    updates.AddSchema: add_schema,
    updates.SetCurrentSchema: set_current_schema,
    updates.AddSpec: add_spec,
    updates.SetDefaultSpec: set_default_spec,
    updates.AddSortOrder: add_sort_order,
    updates.SetDefaultSortOrder: set_default_sort_order,
    updates.AddSnapshot: metadata_draft.add_snapshot,
    updates.SetSnapshotRef: metadata_draft.set_snapshot_ref,
    updates.RemoveSnapshots: metadata_draft.remove_snapshots,
    updates.RemoveSnapshotRef: metadata_draft.remove_snapshot_ref,
    updates.SetLocation: set_location,
    updates.SetProperties: set_properties,
    updates.RemoveProperties: remove_properties,
    updates.SetStatistics: metadata_draft.set_statistics,
    updates.RemoveStatistics: metadata_draft.remove_statistics,
    updates.SetPartitionStatistics: metadata_draft.set_partition_statistics,
    updates.RemovePartitionStatistics: metadata_draft.remove_partition_statistics,
    updates.RemovePartitionSpecs: remove_partition_specs,
    updates.RemoveSchemas: remove_schemas,
    updates.AddEncryptionKey: metadata_draft.add_encryption_key,
    updates.RemoveEncryptionKey: metadata_draft.remove_encryption_key,
}


def apply_updates(
    base: TableMetadata | None, updates: Sequence[TableUpdate], now_ms: int, ends: AbstractSet[int] = frozenset()
) -> TableMetadata:
    """Apply the updates in their order; `base` is None for a table that the updates create.

    Returns `base` itself if nothing changed. Else the metadata's last update is `now_ms`, or that of the base if later.
    The caller writes the metadata log. ends: if the updates are those of several requests, the snapshots of main after
    each.

    Raises:
        InvalidRequestError: an update breaks a rule of the specification.
        CommitFailedError: the sequence number or first row id of a snapshot is behind the table's: retry on fresh
            metadata.

    """
    draft = _begin_new_table(updates, now_ms) if base is None else begin_draft(base, now_ms)
    for update in updates:
        _APPLY[type(update)](draft, update)
    metadata_draft.settle_snapshot_log(draft, ends)
    return finish_draft(draft)


def get_format_version_after(base: TableMetadata | None, updates: Sequence[TableUpdate]) -> int:
    """Return the format version after the updates, if they can be applied."""
    wanted = [update.format_version for update in updates if isinstance(update, UpgradeFormatVersion)]
    if base is None and not wanted:
        wanted = [DEFAULT_FORMAT_VERSION]
    properties = (update.updates for update in updates if isinstance(update, SetProperties))
    wanted += [parse_format_version(name, 1) for name in properties]
    return max([base.format_version if base else 1, *wanted])


def _begin_new_table(updates: Sequence[TableUpdate], now_ms: int) -> MetadataDraft:
    wanted = (update.format_version for update in updates if isinstance(update, UpgradeFormatVersion))
    return begin_new_draft(next(wanted, DEFAULT_FORMAT_VERSION), now_ms)
