"""PURE. Data files of a Delta version as rows of both sides, with what DuckLake must be told to find their columns."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from duckicelake.bridge.delta_columns import TableColumns
from duckicelake.bridge.delta_paths import PartitionColumn, folder_keys
from duckicelake.bridge.delta_stats import StatsReader, Widening
from duckicelake.bridge.delta_types import partition_value
from duckicelake.bridge.numbering import Numbering
from duckicelake.bridge.texts import cast_text
from duckicelake.delta.actions import AddFile
from duckicelake.iceberg.manifest import FileContent
from duckicelake.iceberg.types import ListType, MapType, NestedField, PrimitiveType, StructType, children
from duckicelake.iceberg.values import to_json
from duckicelake.lake.changes import NewFile, PackedStats
from duckicelake.lake.model import MappedName, NameMap

_LIST: Final = "list"
"""What DuckDB calls the elements of a list in a Parquet file."""


@dataclass(frozen=True, slots=True)
class TranslatedFile:
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
        self._texts = lru_cache(maxsize=4096)(self._partition_of)

    def of(self, add: AddFile, file_id: int, numbers: Numbering, wide: Widening) -> TranslatedFile:
        """The file's rows; its first row id isn't given yet. Raises DamagedLog for what the log should have said."""
        values, json, texts = self._texts(tuple(add.partition_values.get(c.names[0]) for c in self.partition))
        facts = self._stats.of(add.stats, values, self._counted(add.path), add.path, wide)
        path = self._located(add.path)
        file = NewFile(
            file_id=file_id,
            content=FileContent.DATA,
            path=path,
            file_format="PARQUET",
            spec_id=self._spec_id,
            partition=json,
            record_count=facts.record_count,
            file_size_in_bytes=add.size,
            metrics=facts.metrics,
            added_snapshot_id=numbers.snapshot_id,
            sequence_number=numbers.sequence_number,
            file_sequence_number=numbers.sequence_number,
        )
        return TranslatedFile(file, facts.stats, texts, values, folder_keys(path, self.partition, values))

    def name_map(self, keys: tuple[str, ...]) -> NameMap:
        """What the files call the columns, whichever they have; `keys` are the folders' names for the partition's."""
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

    def _partition_of(
        self, texts: tuple[str | None, ...]
    ) -> tuple[tuple[Any, ...], list[Any], tuple[str | None, ...] | None]:
        """A partition's values, in JSON, and in DuckLake's words where it has some for all."""
        values, json, said = [], [], []
        for column, text in zip(self.partition, texts, strict=True):
            value = partition_value(column.type, text, column.names[0])
            values.append(value)
            is_odd = isinstance(value, float) and (value != value or abs(value) == float("inf"))  # noqa: PLR0124 - NaN
            json.append(str(value) if is_odd else to_json(column.type, value))
            said.append((None if value is None else cast_text(column.type, value), value))
        is_known = all(text is not None or value is None for text, value in said)
        return tuple(values), json, tuple(text for text, _ in said) if said and is_known else None
