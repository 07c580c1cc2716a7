"""The mutable copy of table metadata that the updates of one request change in turn."""

from dataclasses import dataclass, field
from typing import Any, TypeVar

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, SUPPORTED_FORMAT_VERSION, TableMetadata
from duckicelake.iceberg.partition import (
    FIRST_PARTITION_FIELD_ID,
    UNPARTITIONED,
    PartitionSpec,
    check_column_names,
    check_sources,
    rename_clashing_fields,
)
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.schema_evolution import check_evolution
from duckicelake.iceberg.snapshot import (
    EncryptedKey,
    PartitionStatisticsFile,
    Snapshot,
    SnapshotLogEntry,
    SnapshotRef,
    StatisticsFile,
    walk_ancestry,
)
from duckicelake.iceberg.sort import UNSORTED, SortOrder, check_order_sources

Present = TypeVar("Present")


@dataclass(slots=True)
class MetadataDraft:
    """Metadata by id, and what this request did so far. Ids are None until they are set, for a new table only."""

    base: TableMetadata | None
    now_ms: int
    format_version: int
    table_uuid: str | None = None
    location: str | None = None
    last_sequence_number: int = 0
    last_column_id: int = 0
    last_partition_id: int = FIRST_PARTITION_FIELD_ID - 1
    current_schema_id: int | None = None
    default_spec_id: int | None = None
    default_sort_order_id: int | None = None
    current_snapshot_id: int | None = None
    next_row_id: int | None = None
    schemas: dict[int, Schema] = field(default_factory=dict)
    specs: dict[int, PartitionSpec] = field(default_factory=dict)
    orders: dict[int, SortOrder] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    refs: dict[str, SnapshotRef] = field(default_factory=dict)
    snapshot_log: list[SnapshotLogEntry] = field(default_factory=list)
    statistics: dict[int, StatisticsFile] = field(default_factory=dict)
    partition_statistics: dict[int, PartitionStatisticsFile] = field(default_factory=dict)
    encryption_keys: dict[str, EncryptedKey] = field(default_factory=dict)

    last_added_schema_id: int | None = None
    last_added_spec_id: int | None = None
    last_added_order_id: int | None = None
    added_snapshots: set[int] = field(default_factory=set)
    snapshots_once_main: set[int] = field(default_factory=set)  # of the added ones
    snapshots_were_removed: bool = False

    def current_schema(self) -> Schema:
        """Give the current schema, or the one to become it: DuckDB says so after all else. InvalidRequest for none."""
        schema_id = self.last_added_schema_id if self.current_schema_id is None else self.current_schema_id
        if schema_id not in self.schemas:
            raise InvalidRequest("the table has no schema: add-schema comes first")
        return self.schemas[schema_id]


def begin_new_draft(format_version: int, now_ms: int) -> MetadataDraft:
    """Begin a table from nothing."""
    if not 1 <= format_version <= SUPPORTED_FORMAT_VERSION:
        raise InvalidRequest(f"unsupported format version {format_version}: expected 1 to {SUPPORTED_FORMAT_VERSION}")
    next_row_id = 0 if format_version >= ROW_LINEAGE_VERSION else None
    return MetadataDraft(base=None, now_ms=now_ms, format_version=format_version, next_row_id=next_row_id)


def begin_draft(base: TableMetadata, now_ms: int) -> MetadataDraft:
    """Begin a change of `base`, which itself stays as it is."""
    return MetadataDraft(
        base=base,
        now_ms=now_ms,
        format_version=base.format_version,
        table_uuid=base.table_uuid,
        location=base.location,
        last_sequence_number=base.last_sequence_number,
        last_column_id=base.last_column_id,
        last_partition_id=base.last_partition_id,
        current_schema_id=base.current_schema_id,
        default_spec_id=base.default_spec_id,
        default_sort_order_id=base.default_sort_order_id,
        current_snapshot_id=base.current_snapshot_id,
        next_row_id=base.next_row_id,
        schemas={each.schema_id: each for each in base.schemas},
        specs={each.spec_id: each for each in base.partition_specs},
        orders={each.order_id: each for each in base.sort_orders},
        properties=dict(base.properties),
        snapshots=dict(base.snapshots_by_id),
        refs=dict(base.refs),
        snapshot_log=list(base.snapshot_log),
        statistics={each.snapshot_id: each for each in base.statistics},
        partition_statistics={each.snapshot_id: each for each in base.partition_statistics},
        encryption_keys={each.key_id: each for each in base.encryption_keys},
    )


