"""PURE. Column types that Spark and DuckDB share, for comparisons of tables."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Plain:
    """A type of single values: one of `integer float double text binary boolean date time timestamp timestamptz`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Decimal:
    """Exact numbers; those without fraction compare with integers."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True)
class List:
    element: "Type"

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True, slots=True)
class Map:
    key: "Type"
    value: "Type"

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[tuple[str, "Type"], ...]

    def __str__(self) -> str:
        return f"struct<{', '.join(f'{name}: {type_}' for name, type_ in self.fields)}>"


@dataclass(frozen=True, slots=True)
class Incomparable:
    """A type whose values no two engines write alike: variants, geometries, intervals, nanoseconds."""

    name: str

    def __str__(self) -> str:
        return self.name


Type: TypeAlias = Plain | Decimal | List | Map | Struct | Incomparable

BINARY_TYPE: Final = Plain("binary")

_SPARK_TYPES: Final = {
    "byte": "integer",
    "short": "integer",
    "integer": "integer",
    "long": "integer",
    "float": "float",
    "double": "double",
    "string": "text",
    "binary": "binary",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
_DUCKDB_TYPES: Final = {
    **dict.fromkeys(("tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger"), "integer"),
    "float": "float",
    "double": "double",
    **dict.fromkeys(("varchar", "uuid"), "text"),
    "blob": "binary",
    "boolean": "boolean",
    "date": "date",
    "time": "time",
    **dict.fromkeys(("timestamp", "timestamp_s", "timestamp_ms"), "timestamp"),
    "timestamp with time zone": "timestamptz",
}
_UBIGINT: Final = Decimal(20, 0)
_DECIMAL_PATTERN: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_LETTERS_PATTERN: Final = re.compile(r"(?:var)?char\(\d+\)")


def from_spark_type(described: Any) -> Type:
    """Return the type that Spark describes in the JSON of a schema (`DataType.jsonValue()`)."""
    if isinstance(described, str):
        decimal = _DECIMAL_PATTERN.fullmatch(described)
        if decimal is not None:
            return Decimal(int(decimal[1]), int(decimal[2]))
        name = "text" if _LETTERS_PATTERN.fullmatch(described) else _SPARK_TYPES.get(described)
        return Incomparable(described) if name is None else Plain(name)
    match described["type"]:
        case "array":
            return List(from_spark_type(described["elementType"]))
        case "map":
            return Map(from_spark_type(described["keyType"]), from_spark_type(described["valueType"]))
        case "struct":
            return Struct(tuple((field["name"], from_spark_type(field["type"])) for field in described["fields"]))
        case other:
            return Incomparable(str(other))


class DuckDBType(Protocol):
    """What DuckDB's Python client says of a type; `children` of single values raises."""

    @property
    def id(self) -> str: ...

    @property
    def children(self) -> Sequence[Any]: ...


def from_duckdb_type(described: DuckDBType) -> Type:
    """Return the type that DuckDB describes."""
    match described.id:
        case "decimal":
            size = dict(described.children)
            return Decimal(int(size["precision"]), int(size["scale"]))
        case "ubigint":
            return _UBIGINT
        case "list":
            return List(from_duckdb_type(described.children[0][1]))
        case "map":
            key, value = (from_duckdb_type(child) for _, child in described.children)
            return Map(key, value)
        case "struct":
            return Struct(tuple((name, from_duckdb_type(child)) for name, child in described.children))
        case single:
            name = _DUCKDB_TYPES.get(single)
            return Incomparable(str(described)) if name is None else Plain(name)


def is_comparable(type_: Type) -> bool:
    """Return whether all of its parts are."""
    match type_:
        case List(element):
            return is_comparable(element)
        case Map(key, value):
            return is_comparable(key) and is_comparable(value)
        case Struct(fields):
            return all(is_comparable(field) for _, field in fields)
        case _:
            return not isinstance(type_, Incomparable)
