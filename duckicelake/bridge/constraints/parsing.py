"""PURE. The text of a CHECK constraint as its tree; what isn't known to mean the same everywhere is refused, named.

sqlglot reads the text as Spark would, which wrote those of Delta tables.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from sqlglot import exp

from duckicelake.bridge.constraints import constants as check_constants
from duckicelake.bridge.constraints.constants import UnlikeError
from duckicelake.bridge.constraints.tree import (
    FLOATS,
    KINDS,
    Arithmetic,
    Call,
    Column,
    Compare,
    Condition,
    Constant,
    IsNull,
    Kind,
    Like,
    Logic,
    Not,
    Truth,
    Value,
)
from duckicelake.bridge.transpile.dialects import SPARK, refuse
from duckicelake.bridge.transpile.views import NotCarriedOver, parsed
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import NestedField, PrimitiveType, StructType

LONGEST: Final = 4_000
_NUMERIC: Final = FLOATS | {Kind.WHOLE, Kind.DECIMAL}
_FLIPPED: Final[Mapping[type, Any]] = {exp.GT: "<", exp.GTE: "<="}
_STRAIGHT: Final[Mapping[type, Any]] = {exp.LT: "<", exp.LTE: "<=", exp.EQ: "="}
_SIGNS: Final[Mapping[type, Any]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Mod: "%"}
_LENGTHS: Final = frozenset({"length", "char_length", "character_length"})
_TYPED_TEXTS: Final = frozenset({"DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ"})


def condition_of(text: str, schema: Schema) -> Condition:
    """The tree of a constraint over a schema's columns; NotCarriedOver names what can't be said."""
    if len(text) > LONGEST:
        refuse(f"an expression of more than {LONGEST} letters")
    if '"' in text:
        refuse("a double quote, which begins a text in Spark and a name in DuckDB: write `name` and 'text'")
    try:
        return _Reader(schema).condition(parsed(text, SPARK))
    except RecursionError as error:
        raise NotCarriedOver("an expression that is nested this deep") from error
    except UnlikeError as error:
        raise NotCarriedOver(f"a constant that doesn't fit: {error}") from error


class _Reader:
    """Reads trees of sqlglot by the columns of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._fields = schema.fields

    def condition(self, node: exp.Expr) -> Condition:
        if isinstance(node, exp.Paren):
            return self.condition(node.this)
        if isinstance(node, exp.And | exp.Or):
            word = "AND" if isinstance(node, exp.And) else "OR"
            return Logic(word, tuple(self.condition(part) for part in node.flatten()))  # type: ignore[arg-type]
        read = self._CONDITIONS.get(type(node))
        if read is not None:
            return self._negated(node, read(self, node))
        value = self.value(node)
        if isinstance(value, exp.Expr) or value.kind is not Kind.BOOLEAN:
            refuse(f"a condition that isn't one: {_shown(node)}")
        return Truth(value)

    def value(self, node: exp.Expr) -> "Value | exp.Expr":
        """A value; constants whose kind hangs on what they stand beside come as they are."""
        match node:
            case exp.Paren():
                return self.value(node.this)
            case exp.Column():
                return self._column(node)
            case exp.Boolean():
                return Constant(bool(node.this), Kind.BOOLEAN)
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Mod():
                return self._arithmetic(node)
            case exp.Neg() if not isinstance(node.this, exp.Literal):
                return self._arithmetic(exp.Sub(this=exp.Literal.number(0), expression=node.this))
            case exp.Anonymous():
                return self._call(node)
            case _ if _raw(node) is not None:
                return node
        return refuse(f"{node.key.upper()} ({_shown(node)})")

    def known(self, node: exp.Expr) -> Value:
        """A value that tells its own kind."""
        value = self.value(node)
        return (
            refuse(f"a constant without a column beside it: {_shown(node)}") if isinstance(value, exp.Expr) else value
        )

    def beside(self, node: exp.Expr, other: Value) -> Value:
        """A value that must be of the same kind as another."""
        value = self.value(node)
        if isinstance(value, exp.Expr):
            raw = _raw(node)
            assert raw is not None
            return (check_constants.text if raw[1] else check_constants.number)(raw[0], other)
        if value.kind is not other.kind:
            refuse(
                f"{value.kind.name.lower()} beside {other.kind.name.lower()}, which engines compare in different ways"
            )
        if value.kind is Kind.DECIMAL and not _fit(value, other):
            refuse("decimals that have more than 38 digits together")
        return value

    def pair(self, left: exp.Expr, right: exp.Expr) -> tuple[Value, Value]:
        """Two values of one kind, at least one of which tells it."""
        first = self.value(left)
        if not isinstance(first, exp.Expr):
            return first, self.beside(right, first)
        second = self.known(right)
        return self.beside(left, second), second

    def _column(self, node: exp.Column) -> Column:
        names = [part.name for part in node.parts]
        *structs, last = names
        fields, path = self._fields, []
        for name in structs:
            field = _field(fields, name, names)
            path.append(field.name)
            if not isinstance(field.type, StructType):
                refuse(f"the column {'.'.join(names)}: {field.name} is no struct")
            fields = field.type.fields
        field = _field(fields, last, names)
        if not isinstance(field.type, PrimitiveType) or field.type.name not in KINDS:
            refuse(f"the column {'.'.join(names)}, whose type {field.type} is none that engines compare alike")
        return Column((*path, field.name), field.id, field.type)

    def _arithmetic(self, node: exp.Expr) -> Value:
        left, right = self.pair(node.this, node.expression)
        if left.kind not in {Kind.WHOLE, Kind.DOUBLE}:
            refuse(f"arithmetic of {left.kind.name.lower()} ({_shown(node)})")
        if isinstance(node, exp.Mod) and not (
            left.kind is Kind.WHOLE and isinstance(right, Constant) and isinstance(right.value, int) and right.value > 0
        ):
            refuse(f"% by anything but a whole number above 0 ({_shown(node)})")
        return Arithmetic(_SIGNS[type(node)], left, right, left.kind)

    def _call(self, node: exp.Anonymous) -> Value:
        name, arguments = str(node.this).lower(), node.expressions
        if name == "coalesce" and len(arguments) == 2:
            first = self.known(arguments[0])
            second = self.beside(arguments[1], first)
            if isinstance(second, Constant):
                return Call("coalesce", (first, second), first.kind)
        if len(arguments) == 1:
            value = self.known(arguments[0])
            if name == "abs" and value.kind in _NUMERIC:
                return Call("abs", (value,), value.kind)
            if name in _LENGTHS and value.kind is Kind.TEXT:
                return Call("length", (value,), Kind.WHOLE)
        return refuse(f"{name[:60]}() as it is called in {_shown(node)}")

    def _compare(self, node: exp.Expr) -> Condition:
        sign = _FLIPPED.get(type(node))
        left, right = self.pair(node.this, node.expression)
        return Compare(_STRAIGHT[type(node)], left, right) if sign is None else Compare(sign, right, left)

    def _differ(self, node: exp.Expr) -> Condition:
        return Not(Compare("=", *self.pair(node.this, node.expression)))

    def _same(self, node: exp.Expr) -> Condition:
        """`<=>` with a constant: null is another."""
        left, right = self.pair(node.this, node.expression)
        if not isinstance(right, Constant):
            refuse(f"<=> with anything but a constant on its right ({_shown(node)})")
        return Logic("AND", (Not(IsNull(left)), Compare("=", left, right)))

    def _between(self, node: exp.Expr) -> Condition:
        value = self.known(node.this)
        low, high = self.beside(node.args["low"], value), self.beside(node.args["high"], value)
        return Logic("AND", (Compare("<=", low, value), Compare("<=", value, high)))

    def _in(self, node: exp.Expr) -> Condition:
        if not node.expressions or node.args.get("query") is not None or node.args.get("unnest") is not None:
            refuse(f"IN without a list of values ({_shown(node)})")
        value = self.known(node.this)
        return Logic("OR", tuple(Compare("=", value, self.beside(each, value)) for each in node.expressions))

    def _is(self, node: exp.Expr) -> Condition:
        value = self.known(node.this)
        if isinstance(node.expression, exp.Null):
            return IsNull(value)
        if isinstance(node.expression, exp.Boolean) and value.kind is Kind.BOOLEAN:
            wanted = Constant(bool(node.expression.this), Kind.BOOLEAN)
            return Logic("AND", (Not(IsNull(value)), Compare("=", value, wanted)))
        return refuse(f"IS as in {_shown(node)}")

    def _like(self, node: exp.Expr) -> Condition:
        value, pattern = self.known(node.this), node.expression
        if value.kind is not Kind.TEXT or not isinstance(pattern, exp.Literal) or not pattern.is_string:
            refuse(f"LIKE of anything but a text by a constant ({_shown(node)})")
        return Like(value, pattern.this)

    def _not(self, node: exp.Expr) -> Condition:
        return Not(self.condition(node.this))

    def _negated(self, node: exp.Expr, read: Condition) -> Condition:
        return Not(read) if node.args.get("negate") else read

    _CONDITIONS: ClassVar[Mapping[type[exp.Expr], Callable[[Any, Any], Condition]]] = {
        **dict.fromkeys((*_FLIPPED, *_STRAIGHT), _compare),
        exp.NEQ: _differ,
        exp.NullSafeEQ: _same,
        exp.Between: _between,
        exp.In: _in,
        exp.Is: _is,
        exp.Like: _like,
        exp.Not: _not,
    }


def _raw(node: exp.Expr) -> tuple[str, bool] | None:
    """The text of a constant, and whether it stands in quotes; None for anything else."""
    if isinstance(node, exp.Literal):
        return node.this, node.is_string
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return f"-{node.this.this}", False
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        is_plain = node.to.this.name in _TYPED_TEXTS and not node.to.expressions
        return (node.this.this, True) if is_plain else None
    return None


def _field(fields: Sequence[NestedField], name: str, names: Sequence[str]) -> NestedField:
    field = next((each for each in fields if each.name.lower() == name.lower()), None)
    return refuse(f"the column {'.'.join(names)}, which the table doesn't have") if field is None else field


def _fit(left: Value, right: Value) -> bool:
    types = [each.type for each in (left, right) if isinstance(each, Column)]
    scale = max((type_.scale or 0 for type_ in types), default=0)
    return max(((type_.precision or 0) - (type_.scale or 0) for type_ in types), default=0) + scale <= 38


def _shown(node: exp.Expr) -> str:
    return node.sql(SPARK.parser)[:60]
