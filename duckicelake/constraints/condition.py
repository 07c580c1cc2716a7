"""PURE. The syntax tree of a CHECK constraint: only what Spark and DuckDB evaluate alike, for every value."""

import re
import struct
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.calendar import DAY_SECONDS, parse_date, parse_timestamp
from duckicelake.iceberg.types import PrimitiveType

Kind = Enum("Kind", "WHOLE DECIMAL DOUBLE FLOAT TEXT BOOLEAN DATE TIMESTAMP ZONED")
"""The kind of a value: a column's type without its width."""
KIND_OF_TYPE = {
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
FLOAT_KINDS = frozenset({Kind.DOUBLE, Kind.FLOAT})
_NUMBER: Final = re.compile(r"-?(\d{1,38})(?:\.(\d{0,38}))?")
_SCIENTIFIC: Final = re.compile(r"-?\d{1,17}(\.\d{0,17})?([eE][+-]?\d{1,3})?")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP: Final = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d{1,6})?)")
_OFFSET: Final = re.compile(r"(Z|[+-]\d\d:\d\d)$")
_MAX_DIGITS: Final = 38
_MICROS_PER_SECOND: Final = 10**6
WHOLE_LIMIT: Final = 1 << 63
_EXACT_IN_DOUBLE: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class ConstraintColumn:
    """A column, or a field in structs. path: their names in the schema."""

    path: tuple[str, ...]
    field_id: int
    type: PrimitiveType

    @property
    def kind(self) -> Kind:
        return KIND_OF_TYPE[self.type.name]


@dataclass(frozen=True, slots=True)
class ConstraintConstant:
    """A constant in the text; never null."""

    value: Any
    kind: Kind


@dataclass(frozen=True, slots=True)
class ArithmeticTerm:
    """An operation on two whole numbers or two doubles. The right side of `%` is a constant above 0."""

    sign: Literal["+", "-", "*", "%"]
    left: "Term"
    right: "Term"
    kind: Kind


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """`abs` of a number, `length` of a text in code points, or `coalesce` of a value and a constant."""

    name: Literal["abs", "length", "coalesce"]
    arguments: tuple["Term", ...]
    kind: Kind


