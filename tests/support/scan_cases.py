"""Generated rows and filters of tables with a column of every type, as each engine writes them."""

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any, Literal

import pyarrow as pa
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    Or,
    StartsWith,
)

Engine = Literal["spark", "duckdb"]
Row = tuple[Any, ...]
ZONE = dt.UTC
NAN = math.nan
KEY_BYTES = 7
"""How many bytes of a text the server compares, at least."""

COLUMNS: Mapping[str, tuple[str, str]] = {
    "k": ("bigint", "bigint"),
    "i": ("int", "int"),
    "x": ("float", "float"),
    "d": ("double", "double"),
    "c": ("decimal(9,2)", "decimal(9,2)"),
    "b": ("boolean", "boolean"),
    "s": ("string", "varchar"),
    "y": ("binary", "blob"),
    "dt": ("date", "date"),
    "ts": ("timestamp_ntz", "timestamp"),
    "tz": ("timestamp", "timestamptz"),
}
"""The types of each column for Spark and DuckDB. `k` numbers the rows."""

VALUES: Mapping[str, Sequence[Any]] = {
    "i": (-(2**31) + 8, -11, -1, 0, 1, 9, 10, 2**31 - 1),
    "x": (NAN, -0.0, 0.0, 0.1, -1.5, math.inf, -math.inf),
    "d": (NAN, -0.0, 0.0, 0.1, 1e300, math.inf, -math.inf),
    "c": (Decimal("-12.34"), Decimal("-0.01"), Decimal("0.00"), Decimal("7.00"), Decimal("9999999.99")),
    "b": (True, False),
    "s": ("", "a", "ab", "abc", "abd", "ä", "\ufffd", "\U0001f600x", "zzzzzzzzzzzzzzzzzzzzz"),
    "y": (b"", b"\x00", b"a", b"ab\x7f", b"zz"),
    "dt": (dt.date(1900, 2, 28), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29)),
    "ts": (
        dt.datetime(1969, 12, 31, 23, 30),
        dt.datetime(1970, 1, 1),
        dt.datetime(2024, 2, 29, 12, 59, 59, 999999),
        dt.datetime(1912, 6, 1, 7),
    ),
    "tz": (
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=ZONE),
        dt.datetime(1970, 1, 1, tzinfo=ZONE),
        dt.datetime(2024, 2, 29, 12, tzinfo=ZONE),
    ),
}
SPECS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "identities": ("i", "s"),
    "dates": ("dt", "b"),
    "identity of decimals": ("c",),
    "identity of bytes": ("y",),
    "buckets": ("bucket(3, k)", "bucket(2, s)"),
    "buckets of times": ("bucket(2, tz)", "bucket(2, c)"),
    "truncated": ("truncate(10, i)", "truncate(1, s)"),
    "truncated decimals": ("truncate(50, c)", "truncate(1, y)"),
    "years": ("years(ts)",),
    "months": ("months(dt)",),
    "days": ("days(tz)",),
    "hours": ("hours(ts)",),
}
"""Partition fields by Spark's names for transforms."""


def make_rows(random: Random, first: int, count: int, columns: Sequence[str] = tuple(COLUMNS)) -> list[Row]:
    """Make rows that number `k` from first; one value in six is null, and neighbours are often alike."""
    return [
        tuple(k if name == "k" else _pick(random, VALUES[name]) for name in columns)
        for k in range(first, first + count)
    ]


def _pick(random: Random, values: Sequence[Any]) -> Any:
    return None if random.random() < 1 / 6 else random.choice(values)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A predicate: a test of a column with its constants, or `and`, `or` and `not` of others."""

    operator: str
    column: str = ""
    values: tuple[Any, ...] = ()
    parts: tuple["RowFilter", ...] = ()

    def sql(self, engine: Engine) -> str:
        match self.operator:
            case "and" | "or":
                return f"({f' {self.operator} '.join(part.sql(engine) for part in self.parts)})"
            case "not":
                return f"(not {self.parts[0].sql(engine)})"
            case "is-null":
                return f"{self.column} is null"
            case "is-nan":
                return f"coalesce(isnan({self.column}), false)" if engine == "duckdb" else f"isnan({self.column})"
            case "starts-with":
                return f"{self.column} like '{self.values[0]}%'"
            case "in":
                return f"{self.column} in ({', '.join(self._literals(engine))})"
        return f"{self.column} {_SIGNS[self.operator]} {self._literals(engine)[0]}"

    def _literals(self, engine: Engine) -> list[str]:
        return [literal(self.column, value, engine) for value in self.values]

    def json(self) -> Any:
        """Return the filter in the form that clients send, with values as Iceberg's parser reads them."""
        match self.operator:
            case "and" | "or":
                left, right = self.parts
                return {"type": self.operator, "left": left.json(), "right": right.json()}
            case "not":
                return {"type": "not", "child": self.parts[0].json()}
        found: dict[str, Any] = {"type": self.operator, "term": self.column}
        if self.operator == "in":
            found["values"] = [_to_json(value) for value in self.values]
        elif self.values:
            found["value"] = _to_json(self.values[0])
        return found

    def pyiceberg(self) -> BooleanExpression:
        match self.operator:
            case "and":
                return And(*(part.pyiceberg() for part in self.parts))
            case "or":
                return Or(*(part.pyiceberg() for part in self.parts))
            case "not":
                return Not(self.parts[0].pyiceberg())
            case "is-null" | "is-nan":
                return _PYICEBERG[self.operator](self.column)
            case "in":
                return _PYICEBERG[self.operator](self.column, self.values)
        return _PYICEBERG[self.operator](self.column, self.values[0])


