"""PURE. A Delta table's definition as Iceberg's metadata: the first, and what becomes of it with each `metaData`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from duckicelake.bridge.delta.columns import ColumnIds, TableColumns, table_columns
from duckicelake.bridge.delta.properties import properties_of
from duckicelake.delta.actions import Metadata
from duckicelake.errors import Unsupported
from duckicelake.iceberg.evolution import promotes
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.partition import FIRST_PARTITION_FIELD_ID, PartitionField, PartitionSpec, Transform
from duckicelake.iceberg.partition_names import with_own_names
from duckicelake.iceberg.schema import Schema, check_schema
from duckicelake.iceberg.sort import UNSORTED
from duckicelake.iceberg.types import PrimitiveType

_IDENTITY: Final = Transform.parse("identity")
_OWN: Final = {"write.parquet.compression-codec": "zstd"}


@dataclass(frozen=True, slots=True)
class DeltaState:
    """What the translation of a version must know of the ones before; `known` are its column ids by physical path."""

    metadata: Metadata
    known: Mapping[tuple[str, ...], int]
    is_mapped: bool

    @staticmethod
    def of(metadata: Metadata, ids: ColumnIds) -> "DeltaState":
        """The state after a version with this definition."""
        return DeltaState(metadata, dict(ids.by_path), ids.is_mapped)

    def ids(self) -> ColumnIds:
        """The ids, to be gone on with."""
        return ColumnIds(dict(self.known), self.is_mapped)

    def to_json(self) -> dict[str, Any]:
        """As it is kept beside the table."""
        own = self.metadata
        return {
            "columns": [[list(path), field_id] for path, field_id in self.known.items()],
            "is-mapped": self.is_mapped,
            "metadata": {
                "id": own.id,
                "schema-string": own.schema_string,
                "partition-columns": list(own.partition_columns),
                "configuration": dict(own.configuration),
                "name": own.name,
                "description": own.description,
            },
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "DeltaState":
        """What `to_json` gave."""
        own = data["metadata"]
        metadata = Metadata(
            own["id"],
            own["schema-string"],
            tuple(own["partition-columns"]),
            own["configuration"],
            own["name"],
            own["description"],
        )
        return DeltaState(metadata, {tuple(path): field_id for path, field_id in data["columns"]}, data["is-mapped"])


def first_metadata(
    delta: Metadata, ids: ColumnIds, table_uuid: str, location: str, format_version: int, now_ms: int
) -> tuple[TableMetadata, TableColumns]:
    """The metadata of a table without snapshots, and its columns; Unsupported, InvalidRequest, DamagedLog."""
    columns = table_columns(delta, ids, 0)
    check_schema(columns.schema, format_version)
    spec = _spec(columns, (), 0)
    metadata = TableMetadata(
        format_version=format_version,  # type: ignore[arg-type]  # 2 or 3
        table_uuid=table_uuid,
        location=location,
        last_sequence_number=0,
        last_updated_ms=now_ms,
        last_column_id=ids.last,
        schemas=(columns.schema,),
        current_schema_id=0,
        partition_specs=(spec,),
        default_spec_id=0,
        last_partition_id=spec.highest_field_id(),
        sort_orders=(UNSORTED,),
        default_sort_order_id=UNSORTED.order_id,
        properties=_OWN | properties_of(delta, columns.schema, ids),
        next_row_id=0 if format_version >= ROW_LINEAGE_VERSION else None,
    )
    return metadata, columns


def redefined(metadata: TableMetadata, delta: Metadata, ids: ColumnIds) -> tuple[TableMetadata, TableColumns]:
    """The metadata after a `metaData` action, and the columns; raises as above."""
    columns = table_columns(delta, ids, max(each.schema_id for each in metadata.schemas) + 1)
    check_schema(columns.schema, metadata.format_version)
    known = next((each for each in metadata.schemas if each.same_as(columns.schema)), None)
    schemas = metadata.schemas if known else (*metadata.schemas, columns.schema)
    spec = _spec(columns, metadata.partition_specs, metadata.last_partition_id)
    specs = metadata.partition_specs if spec in metadata.partition_specs else (*metadata.partition_specs, spec)
    changed = metadata.replaced(
        schemas=schemas,
        current_schema_id=(known or columns.schema).schema_id,
        last_column_id=max(metadata.last_column_id, ids.last),
        partition_specs=with_own_names(specs, columns.schema),
        default_spec_id=spec.spec_id,
        last_partition_id=max(metadata.last_partition_id, spec.highest_field_id()),
        properties=_OWN | properties_of(delta, columns.schema, ids),
    )
    return changed, columns


def replaced_columns(before: TableMetadata, after: TableMetadata) -> frozenset[int]:
    """Columns whose files of before can't be read as what they are now; Unsupported if one partitioned the table."""
    old, new = before.schema().fields_by_id(), after.schema().fields_by_id()
    version = after.format_version
    changed = {i for i in old.keys() & new.keys() if not _reads(old[i].type, new[i].type, version)}
    partitioned = {field.source_id for spec in before.partition_specs for field in spec.fields}
    for field_id in changed & partitioned:
        raise Unsupported(
            "delta-type-changes",
            f"Column {new[field_id].name}, by which the table is or was partitioned, changed from {old[field_id].type} "
            f"to {new[field_id].type}, and Iceberg has one type for it in all history: leave the versions before out",
        )
    return frozenset(changed)


def check_none_left(replaced: Iterable[int], metadata: TableMetadata, path: str) -> None:
    """Unsupported: a file of before stays in the table though columns have types that it can't be read as."""
    fields = metadata.schema().fields_by_id()
    names = ", ".join(sorted(fields[field_id].name for field_id in replaced))
    raise Unsupported(
        "delta-type-changes",
        f"{path} was written before {names} got another type, one that Iceberg doesn't promote the old one to: rewrite "
        "the table in Delta first (in Spark: REORG TABLE ... APPLY (UPGRADE UNIFORM), or an overwrite)",
    )


def _reads(before: Any, after: Any, version: int) -> bool:
    if isinstance(before, PrimitiveType) and isinstance(after, PrimitiveType):
        return promotes(before, after, version)
    return type(before) is type(after)


def _spec(columns: TableColumns, specs: tuple[PartitionSpec, ...], last_field_id: int) -> PartitionSpec:
    """The spec that partitions by these columns' values: a known one, else a new one, with known field ids."""
    names = columns.schema.fields_by_id()
    known = {field.source_id: field.field_id for spec in specs for field in spec.fields}
    following = max(last_field_id, FIRST_PARTITION_FIELD_ID - 1)
    fields: list[PartitionField] = []
    for source_id in columns.partition_ids:
        if source_id not in known:
            following += 1
            known[source_id] = following
        fields.append(
            PartitionField(
                source_id=source_id, field_id=known[source_id], name=names[source_id].name, transform=_IDENTITY
            )
        )
    made = PartitionSpec(spec_id=max((s.spec_id for s in specs), default=-1) + 1, fields=tuple(fields))
    return next((spec for spec in specs if spec.same_as(made)), made)


def needs_version(schemas: Iterable[Schema], *, has_vectors: bool) -> int:
    """The format version that a table with these schemas needs; deletion vectors are of version 3."""
    return max([ROW_LINEAGE_VERSION if has_vectors else 2, *(schema.lowest_version() for schema in schemas)])
