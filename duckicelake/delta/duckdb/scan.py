"""PURE. What `read_delta` is in SQL: one scan of the live files, each with its partition values and deleted rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from duckicelake.delta.duckdb.bounds import partition_value
from duckicelake.delta.duckdb.log import LiveFile, Table
from duckicelake.delta.duckdb.store import escaped
from duckicelake.delta.duckdb.types import expression, named, quoted, type_text
from duckicelake.delta.schema import DeltaField

_NOTHING: Final = "'delta_nothing': {name: 'delta_nothing', type: 'BOOLEAN', default_value: NULL}"


@dataclass(frozen=True, slots=True)
class Part:
    """Files that are read alike: `naive`, if they have instants as INT96. `deleted` are positions by index of file."""

    files: Sequence[LiveFile]
    deleted: Sequence[tuple[int, Iterable[int]]] = field(default=())
    naive: bool = False


def scan(table: Table, parts: Sequence[Part], nothing: str) -> str:
    """The query for a table's rows; without files it reads none of `nothing`, as plans without any aren't made anew."""
    if parts:
        return " UNION ALL ".join(_part(table, part) for part in parts)
    return f"{_of_one_file(table, 'nothing', nothing)} WHERE false"


def probe(table: Table, call: int, file: str) -> str:
    """A query of the same columns, all of them from a scan of `file`, for `filters` to find in a plan."""
    return f"{_of_one_file(table, str(call), file)} WHERE delta_{call}_mark > 0"


def _of_one_file(table: Table, call: str, file: str) -> str:
    """The table's columns from a file that has none of them."""
    sources = [(f"delta_{call}_{position}", each) for position, each in enumerate(table.columns)]
    entries = [_entry(quoted(each.physical_name), source, type_text(each.type)) for source, each in sources]
    schema = ", ".join([*entries, _entry("'delta_mark'", f"delta_{call}_mark", "INTEGER")])
    columns = ", ".join(f"{expression(source, each.type)} AS {named(each.name)}" for source, each in sources)
    # Of a single file DuckDB might take the statistics for the table's.
    paths = f"[{quoted(escaped(file))}, {quoted(escaped(file))}]"
    return f"SELECT {columns} FROM read_parquet({paths}, hive_partitioning = false, schema = MAP {{{schema}}})"


def _part(table: Table, part: Part) -> str:
    constant = {name for name, values in _values(table, part).items() if len(set(values)) == 1}
    columns = ", ".join(_column(table, part, position, constant) for position in range(len(table.columns)))
    paths = _texts([escaped(file.location) for file in part.files])
    source = f"read_parquet({paths}, hive_partitioning = false, schema = MAP {{{_schema(table, part)}}}) AS data"
    varying = [each for each in table.partition_columns if each.name not in constant]
    joins = (_partitions(table, part, varying) if varying else "") + (_deletions(part) if part.deleted else "")
    return f"SELECT {columns} FROM {source}{joins}"


def _values(table: Table, part: Part) -> dict[str, list[str | None]]:
    return {
        each.name: [file.partition_values[position] for file in part.files]
        for position, each in enumerate(table.partition_columns)
    }


def _schema(table: Table, part: Part) -> str:
    by_id = table.metadata.column_mapping == "id"
    entries = [
        _entry(
            str(each.id) if by_id else quoted(each.physical_name),
            f"c{position}",
            type_text(each.type, naive=part.naive),
        )
        for position, each in enumerate(table.columns)
        if each.name not in table.metadata.partition_columns
    ]
    return ", ".join(entries) or _NOTHING


def _entry(key: str, name: str, kind: str) -> str:
    return f"{key}: {{name: {quoted(name)}, type: {quoted(kind)}, default_value: NULL}}"


def _column(table: Table, part: Part, position: int, constant: set[str]) -> str:
    column = table.columns[position]
    if column.name not in table.metadata.partition_columns:
        return f"{expression(f'data.c{position}', column.type, naive=part.naive)} AS {named(column.name)}"
    if column.name not in constant:
        return f"files.{_partition_name(table, column)} AS {named(column.name)}"
    value = _values(table, part)[column.name][0]
    text = "CAST(NULL AS VARCHAR)" if value is None else quoted(value)
    return f"{partition_value(text, column.type)} AS {named(column.name)}"


def _partition_name(table: Table, column: DeltaField) -> str:
    return f"p{table.partition_columns.index(column)}"


def _partitions(table: Table, part: Part, columns: Sequence[DeltaField]) -> str:
    values = _values(table, part)
    lists = ", ".join(f"unnest({_texts(values[each.name])}) AS {_partition_name(table, each)}" for each in columns)
    typed = ", ".join(
        f"{partition_value(name, each.type)} AS {name}" for each in columns for name in (_partition_name(table, each),)
    )
    rows = f"SELECT unnest(range({len(part.files)})) AS file, {lists}"
    return f" JOIN (SELECT file, {typed} FROM ({rows})) AS files ON data.file_index = files.file"


def _deletions(part: Part) -> str:
    rows = ", ".join(f"({index}, '[{','.join(map(str, positions))}]'::BIGINT[])" for index, positions in part.deleted)
    deleted = f"SELECT file, unnest(positions) AS position FROM (VALUES {rows}) AS _ (file, positions)"
    return (
        f" ANTI JOIN ({deleted}) AS deleted "
        "ON data.file_index = deleted.file AND data.file_row_number = deleted.position"
    )


def _texts(values: Sequence[str | None]) -> str:
    return f"""from_json({quoted(orjson.dumps(values).decode())}, '["VARCHAR"]')"""
