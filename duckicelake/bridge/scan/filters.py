"""PURE. Filters of scans, bound to fields by id, with constants of the fields' types.

Clients write constants in many ways: a date as days or as text, a timestamp as a number of its unit or as text with or
without an offset, a float as text, bytes in hex of either case.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.expressions import (
    ColumnTest,
    ConstantPredicate,
    JsonConstant,
    Junction,
    NotPredicate,
    Predicate,
)
from duckicelake.iceberg.partition import Transform
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import NestedField, PrimitiveType, StructType
from duckicelake.iceberg.values import from_json

_NEGATIONS: Final = {
    "lt": "gt-eq",
    "lt-eq": "gt",
    "gt": "lt-eq",
    "gt-eq": "lt",
    "eq": "not-eq",
    "in": "not-in",
    "is-null": "not-null",
    "is-nan": "not-nan",
    "starts-with": "not-starts-with",
}
_NEGATIONS_BOTH_WAYS: Final = _NEGATIONS | {
    negative: test for test, negative in _NEGATIONS.items() if test not in _NEGATIONS.values()
}
_TESTED_FAMILIES: Final = {"nan": ("float",), "starts-with": ("string", "bytes")}
_SHOWN_CHARS: Final = 60
_MAX_DIGITS: Final = 400
"""Of a constant; those of floats in double precision have up to 325 places."""
_OFFSET: Final = re.compile(r"(Z|[+-][0-9]{2}:?[0-9]{2})$")
_UTC: Final = "+00:00"


@dataclass(frozen=True, slots=True)
class FieldTest:
    """A field, or what a transform makes of it, compared with constants of its type.

    Constants are whole numbers for all that is counted, Decimal, float, str or bytes; they may be out of the type's
    range. Null passes only tests that say "not" and `is-null`: readers take "not less" for "greater or equal". NaN is
    the greatest number to some readers, and passes no comparison with numbers by others. keys: what was computed of
    many constants, which is the same for all manifests of a scan, or for those whose bounds begin alike.
    """

    operator: str
    field_id: int
    type: PrimitiveType
    values: tuple[Any, ...] = ()
    transform: Transform | None = None
    keys: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds; with no parts, always."""

    parts: tuple["ScanFilter", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of the parts holds; with no parts, never."""

    parts: tuple["ScanFilter", ...]


ScanFilter: TypeAlias = AllOf | AnyOf | FieldTest
EVERYTHING: Final = AllOf(())
NOTHING: Final = AnyOf(())


def bind_scan_filter(
    predicate: Predicate, schemas: Sequence[Schema], *, is_case_sensitive: bool = True
) -> tuple[ScanFilter, ...]:
    """Bind a predicate to fields; a name is looked up in the first schema, then in the others.

    Where the schemas have different fields of one name, there are several filters: a file may be left out only if all
    of them say so. Raises InvalidRequestError for a field that none of the schemas has, and for a constant that isn't
    one of the field's type.
    """
    orders = [schemas, schemas[::-1]] if len(schemas) > 1 else [schemas]
    bound = [_Binder(order, is_case_sensitive).bind(predicate, is_negated=False) for order in orders]
    return tuple(dict.fromkeys(bound))


def list_tests(scan_filter: ScanFilter) -> list[FieldTest]:
    """Return the tests of fields in it, in order."""
    if isinstance(scan_filter, FieldTest):
        return [scan_filter]
    return [test for part in scan_filter.parts for test in list_tests(part)]


class _Binder:
    def __init__(self, schemas: Sequence[Schema], is_case_sensitive: bool) -> None:
        self._is_case_sensitive = is_case_sensitive
        self._schemas = schemas
        self._ids: dict[str, int] = {}
        self._fields: dict[int, NestedField] = {}
        self._repeated: set[int] = set()
        for schema in reversed(schemas):
            self._ids |= {self._fold(name): field_id for name, field_id in schema.names().items()}
            self._fields |= schema.map_fields_by_id()
            self._repeated |= _find_repeated(schema)

    def bind(self, predicate: Predicate, *, is_negated: bool) -> ScanFilter:
        match predicate:
            case ConstantPredicate():
                return EVERYTHING if predicate.holds != is_negated else NOTHING
            case NotPredicate():
                return self.bind(predicate.child, is_negated=not is_negated)
            case Junction():
                parts = tuple(self.bind(part, is_negated=is_negated) for part in (predicate.left, predicate.right))
                return AllOf(parts) if (predicate.operator == "and") != is_negated else AnyOf(parts)
        return self._bind_test(predicate, is_negated)

    def _bind_test(self, test: ColumnTest, is_negated: bool) -> FieldTest:
        field = self._find_field(test.column, test.places[0])
        operator = _NEGATIONS_BOTH_WAYS[test.operator] if is_negated else test.operator
        name, type_, lead = str(test.column), field.type, _lead(test.places[0])
        if not isinstance(type_, PrimitiveType) or field.id in self._repeated:
            if operator not in ("is-null", "not-null"):
                raise InvalidRequestError(
                    f"{lead}Cannot filter by {name}: it holds no single values, so only null is asked for"
                )
            type_ = PrimitiveType.parse("unknown")
        result = type_ if test.transform is None else test.transform.result_type(type_)
        if test.transform is not None and not (test.transform.accepts(type_) and test.transform.name != "void"):
            raise InvalidRequestError(f"{lead}Cannot filter by {test.transform} of {name}: it doesn't take a {type_}")
        _check_operator(operator, lead, name, result)
        values = tuple(
            _read_constant(name, result, constant, test, index) for index, constant in enumerate(test.values)
        )
        return FieldTest(operator, field.id, result, values, test.transform)

    def _find_field(self, column: str | int, place: str) -> NestedField:
        field_id = column if isinstance(column, int) else self._ids.get(self._fold(column))
        field = None if field_id is None else self._fields.get(field_id)
        if field is None:
            names = ", ".join(list(self._schemas[0].full_names().values())[:20])
            raise InvalidRequestError(f"{_lead(place)}Cannot find field {_render(column)}: expected one of {names}")
        return field

    def _fold(self, name: str) -> str:
        return name if self._is_case_sensitive else name.lower()


def _find_repeated(schema: Schema) -> set[int]:
    """Return the ids of fields that a row may have several of: those in lists and maps."""
    fields, repeated = schema.map_fields_by_id(), set[int]()
    for field_id, parent in schema.parents().items():
        if parent is not None and (parent in repeated or not isinstance(fields[parent].type, StructType)):
            repeated.add(field_id)
    return repeated


def _check_operator(operator: str, lead: str, name: str, type_: PrimitiveType) -> None:
    wanted = _TESTED_FAMILIES.get(operator.removeprefix("not-").removeprefix("is-"))
    if wanted is not None and type_.traits.family not in wanted:
        raise InvalidRequestError(f"{lead}Cannot test {name} by {operator}: it is a {type_}")


def _lead(place: str) -> str:
    """Return what an error's text begins with: where in the request the error is, if that is known."""
    return f"{place}: " if place else ""


def _read_constant(name: str, type_: PrimitiveType, constant: JsonConstant, test: ColumnTest, index: int) -> Any:
    """Return the constant as the type's values are compared. Raises InvalidRequestError.

    index: the constant's place among those of the test.
    """
    try:
        value = _READERS[type_.traits.family](type_, constant.json)
    except (KeyError, ValueError, TypeError, InvalidOperation, OverflowError, InvalidRequestError) as error:
        problem = f"{name} is a {type_}, which isn't compared with {_render(constant.json)}"
        raise InvalidRequestError(_lead(test.find_place(index)) + problem) from error
    if isinstance(value, float) and math.isnan(value):
        problem = f"{name} is compared with NaN: test for it by is-nan or not-nan"
        raise InvalidRequestError(_lead(test.find_place(index)) + problem)
    return value


def _read_boolean(_: PrimitiveType, json: Any) -> int:
    return {True: 1, False: 0, "true": 1, "false": 0}[json if type(json) is bool else str(json).lower()]


def _read_whole(_: PrimitiveType, json: Any) -> int:
    """Return a whole number of any size; also one that is written as a text or with a fraction of zero."""
    if type(json) is int:
        return int(json)
    number = _parse_decimal(json)
    if number != int(number):
        raise ValueError(json)
    return int(number)


def _read_float(_: PrimitiveType, json: Any) -> float:
    return float(json) if type(json) is str else float(_require_number(json))


def _read_decimal(_: PrimitiveType, json: Any) -> Decimal:
    number = _parse_decimal(json)
    if not number.is_finite():
        raise ValueError(json)
    return number


def _parse_decimal(json: Any) -> Decimal:
    """Parse a number, or a text of one, with so few digits and so small an exponent that computing with it is quick."""
    text = json if type(json) is str else repr(_require_number(json))
    if len(text) > _MAX_DIGITS or abs((number := Decimal(text)).adjusted()) > _MAX_DIGITS:
        raise ValueError(json)
    return number


def _require_number(json: Any) -> Any:
    if type(json) not in (int, float):
        raise TypeError(json)
    return json


def _read_counted(type_: PrimitiveType, json: Any) -> int:
    """Return days, or the units of a time or timestamp, given as a number or as text."""
    if type(json) is int:
        return int(json)
    if type(json) is str and type_.traits.family == "timestamp":
        offset = _OFFSET.search(json)
        json = json if offset is None else json[: offset.start()]
        ahead: int = _parse_offset(offset[0] if offset else "Z") * 10**type_.traits.digits
        moment: int = from_json(type_, json + (_UTC if type_.traits.has_zone else ""))
        return moment - ahead
    number: int = from_json(type_, json)
    return number


def _parse_offset(text: str) -> int:
    """Return the seconds that a clock with the offset is ahead of UTC."""
    if text == "Z":
        return 0
    digits = text[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if text[0] == "-" else seconds


def _read_text(_: PrimitiveType, json: Any) -> str:
    if type(json) is not str:
        raise TypeError(json)
    return json


def _read_bytes(_: PrimitiveType, json: Any) -> bytes:
    return bytes.fromhex(json)


def _read_uuid(type_: PrimitiveType, json: Any) -> bytes:
    value: bytes = from_json(type_, json).bytes
    return value


_READERS: Final[Mapping[str, Any]] = {
    "boolean": _read_boolean,
    "integer": _read_whole,
    "float": _read_float,
    "decimal": _read_decimal,
    "date": _read_counted,
    "time": _read_counted,
    "timestamp": _read_counted,
    "string": _read_text,
    "bytes": _read_bytes,
    "uuid": _read_uuid,
}


def _render(json: Any) -> str:
    text = repr(json)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
