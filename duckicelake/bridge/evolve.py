"""PURE. What DuckDB did to a table's definition, as the next TableMetadata: schema, spec, sort order and comment."""

import re
from collections.abc import Iterable, Sequence

from duckicelake.bridge.columns import schema_of
from duckicelake.bridge.definitions import COMMENT, sort_keys
from duckicelake.bridge.partitions import keys_of, spec_of
from duckicelake.iceberg.apply import DEFAULT_FORMAT_VERSION, apply
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.partition import FIRST_PARTITION_FIELD_ID, PartitionField, PartitionSpec
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.sort import UNSORTED, SortField, SortOrder
from duckicelake.iceberg.updates import UpgradeFormatVersion
from duckicelake.lake.model import SortKey, TableDefinition, folded

_DIRECTIONS = {"ASC": "asc", "DESC": "desc"}
_QUOTED = re.compile(r'"((?:[^"]|"")+)"')
_NULL_ORDERS = {"NULLS_FIRST": "nulls-first", "NULLS_LAST": "nulls-last"}


def first_metadata(definition: TableDefinition, location: str, now_ms: int) -> TableMetadata:
    """The metadata of a table that DuckDB created, without snapshots: of the first version that has its types."""
    schema = schema_of(definition.columns, 0)
    version = max(DEFAULT_FORMAT_VERSION, schema.lowest_version())
    spec = spec_of(definition.partition_keys, schema, 0, FIRST_PARTITION_FIELD_ID)
    order = _order_of(definition.sort_keys, schema, 1)
    return TableMetadata(
        format_version=version,  # type: ignore[arg-type]  # the types' versions are 1 to 3
        table_uuid=definition.table_uuid,
        location=location,
        last_sequence_number=0,
        last_updated_ms=now_ms,
        last_column_id=_last_column_id(definition, 0),
        schemas=(schema,),
        current_schema_id=0,
        partition_specs=(spec,),
        default_spec_id=0,
        last_partition_id=spec.highest_field_id(),
        sort_orders=(order,),
        default_sort_order_id=order.order_id,
        properties={**_reading(schema), **({} if definition.comment is None else {COMMENT: definition.comment})},
        next_row_id=0 if version >= ROW_LINEAGE_VERSION else None,
    )


def evolved(metadata: TableMetadata, definition: TableDefinition, *, holds_rows: bool = True) -> TableMetadata:
    """The metadata after DuckDB changed the definition; `metadata` itself if it says the same already.

    A table that got a type of version 3 becomes one of version 3: its `next_row_id` is 0 then, whatever DuckLake's is.
    Unsupported if a column changed in a way that Iceberg has no word for and the table ever held rows.
    """
    changed = _with_comment(metadata, definition.comment)
    changed = _with_schema(changed, definition, holds_rows)
    changed = _with_spec(changed, definition)
    return _with_order(changed, definition.sort_keys)


def with_unpartitioned(metadata: TableMetadata) -> tuple[TableMetadata, PartitionSpec]:
    """The metadata with a spec for files whose partition can't be told: one without fields."""
    for spec in metadata.partition_specs:
        if not spec.fields:
            return metadata, spec
    spec = PartitionSpec(spec_id=_next_id(spec.spec_id for spec in metadata.partition_specs))
    return metadata.replaced(partition_specs=(*metadata.partition_specs, spec)), spec


def _with_comment(metadata: TableMetadata, comment: str | None) -> TableMetadata:
    if metadata.properties.get(COMMENT) == comment:
        return metadata
    others = {key: value for key, value in metadata.properties.items() if key != COMMENT}
    return metadata.replaced(properties=others if comment is None else {**others, COMMENT: comment})


def _with_schema(metadata: TableMetadata, definition: TableDefinition, holds_rows: bool) -> TableMetadata:
    next_id = _next_id(s.schema_id for s in metadata.schemas)
    schema = schema_of(definition.columns, next_id, metadata.schema(), holds_rows=holds_rows)
    known = next((each for each in metadata.schemas if each.same_as(schema)), None)
    if known is not None:
        return _replaced(metadata, current_schema_id=known.schema_id)
    changed = metadata.replaced(
        schemas=(*metadata.schemas, schema),
        current_schema_id=schema.schema_id,
        last_column_id=_last_column_id(definition, metadata.last_column_id),
        properties={**_reading(schema, metadata.schema()), **metadata.properties},
    )
    if schema.lowest_version() <= metadata.format_version:
        return changed
    return apply(changed, [UpgradeFormatVersion(format_version=schema.lowest_version())], metadata.last_updated_ms)


