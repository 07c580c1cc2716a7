"""Writes the files that serve rows and deletes which DuckLake keeps in Postgres (design §6.16).

Virtual Parquet of inlined rows and position deletes of inlined deletes lie under the table's metadata folder. They are
immutable, named by their content, and not registered in DuckLake.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from uuid import UUID, uuid5

import orjson

from duckicelake.bridge import positions
from duckicelake.bridge.caught_up import Numbering, ServedFiles, new_file
from duckicelake.bridge.evolve import with_unpartitioned
from duckicelake.bridge.native import NativeStep
from duckicelake.bridge.parquet_types import duckdb_type, field_ids
from duckicelake.bridge.stats import metrics_of
from duckicelake.catalog.services import Services
from duckicelake.iceberg.manifest import DataFile, FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake import native
from duckicelake.lake.changes import NewDeletion, NewFile, NewVirtualFile
from duckicelake.lake.model import Column, ColumnStats, InlinedKey, children_of
from duckicelake.lake.state import FileRow
from duckicelake.storage.parquet import ParquetColumn, ParquetRows, write_position_deletes, write_rows

Targets = Mapping[int, FileRow | NewFile]


def serve_rows(
    services: Services, table_id: int, step: NativeStep, metadata: TableMetadata, numbers: Numbering
) -> tuple[TableMetadata, ServedFiles]:
    """Write the step's new inlined rows as Parquet, a file for each inlined table, listed as unpartitioned."""
    files: list[NewFile] = []
    virtual: list[NewVirtualFile] = []
    for file_id, keys in step.rows:
        columns = _columns(services, table_id, keys[0].inlined_table)
        rows = write_rows(
            [_parquet_column(c, columns) for c in children_of(columns, None)], _values(services, keys, columns)
        )
        path = _write(
            services, metadata, f"{numbers.snapshot_id}-{{}}-inlined.parquet", rows.data, keys[0].inlined_table
        )
        metadata, spec = with_unpartitioned(metadata)
        data_file = _data_file(path, rows, columns, metadata)
        files.append(new_file(file_id, data_file, spec, metadata, numbers, None))
        virtual.append(NewVirtualFile(file_id, keys))
    return metadata, ServedFiles(files=tuple(files), virtual_files=tuple(virtual))


def serve_deletes(
    services: Services,
    step: NativeStep,
    metadata: TableMetadata,
    numbers: Numbering,
    targets: Targets,
    ids: Iterator[int],
) -> ServedFiles:
    """Write the step's newly deleted positions, a file for each partition: position deletes apply within theirs."""
    groups: defaultdict[tuple[int, bytes], list[int]] = defaultdict(list)
    for file_id in sorted(step.positions):
        target = targets[file_id]
        groups[target.spec_id, orjson.dumps(target.partition)].append(file_id)
    files: list[NewFile] = []
    deletions: list[NewDeletion] = []
    for group in groups.values():
        delete_id = next(ids)
        files.append(_delete_file(services, step, metadata, numbers, [(i, targets[i]) for i in group], delete_id))
        deletions += [NewDeletion(delete_id, i, positions.encode(step.positions[i])) for i in group]
    return ServedFiles(files=tuple(files), deletions=tuple(deletions))


def _delete_file(
    services: Services,
    step: NativeStep,
    metadata: TableMetadata,
    numbers: Numbering,
    targets: Sequence[tuple[int, FileRow | NewFile]],
    delete_id: int,
) -> NewFile:
    rows = [(target.path, position) for file_id, target in targets for position in step.positions[file_id]]
    data = write_position_deletes(rows)
    only = targets[0][1].path if len(targets) == 1 else None
    return NewFile(
        file_id=delete_id,
        content=FileContent.POSITION_DELETES,
        path=_write(services, metadata, f"{numbers.snapshot_id}-{{}}-deletes.parquet", data),
        file_format="PARQUET",
        spec_id=targets[0][1].spec_id,
        partition=targets[0][1].partition,
        record_count=len(rows),
        file_size_in_bytes=len(data),
        metrics={"referenced_data_file": only} if only else {},
        added_snapshot_id=numbers.snapshot_id,
        sequence_number=numbers.sequence_number,
        file_sequence_number=numbers.sequence_number,
    )


def _columns(services: Services, table_id: int, inlined_table: str) -> tuple[Column, ...]:
    """The columns that the inlined table has: those of its schema version."""
    with services.database.reading() as cursor:
        at = native.inlined_tables(cursor, table_id)[inlined_table]
        definition = native.definition(cursor, table_id, at)
    assert definition is not None
    return definition.columns


def _values(
    services: Services, keys: Sequence[InlinedKey], columns: Sequence[Column]
) -> list[tuple[str | bytes | None, ...]]:
    names = [column.column_name for column in children_of(columns, None)]
    with services.database.reading() as cursor:
        return native.inlined_values(cursor, keys, names)


def _parquet_column(column: Column, columns: Sequence[Column]) -> ParquetColumn:
    return ParquetColumn(
        name=column.column_name,
        type=duckdb_type(column, columns),
        field_ids=field_ids(column, columns),
        is_binary=column.column_type == "blob",
        has_bounds=not children_of(columns, column.column_id),
    )


def _data_file(path: str, rows: ParquetRows, columns: Sequence[Column], metadata: TableMetadata) -> DataFile:
    top = children_of(columns, None)
    stats = [
        ColumnStats(top[index].column_id, min_value=low, max_value=high, value_count=values, null_count=nulls)
        for index, (values, nulls, low, high) in rows.stats.items()
    ]
    metrics = metrics_of(stats, metadata.schema().leaves())
    return DataFile(
        content=FileContent.DATA,
        file_path=path,
        file_format="PARQUET",
        partition=(),
        record_count=rows.record_count,
        file_size_in_bytes=len(rows.data),
        value_counts=metrics.value_counts,
        null_value_counts=metrics.null_value_counts,
        lower_bounds=metrics.lower_bounds,
        upper_bounds=metrics.upper_bounds,
    )


def _write(services: Services, metadata: TableMetadata, name: str, data: bytes, source: str = "") -> str:
    """The path; two sources of one snapshot may hold the same rows, but deletes tell files apart by their paths."""
    unique = uuid5(UUID(metadata.table_uuid), sha256(data).hexdigest() + source)
    path = f"{metadata.location}/metadata/{name.format(unique)}"
    services.store.write(path, data)
    return path
