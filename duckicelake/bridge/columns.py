"""PURE. A table's columns: Iceberg's nested Schema and DuckLake's flat rows, with one field id for both."""

from collections.abc import Iterator, Sequence
from typing import Any

from duckicelake.bridge.types import iceberg_type, lake_type
from duckicelake.errors import InvalidRequest, Unsupported
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType
from duckicelake.lake.model import Column, children_of

_CONTAINERS = {"struct", "list", "map"}


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """The DuckLake columns of a schema, parents before children.

    Raises Unsupported for types DuckLake lacks, InvalidRequest for what keeps DuckDB from loading the whole lake.
    """
    columns = tuple(column for field in schema.fields for column in _flatten(field, None))
    if not columns:
        raise InvalidRequest("The schema has no column: DuckDB needs at least one in each table")
    _check_order(columns)
    return columns


def _check_order(columns: Sequence[Column]) -> None:
    """DuckDB reads columns in the order of their parents' ids, so a container must follow the one that it is in."""
    for column in columns:
        parent = column.parent_column
        if parent is not None and column.column_type in _CONTAINERS and column.column_id < parent:
            raise InvalidRequest(
                f"Field {column.column_name!r} has the id {column.column_id}, lower than its parent's ({parent}): "
                "number nested fields above the field that they are in"
            )


def schema_of(columns: Sequence[Column], schema_id: int, previous: Schema | None = None) -> Schema:
    """The Iceberg schema of DuckLake columns.

    What DuckLake can't say is taken from the field of the same id in `previous`, as long as DuckLake still says the
    same: the exact type (fixed, where DuckLake holds blob), nested requiredness, identifier fields, and the order of
    fields, which in DuckDB is that of their ids.
    """
    known = previous.fields_by_id() if previous else {}
    order = {field_id: place for place, field_id in enumerate(known)}
    ordered = sorted(columns, key=lambda column: order.get(column.column_id, len(order)))
    fields = tuple(_field(column, ordered, known, ()) for column in children_of(ordered, None))
    schema = Schema(schema_id=schema_id, fields=fields)
    required = {field_id for field_id, field in schema.fields_by_id().items() if field.required}
    before = (previous.identifier_field_ids if previous else None) or ()
    return schema.replaced(identifier_field_ids=tuple(i for i in before if i in required))


def _flatten(field: NestedField, parent: int | None) -> Iterator[Column]:
    literal, kind = _default_text(field.initial_default), _kind(field.type)
    write_default = _default_text(field.write_default)
    yield Column(
        column_id=field.id,
        parent_column=parent,
        column_name=field.name,
        column_type=kind,
        nulls_allowed=not field.required,
        initial_default=literal,
        default_value="NULL" if write_default is None else write_default,
        default_value_type="" if kind in _CONTAINERS else "literal",
        comment=field.doc,
    )
    for child in _children(field.type):
        yield from _flatten(child, field.id)


def _kind(type_: IcebergType) -> str:
    match type_:
        case StructType():
            return "struct"
        case ListType():
            return "list"
        case MapType():
            return "map"
        case _:
            return lake_type(type_)


def _children(type_: IcebergType) -> tuple[NestedField, ...]:
    match type_:
        case StructType():
            return type_.fields
        case ListType():
            return (_child(type_.element_id, "element", type_.element, type_.element_required),)
        case MapType():
            key = _child(type_.key_id, "key", type_.key, required=True)
            return key, _child(type_.value_id, "value", type_.value, type_.value_required)
        case _:
            return ()


def _child(field_id: int, name: str, type_: IcebergType, required: bool) -> NestedField:
    return NestedField(id=field_id, name=name, type=type_, required=required)


def _default_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise Unsupported("nested-defaults", f"The nested default {value!r} can't be stored in DuckLake")


def _field(
    column: Column, columns: Sequence[Column], known: dict[int, NestedField], path: tuple[str, ...]
) -> NestedField:
    before = known.get(column.column_id)
    name = (*path, column.column_name)
    type_ = _type(column, columns, known, name)
    nested = column.parent_column is not None
    required = (before.required if before else False) if nested else not column.nulls_allowed
    return NestedField(
        id=column.column_id,
        name=column.column_name,
        required=required,
        type=type_,
        doc=column.comment,
        initial_default=_default_value(column.initial_default, type_, ".".join(name)),
        write_default=_default_value(_literal(column), type_, ".".join(name)),
    )


def _type(
    column: Column, columns: Sequence[Column], known: dict[int, NestedField], path: tuple[str, ...]
) -> IcebergType:
    if column.column_type not in _CONTAINERS:
        return _primitive(column, known.get(column.column_id), path)
    children = [_field(child, columns, known, path) for child in children_of(columns, column.column_id)]
    if column.column_type == "struct":
        return StructType(fields=tuple(children))
    if column.column_type == "list":
        (element,) = children
        return ListType(element_id=element.id, element=element.type, element_required=element.required)
    key, value = children
    return MapType(key_id=key.id, key=key.type, value_id=value.id, value=value.type, value_required=value.required)


def _primitive(column: Column, before: NestedField | None, path: tuple[str, ...]) -> PrimitiveType:
    if before and isinstance(before.type, PrimitiveType) and lake_type(before.type) == column.column_type:
        return before.type
    return iceberg_type(column.column_type, ".".join(path))


def _literal(column: Column) -> str | None:
    """The write default, where it is a plain value: Iceberg has no defaults that are expressions."""
    if column.default_value_type != "literal" or column.default_value == "NULL":
        return None
    return column.default_value


def _default_value(text: str | None, type_: IcebergType, column_name: str) -> Any:
    """DuckLake's default text as Iceberg's single-value JSON."""
    if text is None:
        return None
    if not isinstance(type_, PrimitiveType):
        raise Unsupported("nested-defaults", f"Column {column_name} has a nested default, which Iceberg can't say")
    if type_.name in {"int", "long"}:
        return int(text)
    if type_.name in {"float", "double"}:
        return float(text)
    if type_.name == "boolean":
        return text.lower() in {"true", "t", "1"}
    if type_.name in {"timestamp", "timestamptz"}:
        return _iso_timestamp(text, zoned=type_.name == "timestamptz")
    return text


def _iso_timestamp(text: str, *, zoned: bool) -> str:
    day, _, clock = text.removesuffix("+00").partition(" ")
    return f"{day}T{clock or '00:00:00'}" + ("+00:00" if zoned else "")
