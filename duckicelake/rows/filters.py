"""PURE. Filters of rows, bound to a table's columns, as DuckDB's conditions; by Iceberg's expressions spec.

Their logic has two values: of null nothing is true but `is-null` and what says "not". NaN equals NaN and is neither
less nor greater than anything; -0.0 equals 0.0.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from duckicelake.bridge.values.lake_values import format_cast_text
from duckicelake.bridge.values.types import to_lake_type
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.expressions import (
    ColumnTest,
    ConstantPredicate,
    JsonConstant,
    Junction,
    NotPredicate,
    Predicate,
)
from duckicelake.iceberg.primitives import select_names
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import to_json
from duckicelake.rows.columns import RowColumn, is_storable, to_single_value
from duckicelake.rows.json_values import make_primitive_reader
from duckicelake.rows.problems import MisfitError, render_value

_FLOATS: Final = select_names("float")
_SIGNS: Final = {"lt": "<", "lt-eq": "<=", "gt": ">", "gt-eq": ">="}
_OPPOSITES: Final = {
    "not-eq": "eq",
    "not-in": "in",
    "not-null": "is-null",
    "not-nan": "is-nan",
    "not-starts-with": "starts-with",
}
_TESTED: Final = {"is-nan": _FLOATS, "starts-with": select_names("string")}
_ALIKE: Final = frozenset({"integer", "float", "decimal"})
"""Families whose types are compared with constants of each other."""


@dataclass(frozen=True, slots=True)
class FilterColumn:
    """DuckDB's expression of a column's value, and its type."""

    type: PrimitiveType
    expression: str
    duckdb_type: str


@dataclass(frozen=True, slots=True)
class SqlCondition:
    """A condition in DuckDB's SQL, and its parameters by name."""

    sql: str
    parameters: Mapping[str, str | list[str]]


def bind_filter(predicate: Predicate, columns: Iterable[RowColumn]) -> Predicate:
    """Bind a predicate: field ids for columns, values of `iceberg.values` for constants.

    InvalidRequestError: a column doesn't exist or isn't primitive, or a constant doesn't fit its type.
    """
    known: dict[str | int, RowColumn] = {}
    for column in columns:
        known[column.name] = known[column.field_id] = column
    return _bind_predicate(predicate, known)


def build_condition(predicate: Predicate, columns: Mapping[int, FilterColumn]) -> SqlCondition:
    """Build DuckDB's condition of a bound predicate."""
    writer = _ConditionWriter(columns)
    return SqlCondition(writer.write(predicate), writer.parameters)


def write_condition(predicate: Predicate, columns: Mapping[int, FilterColumn]) -> str:
    """Write DuckDB's condition of a bound predicate as one text, for a WHERE: it is never true where it is null."""
    return _TextWriter(columns).write_true(predicate)


def _bind_predicate(predicate: Predicate, columns: Mapping[str | int, RowColumn]) -> Predicate:
    match predicate:
        case ConstantPredicate():
            return predicate
        case NotPredicate():
            return NotPredicate(_bind_predicate(predicate.child, columns))
        case Junction():
            return Junction(
                predicate.operator, _bind_predicate(predicate.left, columns), _bind_predicate(predicate.right, columns)
            )
    column = columns.get(predicate.column)
    kind = column.type if column is not None and is_storable(column) else None
    if column is None or not isinstance(kind, PrimitiveType):
        names = ", ".join(column.name for key, column in columns.items() if key == column.name and not column.children)
        raise InvalidRequestError(f"Cannot filter by column {predicate.column!r}: expected one of {names}")
    wanted = _TESTED.get(_OPPOSITES.get(predicate.operator, predicate.operator))
    if wanted is not None and kind.name not in wanted:
        raise InvalidRequestError(
            f"{predicate.operator} tests a {' or a '.join(wanted)}, but {column.name} is a {kind}"
        )
    values = tuple(_read_constant(column, kind, literal) for literal in predicate.values)
    return ColumnTest(predicate.operator, column.field_id, values)


def _read_constant(column: RowColumn, kind: PrimitiveType, value: JsonConstant) -> Any:
    """Read a constant as a value of the column's Iceberg type, whatever DuckLake's type is."""
    own, family = value.data_type, kind.traits.family
    if own is not None and own != kind and not (own.traits.family == family and family in _ALIKE):
        raise InvalidRequestError(f"{column.name} is a {kind}, which isn't compared with a {own}")
    try:
        found = make_primitive_reader(replace(column, declared=to_lake_type(kind)))(value.json)
    except MisfitError as error:
        raise InvalidRequestError(
            f"{column.name} is compared with {render_value(error.value)}: {error.right}"
        ) from error
    if isinstance(found, float) and math.isnan(found):
        raise InvalidRequestError(f"{column.name} is compared with NaN: test for it by is-nan or not-nan")
    return to_single_value(kind, found)


