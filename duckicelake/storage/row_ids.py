"""Copies of Parquet files in which every row has its row id, for DuckLake.

Engines leave `_row_id` null in rows that are new among rewritten ones (a MERGE's inserts); Iceberg readers then count
from the file's first row id. DuckLake doesn't: it takes null for no id, gives updated rows the id 0, and so loses rows.
"""

from pathlib import Path

from duckicelake.storage.parquet_copy import ParquetSource, parquet_source, quoted

ROW_ID, SEQUENCE_NUMBER = 2147483540, 2147483539


def copy_with_row_ids(file: Path, copy: Path, first_row_id: int, sequence_number: int) -> bool:
    """Write a copy in which no row lacks its row id, in the same order; False, and no copy, if none does.

    InvalidRequest if it isn't a Parquet file.
    """
    with parquet_source(file) as source:
        columns = source.column_ids()
        if ROW_ID not in columns or not _lacks(source, columns[ROW_ID]):
            return False
        source.copy(copy, _completed(columns, first_row_id, sequence_number))
    return True


def _lacks(source: ParquetSource, column: str) -> bool:
    row = source.rows().aggregate(f"count(*) > count({quoted(column)})").fetchone()
    return bool(row and row[0])


def _completed(columns: dict[int | None, str], first_row_id: int, sequence_number: int) -> dict[str, str]:
    row_id = columns[ROW_ID]
    completed = {row_id: f"coalesce({quoted(row_id)}, {first_row_id} + file_row_number)"}
    if SEQUENCE_NUMBER in columns:
        number = columns[SEQUENCE_NUMBER]
        completed[number] = f"coalesce({quoted(number)}, {sequence_number})"
    return completed
