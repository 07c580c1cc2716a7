"""PURE. Read a table's CHECK constraints from its properties, and parse their conditions."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

from sqlglot import exp

from duckicelake.constraints import condition as check_constants
from duckicelake.constraints.condition import (
    FLOAT_KINDS,
    KIND_OF_TYPE,
    ArithmeticTerm,
    Compare,
    Condition,
    ConstraintColumn,
    ConstraintConstant,
    FunctionCall,
    IsNull,
    Kind,
    Like,
    Logic,
    NotCondition,
    Term,
    Truth,
    UnlikeError,
    collect_columns,
)
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import NestedField, PrimitiveType, StructType
from duckicelake.properties import CONSTRAINT_PREFIX, UNVERIFIED_KEY, read_constraint_texts
from duckicelake.sql_dialects.dialects import SPARK, NotTranslatableError, refuse_construct
from duckicelake.sql_dialects.views import parse_query

MAX_CONSTRAINT_CHARS: Final = 4_000
_NUMERIC: Final = FLOAT_KINDS | {Kind.WHOLE, Kind.DECIMAL}
_FLIPPED: Final[Mapping[type, Any]] = {exp.GT: "<", exp.GTE: "<="}
_STRAIGHT: Final[Mapping[type, Any]] = {exp.LT: "<", exp.LTE: "<=", exp.EQ: "="}
_SIGNS: Final[Mapping[type, Any]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Mod: "%"}
_LENGTHS: Final = frozenset({"length", "char_length", "character_length"})
_TYPED_TEXTS: Final = frozenset({"DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ"})


def parse_condition(text: str, schema: Schema) -> Condition:
    """Parse a constraint over a schema's columns; NotTranslatableError names the construct that isn't supported."""
    if len(text) > MAX_CONSTRAINT_CHARS:
        refuse_construct(f"an expression of more than {MAX_CONSTRAINT_CHARS} letters")
    if '"' in text:
        refuse_construct("a double quote, which begins a text in Spark and a name in DuckDB: write `name` and 'text'")
    try:
        return _ConditionReader(schema).condition(parse_query(text, SPARK))
    except RecursionError as error:
        raise NotTranslatableError("an expression that is nested this deep") from error
    except UnlikeError as error:
        raise NotTranslatableError(f"a constant that doesn't fit: {error}") from error


class _ConditionReader:
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
            return self._negate(node, read(self, node))
        value = self.value(node)
        if isinstance(value, exp.Expr) or value.kind is not Kind.BOOLEAN:
            refuse_construct(f"a condition that isn't one: {_format_node(node)}")
        return Truth(value)

    def value(self, node: exp.Expr) -> "Term | exp.Expr":
        """Read a value. Constants whose kind depends on the other operand stay untyped."""
        match node:
            case exp.Paren():
                return self.value(node.this)
            case exp.Column():
                return self._column(node)
            case exp.Boolean():
                return ConstraintConstant(bool(node.this), Kind.BOOLEAN)
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Mod():
                return self._arithmetic(node)
            case exp.Neg() if not isinstance(node.this, exp.Literal):
                return self._arithmetic(exp.Sub(this=exp.Literal.number(0), expression=node.this))
            case exp.Anonymous():
                return self._call(node)
            case _ if _read_raw(node) is not None:
                return node
        return refuse_construct(f"{node.key.upper()} ({_format_node(node)})")

    def read_known(self, node: exp.Expr) -> Term:
        """Read a value that has a kind of its own."""
        value = self.value(node)
        return (
            refuse_construct(f"a constant without a column beside it: {_format_node(node)}")
            if isinstance(value, exp.Expr)
            else value
        )

    def beside(self, node: exp.Expr, other: Term) -> Term:
        """Read a value that must be of the same kind as `other`."""
        value = self.value(node)
        if isinstance(value, exp.Expr):
            raw = _read_raw(node)
            assert raw is not None
            return (check_constants.parse_text if raw[1] else check_constants.parse_number)(raw[0], other)
        if value.kind is not other.kind:
            refuse_construct(
                f"{value.kind.name.lower()} beside {other.kind.name.lower()}, which engines compare in different ways"
            )
        if value.kind is Kind.DECIMAL and not _is_comparable(value, other):
            refuse_construct("decimals that have more than 38 digits together")
        return value

    def pair(self, left: exp.Expr, right: exp.Expr) -> tuple[Term, Term]:
        """Read two values of one kind; at least one must have a kind of its own."""
        first = self.value(left)
        if not isinstance(first, exp.Expr):
            return first, self.beside(right, first)
        second = self.read_known(right)
        return self.beside(left, second), second

    def _column(self, node: exp.Column) -> ConstraintColumn:
        names = [part.name for part in node.parts]
        *structs, last = names
        fields, path = self._fields, []
        for name in structs:
            field = _find_field(fields, name, names)
            path.append(field.name)
            if not isinstance(field.type, StructType):
                refuse_construct(f"the column {'.'.join(names)}: {field.name} is no struct")
            fields = field.type.fields
        field = _find_field(fields, last, names)
        if not isinstance(field.type, PrimitiveType) or field.type.name not in KIND_OF_TYPE:
            refuse_construct(
                f"the column {'.'.join(names)}, whose type {field.type} is none that engines compare alike"
            )
        return ConstraintColumn((*path, field.name), field.id, field.type)

    def _arithmetic(self, node: exp.Expr) -> Term:
        left, right = self.pair(node.this, node.expression)
        if left.kind not in {Kind.WHOLE, Kind.DOUBLE}:
            refuse_construct(f"arithmetic of {left.kind.name.lower()} ({_format_node(node)})")
        if isinstance(node, exp.Mod) and not (
            left.kind is Kind.WHOLE
            and isinstance(right, ConstraintConstant)
            and isinstance(right.value, int)
            and right.value > 0
        ):
            refuse_construct(f"% by anything but a whole number above 0 ({_format_node(node)})")
        return ArithmeticTerm(_SIGNS[type(node)], left, right, left.kind)

    def _call(self, node: exp.Anonymous) -> Term:
        name, arguments = str(node.this).lower(), node.expressions
        if name == "coalesce" and len(arguments) == 2:
            first = self.read_known(arguments[0])
            second = self.beside(arguments[1], first)
            if isinstance(second, ConstraintConstant):
                return FunctionCall("coalesce", (first, second), first.kind)
        if len(arguments) == 1:
            value = self.read_known(arguments[0])
            if name == "abs" and value.kind in _NUMERIC:
                return FunctionCall("abs", (value,), value.kind)
            if name in _LENGTHS and value.kind is Kind.TEXT:
                return FunctionCall("length", (value,), Kind.WHOLE)
        return refuse_construct(f"{name[:60]}() as it is called in {_format_node(node)}")

    def _compare(self, node: exp.Expr) -> Condition:
        sign = _FLIPPED.get(type(node))
        left, right = self.pair(node.this, node.expression)
        return Compare(_STRAIGHT[type(node)], left, right) if sign is None else Compare(sign, right, left)

    def _differ(self, node: exp.Expr) -> Condition:
        return NotCondition(Compare("=", *self.pair(node.this, node.expression)))

    def _same(self, node: exp.Expr) -> Condition:
        """Read `<=>` with a constant: null differs from it."""
        left, right = self.pair(node.this, node.expression)
        if not isinstance(right, ConstraintConstant):
            refuse_construct(f"<=> with anything but a constant on its right ({_format_node(node)})")
        return Logic("AND", (NotCondition(IsNull(left)), Compare("=", left, right)))

    def _between(self, node: exp.Expr) -> Condition:
        value = self.read_known(node.this)
        low, high = self.beside(node.args["low"], value), self.beside(node.args["high"], value)
        return Logic("AND", (Compare("<=", low, value), Compare("<=", value, high)))

    def _in(self, node: exp.Expr) -> Condition:
        if not node.expressions or node.args.get("query") is not None or node.args.get("unnest") is not None:
            refuse_construct(f"IN without a list of values ({_format_node(node)})")
        value = self.read_known(node.this)
        return Logic(
            "OR", tuple(Compare("=", value, self.beside(expression, value)) for expression in node.expressions)
        )

    def _is(self, node: exp.Expr) -> Condition:
        value = self.read_known(node.this)
        if isinstance(node.expression, exp.Null):
            return IsNull(value)
        if isinstance(node.expression, exp.Boolean) and value.kind is Kind.BOOLEAN:
            wanted = ConstraintConstant(bool(node.expression.this), Kind.BOOLEAN)
            return Logic("AND", (NotCondition(IsNull(value)), Compare("=", value, wanted)))
        return refuse_construct(f"IS as in {_format_node(node)}")

    def _like(self, node: exp.Expr) -> Condition:
        value, pattern = self.read_known(node.this), node.expression
        if value.kind is not Kind.TEXT or not isinstance(pattern, exp.Literal) or not pattern.is_string:
            refuse_construct(f"LIKE of anything but a text by a constant ({_format_node(node)})")
        return Like(value, pattern.this)

    def _not(self, node: exp.Expr) -> Condition:
        return NotCondition(self.condition(node.this))

    def _negate(self, node: exp.Expr, read: Condition) -> Condition:
        return NotCondition(read) if node.args.get("negate") else read

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


def _read_raw(node: exp.Expr) -> tuple[str, bool] | None:
    """Return the text of a constant, and whether it stands in quotes; None for anything else."""
    if isinstance(node, exp.Literal):
        return node.this, node.is_string
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return f"-{node.this.this}", False
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        is_plain = node.to.this.name in _TYPED_TEXTS and not node.to.expressions
        return (node.this.this, True) if is_plain else None
    return None


def _find_field(fields: Sequence[NestedField], name: str, names: Sequence[str]) -> NestedField:
    field = next((candidate for candidate in fields if candidate.name.lower() == name.lower()), None)
    return refuse_construct(f"the column {'.'.join(names)}, which the table doesn't have") if field is None else field


def _is_comparable(left: Term, right: Term) -> bool:
    types = [operand.type for operand in (left, right) if isinstance(operand, ConstraintColumn)]
    scale = max((type_.scale or 0 for type_ in types), default=0)
    return max(((type_.precision or 0) - (type_.scale or 0) for type_ in types), default=0) + scale <= 38


def _format_node(node: exp.Expr) -> str:
    return node.sql(SPARK.parser)[:60]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint that can be checked."""

    name: str
    text: str
    condition: Condition
    columns: tuple[ConstraintColumn, ...]

    def __str__(self) -> str:
        """Return name and expression."""
        return f"constraint {self.name} ({self.text})"


