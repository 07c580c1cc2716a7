"""PURE. Compute the next table version from the one before and the written commit, without reading it."""

from bisect import insort
from dataclasses import replace

from duckicelake.bridge.commit.increments import Base
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.additions import NewManifest, NewSnapshot
from duckicelake.lake.changes import ChangeSet, WrittenCommit
from duckicelake.lake.state import ManifestRow, SnapshotRow, TableRow, TableState


def build_next_state(before: TableState, change: ChangeSet, written: WrittenCommit) -> TableState:
    """Return the table's rows after the commit, its new files not written yet.

    Of the metadata log no old entry has left.
    """
    gone, target = set(change.target.removed_snapshots), change.target
    snapshots = [row for row in before.snapshots if row.snapshot_id not in gone] if gone else list(before.snapshots)
    for step, ducklake_id in zip(change.steps, written.snapshots, strict=True):
        for snapshot in step.snapshots:
            insort(snapshots, _build_snapshot_row(snapshot, ducklake_id), key=_get_order)
    log = before.metadata_log
    if before.metadata_location is not None:
        log = (*log, (before.metadata_location, before.row.last_updated_ms))
    return TableState(
        row=_build_next_row(before.row, change, written),
        snapshots=tuple(snapshots),
        snapshot_log=(*before.snapshot_log[target.log_dropped :], *target.log_added),
        metadata_log=log,
        metadata_location=None,
    )


def build_next_lake(base: Base, change: ChangeSet, metadata: TableMetadata, row: TableRow) -> Base | None:
    """Return what DuckLake has of the table after the commit; None if its definition changed and must be read."""
    if any(step.definition for step in change.steps):
        return None
    stats, columns = base.stats, dict(base.column_stats)
    for written in (step.stats for step in change.steps if step.stats is not None):
        stats = (written.record_count, written.next_row_id, written.file_size_bytes)
        columns = {key: row for key, row in {**columns, **written.columns}.items() if row is not None}
    return replace(
        base,
        version=row.version,
        caught_up_to=row.caught_up_to,
        metadata=metadata,
        stats=stats,
        column_stats=columns,
    )


def to_pending_manifest_row(manifest: NewManifest) -> ManifestRow:
    """Return the row of a manifest that isn't written yet."""
    return ManifestRow(
        manifest_id=manifest.manifest_id,
        content=manifest.content,
        format_version=manifest.format_version,
        spec_id=manifest.spec_id,
        schema_id=manifest.schema_id,
        sequence_number=manifest.sequence_number,
        min_sequence_number=manifest.min_sequence_number,
        added_snapshot_id=manifest.added_snapshot_id,
        live_files=len(manifest.added) + len(manifest.existing),
        path=None,
        length=None,
        facts=None,
        is_laid_out=manifest.is_laid_out or None,
    )


def _build_next_row(row: TableRow, change: ChangeSet, written: WrittenCommit) -> TableRow:
    target, main_step = change.target, change.main_step
    return replace(
        row,
        location=target.location,
        version=row.version + 1,
        caught_up_to=written.caught_up_to,
        ducklake_id=row.ducklake_id if main_step is None else written.snapshots[main_step],
        format_version=target.format_version,
        last_sequence_number=target.last_sequence_number,
        next_row_id=target.next_row_id,
        last_updated_ms=target.last_updated_ms,
        current_snapshot_id=target.current_snapshot_id,
        metadata=target.metadata,
    )


def _build_snapshot_row(snapshot: NewSnapshot, ducklake_id: int) -> SnapshotRow:
    return SnapshotRow(
        snapshot_id=snapshot.snapshot_id,
        proposed_id=snapshot.proposed_id,
        ducklake_id=ducklake_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        sequence_number=snapshot.sequence_number,
        timestamp_ms=snapshot.timestamp_ms,
        schema_id=snapshot.schema_id,
        first_row_id=snapshot.first_row_id,
        added_rows=snapshot.added_rows,
        key_id=snapshot.key_id,
        summary=snapshot.summary,
        manifest_ids=list(snapshot.manifest_ids),
        manifest_list=None,
    )


def _get_order(row: SnapshotRow) -> tuple[int, int, int, int]:
    return row.ducklake_id, row.sequence_number, row.timestamp_ms, row.snapshot_id
