"""PURE. Write files of older partition specs into the partitions of the present one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from duckicelake.bridge.data_files import serialize_partition
from duckicelake.bridge.values.columns import to_columns
from duckicelake.bridge.values.flush_layout import build_key_expression
from duckicelake.bridge.values.partitions import to_partition, to_partition_keys
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.partition import PartitionSpec, build_partition_type
from duckicelake.lake.model import ColumnStats, PartitionKey, TableDefinition

KEY_PREFIX: Final = "_partition_key_"
"""Begins the names of the columns by which DuckDB divides rows; they aren't in the files."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where a written file belongs. partition: as JSON values."""

    spec_id: int
    partition: Sequence[Any]


@dataclass(frozen=True, slots=True)
class PresentPartitions:
    """A table's default spec. expressions: SQL of the value of each key, in the order of the keys."""

    metadata: TableMetadata
    keys: tuple[PartitionKey, ...]
    expressions: tuple[str, ...]

    def place(self, texts: Mapping[str, str | None], stats: Sequence[ColumnStats]) -> FilePlace | None:
        """Find the place of a file by DuckDB's texts of its keys; None if Iceberg has another value for them."""
        values = {key: texts[f"{KEY_PREFIX}{at}"] for at, key in enumerate(self.keys)}
        spec, schema = self.metadata.spec(), self.metadata.schema()
        partition = to_partition(spec, schema, values, {one.column_id: one for one in stats})
        if partition is None:
            return None
        return FilePlace(spec.spec_id, serialize_partition(partition, build_partition_type(spec, schema)))


def find_present_partitions(metadata: TableMetadata) -> PresentPartitions | None:
    """Return the partitions of the default spec; None if DuckDB can't compute them, as buckets, or there are none."""
    spec, schema = metadata.spec(), metadata.schema()
    if not spec.fields or not all(_is_computed(spec, field.source_id) for field in spec.fields):
        return None
    keys = to_partition_keys(spec, schema, with_buckets=False, with_epochs=True)
    columns = to_columns(schema)
    if len(keys) < len(spec.fields) or {key.column_id for key in keys} - {field.id for field in schema.fields}:
        return None
    definition = TableDefinition(0, "", "", "", columns, None, keys, (), None)
    return PresentPartitions(metadata, keys, tuple(build_key_expression(key, definition, columns) for key in keys))


def _is_computed(spec: PartitionSpec, source_id: int) -> bool:
    """Return whether a column has one field alone, of a transform that DuckDB computes as Iceberg does."""
    names = [field.transform.name for field in spec.fields if field.source_id == source_id]
    return len(names) == 1 and names[0] in {"identity", "year", "month", "day", "hour"}
