"""PURE. Data files of a Delta version as rows of both sides, with what DuckLake must be told to find their columns."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from duckicelake.bridge.delta.columns import TableColumns
from duckicelake.bridge.delta.paths import PartitionColumn, folder_keys
from duckicelake.bridge.delta.stats import Constant, StatsReader, Widening
from duckicelake.bridge.delta.types import partition_value
from duckicelake.bridge.numbering import Numbering
from duckicelake.bridge.texts import cast_text, to_text
from duckicelake.delta.actions import AddFile
from duckicelake.iceberg.manifest import FileContent
from duckicelake.iceberg.types import ListType, MapType, NestedField, PrimitiveType, StructType, children
from duckicelake.iceberg.values import to_json
from duckicelake.lake.additions import NewFile
from duckicelake.lake.model import MappedName, NameMap
from duckicelake.lake.packed import PackedStats

_REMEMBERED: Final = 4096
_LIST: Final = "list"
"""What DuckDB calls the elements of a list in a Parquet file."""


class TranslatedFile(NamedTuple):
    """A data file's row, DuckLake's statistics and partition values, and the values of its partition.

    keys: what its folders call the partition columns; None if they don't say all the values.
    """

    file: NewFile
    stats: PackedStats
    partition_values: tuple[str | None, ...] | None
    values: tuple[Any, ...]
    keys: tuple[str, ...] | None


class FileTranslator:
    """Translates the files that versions with these columns add.

    located: where a path of the log's is, as clients know it. counted: how many rows a file has whose statistics don't
    say.
    """

    def __init__(
        self,
        columns: TableColumns,
        spec_id: int,
        located: Callable[[str], str],
        counted: Callable[[str], int | None],
    ) -> None:
        types = columns.schema.leaves()
        fields = columns.schema.fields_by_id()
        self.partition = tuple(
            PartitionColumn(i, tuple(dict.fromkeys((columns.paths[i][0], fields[i].name))), types[i])
            for i in columns.partition_ids
        )
        self.columns = columns
        self._spec_id = spec_id
        self._located = located
        self._counted = counted
        self._stats = StatsReader(columns)
        self._partitions = lru_cache(_REMEMBERED)(self._partition_of)
        self._keys = lru_cache(_REMEMBERED)(self._keys_of)
        self._maps: dict[tuple[str, ...], NameMap] = {}
        self._names = tuple(column.names[0] for column in self.partition)

    def of(self, add: AddFile, file_id: int, numbers: Numbering, wide: Widening) -> TranslatedFile:
        """The file's rows; its first row id isn't given yet. Raises DamagedLog for what the log should have said."""
        texts = tuple([add.partition_values.get(name) for name in self._names])
        partition = self._partitions(texts)
        facts = self._stats.of(add.stats, partition.constants, self._counted(add.path), add.path, wide)
        path = self._located(add.path)
        file = NewFile(
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
        """What the files call the columns, whichever they have; `keys` are the folders' names for the partition's."""
        known = self._maps.get(keys)
        if known is None:
            known = self._maps[keys] = self._map_of(keys)
        return known

    def _map_of(self, keys: tuple[str, ...]) -> NameMap:
        partition = {column.field_id for column in self.partition}
        rows: list[MappedName] = []
        for each in self.columns.schema.fields:
            if each.id not in partition:
                self._map(each, None, rows)
        folders = (MappedName(k, c.field_id, is_partition=True) for k, c in zip(keys, self.partition, strict=True))
        return NameMap((*rows, *folders))

    def _map(self, field: NestedField, parent: int | None, rows: list[MappedName]) -> None:
        if isinstance(field.type, PrimitiveType) and field.type.name == "unknown":
            return
        rows.append(MappedName(self.columns.paths[field.id][-1], field.id, parent))
        at, is_list = len(rows) - 1, isinstance(field.type, ListType)
        if isinstance(field.type, StructType | ListType | MapType):
            for child in children(field.type):
                before = len(rows)
                self._map(child, at, rows)
                if is_list and len(rows) > before:
                    rows[before] = MappedName(_LIST, child.id, at)

    def _keys_of(self, folder: str, texts: tuple[str | None, ...]) -> tuple[str, ...] | None:
        return folder_keys(folder, self.partition, self._partitions(texts).values)

    def _partition_of(self, texts: tuple[str | None, ...]) -> "_Partition":
        values = tuple(partition_value(c.type, text, c.names[0]) for c, text in zip(self.partition, texts, strict=True))
        pairs = list(zip(self.partition, values, strict=True))
        said = tuple(None if value is None else cast_text(column.type, value) for column, value in pairs)
        is_known = bool(said) and all(
            text is not None or value is None for text, value in zip(said, values, strict=True)
        )
        return _Partition(
            values=values,
            json=[_json(column.type, value) for column, value in pairs],
            texts=said if is_known else None,
            constants=tuple(Constant(c.field_id, value, _statistic(c.type, value)) for c, value in pairs),
        )


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition: its values, in JSON, in DuckLake's words where it has some for all, and as columns of its files."""

    values: tuple[Any, ...]
    json: list[Any]
    texts: tuple[str | None, ...] | None
    constants: tuple[Constant, ...]


def _json(type_: PrimitiveType, value: Any) -> Any:
    """A JSON single value; numbers that JSON lacks as texts (`entries.partition_json`)."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else to_json(type_, value)


def _statistic(type_: PrimitiveType, value: Any) -> str | None:
    return None if value is None or type_.name == "binary" else to_text(type_, value)