Term: TypeAlias = ConstraintColumn | ConstraintConstant | ArithmeticTerm | FunctionCall


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of two values of one kind."""

    sign: Literal["<", "<=", "="]
    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class Like:
    """A text compared with a pattern of `%`, `_` and literal characters. There is no escape."""

    value: Term
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    value: Term


@dataclass(frozen=True, slots=True)
class Truth:
    """A boolean value as a condition."""

    value: Term


@dataclass(frozen=True, slots=True)
class NotCondition:
    part: "Condition"


@dataclass(frozen=True, slots=True)
class Logic:
    word: Literal["AND", "OR"]
    parts: tuple["Condition", ...]


Condition: TypeAlias = Compare | Like | IsNull | Truth | NotCondition | Logic


def collect_columns(node: Condition | Term) -> dict[int, ConstraintColumn]:
    """Collect the columns of an expression by field id."""
    found: dict[int, ConstraintColumn] = {}
    _collect(node, found)
    return found


def _collect(node: Condition | Term, found: dict[int, ConstraintColumn]) -> None:
    match node:
        case ConstraintColumn():
            found[node.field_id] = node
        case ConstraintConstant():
            pass
        case ArithmeticTerm() | Compare():
            _collect(node.left, found)
            _collect(node.right, found)
        case FunctionCall():
            for argument in node.arguments:
                _collect(argument, found)
        case Like() | IsNull() | Truth():
            _collect(node.value, found)
        case NotCondition():
            _collect(node.part, found)
        case Logic():
            for part in node.parts:
                _collect(part, found)


class UnlikeError(Exception):
    """Engines read the constant differently for values of this kind; the message says what would be right."""


def parse_number(text: str, beside: Term) -> ConstraintConstant:
    """Parse a number as a constant of the kind of the other operand."""
    match beside.kind:
        case Kind.WHOLE:
            return ConstraintConstant(_parse_whole(text), Kind.WHOLE)
        case Kind.DECIMAL:
            return ConstraintConstant(_parse_decimal(text, beside), Kind.DECIMAL)
        case Kind.DOUBLE | Kind.FLOAT:
            return ConstraintConstant(_parse_float(text, beside.kind), beside.kind)
    raise UnlikeError(f"a {beside.kind.name.lower()} is not compared with a number")


def parse_text(value: str, beside: Term) -> ConstraintConstant:
    """Parse a text as a constant of the kind of the other operand, which may be a date or time."""
    try:
        match beside.kind:
            case Kind.TEXT:
                return ConstraintConstant(value, Kind.TEXT)
            case Kind.DATE if _DATE.fullmatch(value):
                return ConstraintConstant(parse_date(value), Kind.DATE)
            case Kind.TIMESTAMP if _TIMESTAMP.fullmatch(value) or _DATE.fullmatch(value):
                return ConstraintConstant(_parse_micros(value), Kind.TIMESTAMP)
            case Kind.ZONED if _OFFSET.search(value):
                return ConstraintConstant(_parse_zoned(value), Kind.ZONED)
    except InvalidRequestError as error:
        raise UnlikeError(str(error)) from error
    wanted = {
        Kind.DATE: "write the date as '2026-08-31'",
        Kind.TIMESTAMP: "write the time as '2026-08-31 13:45:07'",
        Kind.ZONED: "write the time with its offset, as '2026-08-31 13:45:07+00:00': without, it hangs on the session",
    }
    raise UnlikeError(wanted.get(beside.kind, f"a {beside.kind.name.lower()} is not compared with a text"))


def _parse_whole(found: str) -> int:
    if not found.removeprefix("-").isdigit() or not -WHOLE_LIMIT <= int(found) < WHOLE_LIMIT:
        raise UnlikeError("write a whole number of up to 64 bits beside a whole number")
    return int(found)


def _parse_decimal(found: str, beside: Term) -> Decimal:
    match = _NUMBER.fullmatch(found)
    while isinstance(beside, FunctionCall):
        beside = beside.arguments[0]
    if match is None or not isinstance(beside, ConstraintColumn):
        raise UnlikeError("write a number with up to 38 digits beside a decimal")
    scale, precision = beside.type.scale or 0, beside.type.precision or 0
    digits = max(precision - scale, len(match[1].lstrip("0"))) + max(scale, len(match[2] or ""))
    if digits > _MAX_DIGITS:
        raise UnlikeError(f"both sides together have {digits} digits, and decimals have up to {_MAX_DIGITS}")
    return Decimal(found)


def _parse_float(found: str, kind: Kind) -> float:
    if not _SCIENTIFIC.fullmatch(found):
        raise UnlikeError("write a number with up to 17 digits beside a double")
    value = float(found)
    is_whole = "." not in found and "e" not in found.lower()
    if (is_whole and abs(int(found)) > _EXACT_IN_DOUBLE) or value in (float("inf"), float("-inf")):
        raise UnlikeError("a double doesn't hold this number")
    if kind is Kind.FLOAT and _convert_to_float(value) != Decimal(found):
        raise UnlikeError("a float doesn't hold this number exactly, and engines round it in different ways")
    return value


def _convert_to_float(value: float) -> Any:
    try:
        return Decimal(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return None


def _parse_micros(value: str) -> int:
    if _DATE.fullmatch(value):
        return parse_date(value) * DAY_SECONDS * _MICROS_PER_SECOND
    return parse_timestamp(value.replace(" ", "T"), 6)


def _parse_zoned(value: str) -> int:
    offset = _OFFSET.search(value)
    assert offset is not None
    bare = value[: offset.start()]
    if not _TIMESTAMP.fullmatch(bare):
        raise UnlikeError("write the time as '2026-08-31 13:45:07+00:00'")
    if offset[0] == "Z":
        return _parse_micros(bare)
    hours, minutes = int(offset[0][1:3]), int(offset[0][4:6])
    away = (hours * 60 + minutes) * 60 * _MICROS_PER_SECOND
    return _parse_micros(bare) - (away if offset[0][0] == "+" else -away)
