"""Applying a commit: (metadata, updates) -> metadata, with the semantics of the reference implementation. Pure."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from duckicelake.iceberg import apply_schemas, apply_settings, apply_snapshots, updates
from duckicelake.iceberg.create import new_table_metadata
from duckicelake.iceberg.draft import Draft, draft_of, draft_of_new, finished
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.requirements import check
from duckicelake.iceberg.updates import SetProperties, TableUpdate, UpgradeFormatVersion

__all__ = ["DEFAULT_FORMAT_VERSION", "apply", "check", "format_version_after", "new_table_metadata"]

DEFAULT_FORMAT_VERSION: Final = 2

_APPLY: Final[Mapping[type, Callable[[Draft, Any], None]]] = {
    updates.AssignUuid: apply_settings.assign_uuid,
    updates.UpgradeFormatVersion: apply_settings.upgrade_format_version,
    updates.AddSchema: apply_schemas.add_schema,
    updates.SetCurrentSchema: apply_schemas.set_current_schema,
    updates.AddSpec: apply_schemas.add_spec,
    updates.SetDefaultSpec: apply_schemas.set_default_spec,
    updates.AddSortOrder: apply_schemas.add_sort_order,
    updates.SetDefaultSortOrder: apply_schemas.set_default_sort_order,
    updates.AddSnapshot: apply_snapshots.add_snapshot,
    updates.SetSnapshotRef: apply_snapshots.set_snapshot_ref,
    updates.RemoveSnapshots: apply_snapshots.remove_snapshots,
    updates.RemoveSnapshotRef: apply_snapshots.remove_snapshot_ref,
    updates.SetLocation: apply_settings.set_location,
    updates.SetProperties: apply_settings.set_properties,
    updates.RemoveProperties: apply_settings.remove_properties,
    updates.SetStatistics: apply_snapshots.set_statistics,
    updates.RemoveStatistics: apply_snapshots.remove_statistics,
    updates.SetPartitionStatistics: apply_snapshots.set_partition_statistics,
    updates.RemovePartitionStatistics: apply_snapshots.remove_partition_statistics,
    updates.RemovePartitionSpecs: apply_schemas.remove_partition_specs,
    updates.RemoveSchemas: apply_schemas.remove_schemas,
    updates.AddEncryptionKey: apply_snapshots.add_encryption_key,
    updates.RemoveEncryptionKey: apply_snapshots.remove_encryption_key,
}


def apply(
    base: TableMetadata | None, updates: Sequence[TableUpdate], now_ms: int, ends: AbstractSet[int] = frozenset()
) -> TableMetadata:
    """Apply the updates in their order; `base` is None for a table that the updates create.

    Gives `base` itself when nothing changed, else metadata last updated at `now_ms` or when the base was, if later. The
    metadata log is the caller's. Where the updates are those of several requests, `ends` are the snapshots that main
    was at after each.

    Raises:
        InvalidRequest: an update breaks a rule of the specification.
        CommitFailed: the sequence number or first row id of a snapshot is behind the table's: retry on fresh metadata.

    """
    draft = _new_draft(updates, now_ms) if base is None else draft_of(base, now_ms)
    for update in updates:
        _APPLY[type(update)](draft, update)
    apply_snapshots.settle_snapshot_log(draft, ends)
    return finished(draft)


def format_version_after(base: TableMetadata | None, updates: Sequence[TableUpdate]) -> int:
    """Give the format version that the table has after the updates, as far as they may be applied at all."""
    wanted = [each.format_version for each in updates if isinstance(each, UpgradeFormatVersion)]
    if base is None and not wanted:
        wanted = [DEFAULT_FORMAT_VERSION]
    properties = (each.updates for each in updates if isinstance(each, SetProperties))
    wanted += [apply_settings.format_version_of(each, 1) for each in properties]
    return max([base.format_version if base else 1, *wanted])


def _new_draft(updates: Sequence[TableUpdate], now_ms: int) -> Draft:
    wanted = (each.format_version for each in updates if isinstance(each, UpgradeFormatVersion))
    return draft_of_new(next(wanted, DEFAULT_FORMAT_VERSION), now_ms)
