"""PURE. Rows of both sides as lines of COPY's text format, made as wholes: psycopg takes longer for each value."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from duckicelake.lake.additions import NewDataFile, NewDeletion, NewFile, NewManifest, NewSnapshot, NewVirtualFile
from duckicelake.lake.model import NameMap
from duckicelake.lake.packed import Packed, PackedStats
from duckicelake.lake.writing.files import partitioning


def file_line(table_id: int, file: NewFile, ducklake_id: int | None, first_row_id: int | None) -> str:
    """Of `duckicelake_file`, which DuckLake calls so and whose rows begin there, if it has it."""
    return (
        f"{file.file_id}\t{table_id}\t{file.content:d}\t{text(file.path)}\t{text(file.file_format)}\t{file.spec_id}\t"
        f"{json(file.partition)}\t{file.record_count}\t{file.file_size_in_bytes}\t{file.added_snapshot_id}\t"
        f"{file.sequence_number}\t{file.file_sequence_number}\t{number(first_row_id)}\t{json(file.metrics)}\t"
        f"{number(ducklake_id)}\n"
    )


def deletion_line(table_id: int, deletion: NewDeletion) -> str:
    """Of `duckicelake_deletion`."""
    return f"{deletion.delete_file_id}\t{deletion.data_file_id}\t{table_id}\t\\\\x{deletion.positions.hex()}\n"


def virtual_file_line(table_id: int, file: NewVirtualFile) -> str:
    """Of `duckicelake_virtual_file`."""
    row_ids, begins = (key.row_id for key in file.keys), (key.begin_snapshot for key in file.keys)
    return f"{file.file_id}\t{table_id}\t{text(file.keys[0].inlined_table)}\t{array(row_ids)}\t{array(begins)}\n"


def manifest_line(table_id: int, manifest: NewManifest) -> str:
    """Of `duckicelake_manifest`."""
    return (
        f"{manifest.manifest_id}\t{table_id}\t{manifest.content:d}\t{manifest.format_version}\t{manifest.spec_id}\t"
        f"{manifest.schema_id}\t{manifest.sequence_number}\t{manifest.min_sequence_number}\t"
        f"{manifest.added_snapshot_id}\t{array(manifest.added)}\t{array(manifest.existing)}\t"
        f"{array(manifest.deleted)}\t{optional('t' if manifest.is_laid_out else None)}\n"
    )


def snapshot_line(table_id: int, made: int | None, snapshot: NewSnapshot) -> str:
    """Of `duckicelake_snapshot`, which a DuckLake snapshot made."""
    return (
        f"{table_id}\t{snapshot.snapshot_id}\t{number(snapshot.proposed_id)}\t{number(made)}\t"
        f"{number(snapshot.parent_snapshot_id)}\t{snapshot.sequence_number}\t{snapshot.timestamp_ms}\t"
        f"{number(snapshot.schema_id)}\t{number(snapshot.first_row_id)}\t{number(snapshot.added_rows)}\t"
        f"{optional(snapshot.key_id)}\t{json(snapshot.summary)}\t{array(snapshot.manifest_ids)}\n"
    )


def log_line(table_id: int, ordinal: int, entry: tuple[int, int]) -> str:
    """Of `duckicelake_snapshot_log`."""
    return f"{table_id}\t{ordinal}\t{entry[0]}\t{entry[1]}\n"


def data_file_line(table_id: int, file: NewDataFile, data_file_id: int, at: int, maps: Mapping[NameMap, int]) -> str:
    """Of `ducklake_data_file`, from a snapshot on."""
    mapping_id = None if file.name_map is None else maps[file.name_map]
    return (
        f"{data_file_id}\t{table_id}\t{at}\t{text(file.path)}\t{flag(file.path_is_relative)}\tparquet\t"
        f"{file.record_count}\t{file.file_size_bytes}\t{file.row_id_start}\t"
        f"{number(partitioning(file, data_file_id))}\t{number(mapping_id)}\n"
    )


def value_lines(table_id: int, file: NewDataFile, data_file_id: int) -> Iterator[str]:
    """Of `ducklake_file_partition_value`."""
    for index, value in enumerate(file.partition_values or ()):
        yield f"{data_file_id}\t{table_id}\t{index}\t{optional(value)}\n"


def stats_lines(table_id: int, stats: PackedStats, data_file_id: int) -> Iterator[str]:
    """Of `ducklake_file_column_stats`."""
    for column_id, _, nan, low, high, size, values, nulls in stats.values():
        yield (
            f"{data_file_id}\t{table_id}\t{column_id}\t{number(size)}\t{number(values)}\t{number(nulls)}\t"
            f"{optional(low)}\t{optional(high)}\t{flag(nan)}\n"
        )


def changes_line(snapshot_id: int, changes: Sequence[str], extra_info: str | None) -> str:
    """Of `ducklake_snapshot_changes`."""
    return f"{snapshot_id}\t{optional(','.join(changes) or None)}\t{optional(extra_info)}\n"


def text(value: str) -> str:
    """A text; most need no escapes."""
    return value if value.isprintable() and "\\" not in value else _escaped(value)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def optional(value: str | None) -> str:
    """A text or null."""
    return "\\N" if value is None else text(value)


def number(value: int | None) -> str:
    """A number or null."""
    return "\\N" if value is None else str(value)


def flag(value: bool | None) -> str:
    """A boolean or null."""
    return "\\N" if value is None else "t" if value else "f"


def json(value: list[Any] | Mapping[str, Any]) -> str:
    """A document."""
    said = value.text if type(value) is Packed else orjson.dumps(value)  # isinstance of a Mapping takes as long as both
    return said.decode().replace("\\", "\\\\")


def array(numbers: Iterable[int]) -> str:
    """A `bigint[]`."""
    return f"{{{','.join(map(str, numbers))}}}"
