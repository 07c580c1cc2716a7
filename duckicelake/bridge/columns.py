"""PURE. A table's columns: Iceberg's nested Schema and DuckLake's flat rows, with one field id for both."""

from collections.abc import Collection, Iterator, Sequence

from duckicelake.bridge.defaults import initial_default, initial_text, says_same_default, write_default, write_text
from duckicelake.bridge.types import iceberg_type, lake_type
from duckicelake.errors import InvalidRequest, Unsupported
from duckicelake.iceberg.evolution import promotes
from duckicelake.iceberg.schema import Schema, identifier_problem
from duckicelake.iceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    children,
)
from duckicelake.lake.model import Column, children_of

_CONTAINERS = {"struct", "list", "map"}
_UNCHECKED = _CONTAINERS | {"variant"}
"""Types of columns in which DuckDB takes NULL though they are NOT NULL."""
_READ_BY_ALL = 2
"""The format version whose promotions every reader follows: Iceberg's library still lacks those of version 3."""


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """The DuckLake columns of a schema, parents before children.

    Raises Unsupported for types DuckLake lacks, InvalidRequest for what keeps DuckDB from loading the whole lake.
    """
    return schema.remembered(_columns_of)


def _columns_of(schema: Schema) -> tuple[Column, ...]:
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


def schema_of(
    columns: Sequence[Column],
    schema_id: int,
    previous: Schema | None = None,
    *,
    holds_rows: bool = True,
    began: Collection[int] | None = None,
) -> Schema:
    """The Iceberg schema of DuckLake columns.

    What DuckLake can't say is taken from the field of the same id in `previous`, as long as DuckLake still says the
    same: the exact type, nested requiredness, defaults, identifier fields, columns of type unknown, and the order of
    fields, which in DuckDB is that of their ids. None is the schema of a table that begins with these columns, or with
    those `began`.

    Raises:
        Unsupported: a column has a type or default that Iceberg lacks, or one that it doesn't promote the previous one
            to and the table `holds_rows`, or two fields have one full name.

    """
    reader = _Reader(columns, previous, holds_rows, began)
    schema = Schema(schema_id=schema_id, fields=reader.fields(None, ()))
    name = schema.clashing_name()
    if name is not None:
        raise Unsupported(
            "column-names",
            f"Two fields have the full name {name}, by which Iceberg clients find fields: rename the one with the dot",
        )
    fields, parents = schema.fields_by_id(), schema.parents()
    before = (previous.identifier_field_ids if previous else None) or ()
    return schema.replaced(
        identifier_field_ids=tuple(i for i in before if identifier_problem(fields, parents, i) is None)
    )


def reads_as(text: str, type_: PrimitiveType, format_version: int = _READ_BY_ALL) -> bool:
    """Whether Iceberg's readers read what was written as a DuckLake type, such as int32, as the Iceberg one."""
    if lake_type(type_) == text:
        return True
    try:
        return promotes(iceberg_type(text, ""), type_, format_version)
    except Unsupported:
        return False


def check_written(columns: Sequence[Column], schema: Schema, where: str) -> None:
    """Check that the schema's types read what was written as these columns; Unsupported naming one otherwise."""
    fields = schema.fields_by_id()
    for column in columns:
        field = fields.get(column.column_id)
        if field and isinstance(field.type, PrimitiveType) and not reads_as(column.column_type, field.type, 3):
            raise Unsupported("ducklake-types", retyped(schema, field, column.column_type, where))


def retyped(schema: Schema, field: NestedField, stored: str, where: str) -> str:
    """Say that a field's values are stored in another type than the one that it has."""
    return (
        f"Column {schema.full_names()[field.id]} was changed by DuckDB to {field.type}, as which Iceberg can't read "
        f"the {stored} in {where}: update those rows, so that DuckDB writes them anew"
    )


def _flatten(field: NestedField, parent: int | None) -> Iterator[Column]:
    if _is_unknown(field.type):
        return
    kind = _kind(field)
    default, default_type = write_text(field)
    yield Column(
        column_id=field.id,
        parent_column=parent,
        column_name=field.name,
        column_type=kind,
        nulls_allowed=not field.required,
        initial_default=initial_text(field),
        default_value=default,
        default_value_type="" if kind in _CONTAINERS else default_type,
        comment=field.doc,
    )
    for child in children(field.type):
        yield from _flatten(child, field.id)


