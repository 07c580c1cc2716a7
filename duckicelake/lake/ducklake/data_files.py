"""Write data files, delete files, the ends of inlined rows, and statistics."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from orjson import dumps
from psycopg import Cursor

from duckicelake.lake.additions import OWN_PARTITIONING_ID, NewDataFile, NewDeleteFile
from duckicelake.lake.changes import LakeStep, TableStats
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake.inlined_rows import translate_damage
from duckicelake.lake.model import InlinedKey, NameMap
from duckicelake.lake.state import PackedStats
from duckicelake.postgres.pipeline import Write
from duckicelake.postgres.queries import BATCH_ROWS, Row, load_queries

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


def build_stats(table_id: int, stats: TableStats) -> Write:
    """Build what replaces the table-wide statistics; columns with None lose their row."""
    parameters = {
        "table_id": table_id,
        "record_count": stats.record_count,
        "next_row_id": stats.next_row_id,
        "file_size_bytes": stats.file_size_bytes,
        "unknown": dumps([column_id for column_id, row in stats.columns.items() if row is None]).decode(),
        "columns": PackedStats([row for row in stats.columns.values() if row is not None]).text.decode(),
    }
    return Write(_SQL.replace_stats, parameters)


def build_name_maps(table_id: int, maps: Sequence[NameMap], first_id: int, known: dict[NameMap, int]) -> list[Write]:
    """Build maps of what files without field ids call the columns; none that the table has. `known` gets the ids."""
    writes = []
    for mapping_id, names in enumerate(maps, start=first_id):
        if names in known:
            continue
        known[names] = mapping_id
        writes.append(Write(_SQL.insert_column_mapping, {"mapping_id": mapping_id, "table_id": table_id}))
        writes += [
            Write(_SQL.insert_name_mapping, {"mapping_id": mapping_id, "column_id": index, **asdict(name)})
            for index, name in enumerate(names.names)
        ]
    return writes


def build_files(table_id: int, step: LakeStep, first_id: int, maps: dict[NameMap, int], at: int) -> list[Write]:
    """Build a step's statistics, name maps, data files and delete files; the files' side-table rows must be there.

    Data files, delete files and name maps take ids from `first_id` on, in this order. maps: those that the table has.
    """
    first_delete = first_id + len(step.data_files)
    return [
        *([] if step.stats is None else [build_stats(table_id, step.stats)]),
        *build_name_maps(table_id, step.name_maps, first_delete + len(step.delete_files), maps),
        *build_data_files(table_id, step.data_files, first_id, at, maps),
        *build_older_files(step, first_id),
        *build_delete_files(table_id, step.delete_files, first_delete, at),
    ]


def build_older_files(step: LakeStep, first_id: int) -> list[Write]:
    """Build the note, in side-table rows of files from former steps, which rows of DuckLake they have now."""
    new = {file.file_id for file in step.side.files}
    rows_now = [
        (file.file_id, data_file_id, file.row_id_start)
        for data_file_id, file in enumerate(step.data_files, start=first_id)
        if file.file_id not in new
    ]
    return [Write(_SQL.register_files, {"files": dumps(rows_now).decode()})] if rows_now else []


def build_data_files(
    table_id: int,
    new: Sequence[NewDataFile],
    first_id: int,
    at: int,
    maps: Mapping[NameMap, int] = _NO_MAPS,
) -> list[Write]:
    """Build data files for DuckLake alone, with ids from `first_id` on."""
    writes = []
    for start in range(0, len(new), BATCH_ROWS):
        files = list(enumerate(new[start : start + BATCH_ROWS], first_id + start))
        rows = [_build_data_file_row(file, data_file_id, maps, at) for data_file_id, file in files]
        values = [(data_file_id, file.partition_values or ()) for data_file_id, file in files]
        stats = [(data_file_id, file.stats) for data_file_id, file in files]
        writes.append(build_data_file_rows(table_id, rows, values, stats))
    return writes


def build_data_file_rows(
    table_id: int,
    rows: Sequence[Mapping[str, object]],
    values: Sequence[tuple[int, Sequence[str | None]]],
    stats: Sequence[tuple[int, PackedStats]],
) -> Write:
    """Build rows of `ducklake_data_file`, with the files' partition values and statistics, each with its file's id."""
    of_keys = [
        {"data_file_id": data_file_id, "partition_key_index": index, "partition_value": value}
        for data_file_id, of_file in values
        for index, value in enumerate(of_file)
    ]
    of_columns = [row for file_id, of_file in stats for row in _build_stats_rows(of_file, file_id)]
    parameters = {
        "table_id": table_id,
        "files": dumps(rows).decode(),
        "values": dumps(of_keys).decode(),
        "stats": dumps(of_columns).decode(),
    }
    return Write(_SQL.insert_data_files, parameters)


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
        "partition_id": OWN_PARTITIONING_ID + data_file_id if file.partition_values else None,
        "mapping_id": None if file.name_map is None else maps[file.name_map],
        "row_group_count": file.row_group_count,
    }


def build_delete_files(table_id: int, files: Sequence[NewDeleteFile], first_id: int, at: int) -> list[Write]:
    """Build delete files of main, each in the place of the one its data file had."""
    return [
        Write(
            _SQL.insert_delete_file,
            {
                "delete_file_id": first_id + index,
                "table_id": table_id,
                "at": at,
                "data_file_id": file.data_file_id,
                "path": file.path,
                "delete_count": file.delete_count,
                "file_size_bytes": file.file_size_bytes,
            },
        )
        for index, file in enumerate(files)
    ]
