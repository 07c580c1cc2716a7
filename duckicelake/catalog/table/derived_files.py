"""Write files beside a table's metadata: inlined rows (design §6.2, §6.16), and DuckDB's deletes in Iceberg's forms."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, Final
from uuid import UUID, uuid5

import orjson

from duckicelake.bridge import main_diff
from duckicelake.bridge.data_files import parse_column_metrics
from duckicelake.bridge.native.change_set import ServedFiles, build_new_file
from duckicelake.bridge.native.schema import add_unpartitioned_spec
from duckicelake.bridge.native.steps import NativeStep
from duckicelake.bridge.snapshots import SnapshotNumbers
from duckicelake.bridge.values.columns import check_written
from duckicelake.bridge.values.statistics import LakeMetrics
from duckicelake.bridge.values.types import build_field_ids, format_column_path, to_duckdb_type
from duckicelake.catalog.authz.locations import write_all
from duckicelake.catalog.context.services import Services
from duckicelake.errors import DamagedTableError, InvalidRequestError
from duckicelake.iceberg import puffin
from duckicelake.iceberg.manifest.entry import DataFile, FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.partition import build_partition_type
from duckicelake.iceberg.puffin import (
    DELETION_VECTOR_VERSION,
    FILE_FORMAT,
    PuffinBlob,
    read_vector,
    write_deletion_vectors,
)
from duckicelake.iceberg.schema import Schema
from duckicelake.lake.additions import NewDeletion, NewVirtualFile
from duckicelake.lake.ducklake import inlined_rows, native
from duckicelake.lake.model import Column, ColumnStats, InlinedKey, LakeFile, find_children
from duckicelake.lake.state import FileRow
from duckicelake.parquet.inlined_rows import (
    CopiedRows,
    ParquetColumn,
    ParquetRows,
    read_ducklake_deletes,
    write_rows,
)
from duckicelake.parquet.local_copies import open_temporary_folder
from duckicelake.parquet.position_deletes import write_position_deletes
from duckicelake.storage.threads import start_in_thread

_FLUSH_BYTES: Final = 16 * 1024 * 1024
"""Bytes from which on files are written before there are all of them."""
_SNAPSHOT: Final = "ducklake-snapshot-id"
"""The blob property that names the DuckLake snapshot of a vector in a container."""
_PATH: Final = "2147483546"
"""The field id of `file_path` in position delete files."""


class BackgroundWriter:
    """The files of a change, which are there once the block of `open_background_writer` has ended without an error."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._unwritten: dict[str, bytes] = {}
        self._bytes = 0
        self._begun: Callable[[], object] | None = None

    def add(self, metadata: TableMetadata, name: str, data: bytes, source: str = "") -> str:
        """Have a file written and return its path, `name` with a uuid of the content.

        Two sources of one snapshot may hold the same rows, but deletes refer to files by their paths.
        """
        unique = uuid5(UUID(metadata.table_uuid), sha256(data).hexdigest() + source)
        path = f"{metadata.location}/metadata/{name.format(unique)}"
        self._unwritten[path] = data
        self._bytes += len(data)
        if self._bytes >= _FLUSH_BYTES:
            self.begin()
        return path

    def begin(self) -> None:
        """Begin to write what was added since the last time, once that is written; raises as that did."""
        self._wait()
        if self._unwritten:
            self._begun = start_in_thread(partial(write_all, self._services, list(self._unwritten.items())))
        self._unwritten, self._bytes = {}, 0

    def finish(self) -> None:
        """Wait until all that was added is written."""
        self.begin()
        self._wait()

    def _wait(self) -> None:
        last, self._begun = self._begun, None
        if last is not None:
            last()


@contextmanager
def open_background_writer(services: Services) -> Iterator[BackgroundWriter]:
    """Yield files that are written as the block ends, before any row names them."""
    files = BackgroundWriter(services)
    yield files
    files.finish()


