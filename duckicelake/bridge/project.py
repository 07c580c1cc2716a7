"""PURE. From the side tables' rows to TableMetadata, back to its row, and on to the next version (design D3, D9)."""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import filterfalse
from typing import Any, TypeVar

from duckicelake.errors import UnsupportedError
from duckicelake.iceberg.metadata import SUPPORTED_FORMAT_VERSION, TableMetadata, parse_table_metadata
from duckicelake.iceberg.snapshot import MetadataLogEntry, Snapshot, SnapshotLogEntry, SnapshotRef
from duckicelake.lake.additions import NewManifest, NewSnapshot
from duckicelake.lake.changes import ChangeSet, TableTarget, WrittenCommit
from duckicelake.lake.state import ManifestRow, SnapshotRow, TableRow, TableState
from duckicelake.properties import DUCKLAKE_ID

Row = TypeVar("Row")
Made = TypeVar("Made")

_IN_ROWS = (
    "format-version",
    "table-uuid",
    "location",
    "last-sequence-number",
    "last-updated-ms",
    "next-row-id",
    "current-snapshot-id",
    "snapshots",
    "snapshot-log",
    "metadata-log",
    "schema",
    "partition-spec",
)


def project_metadata(state: TableState, before: tuple[TableState, TableMetadata] | None = None) -> TableMetadata:
    """Return the table's metadata; every snapshot must have its manifest list written.

    before: an older state with its metadata. What the rows of both states make, they share, and what is encoded of it.
    """
    row = state.row
    metadata = apply_definitions(row, before).replace_fields(
        location=row.location,
        last_sequence_number=row.last_sequence_number,
        last_updated_ms=row.last_updated_ms,
        next_row_id=row.next_row_id if row.format_version > 2 else None,
        properties={**row.metadata["properties"], DUCKLAKE_ID: str(row.ducklake_id)},
        current_snapshot_id=row.current_snapshot_id,
        refs=_parse_refs(row.metadata),
        snapshots=_reuse_unchanged(state.snapshots, before and (before[0].snapshots, before[1].snapshots), to_snapshot),
        snapshot_log=_reuse_unchanged(
            state.snapshot_log, before and (before[0].snapshot_log, before[1].snapshot_log), _to_log_entry
        ),
        metadata_log=_reuse_unchanged(
            state.metadata_log, before and (before[0].metadata_log, before[1].metadata_log), _to_metadata_log_entry
        ),
    )
    if before is not None:
        metadata.reuse_history(before[1])
    return metadata


def apply_definitions(row: TableRow, before: tuple[TableState, TableMetadata] | None) -> TableMetadata:
    """Return metadata with the row's schemas, specs, sort orders and statistics: those of before, if they are the same.

    All else in it may be of before, too. Raises UnsupportedError for a format version of the future.
    """
    if row.format_version > SUPPORTED_FORMAT_VERSION:
        raise UnsupportedError(
            "format-versions",
            f"The table has format version {row.format_version}, which a newer server gave it, and this one reads 1 to "
            f"{SUPPORTED_FORMAT_VERSION}: update it",
        )
    stored = {key: value for key, value in row.metadata.items() if key != "refs"}
    if before is not None and before[0].row.format_version == row.format_version:
        known = {key: value for key, value in before[0].row.metadata.items() if key != "refs"}
        if known | {"properties": None} == stored | {"properties": None}:
            return before[1]
    columns: dict[str, Any] = {
        "format-version": row.format_version,
        "table-uuid": row.table_uuid,
        "location": row.location,
        "last-sequence-number": row.last_sequence_number,
        "last-updated-ms": row.last_updated_ms,
        "next-row-id": row.next_row_id if row.format_version > 2 else None,
    }
    return parse_table_metadata({**stored, **columns})


def _reuse_unchanged(
    rows: tuple[Row, ...], before: tuple[tuple[Row, ...], tuple[Made, ...]] | None, make: Callable[[Row], Made]
) -> tuple[Made, ...]:
    """Return what the rows make; those of before, given with what they made, keep it.

    Most often the oldest have left and new ones have come, so that nothing is looked at one by one.
    """
    known, made = before or ((), ())
    start = known.index(rows[0]) if rows and rows[0] in known else len(known)
    kept = known[start:]
    if kept == rows[: len(kept)]:
        return (*made[start:], *map(make, rows[len(kept) :]))
    by_row = {id(row): old for row, old in zip(known, made, strict=True)}
    return tuple(by_row.get(id(row)) or make(row) for row in rows)


def _to_log_entry(entry: tuple[int, int]) -> SnapshotLogEntry:
    return SnapshotLogEntry.build_trusted({"snapshot_id": entry[0], "timestamp_ms": entry[1]})


