"""PURE. Apply DuckDB's change of a table's definition to its metadata: schema, spec, order, comment."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from duckicelake.bridge.definitions import COMMENT, build_sort_keys
from duckicelake.bridge.values.columns import to_schema
from duckicelake.bridge.values.partitions import is_described_by, to_partition_spec
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.metadata_builder import DEFAULT_FORMAT_VERSION, apply_updates
from duckicelake.iceberg.partition import (
    FIRST_PARTITION_FIELD_ID,
    PartitionField,
    PartitionSpec,
    Transform,
    rename_clashing_fields,
)
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.sort import UNSORTED, SortField, SortOrder
from duckicelake.iceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType
from duckicelake.iceberg.updates import UpgradeFormatVersion
from duckicelake.lake.model import SortKey, TableDefinition, fold_case
from duckicelake.properties import VECTORIZED_READS

_DIRECTIONS = {"ASC": "asc", "DESC": "desc"}
_IDENTITY = Transform(name="identity")
_PLAIN = re.compile(r"\w+")
_QUOTED = re.compile(r'"((?:[^"]|"")+)"')
_VOID = "void"
_NULL_ORDERS = {"NULLS_FIRST": "nulls-first", "NULLS_LAST": "nulls-last"}


def build_first_metadata(
    definition: TableDefinition, location: str, now_ms: int, began: Collection[int] | None = None
) -> TableMetadata:
    """Return the metadata of a table that DuckDB created, without snapshots: of the first version that has its types.

    `began` are the ids of the columns that the table began with, where the definition is a later one.
    """
    schema = to_schema(definition.columns, 0, began=began)
    version = max(DEFAULT_FORMAT_VERSION, schema.find_lowest_version())
    spec = to_partition_spec(definition.partition_keys, schema, 0, FIRST_PARTITION_FIELD_ID)
    (spec,) = rename_clashing_fields((spec,), schema)
    order = _build_order(definition.sort_keys, schema, 1)
    return TableMetadata(
        format_version=version,  # type: ignore[arg-type]  # the types' versions are 1 to 3
        table_uuid=definition.table_uuid,
        location=location,
        last_sequence_number=0,
        last_updated_ms=now_ms,
        last_column_id=_find_last_column_id(definition, 0),
        schemas=(schema,),
        current_schema_id=0,
        partition_specs=(spec,),
        default_spec_id=0,
        last_partition_id=spec.highest_field_id(),
        sort_orders=(order,),
        default_sort_order_id=order.order_id,
        properties={
            **_build_reading_properties(schema),
            **({} if definition.comment is None else {COMMENT: definition.comment}),
        },
        next_row_id=0 if version >= ROW_LINEAGE_VERSION else None,
    )


def evolve_metadata(metadata: TableMetadata, definition: TableDefinition, *, holds_rows: bool = True) -> TableMetadata:
    """Return the metadata after DuckDB changed the definition; `metadata` itself if it says the same already.

    A table that got a type of version 3 becomes one of version 3: its `next_row_id` is 0 then, whatever DuckLake's is.
    UnsupportedError if a column changed in a way that Iceberg has no word for and the table ever held rows.
    """
    changed = _with_comment(metadata, definition.comment)
    changed = _with_schema(changed, definition, holds_rows)
    changed = _with_names(_with_spec(changed, definition))
    return _with_order(changed, definition.sort_keys)


def add_unpartitioned_spec(metadata: TableMetadata) -> tuple[TableMetadata, PartitionSpec]:
    """Return the metadata with a spec without fields, for files whose partition is unknown."""
    for spec in metadata.partition_specs:
        if not spec.fields:
            return metadata, spec
    spec = PartitionSpec(spec_id=_find_next_id(spec.spec_id for spec in metadata.partition_specs))
    return metadata.replace_fields(partition_specs=(*metadata.partition_specs, spec)), spec


def _with_comment(metadata: TableMetadata, comment: str | None) -> TableMetadata:
    if metadata.properties.get(COMMENT) == comment:
        return metadata
    others = {key: value for key, value in metadata.properties.items() if key != COMMENT}
    return metadata.replace_fields(properties=others if comment is None else {**others, COMMENT: comment})


def _with_schema(metadata: TableMetadata, definition: TableDefinition, holds_rows: bool) -> TableMetadata:
    next_id = _find_next_id(s.schema_id for s in metadata.schemas)
    schema = to_schema(definition.columns, next_id, metadata.schema(), holds_rows=holds_rows)
    known = next((known_schema for known_schema in metadata.schemas if known_schema.same_as(schema)), None)
    if known is not None:
        return _replace_metadata(metadata, current_schema_id=known.schema_id)
    changed = metadata.replace_fields(
        schemas=(*metadata.schemas, schema),
        current_schema_id=schema.schema_id,
        last_column_id=_find_last_column_id(definition, metadata.last_column_id),
        properties={**_build_reading_properties(schema, metadata.schema()), **metadata.properties},
    )
    if schema.find_lowest_version() <= metadata.format_version:
        return changed
    return apply_updates(
        changed, [UpgradeFormatVersion(format_version=schema.find_lowest_version())], metadata.last_updated_ms
    )


def _build_reading_properties(schema: Schema, before: Schema | None = None) -> dict[str, str]:
    """Return the properties with which Spark reads a new variant.

    DuckDB shreds them, and its vectorized reader takes none.
    """
    known = before.leaves() if before else {}
    new = (type_ for field_id, type_ in schema.leaves().items() if field_id not in known)
    return {VECTORIZED_READS: "false"} if any(type_.name == "variant" for type_ in new) else {}


def _find_last_column_id(definition: TableDefinition, before: int) -> int:
    return max([before, *(column.column_id for column in definition.columns)])


def _with_names(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata with names by which clients can load all of its specs and schemas.

    Schemas that clash are from before the server folded them.
    """
    specs = rename_clashing_fields(metadata.partition_specs, metadata.schema())
    schemas = tuple(map(_with_own_names, metadata.schemas))
    if specs == metadata.partition_specs and schemas == metadata.schemas:
        return metadata
    return metadata.replace_fields(partition_specs=specs, schemas=schemas)


