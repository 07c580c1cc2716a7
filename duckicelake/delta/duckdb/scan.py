"""Build the SQL of `read_delta`: one scan for each group of files that are read alike."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson
from pyroaring import BitMap64

from duckicelake.delta.duckdb.filters import cast_partition_value
from duckicelake.delta.duckdb.log import DeltaLiveFile, DeltaTable, DuckStore, escape_pattern
from duckicelake.delta.duckdb.types import build_expression, format_type, has_instants, quote_name, quote_text
from duckicelake.delta.log.reader import DeltaLog
from duckicelake.delta.log.schema import DeltaField

_EMPTY_SCAN: Final = "'delta_nothing': {name: 'delta_nothing', type: 'BOOLEAN', default_value: NULL}"
_UTC: Final = frozenset({"UTC", "Etc/UTC"})
_MAX_CONSTANT_PARTS: Final = 32
"""Sets of partition values, each of which may have a scan of its own; a scan of several finds them by a join."""


@dataclass(frozen=True, slots=True)
class ScanPart:
    """Files for one scan. naive: they have instants as INT96. deleted: positions by index of file."""

    files: Sequence[DeltaLiveFile]
    deleted: Sequence[tuple[int, Iterable[int]]] = field(default=())
    naive: bool = False


def build_scan(table: DeltaTable, parts: Sequence[ScanPart], nothing: str) -> str:
    """Build the query for a table's rows.

    Without files it reads no row of `nothing`: DuckDB doesn't plan again a query without a scan.
    """
    if parts:
        return " UNION ALL ".join(_build_part(table, part) for part in parts)
    return f"{_select_missing_columns(table, 'nothing', nothing)} WHERE false"


def build_probe(table: DeltaTable, call: int, file: str) -> str:
    """Build a query of the same columns from a scan of `file`, for `filters` to find in a plan."""
    return f"{_select_missing_columns(table, str(call), file)} WHERE delta_{call}_mark > 0"


def _select_missing_columns(table: DeltaTable, call: str, file: str) -> str:
    """Select the table's columns from a file that has none of them."""
    sources = [(f"delta_{call}_{position}", column) for position, column in enumerate(table.columns)]
    entries = [
        _build_entry(quote_text(column.physical_name), source, format_type(column.type)) for source, column in sources
    ]
    schema = ", ".join([*entries, _build_entry("'delta_mark'", f"delta_{call}_mark", "INTEGER")])
    columns = ", ".join(
        f"{build_expression(source, column.type)} AS {quote_name(column.name)}" for source, column in sources
    )
    # Of a single file DuckDB might take the statistics for the table's.
    paths = f"[{quote_text(escape_pattern(file))}, {quote_text(escape_pattern(file))}]"
    return f"SELECT {columns} FROM read_parquet({paths}, hive_partitioning = false, schema = MAP {{{schema}}})"


def _build_part(table: DeltaTable, part: ScanPart) -> str:
    constant = {name for name, values in _collect_values(table, part).items() if len(set(values)) == 1}
    columns = ", ".join(_build_column(table, part, position, constant) for position in range(len(table.columns)))
    paths = _build_texts([escape_pattern(file.location) for file in part.files])
    source = f"read_parquet({paths}, hive_partitioning = false, schema = MAP {{{_build_schema(table, part)}}}) AS data"
    varying = [column for column in table.partition_columns if column.name not in constant]
    joins = (_build_partitions(table, part, varying) if varying else "") + (
        _build_deletions(part) if part.deleted else ""
    )
    return f"SELECT {columns} FROM {source}{joins}"


def _collect_values(table: DeltaTable, part: ScanPart) -> dict[str, list[str | None]]:
    return {
        column.name: [file.partition_values[position] for file in part.files]
        for position, column in enumerate(table.partition_columns)
    }


def _build_schema(table: DeltaTable, part: ScanPart) -> str:
    by_id = table.metadata.column_mapping == "id"
    entries = [
        _build_entry(
            str(column.id) if by_id else quote_text(column.physical_name),
            f"c{position}",
            format_type(column.type, naive=part.naive),
        )
        for position, column in enumerate(table.columns)
        if column.name not in table.metadata.partition_columns
    ]
    return ", ".join(entries) or _EMPTY_SCAN


