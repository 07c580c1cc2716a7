"""Snapshots of version 3: which row ids a commit takes, and which deletion vectors end with their data files."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.snapshots import Summary
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import _SnapshotProducer

from duckicelake.pyiceberg_v3 import records
from duckicelake.pyiceberg_v3.patching import Patch, patch
from duckicelake.pyiceberg_v3.writing import DeleteManifestWriterV3

Producer = _SnapshotProducer[Any]
_TAKEN: Final = "_duckicelake_taken"


@dataclass(frozen=True, slots=True)
class Taken:
    """What the manifests of an attempt to commit take, noted for the snapshot's `added-rows` and summary."""

    row_ids: int
    vectors: Sequence[DataFile]


@patch(_SnapshotProducer, "_manifests")
def _manifests(original: Callable[[Producer], list[ManifestFile]]) -> Any:
    """PyIceberg gives manifests no first row ids, and keeps the vectors of data files that it removes."""

    def manifests(self: Producer) -> list[ManifestFile]:
        listed = original(self)
        metadata = self._transaction.table_metadata
        if not isinstance(metadata, TableMetadataV3):
            return listed
        kept, vectors = without_vectors(self, listed)
        assigned, row_ids = assign_row_ids(kept, metadata.next_row_id or 0)
        vars(self)[_TAKEN] = Taken(row_ids, vectors)
        return assigned

    return manifests


@patch(_SnapshotProducer, "_summary")
def _summary(original: Callable[..., Summary]) -> Any:
    """PyIceberg counts no deletion vectors among what a snapshot removes."""

    def summary(self: Producer, *arguments: Any) -> Summary:
        taken = taken_by(self)
        if taken is None or not taken.vectors:
            return original(self, *arguments)
        removed = self._deleted_data_files
        self._deleted_data_files = [*removed, *map(records.sized_by_content, taken.vectors)]  # type: ignore[assignment]
        try:
            return naming_vectors(original(self, *arguments))
        finally:
            self._deleted_data_files = removed

    return summary


@patch(_SnapshotProducer, "_commit")
def _commit(original: Callable[[Producer], UpdatesAndRequirements]) -> Any:
    """PyIceberg sets a snapshot's `first-row-id`, but not its `added-rows`, by which the table's next one grows."""

    def commit(self: Producer) -> UpdatesAndRequirements:
        updates, requirements = original(self)
        taken = taken_by(self)
        return (updates if taken is None else tuple(with_added_rows(updates, taken.row_ids))), requirements

    return commit


def taken_by(producer: Producer) -> Taken | None:
    taken: Taken | None = vars(producer).get(_TAKEN)
    return taken


def assign_row_ids(manifests: Iterable[ManifestFile], next_row_id: int) -> tuple[list[ManifestFile], int]:
    """Give data manifests without a first row id the next ones, and tell how many ids that takes.

    As in the spec's First Row ID Assignment, ids are taken for existing rows too: some may have none yet.
    """
    assigned, first = [], next_row_id
    for manifest in manifests:
        given = records.manifest_first_row_id(manifest)
        is_unassigned = manifest.content == ManifestContent.DATA and given is None
        assigned.append(records.manifest_with_first_row_id(manifest, next_row_id if is_unassigned else given))
        next_row_id += live_rows(manifest) if is_unassigned else 0
    return assigned, next_row_id - first


def live_rows(manifest: ManifestFile) -> int:
    if manifest.added_rows_count is None or manifest.existing_rows_count is None:
        raise ValueError(f"{manifest.manifest_path} has no row counts, so its rows can't be given ids")
    return manifest.added_rows_count + manifest.existing_rows_count


def without_vectors(producer: Producer, manifests: list[ManifestFile]) -> tuple[list[ManifestFile], list[DataFile]]:
    """The manifests without the deletion vectors of data files that the producer removes, and those vectors."""
    removed = {file.file_path for file in producer._deleted_data_files}
    kept, vectors = [], []
    for manifest in manifests:
        may_hold = removed and manifest.content == ManifestContent.DELETES
        entries = producer.fetch_manifest_entry(manifest) if may_hold else []
        dangling = [entry for entry in entries if records.vector_of(entry.data_file) in removed]
        kept.append(rewritten(producer, manifest, entries, dangling) if dangling else manifest)
        vectors += [entry.data_file for entry in dangling]
    return kept, vectors


def rewritten(
    producer: Producer, manifest: ManifestFile, entries: list[ManifestEntry], deleted: list[ManifestEntry]
) -> ManifestFile:
    """A new manifest of the same delete files, some of them deleted."""
    metadata = producer._transaction.table_metadata
    spec, output = metadata.specs()[manifest.partition_spec_id], producer.new_manifest_output()
    codec = producer._compression
    with DeleteManifestWriterV3(spec, metadata.schema(), output, producer.snapshot_id, codec) as writer:
        for entry in entries:
            is_deleted = any(entry is each for each in deleted)
            (writer.delete if is_deleted else writer.existing)(entry)
    return writer.to_manifest_file()


def naming_vectors(summary: Summary) -> Summary:
    """Call removed vectors what they are; PyIceberg takes them for position delete files."""
    properties = summary.additional_properties
    properties["removed-dvs"] = properties.pop("removed-position-delete-files")
    return summary


def with_added_rows(updates: Iterable[TableUpdate], added_rows: int) -> Iterator[TableUpdate]:
    for update in updates:
        if isinstance(update, AddSnapshotUpdate):
            snapshot = update.snapshot.model_copy(update={"added_rows": added_rows})
            yield update.model_copy(update={"snapshot": snapshot})
        else:
            yield update


PATCHES: tuple[Patch, ...] = (_manifests, _summary, _commit)
