"""PURE. What a CHECK constraint can say: only what Spark and DuckDB evaluate alike, for every value.

Values in memory are those of `iceberg.values`. NaN equals itself and is above all other numbers. Whole numbers are
calculated with in 64 bits; what doesn't fit in is NULL.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias

from duckicelake.iceberg.types import PrimitiveType

Kind = Enum("Kind", "WHOLE DECIMAL DOUBLE FLOAT TEXT BOOLEAN DATE TIMESTAMP ZONED")
"""What a value is: a column's type without its width."""

KINDS = {
    "int": Kind.WHOLE,
    "long": Kind.WHOLE,
    "decimal": Kind.DECIMAL,
    "double": Kind.DOUBLE,
    "float": Kind.FLOAT,
    "string": Kind.TEXT,
    "boolean": Kind.BOOLEAN,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
    "timestamptz": Kind.ZONED,
}
FLOATS = frozenset({Kind.DOUBLE, Kind.FLOAT})


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field in structs; `path` are their names in the schema."""

    path: tuple[str, ...]
    field_id: int
    type: PrimitiveType

    @property
    def kind(self) -> Kind:
        return KINDS[self.type.name]


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that the text says; never null."""

    value: Any
    kind: Kind


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two whole numbers or two doubles; the right side of `%` is a constant above 0."""

    sign: Literal["+", "-", "*", "%"]
    left: "Value"
    right: "Value"
    kind: Kind


@dataclass(frozen=True, slots=True)
class Call:
    """`abs` of a number, `length` of a text in code points, or `coalesce` of a value and a constant."""

    name: Literal["abs", "length", "coalesce"]
    arguments: tuple["Value", ...]
    kind: Kind


Value: TypeAlias = Column | Constant | Arithmetic | Call


@dataclass(frozen=True, slots=True)
class Compare:
    """Two values of one kind."""

    sign: Literal["<", "<=", "="]
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Like:
    """A text by a pattern of `%`, `_` and itself; there is no escape."""

    value: Value
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    value: Value


@dataclass(frozen=True, slots=True)
class Truth:
    """A boolean value as a condition."""

    value: Value


@dataclass(frozen=True, slots=True)
class Not:
    part: "Condition"


@dataclass(frozen=True, slots=True)
class Logic:
    word: Literal["AND", "OR"]
    parts: tuple["Condition", ...]


Condition: TypeAlias = Compare | Like | IsNull | Truth | Not | Logic


def columns_of(node: Condition | Value) -> dict[int, Column]:
    """The columns of an expression by field id."""
    found: dict[int, Column] = {}
    _gather(node, found)
    return found


def _gather(node: Condition | Value, found: dict[int, Column]) -> None:
    match node:
        case Column():
            found[node.field_id] = node
        case Constant():
            pass
        case Arithmetic() | Compare():
            _gather(node.left, found)
            _gather(node.right, found)
        case Call():
            for argument in node.arguments:
                _gather(argument, found)
        case Like() | IsNull() | Truth():
            _gather(node.value, found)
        case Not():
            _gather(node.part, found)
        case Logic():
            for part in node.parts:
                _gather(part, found)