def _kind(field: NestedField) -> str:
    if isinstance(field.type, PrimitiveType):
        return lake_type(field.type)
    parts = [part.type for part in children(field.type)]
    if all(map(_is_unknown, parts)) or (field.type.type != "struct" and any(map(_is_unknown, parts))):
        raise Unsupported(
            "iceberg-types",
            f"Field {field.name!r}: DuckLake can't store a {field.type.type} of nothing but fields of type unknown",
        )
    return field.type.type


def _kept(before: IcebergType, after: IcebergType) -> bool:
    """Whether a field is still what it was, so that its defaults are; fields inside it may have changed."""
    if isinstance(before, PrimitiveType) or isinstance(after, PrimitiveType):
        return before == after
    return before.type == after.type


def _is_required(column: Column, before: NestedField | None) -> bool:
    """Whether a field has a value in each row, as far as DuckLake's rows and what it was before tell.

    DuckLake says it of top-level columns only. DuckDB checks it neither in structs, lists and maps nor in variants, so
    these are required only where an Iceberg client has declared them so.
    """
    was_required = before is not None and before.required
    if column.parent_column is not None:
        return was_required
    return not column.nulls_allowed and (was_required or column.column_type not in _UNCHECKED)


def _is_unknown(kind: IcebergType) -> bool:
    return isinstance(kind, PrimitiveType) and kind.name == "unknown"


class _Reader:
    """Reads columns as fields, with what is known of them from before."""

    def __init__(
        self, columns: Sequence[Column], previous: Schema | None, holds_rows: bool, began: Collection[int] | None
    ) -> None:
        first = () if previous else (column.column_id for column in columns)
        self._began = frozenset(first if began is None else began)
        self._holds_rows = holds_rows
        self._known = previous.fields_by_id() if previous else {}
        self._parents = previous.parents() if previous else {}
        self._order = {field_id: place for place, field_id in enumerate(self._known)}
        self._columns = columns

    def fields(self, parent: int | None, path: tuple[str, ...]) -> tuple[NestedField, ...]:
        fields = [self._field(column, path) for column in children_of(self._columns, parent)]
        fields += self._unseen(parent, {field.name.lower() for field in fields})
        return tuple(sorted(fields, key=lambda field: self._order.get(field.id, len(self._order))))

    def _unseen(self, parent: int | None, taken: set[str]) -> list[NestedField]:
        """The fields that have no column, but for those whose name DuckDB gave to another since."""
        inside = (field for field_id, field in self._known.items() if self._parents[field_id] == parent)
        return [field for field in inside if _is_unknown(field.type) and field.name.lower() not in taken]

    def _field(self, column: Column, path: tuple[str, ...]) -> NestedField:
        before = self._known.get(column.column_id)
        name = (*path, column.column_name)
        type_ = self._type(column, name)
        known = before if before and _kept(before.type, type_) else None
        return NestedField(
            id=column.column_id,
            name=column.column_name,
            required=_is_required(column, before),
            type=type_,
            doc=column.comment,
            initial_default=self._initial_default(column, known, type_, name),
            write_default=known.write_default
            if known and says_same_default(column, known)
            else write_default(column, type_),
        )

    def _initial_default(
        self, column: Column, known: NestedField | None, type_: IcebergType, name: tuple[str, ...]
    ) -> object:
        """It never changes, and means nothing for columns that the table began with."""
        if known or column.column_id in self._began:
            return known.initial_default if known else None
        return initial_default(column, type_, ".".join(name))

    def _type(self, column: Column, path: tuple[str, ...]) -> IcebergType:
        if column.column_type not in _CONTAINERS:
            return self._primitive(column, path)
        fields = self.fields(column.column_id, path)
        if column.column_type == "struct":
            return StructType(fields=fields)
        if column.column_type == "list":
            (element,) = fields
            return ListType(element_id=element.id, element=element.type, element_required=element.required)
        key, value = fields
        return MapType(key_id=key.id, key=key.type, value_id=value.id, value=value.type, value_required=value.required)

    def _primitive(self, column: Column, path: tuple[str, ...]) -> PrimitiveType:
        before = self._known.get(column.column_id)
        if before is None or not isinstance(before.type, PrimitiveType):
            return iceberg_type(column.column_type, ".".join(path))
        if not _is_unknown(before.type) and lake_type(before.type) == column.column_type:
            return before.type
        type_ = iceberg_type(column.column_type, ".".join(path))
        if self._holds_rows and not promotes(before.type, type_, _READ_BY_ALL):
            raise Unsupported(
                "ducklake-types",
                f"Column {'.'.join(path)} was changed by DuckDB from {before.type} to {type_}, as which Iceberg can't "
                "read the rows of before",
            )
        return type_
