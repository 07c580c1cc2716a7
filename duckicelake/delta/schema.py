"""PURE. Delta's schemas as values, out of `schemaString` and back (protocol, "Schema Serialization Format")."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Final, TypeAlias, cast

import orjson

from duckicelake.errors import DamagedLog

PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
FIELD_ID: Final = "delta.columnMapping.id"
NESTED_IDS: Final = "delta.columnMapping.nested.ids"
DEFAULT: Final = "CURRENT_DEFAULT"
COMMENT: Final = "comment"
CHARACTERS: Final = "__CHAR_VARCHAR_TYPE_STRING"

_DECIMAL: Final = re.compile(r"decimal(?:\(\s*(\d+)\s*,\s*(-?\d+)\s*\))?")
_DEEPEST: Final = 64
"""Levels of nested types, which every JSON reader takes."""
_HIGHEST_ID: Final = (1 << 31) - 1
_TEXTS: Final = (COMMENT, DEFAULT, CHARACTERS)


@dataclass(frozen=True, slots=True)
class DeltaPrimitive:
    """A type without parts, by Delta's name for it: `long`, `timestamp_ntz`, `variant`, or one that we don't know."""

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
    """A column, or a field of a struct; `metadata` is all that Delta and others keep about it."""

    name: str
    type: DeltaType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def physical_name(self) -> str:
        """What it is called in files, statistics and partition values under column mapping."""
        return cast("str", self.metadata.get(PHYSICAL_NAME, self.name))

    @property
    def id(self) -> int | None:
        """Its field id under column mapping."""
        return cast("int | None", self.metadata.get(FIELD_ID))

    @property
    def nested_ids(self) -> Mapping[str, int]:
        """Ids of elements, keys and values below it, by paths as `col.element`, of tables kept fit for Iceberg."""
        return cast("Mapping[str, int]", self.metadata.get(NESTED_IDS, {}))

    @property
    def comment(self) -> str | None:
        return cast("str | None", self.metadata.get(COMMENT))

    @property
    def default(self) -> str | None:
        """What writers put where a row has no value, as Spark's SQL."""
        return cast("str | None", self.metadata.get(DEFAULT))

    @property
    def characters(self) -> str | None:
        """`char(n)` or `varchar(n)`, for a string, or with it inside; None if it is of any length."""
        return cast("str | None", self.metadata.get(CHARACTERS))


def parse_schema(text: str) -> DeltaStruct:
    """A table's columns; DamagedLog saying what isn't as it should be."""
    try:
        parsed = _type(orjson.loads(text))
    except KeyError as error:
        raise DamagedLog(f"a metaData action's schemaString lacks {error}: {text[:200]}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedLog(f"a metaData action's schemaString can't be read: {error}: {text[:200]}") from error
    if not isinstance(parsed, DeltaStruct):
        raise DamagedLog(f"a metaData action's schemaString isn't a struct: {text[:200]}")
    return parsed


def _type(json: Any, depth: int = 0) -> DeltaType:
    if isinstance(json, str):
        return _plain(json)
    if depth > _DEEPEST:
        raise ValueError(f"types are nested more than {_DEEPEST} levels deep")
    kind, inside = json["type"], depth + 1
    match kind:
        case "struct":
            return DeltaStruct(tuple(_field(each, inside) for each in json["fields"]))
        case "array":
            return DeltaArray(_type(json["elementType"], inside), json["containsNull"])
        case "map":
            key, value = _type(json["keyType"], inside), _type(json["valueType"], inside)
            return DeltaMap(key, value, json["valueContainsNull"])
        case "udt":
            return _type(json["sqlType"], inside)
        case str():
            return _plain(kind)
        case _:
            raise TypeError(f"{kind!r} isn't a type")


def _plain(name: str) -> DeltaType:
    match = _DECIMAL.fullmatch(name)
    if match is None:
        return DeltaPrimitive(name)
    return DeltaDecimal(int(match[1] or 10), int(match[2] or 0))


def _field(json: Mapping[str, Any], depth: int) -> DeltaField:
    metadata = json.get("metadata") or {}
    _check_name(json["name"])
    _check_metadata(json["name"], metadata)
    return DeltaField(json["name"], _type(json["type"], depth), json["nullable"], metadata)


def _check_metadata(column: str, metadata: Mapping[str, Any]) -> None:
    """TypeError unless what is read of it has the types that it should have: SQL is made of it."""
    if PHYSICAL_NAME in metadata:
        _check_name(metadata[PHYSICAL_NAME])
    for key in _TEXTS:
        if type(metadata.get(key, "")) not in (str, NoneType):
            raise TypeError(f"{key} of column {column} is {metadata[key]!r}, and must be a text")
    ids = metadata.get(NESTED_IDS) or {}
    for field_id in (metadata.get(FIELD_ID), *ids.values()):
        if field_id is not None and (type(field_id) is not int or not 0 <= field_id <= _HIGHEST_ID):
            raise TypeError(f"column {column} has the id {field_id!r}, and ids are whole numbers up to {_HIGHEST_ID}")


def _check_name(name: object) -> None:
    if type(name) is not str or not name or "\0" in name:
        raise TypeError(f"{name!r} isn't a name")


def schema_text(schema: DeltaStruct) -> str:
    """A `schemaString`; the same schema always gives the same text."""
    return orjson.dumps(type_json(schema)).decode()


def type_json(kind: DeltaType) -> Any:
    """A type as the schema's JSON has it."""
    match kind:
        case DeltaPrimitive():
            return kind.name
        case DeltaDecimal():
            return f"decimal({kind.precision},{kind.scale})"
        case DeltaArray():
            return {"type": "array", "elementType": type_json(kind.element), "containsNull": kind.contains_null}
        case DeltaMap():
            key, value = type_json(kind.key), type_json(kind.value)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": kind.value_contains_null}
        case DeltaStruct():
            return {"type": "struct", "fields": [_field_json(each) for each in kind.fields]}


def _field_json(column: DeltaField) -> dict[str, Any]:
    kind, metadata = type_json(column.type), dict(column.metadata)
    return {"name": column.name, "type": kind, "nullable": column.nullable, "metadata": metadata}
