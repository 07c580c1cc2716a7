"""PURE. Format rows of both sides as lines of COPY's text format."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from duckicelake.lake.additions import (
    OWN_PARTITIONING_ID,
    NewDataFile,
    NewDeletion,
    NewManifest,
    NewSnapshot,
    NewVirtualFile,
)
from duckicelake.lake.model import NameMap
from duckicelake.lake.state import FileRow, Packed, PackedStats


def format_file(table_id: int, file: FileRow, ducklake_id: int | None, first_row_id: int | None) -> str:
    """Format a row of `duckicelake_file`. ducklake_id, first_row_id: its id and first row in DuckLake, if any."""
    return (
        f"{file.file_id}\t{table_id}\t{file.content:d}\t{format_text(file.path)}\t{format_text(file.file_format)}\t{file.spec_id}\t"
        f"{format_json(file.partition)}\t{file.record_count}\t{file.file_size_in_bytes}\t{file.added_snapshot_id}\t"
        f"{file.sequence_number}\t{file.file_sequence_number}\t{format_number(first_row_id)}\t{format_json(file.metrics)}\t"
        f"{format_number(ducklake_id)}\n"
    )


def format_deletion(table_id: int, deletion: NewDeletion) -> str:
    """Format a row of `duckicelake_deletion`."""
    return f"{deletion.delete_file_id}\t{deletion.data_file_id}\t{table_id}\t\\\\x{deletion.positions.hex()}\n"


def format_virtual_file(table_id: int, file: NewVirtualFile) -> str:
    """Format a row of `duckicelake_virtual_file`."""
    row_ids, begins = (key.row_id for key in file.keys), (key.begin_snapshot for key in file.keys)
    inlined_table = format_text(file.keys[0].inlined_table)
    return f"{file.file_id}\t{table_id}\t{inlined_table}\t{format_array(row_ids)}\t{format_array(begins)}\n"


def format_manifest(table_id: int, manifest: NewManifest) -> str:
    """Format a row of `duckicelake_manifest`."""
    return (
        f"{manifest.manifest_id}\t{table_id}\t{manifest.content:d}\t{manifest.format_version}\t{manifest.spec_id}\t"
        f"{manifest.schema_id}\t{manifest.sequence_number}\t{manifest.min_sequence_number}\t"
        f"{manifest.added_snapshot_id}\t{format_array(manifest.added)}\t{format_array(manifest.existing)}\t"
        f"{format_array(manifest.deleted)}\t{format_optional_text('t' if manifest.is_laid_out else None)}\n"
    )


def format_snapshot(table_id: int, made: int | None, snapshot: NewSnapshot) -> str:
    """Format a row of `duckicelake_snapshot`. made: the DuckLake snapshot that made it."""
    return (
        f"{table_id}\t{snapshot.snapshot_id}\t{format_number(snapshot.proposed_id)}\t{format_number(made)}\t"
        f"{format_number(snapshot.parent_snapshot_id)}\t{snapshot.sequence_number}\t{snapshot.timestamp_ms}\t"
        f"{format_number(snapshot.schema_id)}\t{format_number(snapshot.first_row_id)}\t{format_number(snapshot.added_rows)}\t"
        f"{format_optional_text(snapshot.key_id)}\t{format_json(snapshot.summary)}\t{format_array(snapshot.manifest_ids)}\n"
    )


def format_log_entry(table_id: int, ordinal: int, entry: tuple[int, int]) -> str:
    """Format a row of `duckicelake_snapshot_log`."""
    return f"{table_id}\t{ordinal}\t{entry[0]}\t{entry[1]}\n"


def format_data_file(table_id: int, file: NewDataFile, data_file_id: int, at: int, maps: Mapping[NameMap, int]) -> str:
    """Format a row of `ducklake_data_file`, from a snapshot on."""
    mapping_id = None if file.name_map is None else maps[file.name_map]
    partitioning_id = OWN_PARTITIONING_ID + data_file_id if file.partition_values else None
    return (
        f"{data_file_id}\t{table_id}\t{at}\t{format_text(file.path)}\t{format_flag(file.path_is_relative)}\tparquet\t"
        f"{file.record_count}\t{file.file_size_bytes}\t{file.row_id_start}\t"
        f"{format_number(partitioning_id)}\t{format_number(mapping_id)}\n"
    )


def format_partition_values(table_id: int, file: NewDataFile, data_file_id: int) -> Iterator[str]:
    """Format rows of `ducklake_file_partition_value`."""
    for index, value in enumerate(file.partition_values or ()):
        yield f"{data_file_id}\t{table_id}\t{index}\t{format_optional_text(value)}\n"


def format_stats(table_id: int, stats: PackedStats, data_file_id: int, *, has_flags: bool) -> Iterator[str]:
    """Format rows of `ducklake_file_column_stats`; flags, if it has any, say that bounds may not be exact."""
    end = "\tf\tf\n" if has_flags else "\n"
    for column_id, _, nan, low, high, size, values, nulls in stats.values():
        yield (
            f"{data_file_id}\t{table_id}\t{column_id}\t{format_number(size)}\t{format_number(values)}\t{format_number(nulls)}\t"
            f"{format_optional_text(low)}\t{format_optional_text(high)}\t{format_flag(nan)}{end}"
        )


def format_changes(snapshot_id: int, changes: Sequence[str], extra_info: str | None) -> str:
    """Format a row of `ducklake_snapshot_changes`."""
    return f"{snapshot_id}\t{format_optional_text(','.join(changes) or None)}\t{format_optional_text(extra_info)}\n"


def format_text(value: str) -> str:
    """Format a text; most need no escapes."""
    return value if value.isprintable() and "\\" not in value else _escape_text(value)


def _escape_text(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def format_optional_text(value: str | None) -> str:
    """Format a text or null."""
    return "\\N" if value is None else format_text(value)


def format_number(value: int | None) -> str:
    """Format a number or null."""
    return "\\N" if value is None else str(value)


def format_flag(value: bool | None) -> str:
    """Format a boolean or null."""
    return "\\N" if value is None else "t" if value else "f"


def format_json(value: list[Any] | Mapping[str, Any]) -> str:
    """Format a JSON document."""
    said = value.text if type(value) is Packed else orjson.dumps(value)  # isinstance of a Mapping takes as long as both
    return said.decode().replace("\\", "\\\\")


def format_array(numbers: Iterable[int]) -> str:
    """Format a `bigint[]`."""
    return f"{{{','.join(map(str, numbers))}}}"
