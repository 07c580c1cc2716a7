"""Write data files, delete files, the ends of inlined rows, and statistics."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import count

from psycopg import Cursor

from duckicelake.lake.additions import NewDataFile, NewDeleteFile, compute_partitioning_id
from duckicelake.lake.changes import LakeStep, TableStats
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake.inlined_rows import translate_damage
from duckicelake.lake.model import InlinedKey, NameMap
from duckicelake.lake.packed import PackedStats
from duckicelake.postgres.pipeline import execute_no_result, flush_full_batch, json_param, split_batches
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "write")
_NO_MAPS: Mapping[NameMap, int] = {}


def end_files(cursor: Cursor[Row], table_id: int, step: LakeStep, at: int) -> None:
    """End the rows of files and inlined rows that leave main at the snapshot; StaleBaseError: some had already left.

    As in DuckLake, delete files of ended data files don't end: a flush that still finds inlined deletes goes on from
    them, and would otherwise write a second delete file for the same time.
    """
    if step.ended_files:
        parameters = {"table_id": table_id, "at": at, "file_ids": list(step.ended_files)}
        _check_count(len(cursor.execute(_SQL.end_data_files, parameters).fetchall()), len(step.ended_files))
    _end_rows(cursor, step.ended_rows, at)


def _end_rows(cursor: Cursor[Row], keys: Sequence[InlinedKey], at: int) -> None:
    by_table: defaultdict[str, list[InlinedKey]] = defaultdict(list)
    for key in keys:
        by_table[key.inlined_table].append(key)
    if keys:
        cursor.execute(_SQL.wait_briefly)
    for name, group in by_table.items():
        parameters = {
            "name": name,
            "at": at,
            "begins": [k.begin_snapshot for k in group],
            "rows": [k.row_id for k in group],
        }
        with translate_damage(name):
            ((ended,),) = cursor.execute(_SQL.end_inlined_rows, parameters).fetchall()
        _check_count(ended, len(group))


def _check_count(found: int, wanted: int) -> None:
    if found != wanted:
        raise StaleBaseError(f"{wanted - found} of {wanted} removed files or rows had left the table before")


def write_stats(cursor: Cursor[Row], table_id: int, stats: TableStats) -> None:
    """Replace the table-wide statistics; columns with None lose their row."""
    parameters = {
        "table_id": table_id,
        "record_count": stats.record_count,
        "next_row_id": stats.next_row_id,
        "file_size_bytes": stats.file_size_bytes,
        "unknown": json_param([column_id for column_id, row in stats.columns.items() if row is None]),
        "columns": PackedStats([row for row in stats.columns.values() if row is not None]).text.decode(),
    }
    execute_no_result(cursor, _SQL.replace_stats, parameters)


def write_name_maps(
    cursor: Cursor[Row], table_id: int, maps: Sequence[NameMap], first_id: int, known: dict[NameMap, int]
) -> None:
    """Register the column names of files without field ids, unless the table has the same map. `known` gets the ids."""
    for mapping_id, names in enumerate(maps, start=first_id):
        if names in known:
            continue
        known[names] = mapping_id
        cursor.execute(_SQL.insert_column_mapping, {"mapping_id": mapping_id, "table_id": table_id})
        rows = [
            {"mapping_id": mapping_id, "column_id": index, **asdict(name)} for index, name in enumerate(names.names)
        ]
        cursor.executemany(_SQL.insert_name_mapping, rows)


def write_data_files(
    cursor: Cursor[Row], table_id: int, step: LakeStep, first_id: int, maps: Mapping[NameMap, int], at: int
) -> None:
    """Register data files of main with ids from `first_id` on; their side-table rows must be there."""
    insert_lake_files(cursor, table_id, step.data_files, first_id, at, maps)
    register_older_files(cursor, step, first_id)


def register_older_files(cursor: Cursor[Row], step: LakeStep, first_id: int) -> None:
    """Record in the side-table rows of files from former steps which DuckLake rows they have now."""
    new = {file.file_id for file in step.side.files}
    rows_now = [
        (file.file_id, data_file_id, file.row_id_start)
        for data_file_id, file in enumerate(step.data_files, start=first_id)
        if file.file_id not in new
    ]
    if rows_now:
        execute_no_result(cursor, _SQL.register_files, {"files": json_param(rows_now)})


def insert_lake_files(
    cursor: Cursor[Row],
    table_id: int,
    new: Sequence[NewDataFile],
    first_id: int,
    at: int,
    maps: Mapping[NameMap, int] = _NO_MAPS,
) -> int:
    """Register data files with DuckLake alone, with ids from `first_id` on; return the next id."""
    for files in split_batches(new):
        _insert_data_files(cursor, table_id, list(zip(files, count(first_id), strict=False)), maps, at)
        first_id += len(files)
    return first_id


def _insert_data_files(
    cursor: Cursor[Row],
    table_id: int,
    files: Sequence[tuple[NewDataFile, int]],
    maps: Mapping[NameMap, int],
    at: int,
) -> None:
    """Insert data files with their ids."""
    rows = [_build_data_file_row(file, data_file_id, maps, at) for file, data_file_id in files]
    values = [(data_file_id, file.partition_values or ()) for file, data_file_id in files]
    insert_data_file_rows(cursor, table_id, rows, values, [(data_file_id, file.stats) for file, data_file_id in files])
    flush_full_batch(cursor, files)


def insert_data_file_rows(
    cursor: Cursor[Row],
    table_id: int,
    rows: Sequence[Mapping[str, object]],
    values: Sequence[tuple[int, Sequence[str | None]]],
    stats: Sequence[tuple[int, PackedStats]],
) -> None:
    """Insert rows of `ducklake_data_file`, with the files' partition values and statistics, each with its file's id."""
    parameters = {
        "table_id": table_id,
        "files": json_param(rows),
        "values": json_param([
            {"data_file_id": data_file_id, "partition_key_index": index, "partition_value": value}
            for data_file_id, of_file in values
            for index, value in enumerate(of_file)
        ]),
        "stats": json_param([row for file_id, of_file in stats for row in _build_stats_rows(of_file, file_id)]),
    }  # fmt: skip
    execute_no_result(cursor, _SQL.insert_data_files, parameters)


def _build_stats_rows(stats: PackedStats, data_file_id: int) -> list[dict[str, object]]:
    return [
        {
            "data_file_id": data_file_id,
            "column_id": column_id,
            "contains_nan": nan,
            "min_value": low,
            "max_value": high,
            "column_size_bytes": size,
            "value_count": values,
            "null_count": nulls,
        }
        for column_id, _, nan, low, high, size, values, nulls in stats.values()
    ]


def _build_data_file_row(
    file: NewDataFile, data_file_id: int, maps: Mapping[NameMap, int], at: int
) -> dict[str, object]:
    return {
        "data_file_id": data_file_id,
        "begin_snapshot": at,
        "path": file.path,
        "path_is_relative": file.path_is_relative,
        "record_count": file.record_count,
        "file_size_bytes": file.file_size_bytes,
        "row_id_start": file.row_id_start,
        "partition_id": compute_partitioning_id(file, data_file_id),
        "mapping_id": None if file.name_map is None else maps[file.name_map],
        "row_group_count": file.row_group_count,
    }


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
