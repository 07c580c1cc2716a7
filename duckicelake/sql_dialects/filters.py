"""PURE. Read a SQL condition as an Iceberg filter: what engines push down of a WHERE clause, or a row filter.

The condition is DuckDB's SQL: comparisons of columns with constants, BETWEEN, IN, IS NULL, LIKE 'a%', isnan() and
starts_with(), joined by AND, OR and NOT. Engines evaluate all else of a WHERE themselves, and it prunes nothing; a row
filter has nothing else.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from sqlglot import exp

from duckicelake.iceberg.expressions import (
    MAX_PREDICATES,
    ColumnTest,
    ConstantPredicate,
    JsonConstant,
    Junction,
    Predicate,
    collect_tests,
)
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.sql_dialects.dialects import DUCKDB, NotTranslatableError, UnreadableQueryError, refuse_construct
from duckicelake.sql_dialects.views import parse_query

EVERYTHING: Final = ConstantPredicate(holds=True)
_COMPARISONS: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "eq",
    exp.NEQ: "not-eq",
    exp.LT: "lt",
    exp.LTE: "lt-eq",
    exp.GT: "gt",
    exp.GTE: "gt-eq",
}
_MIRRORED: Final = {"lt": "gt", "lt-eq": "gt-eq", "gt": "lt", "gt-eq": "lt-eq"}
_OPPOSITES: Final = {
    "eq": "not-eq",
    "lt": "gt-eq",
    "lt-eq": "gt",
    "in": "not-in",
    "is-null": "not-null",
    "is-nan": "not-nan",
    "starts-with": "not-starts-with",
}
_NEGATIONS: Final = _OPPOSITES | {opposite: test for test, opposite in _OPPOSITES.items()}
_TRUE_OF_NULL: Final = frozenset({"not-eq", "not-in", "not-nan", "not-starts-with"})
"""Tests that hold for null in Iceberg, but not in SQL."""
_MOMENT: Final = re.compile(
    r"(?P<date>\d{4,}-\d\d-\d\d)(?:[ T](?P<time>\d\d:\d\d)(?P<seconds>:\d\d(?:\.\d+)?)?(?P<zone>.*))?"
)
_WILDCARD: Final = re.compile("[%_]")
_DAY_CHARS: Final = len("2026-11-28")
_KEEPING_CASTS: Final[Mapping[str, tuple[str, ...]]] = {
    "date": ("DATE",),
    "time": ("TIME",),
    "timestamp": ("TIMESTAMP", "TIMESTAMPTZ"),
    "uuid": ("UUID",),
    "string": ("TEXT", "VARCHAR"),
}
"""By the family of a column: types to which a text may be cast, and mean what it does without the cast."""
_SHOWN_CHARS: Final = 200
_SHOWN_COLUMNS: Final = 20


class InvalidConditionError(Exception):
    """A text is no condition over the columns; the message says why."""


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """A filter, and the conditions of the SQL that it lacks, since no statistics decide them."""

    predicate: Predicate
    ignored: tuple[str, ...] = ()


def parse_sql_filter(sql: str, schema: Schema) -> SqlFilter:
    """Parse a condition over a schema's columns, whose names are of any case.

    Raises InvalidConditionError for what isn't one.
    """
    reader = _FilterReader(schema)
    return SqlFilter(reader.read_text(sql), tuple(reader.ignored))


def parse_row_filter(sql: str, schema: Schema) -> Predicate:
    """Parse a condition that says exactly which rows there are. Raises InvalidConditionError for any other."""
    reader = _FilterReader(schema, is_exact=True)
    predicate = reader.read_text(sql)
    if reader.ignored:
        raise InvalidConditionError(
            f"Iceberg's filters can't say {reader.ignored[0]}: expected comparisons of a column with constants, IN, "
            "BETWEEN, IS NULL, LIKE 'a%', isnan(x) or starts_with(x, 'a'), joined by AND, OR and NOT"
        )
    return predicate


def rename_columns(sql: str, names: Mapping[str, str]) -> str:
    """Write a condition with other names of its columns, the same text if none changes.

    names: new names, by those that the condition has, in lower case. Raises InvalidConditionError.
    """
    if all(old == new.lower() for old, new in names.items()):
        return sql

    def rename(node: exp.Expr) -> exp.Expr:
        old = ".".join(part.name for part in node.parts) if isinstance(node, exp.Column) else ""
        new = names.get(old.lower(), old)
        return node if new == old else exp.column(exp.to_identifier(new, quoted=True))

    return _parse_condition(sql).transform(rename).sql(dialect="duckdb")


def _parse_condition(sql: str) -> exp.Expr:
    try:
        tree = parse_query(sql, DUCKDB)
    except UnreadableQueryError as error:
        raise InvalidConditionError(
            f"Invalid condition {_cut(sql)!r}: expected what follows WHERE in DuckDB's SQL, such as id = 5 AND day > "
            "DATE '2026-11-01'"
        ) from error
    except NotTranslatableError as error:
        raise InvalidConditionError(f"Invalid condition {_cut(sql)!r}: refused for {error}") from error
    if isinstance(tree, exp.Query):
        raise InvalidConditionError(f"Invalid condition {_cut(sql)!r}: expected what follows WHERE, not a query")
    return tree


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


class _FilterReader:
    """Reads trees of sqlglot. A part of a conjunction that can't be read is left out, as engines do.

    is_exact: a LIKE isn't read as the prefix of its pattern where it says more than that, nor a cast as its constant.
    """

    def __init__(self, schema: Schema, *, is_exact: bool = False) -> None:
        fields = schema.map_fields_by_id()
        self._types = {name.lower(): fields[field_id].type for name, field_id in schema.names().items()}
        self._spellings = {name.lower(): name for name in schema.names()}
        self._known = ", ".join(list(schema.full_names().values())[:_SHOWN_COLUMNS])
        self._is_exact = is_exact
        self.ignored: list[str] = []

    def read_text(self, sql: str) -> Predicate:
        """Read a whole condition. Raises InvalidConditionError."""
        predicate = self.read_top(_parse_condition(sql))
        if len(collect_tests(predicate)) > MAX_PREDICATES:
            raise InvalidConditionError(f"A filter has up to {MAX_PREDICATES} predicates")
        return predicate

    def read_top(self, node: exp.Expr, *, is_negated: bool = False) -> Predicate:
        """Read a condition that has to hold; one that can't be read is noted, and taken to hold."""
        try:
            return self._read(node, is_negated)
        except NotTranslatableError:
            text = node.sql(dialect="duckdb")
            self.ignored.append(_cut(f"NOT ({text})" if is_negated else text))
            return EVERYTHING

    def _read(self, node: exp.Expr, is_negated: bool) -> Predicate:
        is_negated ^= bool(node.args.get("negate"))
        if isinstance(node, exp.Paren | exp.Not):
            return self._read(node.this, is_negated ^ isinstance(node, exp.Not))
        if isinstance(node, exp.And | exp.Or):
            parts = list(node.flatten())
            if isinstance(node, exp.And) != is_negated:
                return _join("and", [self.read_top(part, is_negated=is_negated) for part in parts])
            return _join("or", [self._read(part, is_negated) for part in parts])
        if isinstance(node, exp.Boolean):
            return ConstantPredicate(holds=bool(node.this) != is_negated)
        read = self._READERS.get(type(node))
        return refuse_construct("another condition") if read is None else read(self, node, is_negated)

    def _read_comparison(self, node: exp.Expr, is_negated: bool) -> Predicate:
        operator, left, right = _COMPARISONS[type(node)], node.this, node.expression
        if not isinstance(left, exp.Column | exp.Dot):
            operator, left, right = _MIRRORED.get(operator, operator), right, left
        column = self._read_column(left)
        if isinstance(right, exp.Null):
            return ConstantPredicate(holds=False)
        return _build_test(operator, column, [self._read_constant(column, right)], is_negated)

    def _read_between(self, node: exp.Expr, is_negated: bool) -> Predicate:
        column = self._read_column(node.this)
        low, high = (self._read_constant(column, node.args[end]) for end in ("low", "high"))
        ends = [_build_test("gt-eq", column, [low], is_negated), _build_test("lt-eq", column, [high], is_negated)]
        return _join("or" if is_negated else "and", ends)

    def _read_in(self, node: exp.Expr, is_negated: bool) -> Predicate:
        if not node.expressions:
            refuse_construct("IN with a query")
        column = self._read_column(node.this)
        return _build_test("in", column, [self._read_constant(column, value) for value in node.expressions], is_negated)

    def _read_is(self, node: exp.Expr, is_negated: bool) -> Predicate:
        if not isinstance(node.expression, exp.Null):
            refuse_construct("IS with anything but NULL")
        return _build_test("is-null", self._read_column(node.this), [], is_negated)

    def _read_like(self, node: exp.Expr, is_negated: bool) -> Predicate:
        pattern, column = node.expression, self._read_column(node.this)
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            refuse_construct("LIKE with anything but a text")
        text, wildcard = str(pattern.this), _WILDCARD.search(pattern.this)
        if wildcard is None:
            return _build_test("eq", column, [JsonConstant(text)], is_negated)
        prefix = text[: wildcard.start()]
        if not prefix or ((is_negated or self._is_exact) and text != f"{prefix}%"):
            refuse_construct("LIKE with a wildcard that prefixes don't decide")
        return _build_test("starts-with", column, [JsonConstant(prefix)], is_negated)

    def _read_function(self, node: exp.Expr, is_negated: bool) -> Predicate:
        match str(node.this).lower(), node.expressions:
            case "isnan", [column]:
                return _build_test("is-nan", self._read_column(column), [], is_negated)
            case "starts_with" | "prefix", [column, exp.Literal(is_string=True) as text]:
                return _build_test("starts-with", self._read_column(column), [JsonConstant(str(text.this))], is_negated)
        return refuse_construct("a function")

    def _read_flag(self, node: exp.Expr, is_negated: bool) -> Predicate:
        return _build_test("eq", self._read_column(node), [JsonConstant(not is_negated)], is_negated=False)

    def _read_column(self, node: exp.Expr) -> str:
        if not isinstance(node, exp.Column | exp.Dot) or not all(
            isinstance(part, exp.Identifier) for part in node.parts
        ):
            refuse_construct("anything but a column")
        name = ".".join(part.name for part in node.parts)
        if name.lower() not in self._types:
            raise InvalidConditionError(f"Cannot find column {name!r}: expected one of {self._known}")
        return self._spellings[name.lower()]

    def _read_constant(self, column: str, node: exp.Expr) -> JsonConstant:
        """Read a constant; its type is that of the column, whatever it is cast to."""
        while isinstance(node, exp.Paren | exp.Cast):
            if self._is_exact and isinstance(node, exp.Cast) and not self._keeps_value(column, node):
                refuse_construct("a cast to another type than the column's")
            node = node.this
        if isinstance(node, exp.Boolean):
            return JsonConstant(bool(node.this))
        sign = "-" if isinstance(node, exp.Neg) else ""
        node = node.this if sign else node
        if not isinstance(node, exp.Literal):
            refuse_construct("anything but a constant")
        text = f"{sign}{node.this}"
        type_ = self._types[column.lower()]
        is_moment = isinstance(type_, PrimitiveType) and type_.traits.family == "timestamp"
        if node.is_string:
            return JsonConstant(_complete_moment(text) if is_moment else text)
        return JsonConstant(int(text) if node.is_int else text)

    def _keeps_value(self, column: str, cast: exp.Cast) -> bool:
        """Return whether a text that is cast is the same value of the column's type without the cast."""
        type_ = self._types[column.lower()]
        family = type_.traits.family if isinstance(type_, PrimitiveType) else ""
        text, target = cast.this, cast.to.sql(dialect="duckdb")
        if not isinstance(text, exp.Literal) or not text.is_string:
            return False
        is_day = family == "timestamp" and target == "DATE" and len(text.this.strip()) == _DAY_CHARS
        return is_day or target in _KEEPING_CASTS.get(family, ())

    _READERS: ClassVar[Mapping[type[exp.Expr], Callable[["_FilterReader", Any, bool], Predicate]]] = {
        **dict.fromkeys(_COMPARISONS, _read_comparison),
        exp.Between: _read_between,
        exp.In: _read_in,
        exp.Is: _read_is,
        exp.Like: _read_like,
        exp.Anonymous: _read_function,
        exp.Column: _read_flag,
        exp.Dot: _read_flag,
    }


def _complete_moment(text: str) -> str:
    """Write a time as ISO has it: a date is its midnight."""
    found = _MOMENT.fullmatch(text.strip())
    if found is None:
        return text
    return f"{found['date']}T{found['time'] or '00:00'}{found['seconds'] or ':00'}{(found['zone'] or '').strip()}"


def _build_test(operator: str, column: str, values: Sequence[JsonConstant], is_negated: bool) -> Predicate:
    """Build a test as SQL means it: of null nothing holds but IS NULL."""
    operator = _NEGATIONS[operator] if is_negated else operator
    test = ColumnTest(operator, column, tuple(values))
    return Junction("and", ColumnTest("not-null", column), test) if operator in _TRUE_OF_NULL else test


def _join(operator: Literal["and", "or"], parts: Sequence[Predicate]) -> Predicate:
    """Join in halves, so that the tree stays flat."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return Junction(operator, _join(operator, parts[:middle]), _join(operator, parts[middle:]))
