"""PURE. The required fields that have a value in every row, as Iceberg's readers assume."""

from collections.abc import Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from duckicelake.bridge.data_files import parse_kept_metrics
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    list_children,
    walk_required_fields,
)
from duckicelake.lake.state import FileRow

_UNCHECKED = frozenset({"variant", "unknown"})


def find_newly_required(before: Schema, after: Schema) -> frozenset[int]:
    """Return the fields that the later schema requires and the earlier one doesn't."""
    known = {field.id for field in walk_required_fields(before.fields)}
    return frozenset(field.id for field in walk_required_fields(after.fields) if field.id not in known)


def require_proved(metadata: TableMetadata, files: Sequence[FileRow], added: Container[int | None]) -> TableMetadata:
    """Return the metadata with a current schema that requires no more than what these files of DuckDB's prove.

    `added` are DuckLake's ids of those that it only added. In the others it checked its columns, so that their metrics
    are looked into only for fields that it doesn't check.
    """
    schema = metadata.schema()
    if not schema.compute_once(_has_required):
        return metadata
    unchecked = schema.compute_once(has_unchecked)
    found: set[int] = set()
    for file in files:
        is_checked = file.ducklake_id not in added
        if unchecked or not is_checked:
            found |= find_unproved(schema, file, is_checked=is_checked)
    return make_optional(metadata, found) if found else metadata


def find_unproved(schema: Schema, file: FileRow, *, is_checked: bool) -> frozenset[int]:
    """Return the required fields of which the file's metrics don't say that each row has a value.

    is_checked: whether DuckDB wrote the rows, so that it checked the columns in which it does.
    """
    if not file.record_count:
        return frozenset()
    counts: Mapping[str, int] = parse_kept_metrics(file).get("null_value_counts") or {}
    checked = {field.id for field in schema.fields} if is_checked else set[int]()
    return frozenset(
        field.id
        for field in walk_required_fields(schema.fields)
        if not _has_values(field, counts, is_checked=field.id in checked)
    )


def make_optional(
    metadata: TableMetadata, fields: AbstractSet[int], before: TableMetadata | None = None
) -> TableMetadata:
    """Return the metadata with a current schema in which these fields are optional.

    It takes the place of one new since.
    """
    schema, schemas = metadata.schema(), metadata.schemas
    relaxed = schema.replace_fields(
        fields=tuple(_make_field_optional(field, fields) for field in schema.fields),
        identifier_field_ids=tuple(_keep_identifiers(schema, fields)),
    )
    if before is not None:
        schemas = tuple(
            schema for schema in schemas if schema.schema_id in {known.schema_id for known in before.schemas}
        )
    known = next((schema for schema in schemas if schema.same_as(relaxed)), None)
    if known is None:
        known = relaxed.replace_fields(schema_id=max(schema.schema_id for schema in schemas) + 1)
        schemas = (*schemas, known)
    return metadata.replace_fields(schemas=schemas, current_schema_id=known.schema_id)


def _has_required(schema: Schema) -> bool:
    return any(walk_required_fields(schema.fields))


def has_unchecked(schema: Schema) -> bool:
    """Return whether a required field is none of the columns in which DuckDB takes no NULL."""
    checked = {f.id for f in schema.fields if isinstance(f.type, PrimitiveType) and f.type.name not in _UNCHECKED}
    return any(field.id not in checked for field in walk_required_fields(schema.fields))


def _has_values(field: NestedField, counts: Mapping[str, int], *, is_checked: bool) -> bool:
    """Return whether each row has a value of it: nulls around a leaf count as nulls of the leaf."""
    if not isinstance(field.type, PrimitiveType):
        return any(counts.get(str(leaf)) == 0 for leaf in _collect_leaves(field.type))
    nulls = counts.get(str(field.id))
    return nulls == 0 or (nulls is None and is_checked and field.type.name not in _UNCHECKED)


def _collect_leaves(type_: IcebergType) -> Iterator[int]:
    for part in list_children(type_):
        if isinstance(part.type, PrimitiveType):
            yield part.id
        else:
            yield from _collect_leaves(part.type)


def _keep_identifiers(schema: Schema, fields: AbstractSet[int]) -> Iterator[int]:
    """Yield the identifier fields that stay so: neither they nor what they are in is optional."""
    parents = schema.parents()
    for field_id in schema.identifier_field_ids or ():
        at: int | None = field_id
        while at is not None and at not in fields:
            at = parents[at]
        if at is None:
            yield field_id


def _make_field_optional(field: NestedField, fields: AbstractSet[int]) -> NestedField:
    return field.replace_fields(
        required=field.required and field.id not in fields, type=_make_inside_optional(field.type, fields)
    )


def _make_inside_optional(type_: IcebergType, fields: AbstractSet[int]) -> IcebergType:
    if isinstance(type_, StructType):
        return type_.replace_fields(fields=tuple(_make_field_optional(field, fields) for field in type_.fields))
    if isinstance(type_, ListType):
        required = type_.element_required and type_.element_id not in fields
        return type_.replace_fields(element=_make_inside_optional(type_.element, fields), element_required=required)
    if isinstance(type_, MapType):
        required = type_.value_required and type_.value_id not in fields
        return type_.replace_fields(value=_make_inside_optional(type_.value, fields), value_required=required)
    return type_