def parse_constraint(name: str, text: str, schema: Schema) -> Constraint:
    """Parse a constraint over a table's columns.

    InvalidRequestError names what is wrong, or what engines evaluate differently.
    """
    if not name or "," in name:
        raise InvalidRequestError(f"{CONSTRAINT_PREFIX}{name} names no constraint: a name has letters, and no comma")
    try:
        condition = parse_condition(text, schema)
    except NotTranslatableError as error:
        raise InvalidRequestError(
            f"The constraint {name} ({text[:200]}) can't be checked: it has {error}. "
            f"Remove the table property {CONSTRAINT_PREFIX}{name}, or write another"
        ) from error
    columns = tuple(collect_columns(condition).values())
    if not columns:
        raise InvalidRequestError(f"The constraint {name} ({text[:200]}) names no column")
    return Constraint(name, text, condition, columns)


def read_constraints(properties: Mapping[str, str], schema: Schema) -> tuple[Constraint, ...]:
    """Read a table's constraints.

    InvalidRequestError: one can't be checked, for example because DuckDB has dropped its column.
    """
    found = read_constraint_texts(properties)
    return _parse_all(tuple(found.items()), _ById(schema)) if found else ()


def split_checkable(properties: Mapping[str, str], schema: Schema) -> tuple[list[Constraint], dict[str, str]]:
    """Read a table's constraints, and by name the reasons why others can't be checked."""
    found, broken = [], {}
    for name, text in read_constraint_texts(properties).items():
        try:
            found.append(parse_constraint(name, text, schema))
        except InvalidRequestError as error:
            broken[name] = str(error)
    return found, broken


def find_unverified(properties: Mapping[str, str]) -> dict[str, str]:
    """Find by name the snapshots since which constraints are unverified.

    Marks of constraints that are gone are left out.
    """
    names = read_constraint_texts(properties)
    marks = {
        key.removeprefix(UNVERIFIED_KEY): since for key, since in properties.items() if key.startswith(UNVERIFIED_KEY)
    }
    return {name: since for name, since in marks.items() if name in names}


def copy_marks(properties: Mapping[str, str], names: Container[str]) -> dict[str, str]:
    """Copy the properties without marks that other constraints are unverified."""
    return {
        key: value
        for key, value in properties.items()
        if not key.startswith(UNVERIFIED_KEY) or key.removeprefix(UNVERIFIED_KEY) in names
    }


class _ById:
    """A schema as a key by object identity: comparing two schemas costs more than parsing."""

    __slots__ = ("schema",)

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.schema is other.schema

    def __hash__(self) -> int:
        return id(self.schema)


@lru_cache(maxsize=256)
def _parse_all(texts: tuple[tuple[str, str], ...], schema: _ById) -> tuple[Constraint, ...]:
    return tuple(parse_constraint(name, text, schema.schema) for name, text in texts)