_SIGNS = {"eq": "=", "not-eq": "<>", "lt": "<", "lt-eq": "<=", "gt": ">", "gt-eq": ">="}
_PYICEBERG: Mapping[str, Callable[..., BooleanExpression]] = {
    "is-null": IsNull,
    "is-nan": IsNaN,
    "in": In,
    "eq": EqualTo,
    "not-eq": NotEqualTo,
    "lt": LessThan,
    "lt-eq": LessThanOrEqual,
    "gt": GreaterThan,
    "gt-eq": GreaterThanOrEqual,
    "starts-with": StartsWith,
}


def make_filters(random: Random, count: int, columns: Sequence[str] = tuple(COLUMNS)) -> list[RowFilter]:
    """Make filters; the first ones test each column once, the others combine tests of any."""
    simple = [make_test(random, name) for name in columns]
    return (simple + [make_filter(random, columns, 2) for _ in range(count)])[:count]


def make_filter(random: Random, columns: Sequence[str], depth: int) -> RowFilter:
    kind = random.choice(("test", "and", "or", "not")) if depth else "test"
    if kind == "test":
        return make_test(random, random.choice(columns))
    parts = tuple(make_filter(random, columns, depth - 1) for _ in range(1 if kind == "not" else 2))
    return RowFilter(kind, parts=parts)


def make_test(random: Random, name: str) -> RowFilter:
    values = [value for value in VALUES.get(name, range(0, 60, 7)) if value is not NAN]
    operators = [*_SIGNS, "in", "is-null"]
    operators += ["is-nan"] * 2 if name in ("x", "d") else ["starts-with"] * 2 if name == "s" else []
    operator = random.choice(operators)
    if operator in ("is-null", "is-nan"):
        return RowFilter(operator, name)
    if name in ("x", "d"):
        values = [value for value in values if math.isfinite(value)]
    chosen = random.sample(values, min(len(values), 2)) if operator == "in" else [random.choice(values)]
    return RowFilter(operator, name, tuple(chosen))


def has_floats(row_filter: RowFilter) -> bool:
    return row_filter.column in ("x", "d") or any(map(has_floats, row_filter.parts))


def has_long_texts(row_filter: RowFilter) -> bool:
    """Return whether a constant has more bytes than the key of a text, so that keys may tie."""
    sizes = (len(value.encode() if isinstance(value, str) else value) for value in row_filter.values if is_text(value))
    return any(size > KEY_BYTES for size in sizes) or any(map(has_long_texts, row_filter.parts))


def is_text(value: Any) -> bool:
    return isinstance(value, str | bytes)


def literal(column: str, value: Any, engine: Engine) -> str:
    """Write a value of a column as SQL of the column's type."""
    kind = COLUMNS[column][engine == "duckdb"]
    if value is None:
        return f"CAST(NULL AS {kind})"
    match value:
        case bool() | int():
            return str(value).lower()
        case str():
            return f"'{value}'"
        case bytes():
            return f"unhex('{value.hex()}')"
        case float():
            text = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, repr(value))
            return f"CAST('{text}' AS {kind})"
    return f"CAST('{value}' AS {kind})"


def values_sql(rows: Sequence[Row], engine: Engine, columns: Sequence[str] = tuple(COLUMNS)) -> str:
    """Write rows as the list that follows VALUES."""
    lines = (", ".join(map(literal, columns, row, [engine] * len(row))) for row in rows)
    return ", ".join(f"({line})" for line in lines)


def columns_sql(engine: Engine) -> str:
    return ", ".join(f"{name} {kinds[engine == 'duckdb']}" for name, kinds in COLUMNS.items())


def to_arrow(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


def _to_json(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex().upper()
        case Decimal():
            return str(value)
        case dt.date() | dt.datetime():
            return value.isoformat()
    return value
