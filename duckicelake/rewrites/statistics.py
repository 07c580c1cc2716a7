"""The task that counts the distinct values of each column, for engines that choose the order of joins by them."""

from collections.abc import Sequence
from typing import Final

from duckicelake.catalog.commit.apply import TableCommit
from duckicelake.catalog.commit.run import commit_all
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.snapshot_upload import SnapshotUpload
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.table.reclaim import discard_on_error
from duckicelake.catalog.upkeep_tasks import TaskControl
from duckicelake.errors import UnavailableError
from duckicelake.extras import import_extra
from duckicelake.iceberg.puffin import PuffinBlob, PuffinFile, write_blobs
from duckicelake.iceberg.requirements import AssertTableUuid
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.snapshot import BlobMetadata, Snapshot, StatisticsFile
from duckicelake.iceberg.types import NestedField, PrimitiveType
from duckicelake.iceberg.updates import SetStatistics
from duckicelake.lake.ducklake.inlined_rows import has_inlined_rows
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.query.statement import LAKE
from duckicelake.rewrites.catalog_copy import describe_copy
from duckicelake.rewrites.member_files import find_damaged, read_member_files
from duckicelake.rewrites.processes import open_process
from duckicelake.rewrites.rows import ProcessFailedError
from duckicelake.rewrites.source import TABLE_COPY, RewrittenTable, SketchedColumn

THETA_SKETCH: Final = "apache-datasketches-theta-v1"
NDV: Final = "ndv"
"""Iceberg's name of the property with the number of distinct values."""
_COLUMNS_AT_ONCE: Final = 16
"""Columns that one statement reads; between two the task may be stopped."""


def compute_statistics(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
    """Compute sketches of the distinct values of main, and set their file as the statistics of its snapshot.

    Columns of single values have a sketch, as those of Spark's `compute_table_stats`. Raises what loads and commits do,
    and MissingExtraError.
    """
    import_extra("numpy")
    version = load_current_table(services, task.namespace, task.table)
    snapshot = version.metadata.current_snapshot()
    if snapshot is None:
        return TaskOutcome("unchanged", "the table has no snapshot")
    columns = [field for field in version.metadata.schema().fields if _is_counted(field)]
    if not columns or _is_described(version, snapshot, columns):
        return TaskOutcome("unchanged", "the snapshot has its statistics" if columns else "no column has single values")
    sketches = _count(services, task, control, version, columns)
    file = write_blobs(
        (_describe(field, snapshot, distinct), sketch)
        for field, (distinct, sketch) in zip(columns, sketches, strict=True)
    )
    _set_statistics(services, task, version, snapshot, file)
    return TaskOutcome("done", None, (snapshot.snapshot_id,), {"columns": len(columns), "bytes": len(file.data)})


def _is_counted(field: NestedField) -> bool:
    return isinstance(field.type, PrimitiveType) and not field.type.traits.is_opaque


def _is_described(version: TableVersion, snapshot: Snapshot, columns: Sequence[NestedField]) -> bool:
    """Return whether the snapshot has a sketch of each of the columns, whoever made it."""
    described = {
        blob.fields[0]
        for file in version.metadata.statistics
        if file.snapshot_id == snapshot.snapshot_id
        for blob in file.blob_metadata
        if blob.type == THETA_SKETCH and len(blob.fields) == 1
    }
    return described >= {field.id for field in columns}


def _count(
    services: Services, task: UpkeepTask, control: TaskControl, version: TableVersion, columns: Sequence[NestedField]
) -> list[tuple[int, bytes]]:
    """Return the number of distinct values of each column, and its encoded sketch."""
    with services.database.statement(only_reads=True) as cursor:
        is_inlined = has_inlined_rows(cursor, version.row.table_id, version.lake_snapshot)
    catalog = LAKE if is_inlined else TABLE_COPY
    table = RewrittenTable(
        task.namespace, task.table, version.metadata, version.lake_snapshot, task.policy.codec, catalog
    )
    found: list[tuple[int, bytes]] = []
    with open_process(services, control, task.namespace, task.table) as process:
        if not is_inlined:
            process.read_copy(describe_copy(services, version))
        for start in range(0, len(columns), _COLUMNS_AT_ONCE):
            control.check()
            part = columns[start : start + _COLUMNS_AT_ONCE]
            counted = [SketchedColumn(field.name, _as_primitive(field)) for field in part]
            try:
                found += process.count_distinct(table, counted)
            except (UnavailableError, ProcessFailedError) as error:
                files = read_member_files(services, version)
                damaged = find_damaged(services, process, table, files, version)
                raise damaged.as_error() if damaged else error from error
            control.report({"columns": len(found)})
    control.check()
    return found


def _as_primitive(field: NestedField) -> PrimitiveType:
    assert isinstance(field.type, PrimitiveType)
    return field.type


def _describe(field: NestedField, snapshot: Snapshot, distinct: int) -> PuffinBlob:
    return PuffinBlob(
        type=THETA_SKETCH,
        fields=(field.id,),
        snapshot_id=snapshot.snapshot_id,
        sequence_number=snapshot.sequence_number,
        properties={NDV: str(distinct)},
    )


def _set_statistics(
    services: Services, task: UpkeepTask, version: TableVersion, snapshot: Snapshot, file: PuffinFile
) -> None:
    upload = SnapshotUpload(services, version.metadata)
    with discard_on_error(services, upload.paths):
        statistics = StatisticsFile(
            snapshot_id=snapshot.snapshot_id,
            statistics_path=upload.add(f"{snapshot.snapshot_id}.stats", file.data),
            file_size_in_bytes=len(file.data),
            file_footer_size_in_bytes=file.footer_size,
            blob_metadata=tuple(_build_metadata(blob) for blob in file.blobs),
        )
        request = CommitTableRequest(
            requirements=(AssertTableUuid(uuid=version.metadata.table_uuid),),
            updates=(SetStatistics(statistics=statistics),),
        )
        commit_all(services, [TableCommit(task.namespace, task.table, request)])


def _build_metadata(blob: PuffinBlob) -> BlobMetadata:
    return BlobMetadata(
        type=blob.type,
        snapshot_id=blob.snapshot_id,
        sequence_number=blob.sequence_number,
        fields=blob.fields,
        properties=blob.properties,
    )