def _to_metadata_log_entry(entry: tuple[str, int]) -> MetadataLogEntry:
    return MetadataLogEntry.build_trusted({"metadata_file": entry[0], "timestamp_ms": entry[1]})


def to_snapshot(row: SnapshotRow) -> Snapshot:
    """Return the Iceberg snapshot of a row; rows are trusted."""
    return Snapshot.build_trusted(
        {
            "snapshot_id": row.snapshot_id,
            "parent_snapshot_id": row.parent_snapshot_id,
            "sequence_number": row.sequence_number,
            "timestamp_ms": row.timestamp_ms,
            "manifest_list": row.manifest_list,
            "manifests": None,
            "summary": {**row.summary, DUCKLAKE_ID: str(row.ducklake_id)},
            "schema_id": row.schema_id,
            "first_row_id": row.first_row_id,
            "added_rows": row.added_rows,
            "key_id": row.key_id,
        }
    )


def to_snapshot_row(snapshot: Snapshot, manifest_ids: Iterable[int], proposed_id: int | None = None) -> NewSnapshot:
    """Return the row of a new Iceberg snapshot that lists these manifests."""
    return NewSnapshot(
        snapshot_id=snapshot.snapshot_id,
        proposed_id=proposed_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        sequence_number=snapshot.sequence_number,
        timestamp_ms=snapshot.timestamp_ms,
        schema_id=snapshot.schema_id,
        summary={key: value for key, value in snapshot.summary.items() if key != DUCKLAKE_ID},
        manifest_ids=tuple(manifest_ids),
        first_row_id=snapshot.first_row_id,
        added_rows=snapshot.added_rows,
        key_id=snapshot.key_id,
    )


def _parse_refs(stored: Mapping[str, Any]) -> dict[str, SnapshotRef]:
    return {name: _to_ref(ref) for name, ref in stored.get("refs", {}).items()}


def _to_ref(ref: Mapping[str, Any]) -> SnapshotRef:
    return SnapshotRef.build_trusted(
        {
            "snapshot_id": ref["snapshot-id"],
            "type": ref["type"],
            "max_ref_age_ms": ref.get("max-ref-age-ms"),
            "max_snapshot_age_ms": ref.get("max-snapshot-age-ms"),
            "min_snapshots_to_keep": ref.get("min-snapshots-to-keep"),
        }
    )


def build_target(base: TableMetadata | None, target: TableMetadata) -> TableTarget:
    """Return the side-table row of `target` and what leaves or joins the history of `base`."""
    document = {key: value for key, value in target.drop_history().items() if key not in _IN_ROWS}
    document["properties"] = {key: value for key, value in target.properties.items() if key != DUCKLAKE_ID}
    dropped, added = _compare_logs(base, target)
    listed, known = target.snapshots_by_id, base.snapshots_by_id if base else {}
    return TableTarget(
        location=target.location,
        format_version=target.format_version,
        last_sequence_number=target.last_sequence_number,
        next_row_id=target.next_row_id or 0,
        last_updated_ms=target.last_updated_ms,
        current_snapshot_id=target.current_snapshot_id,
        metadata=document,
        removed_snapshots=tuple(filterfalse(listed.__contains__, known)),
        log_dropped=dropped,
        log_added=added,
    )


def _compare_logs(base: TableMetadata | None, target: TableMetadata) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return (how many of the oldest entries go, which entries come).

    The target's log is an end of the base's and more.
    """
    old, new = base.snapshot_log if base else (), target.snapshot_log
    start = old.index(new[0]) if new and new[0] in old else len(old)
    kept = old[start:]
    dropped, added = (start, new[len(kept) :]) if kept == new[: len(kept)] else (len(old), new)
    return dropped, tuple((entry.snapshot_id, entry.timestamp_ms) for entry in added)


def build_next_state(before: TableState, change: ChangeSet, written: WrittenCommit) -> TableState:
    """Build the rows after the commit: of new files no path, of the metadata log all old entries."""
    gone, target = set(change.target.removed_snapshots), change.target
    snapshots = [row for row in before.snapshots if row.snapshot_id not in gone] if gone else list(before.snapshots)
    for step, ducklake_id in zip(change.steps, written.snapshots, strict=True):
        for snapshot in step.snapshots:
            insort(snapshots, _build_snapshot_row(snapshot, ducklake_id), key=_get_order)
    assert before.metadata_location is not None  # else another server may record it meanwhile
    log = (*before.metadata_log, (before.metadata_location, before.row.last_updated_ms))
    return TableState(
        row=_build_next_row(before.row, change, written),
        snapshots=tuple(snapshots),
        snapshot_log=(*before.snapshot_log[target.log_dropped :], *target.log_added),
        metadata_log=log,
        metadata_location=None,
    )


def to_pending_manifest_row(manifest: NewManifest) -> ManifestRow:
    """Build the row of a manifest that isn't written yet."""
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
