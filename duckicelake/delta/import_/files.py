"""PURE. Data files of a Delta version as rows of both sides, and the partition values in their folders' names."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from duckicelake.bridge.snapshots import SnapshotNumbers
from duckicelake.bridge.values.lake_values import format_cast_text, format_stats_text, parse_cast_text
from duckicelake.delta.import_.columns import TableColumns
from duckicelake.delta.import_.stats import PartitionConstant, StatsReader, StatsWidening
from duckicelake.delta.import_.values import parse_partition_value
from duckicelake.delta.log.actions import AddFile
from duckicelake.errors import UnsupportedError
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.types import ListType, MapType, NestedField, PrimitiveType, StructType, list_children
from duckicelake.iceberg.values import to_json
from duckicelake.lake.model import MappedName, NameMap
from duckicelake.lake.state import FileRow, PackedStats

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hive's null. DuckDB also reads `null` so, unless one of its letters is escaped."""
_PARTITION_LRU_ENTRIES: Final = 4096
_LIST: Final = "list"
"""DuckDB's name of the elements of a list in a Parquet file."""


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A partition column: possible names in its folders, and its type."""

    field_id: int
    names: tuple[str, ...]
    type: PrimitiveType


def find_folder_keys(folder: str, columns: Sequence[PartitionColumn], values: Sequence[Any]) -> tuple[str, ...] | None:
    """Find the partition columns' names in a file's folders; None if the folders don't have all values."""
    if not columns:
        return ()
    said: dict[str, str] = {}
    for segment in folder.split("/"):
        key, equals, value = segment.partition("=")
        if equals:
            said[unquote(key)] = _NULL if value.lower() == "null" else unquote(value)
    keys = []
    for column, value in zip(columns, values, strict=True):
        named = next((name for name in column.names if name in said), None)
        if named is None or not _names_value(said[named], column.type, value):
            return None
        keys.append(named)
    return tuple(keys)


def format_linked_folder(columns: Sequence[PartitionColumn], values: Sequence[Any]) -> str:
    """Format Hive folders of the values, with a final slash.

    UnsupportedError: DuckDB can't read one.
    """
    return "".join(
        f"{quote(column.names[0], safe='')}={_format_folder_value(column, value)}/"
        for column, value in zip(columns, values, strict=True)
    )


def _names_value(text: str, type_: PrimitiveType, value: Any) -> bool:
    if value is None or text == _NULL:
        return value is None and text == _NULL
    if type_.name == "string":
        return bool(text == value)
    if type_.name == "binary":
        return False
    return bool(parse_cast_text(type_, text) == value)


def _format_folder_value(column: PartitionColumn, value: Any) -> str:
    if value is None:
        return _NULL
    text = format_cast_text(column.type, value)
    if text is None or text in {"", _NULL}:
        raise UnsupportedError(
            "partition-columns",
            f"DuckLake can't store that {column.names[0]} is {value!r} in a partition: rewrite its rows with another",
        )
    if text.lower() == "null":
        return f"%{ord(text[0]):02X}{text[1:]}"
    return quote(text, safe="")


class TranslatedFile(NamedTuple):
    """A data file's row, DuckLake's statistics and partition values, and the values of its partition.

    keys: names of the partition columns in its folders; None if these don't have all values.
    """

    file: FileRow
    stats: PackedStats
    partition_values: tuple[str | None, ...] | None
    values: tuple[Any, ...]
    keys: tuple[str, ...] | None