def finish_draft(draft: MetadataDraft) -> TableMetadata:
    """Give the metadata, or the base itself where all is as it was.

    Raises:
        InvalidRequest: a new table lacks its uuid, location or schema, or default spec and order don't fit the schema.

    """
    if draft.base is None and not draft.specs:
        draft.specs, draft.default_spec_id = {0: UNPARTITIONED}, 0
    if draft.base is None and not draft.orders:
        draft.orders, draft.default_sort_order_id = {0: UNSORTED}, 0
    base = draft.base
    if draft.current_schema_id is not None and (base is None or draft.current_schema_id != base.current_schema_id):
        _name_partition_fields(draft)
    values = _build_values(draft)
    if base is None:
        _check_defaults(draft)
        return TableMetadata.model_construct(**values, last_updated_ms=draft.now_ms)
    changed = {name: value for name, value in values.items() if getattr(base, name) != value}
    if not changed:
        return base
    if changed.keys() & {"current_schema_id", "default_spec_id", "default_sort_order_id"}:
        _check_defaults(draft)
    if "current_schema_id" in changed and _is_keeping_rows(base, draft):
        check_evolution(base.schema(), draft.current_schema(), base.partition_specs, draft.format_version)
    return base.replace_fields(**changed, last_updated_ms=max(base.last_updated_ms, draft.now_ms))


def _name_partition_fields(draft: MetadataDraft) -> None:
    """Check the names of all specs' fields beside the new columns; a field without a source yields. InvalidRequest."""
    schema, specs = draft.current_schema(), tuple(draft.specs.values())
    if check_column_names(specs, schema):
        draft.specs = {spec.spec_id: spec for spec in rename_clashing_fields(specs, schema)}


def _is_keeping_rows(base: TableMetadata, draft: MetadataDraft) -> bool:
    """Whether main goes on from the base's snapshot, so that its rows are read with the new schema too."""
    return base.current_snapshot_id in set(walk_ancestry(draft.snapshots, draft.current_snapshot_id))


def _build_values(draft: MetadataDraft) -> dict[str, Any]:
    return {
        "format_version": draft.format_version,
        "table_uuid": _require(draft.table_uuid, "assign-uuid"),
        "location": _require(draft.location, "set-location"),
        "last_sequence_number": draft.last_sequence_number,
        "last_column_id": draft.last_column_id,
        "last_partition_id": draft.last_partition_id,
        "current_schema_id": _require(draft.current_schema_id, "set-current-schema"),
        "default_spec_id": _require(draft.default_spec_id, "set-default-spec"),
        "default_sort_order_id": _require(draft.default_sort_order_id, "set-default-sort-order"),
        "current_snapshot_id": draft.current_snapshot_id,
        "next_row_id": draft.next_row_id,
        "schemas": tuple(draft.schemas.values()),
        "partition_specs": tuple(draft.specs.values()),
        "sort_orders": tuple(draft.orders.values()),
        "properties": draft.properties,
        "snapshots": tuple(draft.snapshots.values()),
        "refs": draft.refs,
        "snapshot_log": tuple(draft.snapshot_log),
        "statistics": tuple(draft.statistics.values()),
        "partition_statistics": tuple(draft.partition_statistics.values()),
        "encryption_keys": tuple(draft.encryption_keys.values()),
    }


def _require(value: Present | None, update: str) -> Present:
    if value is None:
        raise InvalidRequest(f"a new table needs the update {update}")
    return value


def _check_defaults(draft: MetadataDraft) -> None:
    schema = draft.current_schema()
    if draft.default_spec_id is not None:
        check_sources(draft.specs[draft.default_spec_id], schema)
    if draft.default_sort_order_id is not None:
        check_order_sources(draft.orders[draft.default_sort_order_id], schema)