@dataclass(slots=True)
class _ConditionWriter:
    columns: Mapping[int, FilterColumn]
    parameters: dict[str, str | list[str]] = field(default_factory=dict)

    def write(self, predicate: Predicate) -> str:
        """Write what is true or false of each row."""
        match predicate:
            case ConstantPredicate():
                return "true" if predicate.holds else "false"
            case NotPredicate():
                return f"(NOT {self.write(predicate.child)})"
            case Junction():
                return f"({self.write(predicate.left)} {predicate.operator} {self.write(predicate.right)})"
        opposite = _OPPOSITES.get(predicate.operator)
        test = self._write_test(opposite or predicate.operator, predicate)
        known = test if "is-null" in {predicate.operator, opposite} else f"coalesce({test}, false)"
        return known if opposite is None else f"(NOT {known})"

    def _write_test(self, operator: str, test: ColumnTest) -> str:
        """Write a test, which is null of a null value alone."""
        assert isinstance(test.column, int)
        column = self.columns[test.column]
        value, texts = column.expression, [_format_constant(column.type, constant) for constant in test.values]
        match operator:
            case "is-null":
                return f"({value} IS NULL)"
            case "is-nan":
                return f"isnan({value})"
            case "in":
                return f"({value} IN ({self._write_constants(column, texts)}))"
            case "starts-with":
                return f"starts_with({value}, {self._write_constant(column, texts[0])})"
        sign = "=" if operator == "eq" else _SIGNS[operator]
        no_nan = f" AND NOT isnan({value})" if sign != "=" and column.type.name in _FLOATS else ""
        return f"({value} {sign} {self._write_constant(column, texts[0])}{no_nan})"

    def _write_constant(self, column: FilterColumn, text: str) -> str:
        return _build_constant(column, f"{self._parameter(text)}::VARCHAR")

    def _write_constants(self, column: FilterColumn, texts: list[str]) -> str:
        return f"SELECT {_build_constant(column, f'unnest({self._parameter(texts)}::VARCHAR[])')}"

    def _parameter(self, value: str | list[str]) -> str:
        name = f"constant{len(self.parameters)}"
        self.parameters[name] = value
        return f"${name}"


class _TextWriter(_ConditionWriter):
    """Writes constants into the text, and what statistics may prune without a function around it."""

    def write_true(self, predicate: Predicate) -> str:
        """Write what is true of the rows that the predicate is true of, and false or null of the others."""
        match predicate:
            case Junction():
                return f"({self.write_true(predicate.left)} {predicate.operator} {self.write_true(predicate.right)})"
            case ColumnTest() if predicate.operator not in _OPPOSITES:
                return self._write_test(predicate.operator, predicate)
        return self.write(predicate)

    def _write_constant(self, column: FilterColumn, text: str) -> str:
        return _build_constant(column, _quote_text(text))

    def _write_constants(self, column: FilterColumn, texts: list[str]) -> str:
        return ", ".join(self._write_constant(column, text) for text in texts) or "NULL"


def _quote_text(text: str) -> str:
    """Write a text as SQL has it; its parser ends at a NUL."""
    if "\0" in text:
        return f"decode(unhex('{text.encode().hex()}'))"
    return "'" + text.replace("'", "''") + "'"


def _format_constant(kind: PrimitiveType, value: Any) -> str:
    """Format a constant as a text that DuckDB casts, for all types that `make_primitive_reader` reads."""
    if isinstance(value, str):
        return value
    return value.hex() if isinstance(value, bytes) else format_cast_text(kind, value) or ""


def _build_constant(column: FilterColumn, text: str) -> str:
    match column.type.traits.family:
        case "bytes":
            return f"unhex({text})"
        case "string":
            return text
    return f"CAST({text} AS {column.duckdb_type})"


def format_filter(predicate: Predicate, types: Mapping[int, PrimitiveType]) -> Any:
    """Format a bound predicate as JSON, its columns by field id."""
    match predicate:
        case ConstantPredicate():
            return predicate.holds
        case NotPredicate():
            return {"type": "not", "child": format_filter(predicate.child, types)}
        case Junction():
            left, right = format_filter(predicate.left, types), format_filter(predicate.right, types)
            return {"type": predicate.operator, "left": left, "right": right}
    assert isinstance(predicate.column, int)
    kind, column = types[predicate.column], {"type": "reference", "id": predicate.column}
    values = [{"type": "literal", "value": to_json(kind, value), "data-type": str(kind)} for value in predicate.values]
    if predicate.operator in {"in", "not-in"}:
        return {"type": predicate.operator, "child": column, "values": values}
    if not values:
        return {"type": predicate.operator, "child": column}
    return {"type": predicate.operator, "left": column, "right": values[0]}