def write_inlined_rows(
    services: Services,
    beside: BackgroundWriter,
    table_id: int,
    step: NativeStep,
    metadata: TableMetadata,
    numbers: SnapshotNumbers,
) -> tuple[TableMetadata, ServedFiles]:
    """Have the step's new inlined rows written as Parquet, a file for each inlined table, listed as unpartitioned."""
    files: list[FileRow] = []
    virtual: list[NewVirtualFile] = []
    for file_id, keys in step.rows:
        columns, rows = _write_rows(services, table_id, keys, metadata.schema())
        name = f"{numbers.snapshot_id}-{{}}-inlined.parquet"
        path = beside.add(metadata, name, rows.data, keys[0].inlined_table)
        metadata, spec = add_unpartitioned_spec(metadata)
        data_file = replace(
            _build_data_file(path, rows, columns, metadata), first_row_id=min(key.row_id for key in keys)
        )
        files.append(
            build_new_file(
                file_id, data_file, spec.spec_id, build_partition_type(spec, metadata.schema()), numbers, None
            )
        )
        virtual.append(NewVirtualFile(file_id, keys))
    return metadata, ServedFiles(files=tuple(files), virtual_files=tuple(virtual))


def _write_rows(
    services: Services, table_id: int, keys: Sequence[InlinedKey], schema: Schema
) -> tuple[tuple[Column, ...], ParquetRows]:
    """Return the columns of an inlined table that the schema has, and the rows with their lineage.

    In format version 3 a DuckLake snapshot's id is its sequence number.
    """
    name = keys[0].inlined_table
    with open_temporary_folder() as folder:
        path = folder / "rows.csv"
        with path.open("wb") as file, services.database.statement(only_reads=True) as cursor:
            columns = native.read_columns(cursor, table_id, inlined_rows.find_columns_snapshot(cursor, table_id, name))
            columns, gone = _select_known_columns(columns, schema)
            inlined_rows.check_decodable(name, columns)
            check_written(columns, schema, "inlined rows")
            copied = inlined_rows.copy_keyed_rows(cursor, keys, find_children(columns, None), file)
        try:
            return columns, write_rows(
                CopiedRows(path, copied.longest, parquet_columns(_rename_ambiguous(columns), gone))
            )
        except InvalidRequestError as error:
            raise DamagedTableError(f"{name}, a table of its inlined rows: {error}") from error


def _select_known_columns(columns: Sequence[Column], schema: Schema) -> tuple[tuple[Column, ...], frozenset[int]]:
    """Return (the columns that the schema has with all that is in them, as structs are read whole.

    Ids of what it lacks).
    """
    top, known = {field.id for field in schema.fields}, schema.map_fields_by_id().keys()
    kept = tuple(column for column in columns if column.parent_column is not None or column.column_id in top)
    return kept, frozenset(column.column_id for column in kept) - known


def _rename_ambiguous(columns: Sequence[Column]) -> list[Column]:
    """Return the columns, with other names for those that have the full name of a field.

    PyIceberg reads no such file.
    """
    names = {column.column_name for column in columns if column.parent_column is None}
    return [
        replace(column, column_name=f"{column.column_name}_{column.column_id}")
        if column.parent_column is None and any(column.column_name.startswith(f"{name}.") for name in names)
        else column
        for column in columns
    ]


def parquet_columns(columns: Sequence[Column], gone: Collection[int] = ()) -> list[ParquetColumn]:
    """Return how top-level columns are written to Parquet; UnsupportedError if Iceberg can't read the type of one.

    gone: ids of fields that it needn't read.
    """
    return [
        ParquetColumn(
            name=column.column_name,
            type=to_duckdb_type(column, columns, gone),
            field_ids=build_field_ids(column, columns),
            has_bounds=not find_children(columns, column.column_id),
        )
        for column in find_children(columns, None)
    ]


