"""PURE. Table columns and their defaults: Iceberg's nested schema and DuckLake's flat rows."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from duckicelake.bridge.values.lake_values import format_cast_text, parse_cast_text
from duckicelake.bridge.values.types import to_duckdb_type, to_iceberg_type, to_lake_type
from duckicelake.errors import InvalidRequestError, UnsupportedError
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.schema import Schema, find_identifier_problem
from duckicelake.iceberg.schema_evolution import can_promote
from duckicelake.iceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    list_children,
)
from duckicelake.iceberg.values import Json, from_json, to_json
from duckicelake.lake.model import Column, find_children

NO_DEFAULT = "NULL"
"""DuckLake's text for a column without write default: the string NULL itself has to be an expression."""
_CAST = re.compile(r"CAST\((?:'((?:[^']|'')*)'|([^' ]+)) AS (.+)\)", re.DOTALL)
_QUOTED = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)
_CONTAINERS = {"struct", "list", "map"}
_UNCHECKED = _CONTAINERS | {"variant"}
"""Types of columns in which DuckDB takes NULL though they are NOT NULL."""
_READ_BY_ALL = 2
"""The format version whose promotions every reader follows: Iceberg's library still lacks those of version 3."""


def format_initial_default(field: NestedField) -> str | None:
    """Return DuckLake's text of the value that rows have which were written before the field was added."""
    text = _format_text(field.type, field.initial_default)
    if text is None and field.initial_default is not None and isinstance(field.type, PrimitiveType):
        raise UnsupportedError(
            "default-values", f"{field.initial_default!r}, the initial default of {field.name}, has no text in DuckLake"
        )
    return text


def format_write_default(field: NestedField) -> tuple[str, str]:
    """Return DuckLake's text of the value that writers use for the field by default, and its type.

    Literal or expression.
    """
    text = _format_text(field.type, field.write_default)
    if text == NO_DEFAULT:
        return f"'{text}'", "expression"
    return NO_DEFAULT if text is None else text, "literal"


def parse_initial_default(column: Column, type_: IcebergType, name: str) -> Json:
    """Return the initial default of a column as Iceberg's JSON.

    UnsupportedError, naming the column, if there is one that Iceberg can't say: its readers would take null for it.
    """
    if column.initial_default is None or not isinstance(type_, PrimitiveType):
        return None
    value = _parse_json(type_, column.initial_default)
    if value is None:
        raise UnsupportedError(
            "default-values",
            f"Column {name} was added with the default {column.initial_default}, which Iceberg has no value for",
        )
    return value


def parse_write_default(column: Column, type_: IcebergType) -> Json:
    """Return the write default of a column as Iceberg's JSON.

    None where it is an expression other than a cast of a value.
    """
    if not isinstance(type_, PrimitiveType) or type_.traits.is_opaque:
        return None
    text = _unwrap_default(column)
    return None if text is None else _parse_json(type_, text)


def has_same_default(column: Column, field: NestedField) -> bool:
    """Return whether DuckLake says of the column what it would of the field's write default."""
    text, kind = format_write_default(field)
    same_kind = (column.default_value_type == "expression") == (kind == "expression")
    return same_kind and (column.default_value or NO_DEFAULT) == text


def _format_text(type_: IcebergType, default: Json) -> str | None:
    if default is None or not isinstance(type_, PrimitiveType):
        return None
    return format_cast_text(type_, from_json(type_, default))


def _parse_json(type_: PrimitiveType, text: str) -> Json:
    value = parse_cast_text(type_, text)
    try:
        json = to_json(type_, value)
        return None if from_json(type_, json) is None else json
    except InvalidRequestError:
        return None


def _unwrap_default(column: Column) -> str | None:
    """Return the text of the value, where the default is one."""
    text = column.default_value
    if text is None or column.default_value_type != "expression":
        return None if text == NO_DEFAULT else text
    match = _CAST.fullmatch(text)
    if match and _canonicalize_type_name(match[3]) != _canonicalize_type_name(to_duckdb_type(column, ())):
        return None
    match = match or _QUOTED.fullmatch(text)
    if match is None:
        return None
    return next(group for group in match.groups() if group is not None).replace("''", "'")


def _canonicalize_type_name(name: str) -> str:
    """Return a type's name as DuckDB prints it in casts and as we write it, spelled alike."""
    return name.replace('"', "").replace(" ", "").replace("TIMESTAMPWITHTIMEZONE", "TIMESTAMPTZ")