def _build_entry(key: str, name: str, kind: str) -> str:
    return f"{key}: {{name: {quote_text(name)}, type: {quote_text(kind)}, default_value: NULL}}"


def _build_column(table: DeltaTable, part: ScanPart, position: int, constant: set[str]) -> str:
    column = table.columns[position]
    if column.name not in table.metadata.partition_columns:
        return f"{build_expression(f'data.c{position}', column.type, naive=part.naive)} AS {quote_name(column.name)}"
    if column.name not in constant:
        return f"files.{_format_partition_name(table, column)} AS {quote_name(column.name)}"
    value = _collect_values(table, part)[column.name][0]
    text = "CAST(NULL AS VARCHAR)" if value is None else quote_text(value)
    return f"{cast_partition_value(text, column.type)} AS {quote_name(column.name)}"


def _format_partition_name(table: DeltaTable, column: DeltaField) -> str:
    return f"p{table.partition_columns.index(column)}"


def _build_partitions(table: DeltaTable, part: ScanPart, columns: Sequence[DeltaField]) -> str:
    values = _collect_values(table, part)
    lists = ", ".join(
        f"unnest({_build_texts(values[column.name])}) AS {_format_partition_name(table, column)}" for column in columns
    )
    typed = ", ".join(
        f"{cast_partition_value(name, column.type)} AS {name}"
        for column in columns
        for name in (_format_partition_name(table, column),)
    )
    rows = f"SELECT unnest(range({len(part.files)})) AS file, {lists}"
    return f" JOIN (SELECT file, {typed} FROM ({rows})) AS files ON data.file_index = files.file"


def _build_deletions(part: ScanPart) -> str:
    rows = ", ".join(f"({index}, '[{','.join(map(str, positions))}]'::BIGINT[])" for index, positions in part.deleted)
    deleted = f"SELECT file, unnest(positions) AS position FROM (VALUES {rows}) AS _ (file, positions)"
    return (
        f" ANTI JOIN ({deleted}) AS deleted "
        "ON data.file_index = deleted.file AND data.file_row_number = deleted.position"
    )


def _build_texts(values: Sequence[str | None]) -> str:
    return f"""from_json({quote_text(orjson.dumps(values).decode())}, '["VARCHAR"]')"""


def split_parts(table: DeltaTable, files: Sequence[DeltaLiveFile], zone: str) -> list[ScanPart]:
    """Divide files into parts for one scan each; those with deleted rows are apart. zone: the session's."""
    old = _with_int96(table, files, zone)
    few = len({tuple(file.partition_values) for file in files}) <= _MAX_CONSTANT_PARTS
    parts: dict[tuple[object, ...], list[DeltaLiveFile]] = {}
    for file in files:
        values = tuple(file.partition_values) if few else ()
        parts.setdefault((values, file.vector is not None, file.location in old), []).append(file)
    return [ScanPart(alike, _read_deleted(table, alike), key[-1] is True) for key, alike in parts.items()]


def _with_int96(table: DeltaTable, files: Sequence[DeltaLiveFile], zone: str) -> set[str]:
    """Find files with instants that DuckDB would read in the session's zone.

    That is read from footers, unless the zone is UTC.
    """
    if not files or zone in _UTC or not any(has_instants(column.type) for column in table.data_columns):
        return set()
    patterns = [escape_pattern(file.location) for file in files]
    query = "SELECT DISTINCT file_name FROM parquet_schema(?) WHERE type = 'INT96'"
    return {name for (name,) in table.connection.execute(query, [patterns]).fetchall()}


def _read_deleted(table: DeltaTable, files: Sequence[DeltaLiveFile]) -> list[tuple[int, Iterable[int]]]:
    """Read the deleted positions of files with a vector, by the file's index."""
    vectors = [(index, file.vector, file.location) for index, file in enumerate(files) if file.vector is not None]
    if not vectors:
        return []
    log = DeltaLog(DuckStore(table.connection), table.root)
    return [(index, BitMap64.deserialize(log.positions(vector, location))) for index, vector, location in vectors]
