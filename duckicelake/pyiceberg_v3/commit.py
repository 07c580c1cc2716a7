"""Snapshots of version 3: row ids, ended deletion vectors, and the upgrade of a table."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyiceberg.table.update
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV3
from pyiceberg.table.snapshots import Summary
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate, UpdatesAndRequirements, UpgradeFormatVersionUpdate
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.typedef import TableVersion

from duckicelake.pyiceberg_v3 import manifest_io
from duckicelake.pyiceberg_v3.installation import Patch, patch
from duckicelake.pyiceberg_v3.manifest_io import V3, DeleteManifestWriterV3

Producer = _SnapshotProducer[Any]
_TAKEN_ATTRIBUTE: Final = "_duckicelake_taken"


@dataclass(frozen=True, slots=True)
class TakenIds:
    """Ids and removed vectors of one commit attempt, for the snapshot's `added-rows` and summary."""

    row_ids: int
    vectors: Sequence[DataFile]


@patch(_SnapshotProducer, "_manifests")
def _patch_manifests(original: Callable[[Producer], list[ManifestFile]]) -> Any:
    """PyIceberg gives manifests no first row ids, and keeps vectors of data files that it removes."""

    def manifests(self: Producer) -> list[ManifestFile]:
        listed = original(self)
        metadata = self._transaction.table_metadata
        if not isinstance(metadata, TableMetadataV3):
            return listed
        kept, vectors = drop_vectors(self, listed)
        assigned, row_ids = assign_row_ids(kept, metadata.next_row_id or 0)
        vars(self)[_TAKEN_ATTRIBUTE] = TakenIds(row_ids, vectors)
        return assigned

    return manifests


@patch(_SnapshotProducer, "_summary")
def _patch_summary(original: Callable[..., Summary]) -> Any:
    """PyIceberg doesn't count deletion vectors that a snapshot removes."""

    def summary(self: Producer, *arguments: Any) -> Summary:
        taken = find_taken(self)
        if taken is None or not taken.vectors:
            return original(self, *arguments)
        removed = self._deleted_data_files
        self._deleted_data_files = [*removed, *map(manifest_io.size_by_content, taken.vectors)]  # type: ignore[assignment]
        try:
            return rename_vectors(original(self, *arguments))
        finally:
            self._deleted_data_files = removed

    return summary


@patch(_SnapshotProducer, "_commit")
def _patch_commit(original: Callable[[Producer], UpdatesAndRequirements]) -> Any:
    """PyIceberg sets a snapshot's `first-row-id`, but not its `added-rows`, which advances the table's next id."""

    def commit(self: Producer) -> UpdatesAndRequirements:
        updates, requirements = original(self)
        taken = find_taken(self)
        return (updates if taken is None else tuple(set_added_rows(updates, taken.row_ids))), requirements

    return commit


def find_taken(producer: Producer) -> TakenIds | None:
    taken: TakenIds | None = vars(producer).get(_TAKEN_ATTRIBUTE)
    return taken


def assign_row_ids(manifests: Iterable[ManifestFile], next_row_id: int) -> tuple[list[ManifestFile], int]:
    """Assign first row ids to data manifests without one; return the manifests and the number of ids.

    Existing rows take ids, too, since some may have none yet (spec, First Row ID Assignment).
    """
    assigned, first = [], next_row_id
    for manifest in manifests:
        given = manifest_io.get_manifest_first_row_id(manifest)
        is_unassigned = manifest.content == ManifestContent.DATA and given is None
        assigned.append(manifest_io.copy_manifest(manifest, next_row_id if is_unassigned else given))
        next_row_id += count_live_rows(manifest) if is_unassigned else 0
    return assigned, next_row_id - first


def count_live_rows(manifest: ManifestFile) -> int:
    if manifest.added_rows_count is None or manifest.existing_rows_count is None:
        raise ValueError(
            f"Manifest {manifest.manifest_path} has no row counts, so its rows can't get ids: rewrite the manifest"
        )
    return manifest.added_rows_count + manifest.existing_rows_count


def drop_vectors(producer: Producer, manifests: list[ManifestFile]) -> tuple[list[ManifestFile], list[DataFile]]:
    """Drop the deletion vectors of data files that the producer removes; return the manifests and these vectors."""
    removed = {file.file_path for file in producer._deleted_data_files}
    kept, vectors = [], []
    for manifest in manifests:
        may_hold = removed and manifest.content == ManifestContent.DELETES
        entries = producer.fetch_manifest_entry(manifest) if may_hold else []
        dangling = [entry for entry in entries if manifest_io.find_vector_target(entry.data_file) in removed]
        kept.append(rewrite_manifest(producer, manifest, entries, dangling) if dangling else manifest)
        vectors += [entry.data_file for entry in dangling]
    return kept, vectors


def rewrite_manifest(
    producer: Producer, manifest: ManifestFile, entries: list[ManifestEntry], deleted: list[ManifestEntry]
) -> ManifestFile:
    """Write a manifest of the same delete files, some of them deleted."""
    metadata = producer._transaction.table_metadata
    spec, output = metadata.specs()[manifest.partition_spec_id], producer.new_manifest_output()
    codec = producer._compression
    with DeleteManifestWriterV3(spec, metadata.schema(), output, producer.snapshot_id, codec) as writer:
        for entry in entries:
            is_deleted = any(entry is other for other in deleted)
            (writer.delete if is_deleted else writer.existing)(entry)
    return writer.to_manifest_file()


def rename_vectors(summary: Summary) -> Summary:
    """Count removed vectors as `removed-dvs`; PyIceberg counts them as position delete files."""
    properties = summary.additional_properties
    properties["removed-dvs"] = properties.pop("removed-position-delete-files")
    return summary


def set_added_rows(updates: Iterable[TableUpdate], added_rows: int) -> Iterator[TableUpdate]:
    for update in updates:
        if isinstance(update, AddSnapshotUpdate):
            snapshot = update.snapshot.model_copy(update={"added_rows": added_rows})
            yield update.model_copy(update={"snapshot": snapshot})
        else:
            yield update


COMMIT_PATCHES: tuple[Patch, ...] = (_patch_manifests, _patch_summary, _patch_commit)


@patch(Transaction, "upgrade_table_version")
def _patch_upgrade(original: Callable[[Transaction, TableVersion], Transaction]) -> Any:
    """PyIceberg upgrades to version 2 at most."""

    def upgrade_table_version(self: Transaction, format_version: TableVersion) -> Transaction:
        if format_version != V3:
            return original(self, format_version)
        is_upgrade = self.table_metadata.format_version < V3
        return self._apply((UpgradeFormatVersionUpdate.model_validate({"format-version": V3}),)) if is_upgrade else self

    return upgrade_table_version


@patch(pyiceberg.table.update, "SUPPORTED_TABLE_FORMAT_VERSION")
def _patch_supported_version(_: int) -> int:
    """PyIceberg refuses the update to version 3, although its metadata supports the version."""
    return V3


@patch(TableMetadataUtil, "_construct_without_validation")
def _patch_construction(original: "staticmethod[[TableMetadata], TableMetadata]") -> Any:
    """PyIceberg leaves an upgraded table without a next row id; the spec starts at 0."""

    def construct(table_metadata: TableMetadata) -> TableMetadata:
        constructed = original(table_metadata)
        if isinstance(constructed, TableMetadataV3) and constructed.next_row_id is None:
            return constructed.model_copy(update={"next_row_id": 0})
        return constructed

    return staticmethod(construct)


UPGRADE_PATCHES: tuple[Patch, ...] = (_patch_upgrade, _patch_supported_version, _patch_construction)