def to_columns(schema: Schema) -> tuple[Column, ...]:
    """Return the DuckLake columns of a schema, parents before children.

    Raises UnsupportedError for types DuckLake lacks, InvalidRequestError for what keeps DuckDB from loading the whole
    lake.
    """
    return schema.compute_once(_to_columns)


def _to_columns(schema: Schema) -> tuple[Column, ...]:
    columns = tuple(column for field in schema.fields for column in _flatten(field, None))
    if not columns:
        raise InvalidRequestError("The schema has no column: DuckDB needs at least one in each table")
    _check_order(columns)
    return columns


def _check_order(columns: Sequence[Column]) -> None:
    """Check that a container follows the one that it is in: DuckDB reads columns in the order of their parents' ids."""
    for column in columns:
        parent = column.parent_column
        if parent is not None and column.column_type in _CONTAINERS and column.column_id < parent:
            raise InvalidRequestError(
                f"Field {column.column_name!r} has the id {column.column_id}, lower than its parent's ({parent}): "
                "number nested fields above the field that they are in"
            )


def to_schema(
    columns: Sequence[Column],
    schema_id: int,
    previous: Schema | None = None,
    *,
    holds_rows: bool = True,
    began: Collection[int] | None = None,
) -> Schema:
    """Return the Iceberg schema of DuckLake columns.

    What DuckLake can't say is taken from the field of the same id in `previous`, as long as DuckLake still says the
    same: the exact type, nested requiredness, defaults, identifier fields, columns of type unknown, and the order of
    fields, which in DuckDB is that of their ids. None is the schema of a table that begins with these columns, or with
    those `began`.

    Raises:
        UnsupportedError: a column has a type or default that Iceberg lacks, or one that it doesn't promote the previous
            one to and the table `holds_rows`, or two fields have one full name.

    """
    reader = _SchemaReader(columns, previous, holds_rows, began)
    schema = Schema(schema_id=schema_id, fields=reader.fields(None, ()))
    name = schema.find_clashing_name()
    if name is not None:
        raise UnsupportedError(
            "column-names",
            f"Two fields have the full name {name}, by which Iceberg clients find fields: rename the one with the dot",
        )
    fields, parents = schema.map_fields_by_id(), schema.parents()
    before = (previous.identifier_field_ids if previous else None) or ()
    return schema.replace_fields(
        identifier_field_ids=tuple(i for i in before if find_identifier_problem(fields, parents, i) is None)
    )


def can_read_as(text: str, type_: PrimitiveType, format_version: int = _READ_BY_ALL) -> bool:
    """Return whether Iceberg's readers read what was written as a DuckLake type, such as int32, as the Iceberg one."""
    if to_lake_type(type_) == text:
        return True
    try:
        return can_promote(to_iceberg_type(text, ""), type_, format_version)
    except UnsupportedError:
        return False


def check_written(columns: Sequence[Column], schema: Schema, where: str) -> None:
    """Check that the schema's types read what was written as these columns; UnsupportedError naming one otherwise."""
    fields = schema.map_fields_by_id()
    for column in columns:
        field = fields.get(column.column_id)
        if field and isinstance(field.type, PrimitiveType) and not can_read_as(column.column_type, field.type, 3):
            raise UnsupportedError("ducklake-types", describe_retyped(schema, field, column.column_type, where))


def describe_retyped(schema: Schema, field: NestedField, stored: str, where: str) -> str:
    """Say that a field's values are stored in another type than the one that it has."""
    return (
        f"Column {schema.full_names()[field.id]} was changed by DuckDB to {field.type}, as which Iceberg can't read "
        f"the {stored} in {where}: update those rows, so that DuckDB writes them anew"
    )


def _flatten(field: NestedField, parent: int | None) -> Iterator[Column]:
    if _is_unknown(field.type):
        return
    kind = _find_column_type(field)
    default, default_type = format_write_default(field)
    yield Column(
        column_id=field.id,
        parent_column=parent,
        column_name=field.name,
        column_type=kind,
        nulls_allowed=not field.required,
        initial_default=format_initial_default(field),
        default_value=default,
        default_value_type="" if kind in _CONTAINERS else default_type,
        comment=field.doc,
    )
    for child in list_children(field.type):
        yield from _flatten(child, field.id)