def _build_data_file(path: str, rows: ParquetRows, columns: Sequence[Column], metadata: TableMetadata) -> DataFile:
    top = find_children(columns, None)
    stats = [
        ColumnStats(top[index].column_id, None, has_nan, low, high, None, values, nulls)
        for index, (values, nulls, low, high, has_nan) in rows.stats.items()
    ]
    stats += [
        ColumnStats(column.column_id, value_count=counts[0], null_count=counts[1])
        for column in columns
        if column.parent_column is not None
        and (counts := rows.nested.get(format_column_path(column, columns))) is not None
    ]
    metrics = LakeMetrics(metadata.schema().leaves()).build_metrics(stats)
    return DataFile(
        content=FileContent.DATA,
        file_path=path,
        file_format="PARQUET",
        partition=(),
        record_count=rows.record_count,
        file_size_in_bytes=len(rows.data),
        **parse_column_metrics(metrics),
    )


def read_lake_deletes(services: Services, file: LakeFile) -> dict[int, int | None]:
    """Return the deleted positions, each with the snapshot that deleted it; None: the one at which the file begins."""
    data = services.store.read(file.path)
    if file.file_format == "parquet":
        return read_ducklake_deletes(data, file.path)
    try:
        return _read_container(data) if data.startswith(puffin.PUFFIN_MAGIC) else dict.fromkeys(read_vector(data))
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"DuckLake's delete file {file.path} of format {file.file_format}: {error}"
        ) from error


def _read_container(data: bytes) -> dict[int, int | None]:
    """Read a Puffin file of DuckDB 2.0: one vector per snapshot, each with the positions of the earlier ones, too."""
    snapshots: dict[int, puffin.PuffinBlob] = {}
    for blob in puffin.read_footer(data).blobs:
        snapshot = blob.properties.get(_SNAPSHOT, "")
        if blob.type != puffin.DELETION_VECTOR or blob.compression_codec is not None or not snapshot.isdigit():
            raise InvalidRequestError(
                f"its blob at {blob.offset} is no plain {puffin.DELETION_VECTOR} with a {_SNAPSHOT}"
            )
        snapshots[int(snapshot)] = blob
    positions: dict[int, int | None] = {}
    for number, blob in sorted(snapshots.items()):
        for position in read_vector(data[blob.offset : blob.offset + blob.length]):
            positions.setdefault(position, number)
    return positions


@dataclass(frozen=True, slots=True)
class NewlyDeleted:
    """Positions that a snapshot deletes, those deleted before it, and the data files themselves; all by file id."""

    positions: Mapping[int, AbstractSet[int]]
    before: Mapping[int, AbstractSet[int]]
    targets: Mapping[int, FileRow]


def write_deletes(
    beside: BackgroundWriter,
    metadata: TableMetadata,
    numbers: SnapshotNumbers,
    deleted: NewlyDeleted,
    ids: Iterator[int],
) -> ServedFiles:
    """Write the delete files of a snapshot, which take their file ids from `ids`.

    From format version 3 on a data file's vector holds everything that was ever deleted from it. The delete files that
    it had before are the caller's to remove.
    """
    if not deleted.positions:
        return ServedFiles()
    if metadata.format_version >= DELETION_VECTOR_VERSION:
        return _serve_vectors(beside, metadata, numbers, deleted, ids)
    return _serve_position_deletes(beside, metadata, numbers, deleted, ids)


