"""Rows posted to a branch: a snapshot of Iceberg with files, which DuckLake sees once a person moves main to it."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from duckicelake.bridge.data_files import parse_column_metrics
from duckicelake.bridge.snapshots import SnapshotTotals
from duckicelake.bridge.values.statistics import LakeMetrics
from duckicelake.catalog.commit.apply import TableCommit
from duckicelake.catalog.commit.run import OutdatedPlanError, commit_all, retry_on_conflict
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.deletes import read_fresh_target
from duckicelake.catalog.rows.inserts import PostedRows, RowsAnswer, build_empty_answer
from duckicelake.catalog.rows.snapshot_upload import SnapshotUpload, build_snapshot
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.table.reclaim import discard_on_error
from duckicelake.errors import CommitFailedError, InvalidRequestError
from duckicelake.iceberg.identifiers import format_full_name
from duckicelake.iceberg.manifest.entry import DataFile, FileContent, ManifestContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.requirements import AssertRefSnapshotId
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.snapshot import Snapshot, SnapshotRef
from duckicelake.iceberg.updates import AddSnapshot, SetSnapshotRef
from duckicelake.lake.changes import WrittenCommit
from duckicelake.postgres.queries import Transaction
from duckicelake.rows.bodies import read_batch
from duckicelake.rows.files import RowFile, write_spec_files
from duckicelake.rows.row_batch import Batch


@dataclass(frozen=True, slots=True)
class BranchRows:
    """Rows for a branch, by its name, of a table as it is."""

    posted: PostedRows
    branch: str
    metadata: TableMetadata
    batch: Batch


def append_to_branch(services: Services, posted: PostedRows, branch: str) -> RowsAnswer:
    """Append the rows to a branch, all of them or none. The answer has Iceberg's snapshot, and no row ids.

    Raises NoSuchTableError, InvalidRequestError naming rows that don't fit, or a branch that isn't there.
    """
    services.database.gate.require_open()
    return services.run_once(lambda: _append(services, posted, branch), lambda result: RowsAnswer(*result))


def _append(services: Services, posted: PostedRows, branch: str) -> RowsAnswer:
    def attempt(is_alone: bool) -> RowsAnswer:
        target = read_fresh_target(services, posted.namespace, posted.table)
        batch = read_batch(posted.body, posted.content_type, target.layout, on_unknown=posted.on_unknown)
        target.check_rows(batch)
        metadata = load_current_table(services, posted.namespace, posted.table).metadata
        _find_branch(metadata, branch)
        if not batch.num_rows:
            return build_empty_answer(services, posted)
        return _commit(services, BranchRows(posted, branch, metadata, batch), is_alone=is_alone)

    return retry_on_conflict(services, format_full_name(posted.namespace, posted.table), attempt)


def _find_branch(metadata: TableMetadata, branch: str) -> tuple[SnapshotRef, Snapshot]:
    ref = metadata.refs.get(branch)
    parent = None if ref is None or ref.type != "branch" else metadata.snapshot(ref.snapshot_id)
    if ref is None or parent is None:
        raise InvalidRequestError(f"The table has no branch {branch!r}: create it first")
    return ref, parent


def _commit(services: Services, rows: BranchRows, *, is_alone: bool) -> RowsAnswer:
    metadata, count = rows.metadata, rows.batch.num_rows
    ref, parent = _find_branch(metadata, rows.branch)
    upload, snapshot_id = SnapshotUpload(services, metadata), secrets.randbits(62)
    touched = build_touched(rows.posted.namespace, rows.posted.table, {"rows": count, "branch": rows.branch})

    def settle(cursor: Transaction, written: Sequence[WrittenCommit]) -> None:
        (change,) = written
        services.settle(cursor, [replace(touched, table_id=change.table_id)], (snapshot_id, count, None))

    with discard_on_error(services, upload.paths):
        snapshot = _upload_snapshot(upload, rows.batch, snapshot_id, parent)
        moved = SetSnapshotRef(ref_name=rows.branch, **ref.replace_fields(snapshot_id=snapshot_id).model_dump())
        request = CommitTableRequest(
            requirements=(AssertRefSnapshotId(ref=rows.branch, snapshot_id=parent.snapshot_id),),
            updates=(AddSnapshot(snapshot=snapshot), moved),
        )
        try:
            commit_all(
                services, [TableCommit(rows.posted.namespace, rows.posted.table, request)], settle, is_alone=is_alone
            )
        except CommitFailedError as error:
            raise OutdatedPlanError from error
    return RowsAnswer(snapshot_id, count, None)


def _upload_snapshot(upload: SnapshotUpload, batch: Batch, snapshot_id: int, parent: Snapshot) -> Snapshot:
    metadata, spec = upload.metadata, upload.metadata.spec()
    metrics = LakeMetrics(metadata.schema().leaves())
    files = [
        _add_data_file(upload, metrics, partition, file)
        for partition, file in write_spec_files(batch, spec, metadata.sort_order())
    ]
    manifest = upload.add_manifest(snapshot_id, ManifestContent.DATA, spec, files)
    summary = _summarize(files, SnapshotTotals.from_parent(parent))
    snapshot = build_snapshot(upload.services, metadata, snapshot_id, parent, summary, batch.num_rows)
    return upload.add_list(snapshot, [manifest], parent)


def _summarize(files: Sequence[DataFile], before: SnapshotTotals) -> dict[str, str]:
    """Return the summary of a snapshot that adds these files."""
    records, size = sum(file.record_count for file in files), sum(file.file_size_in_bytes for file in files)
    added = SnapshotTotals(data_files=len(files), records=records, files_size=size)
    counts = {"added-data-files": len(files), "added-records": records, "added-files-size": size}
    stated = {name: str(count) for name, count in counts.items()}
    return {"operation": "append", **stated, **before.summarize_after(added)}


def _add_data_file(upload: SnapshotUpload, metrics: LakeMetrics, partition: tuple[Any, ...], file: RowFile) -> DataFile:
    return DataFile(
        content=FileContent.DATA,
        file_path=upload.add("rows.parquet", file.data, "data"),
        file_format="PARQUET",
        partition=partition,
        record_count=file.record_count,
        file_size_in_bytes=len(file.data),
        **parse_column_metrics(metrics.build_metrics(file.stats)),
    )
