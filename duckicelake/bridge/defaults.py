"""PURE. Default values: Iceberg's JSON, and the texts that DuckLake keeps of them (`ducklake-facts.md` §1).

DuckLake has defaults of primitive columns only, at any depth; those of structs, lists and maps stay in the side tables.
"""

import re

from duckicelake.bridge.parquet_types import duckdb_type
from duckicelake.bridge.texts import cast_text, from_cast_text
from duckicelake.errors import InvalidRequest, Unsupported
from duckicelake.iceberg.schema import NULL_DEFAULT_ONLY
from duckicelake.iceberg.types import IcebergType, NestedField, PrimitiveType
from duckicelake.iceberg.values import Json, from_json, to_json
from duckicelake.lake.model import Column

NO_DEFAULT = "NULL"
"""DuckLake's text for a column without write default: the string NULL itself has to be an expression."""
_CAST = re.compile(r"CAST\((?:'((?:[^']|'')*)'|([^' ]+)) AS (.+)\)", re.DOTALL)
_QUOTED = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)


def initial_text(field: NestedField) -> str | None:
    """DuckLake's text of the value that rows have which were written before the field was added."""
    text = _text(field.type, field.initial_default)
    if text is None and field.initial_default is not None and isinstance(field.type, PrimitiveType):
        raise Unsupported(
            "default-values", f"{field.initial_default!r}, the initial default of {field.name}, has no text in DuckLake"
        )
    return text


def write_text(field: NestedField) -> tuple[str, str]:
    """DuckLake's text of the value that writers use for the field by default, and its type: literal or expression."""
    text = _text(field.type, field.write_default)
    if text == NO_DEFAULT:
        return f"'{text}'", "expression"
    return NO_DEFAULT if text is None else text, "literal"


def initial_default(column: Column, type_: IcebergType, name: str) -> Json:
    """The initial default of a column as Iceberg's JSON.

    Unsupported, naming the column, if there is one that Iceberg can't say: its readers would take null for it.
    """
    if column.initial_default is None or not isinstance(type_, PrimitiveType):
        return None
    value = _json(type_, column.initial_default)
    if value is None:
        raise Unsupported(
            "default-values",
            f"Column {name} was added with the default {column.initial_default}, which Iceberg has no value for",
        )
    return value


def write_default(column: Column, type_: IcebergType) -> Json:
    """The write default of a column as Iceberg's JSON; None where it is an expression other than a cast of a value."""
    if not isinstance(type_, PrimitiveType) or type_.name in NULL_DEFAULT_ONLY:
        return None
    text = _plain(column)
    return None if text is None else _json(type_, text)


def says_same_default(column: Column, field: NestedField) -> bool:
    """Whether DuckLake says of the column what it would of the field's write default."""
    text, kind = write_text(field)
    same_kind = (column.default_value_type == "expression") == (kind == "expression")
    return same_kind and (column.default_value or NO_DEFAULT) == text


def _text(type_: IcebergType, default: Json) -> str | None:
    if default is None or not isinstance(type_, PrimitiveType):
        return None
    return cast_text(type_, from_json(type_, default))


def _json(type_: PrimitiveType, text: str) -> Json:
    value = from_cast_text(type_, text)
    try:
        json = to_json(type_, value)
        return None if from_json(type_, json) is None else json
    except InvalidRequest:
        return None


def _plain(column: Column) -> str | None:
    """The text of the value, where the default is one."""
    text = column.default_value
    if text is None or column.default_value_type != "expression":
        return None if text == NO_DEFAULT else text
    match = _CAST.fullmatch(text)
    if match and _canonical(match[3]) != _canonical(duckdb_type(column, ())):
        return None
    match = match or _QUOTED.fullmatch(text)
    if match is None:
        return None
    return next(group for group in match.groups() if group is not None).replace("''", "'")


def _canonical(name: str) -> str:
    """A type's name as DuckDB prints it in casts and as we write it, spelled alike."""
    return name.replace('"', "").replace(" ", "").replace("TIMESTAMPWITHTIMEZONE", "TIMESTAMPTZ")