def _serve_vectors(
    beside: BackgroundWriter,
    metadata: TableMetadata,
    numbers: SnapshotNumbers,
    deleted: NewlyDeleted,
    ids: Iterator[int],
) -> ServedFiles:
    """Return one Puffin file for all data files."""
    everything = {i: deleted.positions[i] | deleted.before.get(i, frozenset()) for i in sorted(deleted.positions)}
    puffin = write_deletion_vectors((deleted.targets[i].path, found) for i, found in everything.items())
    path = beside.add(metadata, f"{numbers.snapshot_id}-{{}}-dv.puffin", puffin.data)
    files: list[FileRow] = []
    deletions: list[NewDeletion] = []
    for (target_id, found), blob in zip(everything.items(), puffin.blobs, strict=True):
        written = _DeleteFile(
            path, FILE_FORMAT, len(puffin.data), len(found), _build_vector_metrics(blob, deleted.targets[target_id])
        )
        files.append(_build_delete_file(next(ids), written, deleted.targets[target_id], numbers))
        deletions.append(NewDeletion(files[-1].file_id, target_id, main_diff.encode_positions(found)))
    return ServedFiles(files=tuple(files), deletions=tuple(deletions))


def _build_vector_metrics(blob: PuffinBlob, target: FileRow) -> dict[str, Any]:
    return {
        "referenced_data_file": target.path,
        "content_offset": blob.offset,
        "content_size_in_bytes": blob.length,
    }


def _serve_position_deletes(
    beside: BackgroundWriter,
    metadata: TableMetadata,
    numbers: SnapshotNumbers,
    deleted: NewlyDeleted,
    ids: Iterator[int],
) -> ServedFiles:
    """Return a Parquet file for each partition: position deletes apply within theirs."""
    groups: defaultdict[tuple[int, bytes], list[int]] = defaultdict(list)
    for target_id in sorted(deleted.positions):
        target = deleted.targets[target_id]
        groups[target.spec_id, orjson.dumps(target.partition)].append(target_id)
    files: list[FileRow] = []
    deletions: list[NewDeletion] = []
    for group in groups.values():
        written = _write_positions(beside, metadata, numbers, deleted, group)
        file = _build_delete_file(next(ids), written, deleted.targets[group[0]], numbers)
        files.append(file)
        deletions += [NewDeletion(file.file_id, i, main_diff.encode_positions(deleted.positions[i])) for i in group]
    return ServedFiles(files=tuple(files), deletions=tuple(deletions))


def _write_positions(
    beside: BackgroundWriter,
    metadata: TableMetadata,
    numbers: SnapshotNumbers,
    deleted: NewlyDeleted,
    group: Sequence[int],
) -> "_DeleteFile":
    paths = {i: deleted.targets[i].path for i in group}
    rows = [(path, position) for i, path in paths.items() for position in deleted.positions[i]]
    data = write_position_deletes(rows)
    path = beside.add(metadata, f"{numbers.snapshot_id}-{{}}-deletes.parquet", data)
    return _DeleteFile(path, "PARQUET", len(data), len(rows), _build_path_bounds(paths.values()))


def _build_path_bounds(paths: Iterable[str]) -> dict[str, Any]:
    """Build the bounds by which clients find a data file's delete files: both are its path, as in those of Spark.

    `referenced_data_file` would say the same, but Spark's `rewrite_table_path` (Iceberg 1.12) leaves it as it was.
    """
    ordered = sorted(path.encode() for path in paths)
    return {"lower_bounds": {_PATH: ordered[0].hex()}, "upper_bounds": {_PATH: ordered[-1].hex()}}


@dataclass(frozen=True, slots=True)
class _DeleteFile:
    """A delete file, or one vector of it."""

    path: str
    file_format: str
    size: int
    record_count: int
    metrics: dict[str, Any]


def _build_delete_file(file_id: int, written: _DeleteFile, target: FileRow, numbers: SnapshotNumbers) -> FileRow:
    """Return the row of a delete file that lies in the partition of its target."""
    return FileRow(
        file_id=file_id,
        content=FileContent.POSITION_DELETES,
        path=written.path,
        file_format=written.file_format,
        spec_id=target.spec_id,
        partition=target.partition,
        record_count=written.record_count,
        file_size_in_bytes=written.size,
        metrics=written.metrics,
        added_snapshot_id=numbers.snapshot_id,
        sequence_number=numbers.sequence_number,
        file_sequence_number=numbers.sequence_number,
    )
