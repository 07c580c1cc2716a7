"""PURE. The Iceberg snapshot that a Delta version is: its time and what its commit said, with Iceberg's own counts."""

from collections.abc import Sequence

from duckicelake.bridge.delta.versions import DeltaVersion, operation_of, summary_of
from duckicelake.bridge.numbering import Numbering
from duckicelake.bridge.realise import AnyFile
from duckicelake.bridge.summary import Totals, summarise
from duckicelake.iceberg.manifest import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake.additions import NewFile


def snapshot_of_version(
    version: DeltaVersion,
    numbers: Numbering,
    metadata: TableMetadata,
    parent: Snapshot | None,
    added: Sequence[NewFile],
    removed: Sequence[AnyFile],
) -> Snapshot:
    """The snapshot on its parent, of the table's definition; its time is never before its parent's."""
    data = [file for file in added if file.content == FileContent.DATA]
    operation = operation_of(version, adds=bool(data), removes=bool(removed) or len(data) < len(added))
    totals = Totals.of(parent.summary if parent else {})
    return Snapshot(
        snapshot_id=numbers.snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=numbers.sequence_number,
        timestamp_ms=max(version.timestamp_ms, parent.timestamp_ms if parent else 0),
        manifest_list="",
        summary={**summarise(operation, added, removed, totals), **summary_of(version)},
        schema_id=metadata.current_schema_id,
        first_row_id=metadata.next_row_id,
        added_rows=None if metadata.next_row_id is None else sum(file.record_count for file in data),
    )
