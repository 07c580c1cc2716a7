"""PURE. JSON values as values in memory: as Iceberg's single values say, and as people write them besides.

Dates and times are ISO 8601, with any offset from UTC where the column has a zone; uuids with hyphens; binary as
hexadecimal digits; decimals as texts or numbers; NaN, Infinity and -Infinity as texts. A map with keys that are texts
may be an object, any map is `{"keys": [...], "values": [...]}`; a struct is an object by field names.
"""

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

import orjson

from duckicelake.bridge.values.lake_values import format_cast_text
from duckicelake.bridge.values.types import INTEGER_LIMITS
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.calendar import parse_date, parse_timestamp
from duckicelake.iceberg.primitives import TypeFamily
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import from_json
from duckicelake.lake.types import LAKE_TYPES
from duckicelake.rows.columns import RowColumn
from duckicelake.rows.problems import MisfitError

Read: TypeAlias = Callable[[Any], Any]
"""Reads a JSON value that isn't null; MisfitError."""

RANGES: Final = {name: row.limits for name, row in LAKE_TYPES.items() if row.limits}
"""The least and the greatest value of DuckLake's types of whole numbers."""
_WORDS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_MOMENT: Final = re.compile(
    r"(?P<local>(?P<date>[+-]?\d{4,6}-\d\d-\d\d)[Tt ](?P<time>\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?))"
    r"(?P<zone>[Zz]|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
_EPOCH: Final = {True: datetime(1970, 1, 1, tzinfo=UTC), False: datetime(1970, 1, 1)}
_DAY_MICROS: Final = 86_400 * 10**6
_MINUTE: Final = 60
_MICRO_DIGITS: Final = 6
_SINGLE_BYTES: Final = 4
_MIN_LONG: Final = -(2**63)
_MAX_MICRO_DIGITS: Final = 26
"""Characters of a date and time down to microseconds."""
_MAX_FLOAT_ERROR: Final = "write a number that 32 bits hold, or 'NaN', 'Infinity', '-Infinity'"


def make_primitive_reader(column: RowColumn) -> Read:
    """Make the reader of a primitive column's JSON values."""
    kind = column.type
    assert isinstance(kind, PrimitiveType)
    match kind.traits.family:
        case "integer":
            return _make_integer_reader(*RANGES[column.declared])
        case "float":
            return _read_float if kind.traits.size == _SINGLE_BYTES else _read_double
        case "decimal":
            return _make_decimal_reader(kind, INTEGER_LIMITS.get(column.declared))
        case "timestamp":
            return _make_time_reader(kind, column.declared)
        case "string" if column.declared == "json":
            return _read_json_text
        case family:
            return _READ[family](kind)


def _make_integer_reader(least: int, most: int) -> Read:
    def read(value: Any) -> int:
        if type(value) is int and least <= value <= most:
            return value
        raise MisfitError(value, f"write a whole number from {least} to {most}")

    return read


def _read_double(value: Any) -> float:
    if type(value) in {float, int, Decimal}:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isinf(number):
            raise MisfitError(value, "write a number that 64 bits hold")
        return number
    if type(value) is str and value in _WORDS:
        return _WORDS[value]
    raise MisfitError(value, "write a number, or 'NaN', 'Infinity', '-Infinity'")


def _read_float(value: Any) -> float:
    try:
        return to_float32([_read_double(value)])[0]
    except OverflowError as error:
        raise MisfitError(value, _MAX_FLOAT_ERROR) from error


def to_float32(numbers: Sequence[float]) -> list[float]:
    """Round numbers to 32 bits; OverflowError: one is too large."""
    layout = f"<{len(numbers)}f"
    return list(struct.unpack(layout, struct.pack(layout, *numbers)))


def _make_decimal_reader(kind: PrimitiveType, limits: tuple[int, int] | None) -> Read:
    least, most = limits or (-(10**38), 10**38)
    right = f"write a number of at most {kind.precision} digits, {kind.scale} of them after the point"
    if limits:
        right = f"write a whole number from {least} to {most}"

    def read(value: Any) -> Decimal:
        text = str(value) if type(value) in {int, Decimal} else value
        try:
            number: Decimal = from_json(kind, text)
        except InvalidRequestError as error:
            raise MisfitError(value, right) from error
        if not least <= number <= most:
            raise MisfitError(value, right)
        return number

    return read


def _make_time_reader(kind: PrimitiveType, declared: str) -> Read:
    has_zone, digits = kind.traits.has_zone, kind.traits.digits
    unit = COARSE.get(declared, 1)
    example = "2026-08-31T13:45:07.5" + ("Z" if has_zone else "")

    def read(value: Any) -> int:
        match = _MOMENT.fullmatch(value) if type(value) is str else None
        if match is None or (match["zone"] is None) == has_zone:
            zone = "with its offset from UTC" if has_zone else "without a zone"
            raise MisfitError(value, f"write a text such as {example}, {zone}")
        try:
            ticks = _compute_ticks(match, kind, digits)
        except (InvalidRequestError, ValueError) as error:
            raise MisfitError(
                value, f"there is no such moment, or the column's {digits} decimals can't say it"
            ) from error
        if ticks % unit:
            raise MisfitError(value, f"the column is a {declared}, which can't say it")
        return ticks

    return read


def _compute_ticks(match: re.Match[str], kind: PrimitiveType, digits: int) -> int:
    """Compute ticks since the epoch.

    Raises:
        ValueError, InvalidRequestError: there is no such moment.
        MisfitError: DuckDB has none.

    """
    text, zone = match[0], match["zone"]
    if digits == _MICRO_DIGITS and text[4] == "-" and len(match["local"]) <= _MAX_MICRO_DIGITS:
        since = datetime.fromisoformat(text.upper()) - _EPOCH[zone is not None]
        micros: int = since.days * _DAY_MICROS + since.seconds * 10**6 + since.microseconds
        return micros
    ticks = parse_timestamp(f"{match['date']}T{match['time']}", digits)
    offset = 0 if zone in {None, "Z", "z"} else int(zone[1:3]) * 60 + int(zone[-2:])
    shift: int = (-offset if zone and zone[0] == "-" else offset) * _MINUTE * 10**digits
    check_time_range(kind, ticks - shift, text)
    return ticks - shift


def check_time_range(kind: PrimitiveType, ticks: int, value: Any) -> None:
    """Raise MisfitError if DuckDB has no such day or moment."""
    if format_cast_text(kind, ticks) is None or not _MIN_LONG <= ticks <= -_MIN_LONG - 1:
        raise MisfitError(value, f"DuckDB's values of type {kind} don't reach there")


def _make_date_reader(kind: PrimitiveType) -> Read:
    def read(value: Any) -> int:
        days = parse_date(value) if type(value) is str else None
        if days is None:
            raise InvalidRequestError(repr(value))
        check_time_range(kind, days, value)
        return days

    return _wrap_errors(read, "write a text such as 2026-08-31")


def _make_single_reader(kind: PrimitiveType, right: str) -> Read:
    """Make a reader of values in Iceberg's JSON. right: describes valid values, for errors."""
    return _wrap_errors(lambda value: from_json(kind, value), right)


def _make_time_of_day_reader(kind: PrimitiveType) -> Read:
    return _make_single_reader(kind, f"write a text such as 13:45:07.5, of at most {kind.traits.digits} decimals")


def _make_bytes_reader(kind: PrimitiveType) -> Read:
    count = "byte" if kind.length is None else f"of {kind.length} bytes"
    return _make_single_reader(kind, f"write a text of hexadecimal digits, two for each {count}")


def _wrap_errors(read: Read, right: str) -> Read:
    def read_checked(value: Any) -> Any:
        try:
            return read(value)
        except InvalidRequestError as error:
            raise MisfitError(value, right) from error

    return read_checked


def _make_uuid_reader(kind: PrimitiveType) -> Read:
    return _wrap_errors(
        lambda value: from_json(kind, value).bytes, "write a text such as f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
    )


def _read_json_text(value: Any) -> str:
    if type(value) is not str:
        raise MisfitError(value, "write a text that is JSON")
    check_json_text(value)
    return value


def check_json_text(value: str) -> None:
    """Raise MisfitError if the text isn't JSON."""
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise MisfitError(value, "write a text that is JSON") from error


COARSE: Final = {
    name: 10 ** (_MICRO_DIGITS - row.digits)
    for name, row in LAKE_TYPES.items()
    if row.digits is not None and row.digits < _MICRO_DIGITS
}
"""Microseconds of a tick of DuckLake's types that are coarser than Iceberg's."""
_READ: Final[Mapping[TypeFamily, Callable[[PrimitiveType], Read]]] = {
    "boolean": lambda kind: _make_single_reader(kind, "write true or false"),
    "date": _make_date_reader,
    "time": _make_time_of_day_reader,
    "string": lambda kind: _make_single_reader(kind, "write a text"),
    "uuid": _make_uuid_reader,
    "bytes": _make_bytes_reader,
}