def _reading(schema: Schema, before: Schema | None = None) -> dict[str, str]:
    """The properties with which Spark reads a new variant: DuckDB shreds them, and its vectorized reader takes none."""
    known = before.leaves() if before else {}
    new = (type_ for field_id, type_ in schema.leaves().items() if field_id not in known)
    return {"read.parquet.vectorization.enabled": "false"} if any(type_.name == "variant" for type_ in new) else {}


def _last_column_id(definition: TableDefinition, before: int) -> int:
    return max([before, *(column.column_id for column in definition.columns)])


def _with_spec(metadata: TableMetadata, definition: TableDefinition) -> TableMetadata:
    keys, schema = definition.partition_keys, metadata.schema()
    if keys in [keys_of(metadata.spec(), schema, with_buckets=buckets) for buckets in (True, False)]:
        return metadata
    spec = _reusing_ids(spec_of(keys, schema, _next_spec_id(metadata), metadata.last_partition_id + 1), metadata)
    known = next((each for each in metadata.partition_specs if each.same_as(spec)), None)
    if known is not None:
        return _replaced(metadata, default_spec_id=known.spec_id)
    return metadata.replaced(
        partition_specs=(*metadata.partition_specs, spec),
        default_spec_id=spec.spec_id,
        last_partition_id=max(metadata.last_partition_id, spec.highest_field_id()),
    )


def _reusing_ids(spec: PartitionSpec, metadata: TableMetadata) -> PartitionSpec:
    """A field that another spec has already keeps its id there."""
    known = {(f.source_id, str(f.transform)): f for s in metadata.partition_specs for f in s.fields}
    fields = [known.get((field.source_id, str(field.transform)), field) for field in spec.fields]
    return PartitionSpec(spec_id=spec.spec_id, fields=tuple(PartitionField.model_validate(f.to_json()) for f in fields))


def _with_order(metadata: TableMetadata, keys: Sequence[SortKey]) -> TableMetadata:
    schema = metadata.schema()
    if sort_keys(metadata.sort_order(), schema) == tuple(keys):
        return metadata
    order = _order_of(keys, schema, max(1, _next_id(each.order_id for each in metadata.sort_orders)))
    known = next((each for each in metadata.sort_orders if each.same_as(order)), None)
    if known is not None:
        return _replaced(metadata, default_sort_order_id=known.order_id)
    return metadata.replaced(sort_orders=(*metadata.sort_orders, order), default_sort_order_id=order.order_id)


def _order_of(keys: Sequence[SortKey], schema: Schema, order_id: int) -> SortOrder:
    """The sort order of DuckLake's keys; unsorted where one of them isn't a plain column in a known direction."""
    ids = {folded(field.name): field.id for field in schema.fields}
    columns = [_column_name(key.expression) for key in keys]
    known = all(key.direction in _DIRECTIONS and key.null_order in _NULL_ORDERS for key in keys)
    if not keys or not known or any(column not in ids for column in columns):
        return UNSORTED
    fields = tuple(
        SortField.model_validate(
            {
                "transform": "identity",
                "source-id": ids[column],
                "direction": _DIRECTIONS[key.direction],
                "null-order": _NULL_ORDERS[key.null_order],
            }
        )
        for key, column in zip(keys, columns, strict=True)
    )
    return SortOrder(order_id=order_id, fields=fields)


def _column_name(expression: str) -> str:
    """What an SQL expression names, folded as DuckDB compares names, if it is nothing but a column's name."""
    quoted = _QUOTED.fullmatch(expression)
    return folded(quoted[1].replace('""', '"') if quoted else expression)


def _replaced(metadata: TableMetadata, **changes: int) -> TableMetadata:
    same = all(getattr(metadata, name) == value for name, value in changes.items())
    return metadata if same else metadata.replaced(**changes)


def _next_spec_id(metadata: TableMetadata) -> int:
    return _next_id(spec.spec_id for spec in metadata.partition_specs)


def _next_id(ids: Iterable[int]) -> int:
    return max(ids, default=-1) + 1
