"""The metadata of a table that a plain or staged create makes: the server chooses all ids."""

from typing import Final

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.apply_settings import format_version_of, unreserved
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, SUPPORTED_FORMAT_VERSION, TableMetadata
from duckicelake.iceberg.named_order import SORT_ORDER_PROPERTY, named_order
from duckicelake.iceberg.partition import (
    FIRST_PARTITION_FIELD_ID,
    PartitionField,
    PartitionSpec,
    UnboundPartitionSpec,
    check_spec,
)
from duckicelake.iceberg.schema import Schema, assign_fresh_ids, check_schema, check_size
from duckicelake.iceberg.sort import FIRST_SORT_ORDER_ID, UNSORTED, SortOrder, check_order

FIRST_ID: Final = 0  # of the schema and the partition spec
_OF_NEW_TABLES: Final = {"write.parquet.compression-codec": "zstd"}
"""Properties that Iceberg's own catalogs give new tables; without it Iceberg's writers take gzip."""


def new_table_metadata(
    *,
    table_uuid: str,
    location: str,
    schema: Schema,
    spec: PartitionSpec | UnboundPartitionSpec | None,
    sort_order: SortOrder | None,
    properties: dict[str, str],
    format_version: int,
    now_ms: int,
) -> TableMetadata:
    """Make a table's first metadata. Field ids are assigned anew, and the sources of spec and order follow them.

    The property `format-version` wins over the argument and isn't stored, as does `duckicelake.sort-order`; nor are
    other reserved properties. Parquet is to be packed with zstd unless the properties say otherwise, as Iceberg's own
    catalogs have it since 1.4.

    Raises:
        InvalidRequest: the schema, spec or order breaks a rule, or the format version isn't supported.

    """
    version = format_version_of(properties, format_version)
    if not 1 <= version <= SUPPORTED_FORMAT_VERSION:
        raise InvalidRequest(f"unsupported format version {version}: expected 1 to {SUPPORTED_FORMAT_VERSION}")
    if SORT_ORDER_PROPERTY in properties:
        sort_order = named_order(properties[SORT_ORDER_PROPERTY], schema)
    check_size(schema)
    fresh, ids = assign_fresh_ids(schema.replaced(schema_id=FIRST_ID))
    check_schema(fresh, version)
    fresh_spec, fresh_order = _fresh_spec(spec, ids), _fresh_order(sort_order, ids)
    check_spec(fresh_spec, fresh)
    check_order(fresh_order, fresh)
    return TableMetadata(
        format_version=version,  # type: ignore[arg-type]  # checked above
        table_uuid=table_uuid,
        location=location,
        last_sequence_number=0,
        last_updated_ms=now_ms,
        last_column_id=fresh.highest_field_id(),
        schemas=(fresh,),
        current_schema_id=fresh.schema_id,
        partition_specs=(fresh_spec,),
        default_spec_id=fresh_spec.spec_id,
        last_partition_id=fresh_spec.highest_field_id(),
        sort_orders=(fresh_order,),
        default_sort_order_id=fresh_order.order_id,
        properties=_OF_NEW_TABLES | unreserved(properties),
        next_row_id=0 if version >= ROW_LINEAGE_VERSION else None,
    )


def _fresh_spec(spec: PartitionSpec | UnboundPartitionSpec | None, ids: dict[int, int]) -> PartitionSpec:
    fields = () if spec is None else spec.fields
    return PartitionSpec(
        spec_id=FIRST_ID,
        fields=tuple(
            PartitionField(
                source_id=_translated(field.source_id, ids, f"partition field {field.name!r}"),
                field_id=field_id,
                name=field.name,
                transform=field.transform,
            )
            for field_id, field in enumerate(fields, FIRST_PARTITION_FIELD_ID)
        ),
    )


def _fresh_order(order: SortOrder | None, ids: dict[int, int]) -> SortOrder:
    if order is None or not order.fields:
        return UNSORTED
    fields = tuple(field.replaced(source_id=_translated(field.source_id, ids, "sort field")) for field in order.fields)
    return SortOrder(order_id=FIRST_SORT_ORDER_ID, fields=fields)


def _translated(source_id: int, ids: dict[int, int], what: str) -> int:
    if source_id not in ids:
        raise InvalidRequest(f"{what}: source field {source_id} doesn't exist in the schema")
    return ids[source_id]