def _with_own_names(schema: Schema) -> Schema:
    """Return the schema with ids in names that have a dot and are the full name of another field, too."""
    if schema.find_clashing_name() is None:
        return schema
    names = {field_id: name.lower() for field_id, name in schema.full_names().items()}
    times = Counter(names.values())
    clashing = frozenset(field_id for field_id, name in names.items() if times[name] > 1)
    return schema.replace_fields(fields=_rename_clashing(schema.fields, clashing))


def _rename_clashing(fields: Sequence[NestedField], clashing: frozenset[int]) -> tuple[NestedField, ...]:
    return tuple(
        field.replace_fields(
            name=f"{field.name}_{field.id}" if "." in field.name and field.id in clashing else field.name,
            type=_rename_clashing_parts(field.type, clashing),
        )
        for field in fields
    )


def _rename_clashing_parts(kind: IcebergType, clashing: frozenset[int]) -> IcebergType:
    if isinstance(kind, StructType):
        return kind.replace_fields(fields=_rename_clashing(kind.fields, clashing))
    if isinstance(kind, ListType):
        return kind.replace_fields(element=_rename_clashing_parts(kind.element, clashing))
    if isinstance(kind, MapType):
        return kind.replace_fields(
            key=_rename_clashing_parts(kind.key, clashing), value=_rename_clashing_parts(kind.value, clashing)
        )
    return kind


def _with_spec(metadata: TableMetadata, definition: TableDefinition) -> TableMetadata:
    keys, schema = definition.partition_keys, metadata.schema()
    if is_described_by(metadata.spec(), schema, keys):
        return metadata
    spec = to_partition_spec(keys, schema, _find_next_spec_id(metadata), metadata.last_partition_id + 1)
    spec = _reuse_ids(spec, metadata) if metadata.format_version > 1 else _with_void_fields(spec, metadata)
    known = next((known_spec for known_spec in metadata.partition_specs if _have_same_fields(known_spec, spec)), None)
    if known is not None:
        return _replace_metadata(metadata, default_spec_id=known.spec_id)
    return metadata.replace_fields(
        partition_specs=(*metadata.partition_specs, spec),
        default_spec_id=spec.spec_id,
        last_partition_id=max(metadata.last_partition_id, spec.highest_field_id()),
    )