def _find_column_type(field: NestedField) -> str:
    if isinstance(field.type, PrimitiveType):
        return to_lake_type(field.type)
    parts = [part.type for part in list_children(field.type)]
    if all(map(_is_unknown, parts)) or (field.type.type != "struct" and any(map(_is_unknown, parts))):
        raise UnsupportedError(
            "iceberg-types",
            f"Field {field.name!r}: DuckLake can't store a {field.type.type} of nothing but fields of type unknown",
        )
    return field.type.type


def _is_kept(before: IcebergType, after: IcebergType) -> bool:
    """Return whether a field is still what it was, so that its defaults are; fields inside it may have changed."""
    if isinstance(before, PrimitiveType) or isinstance(after, PrimitiveType):
        return before == after
    return before.type == after.type


def _is_required(column: Column, before: NestedField | None) -> bool:
    """Return whether a field has a value in each row, by DuckLake's rows and by the field's former definition.

    DuckLake says it of top-level columns only. DuckDB checks it neither in structs, lists and maps nor in variants, so
    these are required only where an Iceberg client has declared them so.
    """
    was_required = before is not None and before.required
    if column.parent_column is not None:
        return was_required
    return not column.nulls_allowed and (was_required or column.column_type not in _UNCHECKED)


def _is_unknown(kind: IcebergType) -> bool:
    return isinstance(kind, PrimitiveType) and kind.name == "unknown"


class _SchemaReader:
    """Reads columns as fields, with what is known of them from before."""

    def __init__(
        self, columns: Sequence[Column], previous: Schema | None, holds_rows: bool, began: Collection[int] | None
    ) -> None:
        first = () if previous else (column.column_id for column in columns)
        self._began = frozenset(first if began is None else began)
        self._holds_rows = holds_rows
        self._known = previous.map_fields_by_id() if previous else {}
        self._parents = previous.parents() if previous else {}
        self._order = {field_id: place for place, field_id in enumerate(self._known)}
        self._columns = columns

    def fields(self, parent: int | None, path: tuple[str, ...]) -> tuple[NestedField, ...]:
        fields = [self._field(column, path) for column in find_children(self._columns, parent)]
        fields += self._unseen(parent, {field.name.lower() for field in fields})
        return tuple(sorted(fields, key=lambda field: self._order.get(field.id, len(self._order))))

    def _unseen(self, parent: int | None, taken: set[str]) -> list[NestedField]:
        """Return the fields that have no column, but for those whose name DuckDB gave to another since."""
        inside = (field for field_id, field in self._known.items() if self._parents[field_id] == parent)
        return [field for field in inside if _is_unknown(field.type) and field.name.lower() not in taken]

    def _field(self, column: Column, path: tuple[str, ...]) -> NestedField:
        before = self._known.get(column.column_id)
        name = (*path, column.column_name)
        type_ = self._type(column, name)
        known = before if before and _is_kept(before.type, type_) else None
        return NestedField(
            id=column.column_id,
            name=column.column_name,
            required=_is_required(column, before),
            type=type_,
            doc=column.comment,
            initial_default=self._initial_default(column, known, type_, name),
            write_default=known.write_default
            if known and has_same_default(column, known)
            else parse_write_default(column, type_),
        )

    def _initial_default(
        self, column: Column, known: NestedField | None, type_: IcebergType, name: tuple[str, ...]
    ) -> object:
        """Return the initial default. It never changes, and means nothing for columns that the table began with."""
        if known or column.column_id in self._began:
            return known.initial_default if known else None
        return parse_initial_default(column, type_, ".".join(name))

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
            return to_iceberg_type(column.column_type, ".".join(path))
        if not _is_unknown(before.type) and to_lake_type(before.type) == column.column_type:
            return before.type
        type_ = to_iceberg_type(column.column_type, ".".join(path))
        if self._holds_rows and not can_promote(before.type, type_, _READ_BY_ALL):
            raise UnsupportedError(
                "ducklake-types",
                f"Column {'.'.join(path)} was changed by DuckDB from {before.type} to {type_}, as which Iceberg can't "
                "read the rows of before",
            )
        return type_


def find_returning_columns(base: TableMetadata | None, target: TableMetadata, column_ids: Iterable[int]) -> set[int]:
    """Return the columns whose older values can't be read as values of their present type."""
    if base is None or base.current_schema_id == target.current_schema_id:
        return set()
    before, after = base.schema().leaves(), target.schema().leaves()
    return {
        field_id
        for field_id in after.keys() & set(column_ids)
        if not (field_id in before and can_promote(before[field_id], after[field_id], target.format_version))
    }