class FileTranslator:
    """Translates the files that versions with these columns add.

    located: converts a path of the log to a location. counted: row counts of files whose statistics lack it.
    """

    def __init__(
        self,
        columns: TableColumns,
        spec_id: int,
        located: Callable[[str], str],
        counted: Callable[[str], int | None],
    ) -> None:
        types = columns.schema.leaves()
        fields = columns.schema.map_fields_by_id()
        self.partition = tuple(
            PartitionColumn(i, tuple(dict.fromkeys((columns.paths[i][0], fields[i].name))), types[i])
            for i in columns.partition_ids
        )
        self.columns = columns
        self._spec_id = spec_id
        self._located = located
        self._counted = counted
        self._stats = StatsReader(columns)
        self._partitions = lru_cache(_PARTITION_LRU_ENTRIES)(self._find_partition)
        self._keys = lru_cache(_PARTITION_LRU_ENTRIES)(self._find_keys)
        self._maps: dict[tuple[str, ...], NameMap] = {}
        self._names = tuple(column.names[0] for column in self.partition)

    def of(self, add: AddFile, file_id: int, numbers: SnapshotNumbers, wide: StatsWidening) -> TranslatedFile:
        """Translate a file; its first row id isn't assigned yet.

        DamagedLogError: the log lacks something.
        """
        texts = tuple([add.partition_values.get(name) for name in self._names])
        partition = self._partitions(texts)
        facts = self._stats.of(add.stats, partition.constants, self._counted(add.path), add.path, wide)
        path = self._located(add.path)
        file = FileRow(
            file_id=file_id,
            content=FileContent.DATA,
            path=path,
            file_format="PARQUET",
            spec_id=self._spec_id,
            partition=partition.json,
            record_count=facts.record_count,
            file_size_in_bytes=add.size,
            metrics=facts.metrics,
            added_snapshot_id=numbers.snapshot_id,
            sequence_number=numbers.sequence_number,
            file_sequence_number=numbers.sequence_number,
        )
        keys = self._keys(path.rpartition("/")[0], texts)
        return TranslatedFile(file, facts.stats, partition.texts, partition.values, keys)

    def name_map(self, keys: tuple[str, ...]) -> NameMap:
        """Build the name map of the files, whichever columns they have.

        keys: the folders' names of partition columns.
        """
        known = self._maps.get(keys)
        if known is None:
            known = self._maps[keys] = self._find_map(keys)
        return known

    def _find_map(self, keys: tuple[str, ...]) -> NameMap:
        partition = {column.field_id for column in self.partition}
        rows: list[MappedName] = []
        for field in self.columns.schema.fields:
            if field.id not in partition:
                self._map(field, None, rows)
        folders = (MappedName(k, c.field_id, is_partition=True) for k, c in zip(keys, self.partition, strict=True))
        return NameMap((*rows, *folders))

    def _map(self, field: NestedField, parent: int | None, rows: list[MappedName]) -> None:
        if isinstance(field.type, PrimitiveType) and field.type.name == "unknown":
            return
        rows.append(MappedName(self.columns.paths[field.id][-1], field.id, parent))
        at, is_list = len(rows) - 1, isinstance(field.type, ListType)
        if isinstance(field.type, StructType | ListType | MapType):
            for child in list_children(field.type):
                before = len(rows)
                self._map(child, at, rows)
                if is_list and len(rows) > before:
                    rows[before] = MappedName(_LIST, child.id, at)

    def _find_keys(self, folder: str, texts: tuple[str | None, ...]) -> tuple[str, ...] | None:
        return find_folder_keys(folder, self.partition, self._partitions(texts).values)

    def _find_partition(self, texts: tuple[str | None, ...]) -> "_PartitionValues":
        values = tuple(
            parse_partition_value(c.type, text, c.names[0]) for c, text in zip(self.partition, texts, strict=True)
        )
        pairs = list(zip(self.partition, values, strict=True))
        said = tuple(None if value is None else format_cast_text(column.type, value) for column, value in pairs)
        is_known = bool(said) and all(
            text is not None or value is None for text, value in zip(said, values, strict=True)
        )
        return _PartitionValues(
            values=values,
            json=[_encode_value(column.type, value) for column, value in pairs],
            texts=said if is_known else None,
            constants=tuple(
                PartitionConstant(c.field_id, value, _format_statistic(c.type, value)) for c, value in pairs
            ),
        )


@dataclass(frozen=True, slots=True)
class _PartitionValues:
    """A partition's values: as JSON, as DuckLake's texts if it has all, and as columns of its files."""

    values: tuple[Any, ...]
    json: list[Any]
    texts: tuple[str | None, ...] | None
    constants: tuple[PartitionConstant, ...]


def _encode_value(type_: PrimitiveType, value: Any) -> Any:
    """Encode a JSON single value. Numbers that JSON lacks become texts (`entries.partition_json`)."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else to_json(type_, value)


def _format_statistic(type_: PrimitiveType, value: Any) -> str | None:
    return None if value is None or type_.name == "binary" else format_stats_text(type_, value)
