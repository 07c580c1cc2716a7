"""Equality deletes as positions: DuckLake has no equality deletes, so what they delete is looked up in the data files.

A file is read only if sequence numbers, partitions and metrics leave it possible that rows match, only where the server
may read, and all together only up to `ducklake.equality-deletes.max-bytes`. Nothing here holds a lock or a connection.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from duckicelake.bridge.equality_deletes import (
    EqualityDeletes,
    EqualityKey,
    FieldNames,
    build_equality_deletes,
    build_field_names,
    find_missing_values,
)
from duckicelake.catalog.authz.locations import check_readable
from duckicelake.catalog.context.services import Services
from duckicelake.errors import FileMissingError, InvalidRequestError, UnsupportedError, format_count
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.state import FileRow
from duckicelake.parquet.equality import DataRows, DeleteRows, KeyColumn, find_deleted
from duckicelake.parquet.local_copies import open_local_copies
from duckicelake.properties import MAX_BYTES, get_max_bytes


def find_equality_deletes(
    services: Services,
    table: TableMetadata,
    folders: Sequence[str],
    deletes: Sequence[FileRow],
    data_files: Sequence[FileRow],
) -> dict[int, dict[int, frozenset[int]]]:
    """Return the positions that each equality delete file deletes, by data file, where there are any; all by file id.

    `data_files` are those that are live without these deletes; positions that are deleted already may be among the
    result. `folders` are where files of the table may lie besides its location. Raises InvalidRequestError, naming the
    file, for one that is missing, unreadable or not the table's, and if there is too much to read; UnsupportedError.
    """
    resolved = [build_equality_deletes(file, table) for file in deletes]
    targets = {file.file_id: _find_applying(resolved, file) for file in data_files}
    targeted = [file for file in data_files if targets[file.file_id]]
    check_sizes(services, table, folders, deletes, targeted)
    names = build_field_names(table)
    with open_local_copies(services.store, (file.path for file in (*deletes, *targeted))) as paths:
        rows = [_delete_rows(delete, paths) for delete in resolved]
        data = [_data_rows(file, targets[file.file_id], names, paths) for file in targeted]
        return find_deleted(rows, data)


def _find_applying(deletes: Iterable[EqualityDeletes], data: FileRow) -> list[EqualityDeletes]:
    return [delete for delete in deletes if delete.may_delete_from(data)]


def _size(services: Services, table: TableMetadata, folders: Sequence[str], file: FileRow) -> int:
    """Return the size of a file that may be read; what its manifest says is only what a client said."""
    if file.file_format.upper() != "PARQUET":
        raise UnsupportedError("file-formats", f"{file.path} is {file.file_format}, and DuckLake reads Parquet only")
    check_readable(services, file.path, table.location, folders)
    try:
        return services.store.size(file.path)
    except FileMissingError:
        raise InvalidRequestError(
            f"{file.path} does not exist, but deletes by value can't be applied without it"
        ) from None


def check_sizes(
    services: Services,
    table: TableMetadata,
    folders: Sequence[str],
    deletes: Sequence[FileRow],
    data_files: Sequence[FileRow],
) -> None:
    """Raise InvalidRequestError for files that the server can't read, or that are too large together.

    Raises UnsupportedError.
    """
    sizes = [_size(services, table, folders, file) for file in (*deletes, *data_files)]
    _check_total(sum(sizes), len(data_files), table.properties)


def _check_total(total: int, files: int, properties: Mapping[str, str]) -> None:
    most = get_max_bytes(properties)
    if total > most:
        raise InvalidRequestError(
            f"These deletes by value may concern {format_count(files, 'data file')}, {total} bytes to read with the "
            f"deletes, but the table property {MAX_BYTES} allows {most}: compact the table first, sorted or "
            "partitioned by the delete columns so that fewer files qualify, or raise the property"
        )


def _delete_rows(delete: EqualityDeletes, paths: Mapping[str, Path]) -> DeleteRows:
    keys = tuple(map(key_column, delete.keys))
    return DeleteRows(delete.file.file_id, delete.file.path, paths[delete.file.path], keys)


def _data_rows(
    file: FileRow, deletes: Sequence[EqualityDeletes], names: FieldNames, paths: Mapping[str, Path]
) -> DataRows:
    keys = {key.field.id: key for delete in deletes for key in delete.keys}
    return data_rows(file, keys.values(), names, paths, frozenset(delete.file.file_id for delete in deletes))


def data_rows(
    file: FileRow,
    keys: Iterable[EqualityKey],
    names: FieldNames,
    paths: Mapping[str, Path],
    deletes: frozenset[int] = frozenset(),
) -> DataRows:
    """Return a data file of which these columns are read, at its local path."""
    return DataRows(
        file_id=file.file_id,
        location=file.path,
        path=paths[file.path],
        deletes=deletes,
        names=names.find_in_file(file),
        values=find_missing_values(file, keys, names.table),
    )


def key_column(key: EqualityKey) -> KeyColumn:
    """Return the column as DuckDB reads it."""
    return KeyColumn(key.field.id, key.parents, key.duckdb_type)
