"""PURE. What a table was at one of its snapshots: the schema, partition spec and sort order that were its own then.

Iceberg keeps of a snapshot its schema only. DuckLake remembers what its tables were partitioned and sorted by, in its
own words; of the specs and orders that say the same in them, the one that the table has, or its newest, is meant.
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from duckicelake.bridge.definitions import sort_keys
from duckicelake.bridge.partitions import keys_of
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.iceberg.sort import SortOrder
from duckicelake.iceberg.updates import SetCurrentSchema, SetDefaultSortOrder, SetDefaultSpec, TableUpdate
from duckicelake.lake.model import PartitionKey, SortKey, TableDefinition


@dataclass(frozen=True, slots=True)
class Former:
    """Ids of a schema, a spec and an order of the table."""

    schema_id: int
    spec_id: int
    order_id: int

    def updates(self, metadata: TableMetadata) -> Iterator[TableUpdate]:
        """What makes them the table's own; nothing where they are."""
        if self.schema_id != metadata.current_schema_id:
            yield SetCurrentSchema(schema_id=self.schema_id)
        if self.spec_id != metadata.default_spec_id:
            yield SetDefaultSpec(spec_id=self.spec_id)
        if self.order_id != metadata.default_sort_order_id:
            yield SetDefaultSortOrder(sort_order_id=self.order_id)


def former(metadata: TableMetadata, snapshot: Snapshot, used: AbstractSet[int], then: TableDefinition | None) -> Former:
    """What the table was. used: the specs of the snapshot's data files; then: what DuckLake had of it, if known."""
    schema = next((s for s in metadata.schemas if s.schema_id == snapshot.schema_id), metadata.schema())
    keys = then.partition_keys if then else None
    sorting = then.sort_keys if then else None
    spec = _spec(metadata, schema, used, keys)
    return Former(schema.schema_id, spec.spec_id, _order(metadata, schema, sorting).order_id)


def _spec(
    metadata: TableMetadata, schema: Schema, used: AbstractSet[int], keys: Sequence[PartitionKey] | None
) -> PartitionSpec:
    columns = schema.fields_by_id().keys()
    fitting = [s for s in metadata.partition_specs if {field.source_id for field in s.fields} <= columns]
    meant = [s for s in fitting if keys is None or _says(s, schema, keys)] or fitting
    own = metadata.spec()
    with_files = [spec for spec in meant if spec.spec_id in used]
    if own in meant and (own in with_files or not with_files):
        return own
    return max(with_files or meant or [own], key=lambda spec: spec.spec_id)


def _says(spec: PartitionSpec, schema: Schema, keys: Sequence[PartitionKey]) -> bool:
    return any(keys_of(spec, schema, with_buckets=buckets) == tuple(keys) for buckets in (True, False))


def _order(metadata: TableMetadata, schema: Schema, keys: Sequence[SortKey] | None) -> SortOrder:
    columns = schema.fields_by_id().keys()
    fitting = [o for o in metadata.sort_orders if {field.source_id for field in o.fields} <= columns]
    meant = [o for o in fitting if keys is None or sort_keys(o, schema) == tuple(keys)] or fitting
    own = metadata.sort_order()
    return own if own in meant or not meant else max(meant, key=lambda order: order.order_id)
