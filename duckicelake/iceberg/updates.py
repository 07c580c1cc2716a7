"""The changes a commit makes to a table, as data (REST specification, `TableUpdate`)."""

from typing import Annotated, Final, Literal

from pydantic import AliasChoices, Field, Tag

from duckicelake.iceberg.metadata import TableUuid
from duckicelake.iceberg.model import Int, Long, SpecModel, build_discriminator
from duckicelake.iceberg.partition import UnboundPartitionSpec
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.snapshot import EncryptedKey, PartitionStatisticsFile, RefType, Snapshot, StatisticsFile
from duckicelake.iceberg.sort import SortOrder

LAST_ADDED: Final = -1  # stands for the id that this request added last
VIEW_ONLY_UPDATES: Final = ("add-view-version", "set-current-view-version")


class AssignUuid(SpecModel):
    action: Literal["assign-uuid"] = "assign-uuid"
    uuid: TableUuid


class UpgradeFormatVersion(SpecModel):
    action: Literal["upgrade-format-version"] = "upgrade-format-version"
    format_version: Int


class AddSchema(SpecModel):
    """Ignores the deprecated `last-column-id`: the schema has it."""

    action: Literal["add-schema"] = "add-schema"
    schema_: Schema


class SetCurrentSchema(SpecModel):
    action: Literal["set-current-schema"] = "set-current-schema"
    schema_id: Int


class AddSpec(SpecModel):
    action: Literal["add-spec"] = "add-spec"
    spec: UnboundPartitionSpec


class SetDefaultSpec(SpecModel):
    action: Literal["set-default-spec"] = "set-default-spec"
    spec_id: Int


class AddSortOrder(SpecModel):
    action: Literal["add-sort-order"] = "add-sort-order"
    sort_order: SortOrder


class SetDefaultSortOrder(SpecModel):
    action: Literal["set-default-sort-order"] = "set-default-sort-order"
    sort_order_id: Int


class AddSnapshot(SpecModel):
    action: Literal["add-snapshot"] = "add-snapshot"
    snapshot: Snapshot


class SetSnapshotRef(SpecModel):
    action: Literal["set-snapshot-ref"] = "set-snapshot-ref"
    ref_name: str
    snapshot_id: Long
    type: RefType
    max_ref_age_ms: Long | None = None
    max_snapshot_age_ms: Long | None = None
    min_snapshots_to_keep: Int | None = None


class RemoveSnapshots(SpecModel):
    action: Literal["remove-snapshots"] = "remove-snapshots"
    snapshot_ids: tuple[Long, ...]


class RemoveSnapshotRef(SpecModel):
    action: Literal["remove-snapshot-ref"] = "remove-snapshot-ref"
    ref_name: str


class SetLocation(SpecModel):
    action: Literal["set-location"] = "set-location"
    location: str


class SetProperties(SpecModel):
    """Also reads `updated`, as old Java clients write."""

    action: Literal["set-properties"] = "set-properties"
    updates: dict[str, str] = Field(validation_alias=AliasChoices("updates", "updated"))


class RemoveProperties(SpecModel):
    """Also reads `removed`, as old Java clients write."""

    action: Literal["remove-properties"] = "remove-properties"
    removals: tuple[str, ...] = Field(validation_alias=AliasChoices("removals", "removed"))


class SetStatistics(SpecModel):
    """Ignores the deprecated `snapshot-id` beside the statistics."""

    action: Literal["set-statistics"] = "set-statistics"
    statistics: StatisticsFile


class RemoveStatistics(SpecModel):
    action: Literal["remove-statistics"] = "remove-statistics"
    snapshot_id: Long


class SetPartitionStatistics(SpecModel):
    action: Literal["set-partition-statistics"] = "set-partition-statistics"
    partition_statistics: PartitionStatisticsFile


class RemovePartitionStatistics(SpecModel):
    action: Literal["remove-partition-statistics"] = "remove-partition-statistics"
    snapshot_id: Long


class RemovePartitionSpecs(SpecModel):
    action: Literal["remove-partition-specs"] = "remove-partition-specs"
    spec_ids: tuple[Int, ...]


class RemoveSchemas(SpecModel):
    action: Literal["remove-schemas"] = "remove-schemas"
    schema_ids: tuple[Int, ...]


class AddEncryptionKey(SpecModel):
    action: Literal["add-encryption-key"] = "add-encryption-key"
    encryption_key: EncryptedKey


class RemoveEncryptionKey(SpecModel):
    action: Literal["remove-encryption-key"] = "remove-encryption-key"
    key_id: str


TABLE_UPDATES: Final = (
    "assign-uuid",
    "upgrade-format-version",
    "add-schema",
    "set-current-schema",
    "add-spec",
    "set-default-spec",
    "add-sort-order",
    "set-default-sort-order",
    "add-snapshot",
    "set-snapshot-ref",
    "remove-snapshots",
    "remove-snapshot-ref",
    "set-location",
    "set-properties",
    "remove-properties",
    "set-statistics",
    "remove-statistics",
    "set-partition-statistics",
    "remove-partition-statistics",
    "remove-partition-specs",
    "remove-schemas",
    "add-encryption-key",
    "remove-encryption-key",
)


TableUpdate = Annotated[
    Annotated[AssignUuid, Tag("assign-uuid")]
    | Annotated[UpgradeFormatVersion, Tag("upgrade-format-version")]
    | Annotated[AddSchema, Tag("add-schema")]
    | Annotated[SetCurrentSchema, Tag("set-current-schema")]
    | Annotated[AddSpec, Tag("add-spec")]
    | Annotated[SetDefaultSpec, Tag("set-default-spec")]
    | Annotated[AddSortOrder, Tag("add-sort-order")]
    | Annotated[SetDefaultSortOrder, Tag("set-default-sort-order")]
    | Annotated[AddSnapshot, Tag("add-snapshot")]
    | Annotated[SetSnapshotRef, Tag("set-snapshot-ref")]
    | Annotated[RemoveSnapshots, Tag("remove-snapshots")]
    | Annotated[RemoveSnapshotRef, Tag("remove-snapshot-ref")]
    | Annotated[SetLocation, Tag("set-location")]
    | Annotated[SetProperties, Tag("set-properties")]
    | Annotated[RemoveProperties, Tag("remove-properties")]
    | Annotated[SetStatistics, Tag("set-statistics")]
    | Annotated[RemoveStatistics, Tag("remove-statistics")]
    | Annotated[SetPartitionStatistics, Tag("set-partition-statistics")]
    | Annotated[RemovePartitionStatistics, Tag("remove-partition-statistics")]
    | Annotated[RemovePartitionSpecs, Tag("remove-partition-specs")]
    | Annotated[RemoveSchemas, Tag("remove-schemas")]
    | Annotated[AddEncryptionKey, Tag("add-encryption-key")]
    | Annotated[RemoveEncryptionKey, Tag("remove-encryption-key")],
    build_discriminator("action", "update", TABLE_UPDATES, VIEW_ONLY_UPDATES),
]
