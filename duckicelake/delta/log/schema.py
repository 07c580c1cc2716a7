"""PURE. Delta's schemas, parsed from `schemaString` and formatted back (protocol, "Schema Serialization Format")."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Final, TypeAlias, cast

import orjson

from duckicelake.errors import DamagedLogError

PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
FIELD_ID: Final = "delta.columnMapping.id"
NESTED_IDS: Final = "delta.columnMapping.nested.ids"
DEFAULT: Final = "CURRENT_DEFAULT"
COMMENT: Final = "comment"
CHARACTERS: Final = "__CHAR_VARCHAR_TYPE_STRING"

_DECIMAL: Final = re.compile(r"decimal(?:\(\s*(\d+)\s*,\s*(-?\d+)\s*\))?")
_MAX_DEPTH: Final = 64
"""Levels of nested types, which every JSON reader takes."""
_MAX_FIELD_ID: Final = (1 << 31) - 1
_TEXT_TYPES: Final = (COMMENT, DEFAULT, CHARACTERS)


@dataclass(frozen=True, slots=True)
class DeltaPrimitive:
    """A type without parts, by Delta's name: `long`, `timestamp_ntz`, `variant`, or an unknown one."""

    name: str


@dataclass(frozen=True, slots=True)
class DeltaDecimal:
    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class DeltaArray:
    element: "DeltaType"
    contains_null: bool


@dataclass(frozen=True, slots=True)
class DeltaMap:
    key: "DeltaType"
    value: "DeltaType"
    value_contains_null: bool


@dataclass(frozen=True, slots=True)
class DeltaStruct:
    """A struct, or a whole table."""

    fields: "tuple[DeltaField, ...]"


DeltaType: TypeAlias = DeltaPrimitive | DeltaDecimal | DeltaArray | DeltaMap | DeltaStruct


@dataclass(frozen=True, slots=True)
class DeltaField:
    """A column, or a field of a struct. metadata: all that Delta and others store about it."""

    name: str
    type: DeltaType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def physical_name(self) -> str:
        """The name in files, statistics and partition values under column mapping."""
        return cast("str", self.metadata.get(PHYSICAL_NAME, self.name))

    @property
    def id(self) -> int | None:
        """The field id under column mapping."""
        return cast("int | None", self.metadata.get(FIELD_ID))

    @property
    def nested_ids(self) -> Mapping[str, int]:
        """Ids of elements, keys and values, by paths as `col.element`, of tables that are compatible with Iceberg."""
        return cast("Mapping[str, int]", self.metadata.get(NESTED_IDS, {}))

    @property
    def comment(self) -> str | None:
        return cast("str | None", self.metadata.get(COMMENT))

    @property
    def default(self) -> str | None:
        """The default for rows without a value, as Spark's SQL."""
        return cast("str | None", self.metadata.get(DEFAULT))

    @property
    def characters(self) -> str | None:
        """`char(n)` or `varchar(n)`, for a string, or with it inside; None if it is of any length."""
        return cast("str | None", self.metadata.get(CHARACTERS))


def parse_schema(text: str) -> DeltaStruct:
    """Parse a table's columns; DamagedLogError says what is malformed."""
    try:
        parsed = _parse_type(orjson.loads(text))
    except KeyError as error:
        raise DamagedLogError(f"a metaData action's schemaString lacks {error}: {text[:200]}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedLogError(f"a metaData action's schemaString can't be read: {error}: {text[:200]}") from error
    if not isinstance(parsed, DeltaStruct):
        raise DamagedLogError(f"a metaData action's schemaString isn't a struct: {text[:200]}")
    return parsed


def _parse_type(json: Any, depth: int = 0) -> DeltaType:
    if isinstance(json, str):
        return _parse_primitive(json)
    if depth > _MAX_DEPTH:
        raise ValueError(f"types are nested more than {_MAX_DEPTH} levels deep")
    kind, inside = json["type"], depth + 1
    match kind:
        case "struct":
            return DeltaStruct(tuple(_parse_field(parsed, inside) for parsed in json["fields"]))
        case "array":
            return DeltaArray(_parse_type(json["elementType"], inside), json["containsNull"])
        case "map":
            key, value = _parse_type(json["keyType"], inside), _parse_type(json["valueType"], inside)
            return DeltaMap(key, value, json["valueContainsNull"])
        case "udt":
            return _parse_type(json["sqlType"], inside)
        case str():
            return _parse_primitive(kind)
        case _:
            raise TypeError(f"{kind!r} isn't a type")


def _parse_primitive(name: str) -> DeltaType:
    match = _DECIMAL.fullmatch(name)
    if match is None:
        return DeltaPrimitive(name)
    return DeltaDecimal(int(match[1] or 10), int(match[2] or 0))


def _parse_field(json: Mapping[str, Any], depth: int) -> DeltaField:
    metadata = json.get("metadata") or {}
    _check_name(json["name"])
    _check_metadata(json["name"], metadata)
    return DeltaField(json["name"], _parse_type(json["type"], depth), json["nullable"], metadata)


def _check_metadata(column: str, metadata: Mapping[str, Any]) -> None:
    """Raise TypeError if metadata has wrong types: SQL is made of it."""
    if PHYSICAL_NAME in metadata:
        _check_name(metadata[PHYSICAL_NAME])
    for key in _TEXT_TYPES:
        if type(metadata.get(key, "")) not in (str, NoneType):
            raise TypeError(f"{key} of column {column} is {metadata[key]!r}, and must be a text")
    ids = metadata.get(NESTED_IDS) or {}
    for field_id in (metadata.get(FIELD_ID), *ids.values()):
        if field_id is not None and (type(field_id) is not int or not 0 <= field_id <= _MAX_FIELD_ID):
            raise TypeError(f"column {column} has the id {field_id!r}, and ids are whole numbers up to {_MAX_FIELD_ID}")


def _check_name(name: object) -> None:
    if type(name) is not str or not name or "\0" in name:
        raise TypeError(f"Invalid name {name!r}")


def format_schema(schema: DeltaStruct) -> str:
    """Format a `schemaString`; the same schema always gives the same text."""
    return orjson.dumps(encode_type(schema)).decode()


def encode_type(kind: DeltaType) -> Any:
    """Encode a type as in the schema's JSON."""
    match kind:
        case DeltaPrimitive():
            return kind.name
        case DeltaDecimal():
            return f"decimal({kind.precision},{kind.scale})"
        case DeltaArray():
            return {"type": "array", "elementType": encode_type(kind.element), "containsNull": kind.contains_null}
        case DeltaMap():
            key, value = encode_type(kind.key), encode_type(kind.value)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": kind.value_contains_null}
        case DeltaStruct():
            return {"type": "struct", "fields": [_encode_field(column) for column in kind.fields]}


def _encode_field(column: DeltaField) -> dict[str, Any]:
    kind, metadata = encode_type(column.type), dict(column.metadata)
    return {"name": column.name, "type": kind, "nullable": column.nullable, "metadata": metadata}
