"""Writes of DuckLake's data: files that join or leave main, inlined rows that end, and their statistics."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TypeVar

from psycopg import Cursor, sql

from duckicelake.lake.changes import LakeStep, NewDataFile, NewDeleteFile, TableStats
from duckicelake.lake.database import Row
from duckicelake.lake.model import ColumnStats, InlinedKey, NameMap
from duckicelake.lake.queries import queries
from duckicelake.lake.snapshots import NewSnapshot

_SQL = queries("write")
_OWN_PARTITIONING = 2**62  # and above: no ids of DuckLake's
_BATCH = 10_000

T = TypeVar("T")


class StaleBase(Exception):  # noqa: N818  not an error of the caller's: compute the commit again on fresh state
    """The table changed after the commit was computed; nothing may be written from it."""


def end_files(cursor: Cursor[Row], table_id: int, step: LakeStep, at: int) -> None:
    """End what leaves main at the snapshot; StaleBase if any of it had already left.

    Delete files of ended data files don't end, as in DuckLake: a flush that still finds inlined deletes goes on from
    them, and would else write a second delete file for the same time.
    """
    if step.ended_files:
        parameters = {"table_id": table_id, "at": at, "file_ids": list(step.ended_files)}
        _expect(len(cursor.execute(_SQL.end_data_files, parameters).fetchall()), len(step.ended_files))
    _end_rows(cursor, step.ended_rows, at)


def _end_rows(cursor: Cursor[Row], keys: Sequence[InlinedKey], at: int) -> None:
    by_table: defaultdict[str, list[InlinedKey]] = defaultdict(list)
    for key in keys:
        by_table[key.inlined_table].append(key)
    if keys:
        cursor.execute(_SQL.wait_briefly)
    for name, group in by_table.items():
        query = sql.SQL(
            "UPDATE {} AS i SET end_snapshot = %(at)s "
            "FROM unnest(%(begins)s::bigint[], %(rows)s::bigint[]) AS k (b, r) "
            "WHERE i.begin_snapshot = k.b AND i.row_id = k.r AND i.end_snapshot IS NULL RETURNING i.row_id"
        ).format(sql.Identifier(name))
        parameters = {"at": at, "begins": [k.begin_snapshot for k in group], "rows": [k.row_id for k in group]}
        _expect(len(cursor.execute(query, parameters).fetchall()), len(group))


def _expect(found: int, wanted: int) -> None:
    if found != wanted:
        raise StaleBase(f"{wanted - found} of {wanted} removed files or rows had left the table before")


def write_stats(cursor: Cursor[Row], table_id: int, stats: TableStats) -> None:
    """Replace the table-wide statistics; columns with None lose their row."""
    rows = [row for row in stats.columns.values() if row is not None]
    parameters = {
        "table_id": table_id,
        "record_count": stats.record_count,
        "next_row_id": stats.next_row_id,
        "file_size_bytes": stats.file_size_bytes,
        "replaced": list(stats.columns),
        "column_ids": [row.column_id for row in rows],
        "contains_null": [row.contains_null for row in rows],
        "contains_nan": [row.contains_nan for row in rows],
        "min_values": [row.min_value for row in rows],
        "max_values": [row.max_value for row in rows],
    }
    cursor.execute(_SQL.replace_stats, parameters)


def write_name_maps(cursor: Cursor[Row], table_id: int, maps: Sequence[NameMap], first_id: int) -> dict[NameMap, int]:
    """Register what files without field ids call the columns; the ids of the maps."""
    ids = {names: first_id + index for index, names in enumerate(maps)}
    for names, mapping_id in ids.items():
        cursor.execute(_SQL.insert_column_mapping, {"mapping_id": mapping_id, "table_id": table_id})
        rows = [
            {"mapping_id": mapping_id, "column_id": index, **asdict(name)} for index, name in enumerate(names.names)
        ]
        cursor.executemany(_SQL.insert_name_mapping, rows)
    return ids


def write_data_files(
    cursor: Cursor[Row],
    table_id: int,
    files: Sequence[NewDataFile],
    name_maps: Mapping[NameMap, int],
    snapshot: NewSnapshot,
) -> None:
    """Register data files of main, each under the next `ducklake_data_file` id; their side-table rows must be there."""
    if not files:
        return
    ids = {file.file_id: snapshot.first_file_id + index for index, file in enumerate(files)}
    rows = (
        {
            **_data_file(table_id, file, ids[file.file_id], snapshot.id),
            "mapping_id": None if file.name_map is None else name_maps[file.name_map],
        }
        for file in files
    )
    cursor.executemany(_SQL.insert_data_file, rows)
    for batch in _batches((ids[file.file_id], row) for file in files for row in file.stats):
        cursor.execute(_SQL.insert_file_stats, _stats(table_id, batch))
    values = [row for file in files for row in _partition_values(table_id, ids[file.file_id], file)]
    if values:
        cursor.executemany(_SQL.insert_partition_value, values)
    parameters = {
        "file_ids": [file.file_id for file in files],
        "ducklake_ids": list(ids.values()),
        "row_id_starts": [file.row_id_start for file in files],
    }
    cursor.execute(_SQL.register_files, parameters)


def _data_file(table_id: int, file: NewDataFile, data_file_id: int, at: int) -> dict[str, object]:
    """A partitioned file is of a partitioning of its own: DuckDB dies merging files of one partition from two folders.

    It skips files by the values alone, wherever a filter names a bucket.
    """
    return {
        "data_file_id": data_file_id,
        "table_id": table_id,
        "at": at,
        "path": file.path,
        "path_is_relative": file.path_is_relative,
        "record_count": file.record_count,
        "file_size_bytes": file.file_size_bytes,
        "row_id_start": file.row_id_start,
        "partition_id": _OWN_PARTITIONING + data_file_id if file.partition_values else None,
    }


def _stats(table_id: int, rows: Sequence[tuple[int, ColumnStats]]) -> dict[str, object]:
    return {
        "table_id": table_id,
        "data_file_ids": [data_file_id for data_file_id, _ in rows],
        "column_ids": [row.column_id for _, row in rows],
        "sizes": [row.column_size_bytes for _, row in rows],
        "value_counts": [row.value_count for _, row in rows],
        "null_counts": [row.null_count for _, row in rows],
        "min_values": [row.min_value for _, row in rows],
        "max_values": [row.max_value for _, row in rows],
        "contains_nan": [row.contains_nan for _, row in rows],
    }


def _batches(rows: Iterable[T]) -> Iterator[Sequence[T]]:
    """The rows in parts that a statement takes without much memory."""
    following = iter(rows)
    while batch := list(islice(following, _BATCH)):
        yield batch


def _partition_values(table_id: int, data_file_id: int, file: NewDataFile) -> list[dict[str, object]]:
    return [
        {"data_file_id": data_file_id, "table_id": table_id, "key_index": index, "value": value}
        for index, value in enumerate(file.partition_values or ())
    ]


def write_delete_files(
    cursor: Cursor[Row], table_id: int, files: Sequence[NewDeleteFile], first_id: int, at: int
) -> None:
    """Register delete files of main, each in the place of the one its data file had."""
    rows = [
        {
            "delete_file_id": first_id + index,
            "table_id": table_id,
            "at": at,
            "data_file_id": file.data_file_id,
            "path": file.path,
            "delete_count": file.delete_count,
            "file_size_bytes": file.file_size_bytes,
        }
        for index, file in enumerate(files)
    ]
    if rows:
        cursor.executemany(_SQL.insert_delete_file, rows)