def _have_same_fields(one: PartitionSpec, other: PartitionSpec) -> bool:
    """Return whether both have the same fields under the same ids, whatever these are called."""
    first, second = ([(f.field_id, f.source_id, f.transform) for f in spec.fields] for spec in (one, other))
    return first == second


def _with_void_fields(spec: PartitionSpec, metadata: TableMetadata) -> PartitionSpec:
    """Return the spec with all fields that the table ever had before its own, void where it doesn't have them.

    Ids of a version 1 table's fields follow each other in every spec, and one id means one field in all of them.
    """
    known = [field for known_spec in metadata.partition_specs for field in known_spec.fields]
    known.sort(key=lambda field: field.transform.name != _VOID)
    earlier = {field.field_id: field for field in known}
    wanted = {(field.source_id, str(field.transform)): field for field in spec.fields}
    fields: list[PartitionField] = []
    for _, field in sorted(earlier.items()):
        is_wanted = wanted.pop((field.source_id, str(field.transform)), None) is not None
        fields.append(field if is_wanted else field.replace_fields(transform=Transform(name=_VOID)))
    first = FIRST_PARTITION_FIELD_ID + len(fields)
    new = (field.replace_fields(field_id=first + place) for place, field in enumerate(wanted.values()))
    return spec.replace_fields(fields=(*fields, *new))


def _reuse_ids(spec: PartitionSpec, metadata: TableMetadata) -> PartitionSpec:
    """Return a field that another spec has already keeps its id there."""
    known = {(f.source_id, str(f.transform)): f for s in metadata.partition_specs for f in s.fields}
    fields = [known.get((field.source_id, str(field.transform)), field) for field in spec.fields]
    return PartitionSpec(spec_id=spec.spec_id, fields=tuple(PartitionField.model_validate(f.to_json()) for f in fields))


def _with_order(metadata: TableMetadata, keys: Sequence[SortKey]) -> TableMetadata:
    schema = metadata.schema()
    order = _build_order(
        keys, schema, max(1, _find_next_id(known_order.order_id for known_order in metadata.sort_orders))
    )
    if build_sort_keys(metadata.sort_order(), schema) == tuple(keys) and (order.fields or not keys):
        return metadata
    known = next((known_order for known_order in metadata.sort_orders if known_order.same_as(order)), None)
    if known is not None:
        return _replace_metadata(metadata, default_sort_order_id=known.order_id)
    return metadata.replace_fields(sort_orders=(*metadata.sort_orders, order), default_sort_order_id=order.order_id)


def _build_order(keys: Sequence[SortKey], schema: Schema, order_id: int) -> SortOrder:
    """Return the sort order of DuckLake's keys.

    Unsorted where one isn't a column, of values with an order, as it is.
    """
    ids = {fold_case(field.name): field.id for field in schema.fields if _has_order(field.type)}
    columns = [_parse_column_name(key.expression) or "" for key in keys]
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


def _has_order(kind: IcebergType) -> bool:
    return isinstance(kind, PrimitiveType) and _IDENTITY.accepts(kind)


def _parse_column_name(expression: str) -> str | None:
    """Return what an SQL expression names, folded as DuckDB compares names; None if it isn't just a column's name."""
    quoted = _QUOTED.fullmatch(expression)
    if quoted is None and not _PLAIN.fullmatch(expression):
        return None
    return fold_case(quoted[1].replace('""', '"') if quoted else expression)


def _replace_metadata(metadata: TableMetadata, **changes: int) -> TableMetadata:
    same = all(getattr(metadata, name) == value for name, value in changes.items())
    return metadata if same else metadata.replace_fields(**changes)


def _find_next_spec_id(metadata: TableMetadata) -> int:
    return _find_next_id(spec.spec_id for spec in metadata.partition_specs)


def _find_next_id(ids: Iterable[int]) -> int:
    return max(ids, default=-1) + 1
