"""PURE. The functions that can be translated, and their calls with the clauses that follow."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from duckicelake.sql_dialects.dialects import (
    DATES,
    DECIMALS,
    DUCKDB,
    FAMILIES,
    INTEGERS,
    SCALARS,
    SPARK,
    TEXT,
    TIMES,
    DialectSide,
    Kind,
    Kinds,
    TypedSql,
    guard_operands,
    make_plain,
    refuse_construct,
)

SAME: Final = "of one family"
"""Marks arguments that must all be of one family."""
POSITION, COUNT, PATTERN = "a whole number from 1 on", "a whole number from 0 on", "a text with something in it"
"""Arguments that must be literals."""
Argument = Kinds | str | None
"""The kinds that an argument may have; None: any."""
MANY: Final = 1000
CASES_DIFFER: Final = (
    "[\u00df\u0130\u0149\u019b\u01f0\u0264\u0390\u03a3\u03b0\u0587\u1c89\u1c8a\u1e96-\u1e9a\u1f50-\u1fff"
    "\ua7cb-\ua7dc\ufb00-\ufb17\U00010d50-\U00010d85]"
)
"""Characters whose upper or lower case isn't one character, hangs on its neighbours, or is too new for one engine."""
_SPACES: Final = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
"""Characters that DuckDB's trim removes; Spark's removes only the first one."""
_PARTS_OF_DATES: Final = {"year": "YEAR", "quarter": "QUARTER", "month": "MONTH", "day": "DAY", "week": "WEEK"}
_PARTS_OF_TIMES: Final = {"hour": "HOUR", "minute": "MINUTE"}
_ONLY_TIMESTAMPS: Final = frozenset({Kind.TIMESTAMP})
_DAY: Final = "CAST({0} AS DATE)"
_TRUNCATED: Final = {"day": _DAY} | {
    name: f"trunc({_DAY}, '{name.upper()}')" for name in ("year", "quarter", "month", "week")
}
_AVERAGE: Final = (
    "CASE WHEN typeof(min({bare}){over}) IN ('double', 'float') THEN avg({0}){over} "
    "ELSE CAST(sum(CAST({0} AS DECIMAL(38, 0))){over} AS DOUBLE) / nullif(count({0}){over}, 0) END"
)
"""DuckDB adds integers as integers, Spark as doubles."""
_AVERAGED: Final = INTEGERS | {Kind.DOUBLE, Kind.FLOAT}
UNIT_AT: Final = {
    DUCKDB.name: {"date_part": 0, "date_trunc": 0, "date_diff": 0, "datediff": 0},
    SPARK.name: {"trunc": 1},
}
"""Functions with a unit, by its place; the unit becomes part of the name in the table."""
REST: Final = {"concat": {DUCKDB.name: " || {}", SPARK.name: ", coalesce({}, '')"}}
"""SQL of further arguments by dialect, if it isn't `, {}`."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function: kinds of its arguments, SQL with `{0}` for the first one, and the result's kind if known.

    more: how many arguments of the kinds `rest` may follow; `{rest}` is their SQL, each with a comma before it.
    `{bare}`: the first argument without guards. `{over}`: the FILTER and OVER clauses of an aggregate. cased: fails for
    texts with characters whose case the engines disagree about. ordered: needs a window with an order.
    """

    arguments: tuple[Argument, ...]
    sql: str
    gives: Kind | None = None
    rest: Argument = None
    more: int = 0
    cased: bool = False
    aggregate: bool = False
    ordered: bool = False


_SUBSTRING = Function((TEXT, POSITION), "substring({0}, {1}{rest})", Kind.TEXT, rest=COUNT, more=1)

_INSTR = Function((TEXT, PATTERN), "instr({0}, {1})", Kind.INTEGER)

_OR_ELSE = Function((SAME, SAME), "coalesce({0}, {1})")

_ORDERED = Function((None,), "", ordered=True)

_SHARED: Final[Mapping[str, Function]] = {
    "abs": Function((None,), "abs({0})"),
    "coalesce": Function((SAME,), "coalesce({0}{rest})", rest=SAME, more=MANY),
    "contains": Function((TEXT, TEXT), "contains({0}, {1})", Kind.BOOLEAN),
    "count": Function((None,), "count({0}){over}", Kind.INTEGER, aggregate=True),
    "count_star": Function((), "count(*){over}", Kind.INTEGER, aggregate=True),
    "dense_rank": Function((), "dense_rank(){over}", Kind.INTEGER, ordered=True),
    "first_value": replace(_ORDERED, sql="first_value({0}){over}"),
    "greatest": Function((SAME, SAME), "greatest({0}, {1}{rest})", rest=SAME, more=MANY),
    "instr": _INSTR,
    "lag": replace(_ORDERED, sql="lag({0}{rest}){over}", rest=COUNT, more=1),
    "last_value": replace(_ORDERED, sql="last_value({0}){over}"),
    "lead": replace(_ORDERED, sql="lead({0}{rest}){over}", rest=COUNT, more=1),
    "least": Function((SAME, SAME), "least({0}, {1}{rest})", rest=SAME, more=MANY),
    "left": Function((TEXT, COUNT), "left({0}, {1})", Kind.TEXT),
    "length": Function((TEXT,), "length({0})", Kind.INTEGER),
    "lower": Function((TEXT,), "lower({0})", Kind.TEXT, cased=True),
    "max": Function((SCALARS,), "max({0}){over}", aggregate=True),
    "min": Function((SCALARS,), "min({0}){over}", aggregate=True),
    "nullif": Function((SAME, SAME), "nullif({0}, {1})"),
    "rank": Function((), "rank(){over}", Kind.INTEGER, ordered=True),
    "replace": Function((TEXT, TEXT, TEXT), "replace({0}, {1}, {2})", Kind.TEXT),
    "right": Function((TEXT, COUNT), "right({0}, {1})", Kind.TEXT),
    "round": Function((DECIMALS, COUNT), "round({0}, {1})"),
    "row_number": Function((), "row_number(){over}", Kind.INTEGER, ordered=True),
    "substr": _SUBSTRING,
    "substring": _SUBSTRING,
    "sum": Function((None,), "sum({0}){over}", aggregate=True),
    "upper": Function((TEXT,), "upper({0})", Kind.TEXT, cased=True),
}


def _make_part(kinds: Kinds, sql: str) -> Function:
    return Function((kinds,), sql, Kind.INTEGER)


_SPARK_PARTS: Final = (
    {name: _make_part(TIMES, f"extract({part} FROM {{0}})") for name, part in _PARTS_OF_DATES.items()}
    | {name: _make_part(_ONLY_TIMESTAMPS, f"extract({part} FROM {{0}})") for name, part in _PARTS_OF_TIMES.items()}
    | {
        "doy": _make_part(TIMES, "extract(DOY FROM {0})"),
        "dow": _make_part(TIMES, "(extract(DAYOFWEEK FROM {0}) - 1)"),
        "isodow": _make_part(TIMES, "extract(DAYOFWEEK_ISO FROM {0})"),
    }
)
"""DuckDB's date parts in Spark's SQL. Spark's first day of the week is 1, DuckDB's is 0."""

_DUCKDB_PARTS: Final = (
    {name: _make_part(TIMES, f"date_part('{name}', {{0}})") for name in (*_PARTS_OF_DATES, "doy")}
    | {name: _make_part(_ONLY_TIMESTAMPS, f"date_part('{name}', {{0}})") for name in _PARTS_OF_TIMES}
    | {
        "dow": _make_part(TIMES, "(date_part('dow', {0}) + 1)"),
        "dayofweek": _make_part(TIMES, "(date_part('dow', {0}) + 1)"),
        "dayofweek_iso": _make_part(TIMES, "date_part('isodow', {0})"),
    }
)

TO_SPARK: Final[Mapping[str, Function]] = {
    **_SHARED,
    "avg": Function((_AVERAGED,), _AVERAGE, Kind.DOUBLE, aggregate=True),
    "concat": Function((TEXT,), "concat(coalesce({0}, ''){rest})", Kind.TEXT, rest=TEXT, more=MANY),
    **{f"date_part {name}": part for name, part in _SPARK_PARTS.items()},
    **{name: _SPARK_PARTS[name] for name in (*_PARTS_OF_DATES, *_PARTS_OF_TIMES, "isodow")},
    "dayofmonth": _SPARK_PARTS["day"],
    "dayofweek": _SPARK_PARTS["dow"],
    "dayofyear": _SPARK_PARTS["doy"],
    "weekofyear": _SPARK_PARTS["week"],
    "date_diff day": Function((DATES, DATES), "datediff({1}, {0})", Kind.INTEGER),
    "datediff day": Function((DATES, DATES), "datediff({1}, {0})", Kind.INTEGER),
    **{
        f"date_trunc {name}": Function((TIMES,), f"CAST({sql} AS TIMESTAMP_NTZ)", Kind.TIMESTAMP)
        for name, sql in _TRUNCATED.items()
    },
    "ends_with": Function((TEXT, TEXT), "endswith({0}, {1})", Kind.BOOLEAN),
    "len": _SHARED["length"],
    "ltrim": Function((TEXT,), f"trim(LEADING '{_SPACES}' FROM {{0}})", Kind.TEXT),
    "position": _INSTR,
    "rtrim": Function((TEXT,), f"trim(TRAILING '{_SPACES}' FROM {{0}})", Kind.TEXT),
    "starts_with": Function((TEXT, TEXT), "startswith({0}, {1})", Kind.BOOLEAN),
    "strpos": _INSTR,
    "trim": Function((TEXT,), f"trim(BOTH '{_SPACES}' FROM {{0}})", Kind.TEXT),
}

TO_DUCKDB: Final[Mapping[str, Function]] = {
    **_SHARED,
    "avg": Function((_AVERAGED,), "avg(CAST({0} AS DOUBLE)){over}", Kind.DOUBLE, aggregate=True),
    "char_length": _SHARED["length"],
    "concat": Function((TEXT,), "({0}{rest})", Kind.TEXT, rest=TEXT, more=MANY),
    **{f"extract {name}": part for name, part in _DUCKDB_PARTS.items()},
    **{name: _DUCKDB_PARTS[name] for name in (*_PARTS_OF_DATES, *_PARTS_OF_TIMES, "dayofweek") if name != "week"},
    "dayofmonth": _DUCKDB_PARTS["day"],
    "dayofyear": _DUCKDB_PARTS["doy"],
    "weekofyear": _DUCKDB_PARTS["week"],
    "datediff": Function((DATES, DATES), "date_diff('day', {1}, {0})", Kind.INTEGER),
    "endswith": Function((TEXT, TEXT), "ends_with({0}, {1})", Kind.BOOLEAN),
    "ltrim": Function((TEXT,), "ltrim({0}, ' ')", Kind.TEXT),
    "ifnull": _OR_ELSE,
    "nvl": _OR_ELSE,
    "rtrim": Function((TEXT,), "rtrim({0}, ' ')", Kind.TEXT),
    "startswith": Function((TEXT, TEXT), "starts_with({0}, {1})", Kind.BOOLEAN),
    "trim": Function((TEXT,), "trim({0}, ' ')", Kind.TEXT),
    **{
        f"trunc {name}": Function((TIMES,), f"CAST(date_trunc('{unit}', {{0}}) AS DATE)", Kind.DATE)
        for unit, names in {
            "year": ("year", "yyyy", "yy"),
            "quarter": ("quarter",),
            "month": ("month", "mon", "mm"),
            "week": ("week",),
        }.items()
        for name in names
    },
}


def check_no_other_parts(node: exp.Expr, *known: str) -> None:
    """Refuse a node with other parts than the known ones."""
    for key, value in node.args.items():
        if value and key not in known:
            refuse_construct(f"{key.rstrip('_').upper()} of {node.key.upper()}")


class CallWriter(ABC):
    """Writes calls of `source` in `target`."""

    def __init__(self, source: DialectSide, target: DialectSide) -> None:
        self.source, self.target = source, target
        self._functions = TO_SPARK if target is SPARK else TO_DUCKDB

    @abstractmethod
    def expression(self, node: exp.Expr) -> TypedSql:
        """Translate an expression; NotTranslatableError."""

    @abstractmethod
    def query(self, node: exp.Expr) -> str:
        """Translate a query inside an expression."""

    @abstractmethod
    def column(self, node: exp.Expr) -> TypedSql:
        """Build an expression of the type of a query's only column."""

    def expressions(self, nodes: Sequence[exp.Expr]) -> list[TypedSql]:
        return [self.expression(node) for node in nodes]

    def guard(
        self, operands: Sequence[TypedSql], families: Sequence[frozenset[Kind]], result: TypedSql, what: str
    ) -> TypedSql:
        return guard_operands(self.target, operands, families, result, what)

    def extract(self, node: exp.Extract) -> TypedSql:
        return self._write_call(f"extract {node.this.name.lower()}", [node.expression], "")

    def call(self, node: exp.Expr) -> TypedSql:
        return self._write_call_over(node, "")

    def write_filter(self, node: exp.Filter) -> TypedSql:
        condition = self.expression(node.expression.this)
        return self._write_call_over(node.this, f" FILTER (WHERE {condition.text})", aggregate=True)

    def write_windowed(self, node: exp.Window) -> TypedSql:
        check_no_other_parts(node, "this", "partition_by", "order", "spec", "over")
        suffix, call = f" OVER ({self.window(node)})", node.this
        if isinstance(call, exp.Filter):
            suffix, call = f" FILTER (WHERE {self.expression(call.expression.this).text}){suffix}", call.this
        return self._write_call_over(call, suffix, ordered=bool(node.args.get("order")), windowed=True)

    @abstractmethod
    def window(self, node: exp.Window) -> str:
        """Write the content of the parentheses of OVER."""

    def _write_call_over(
        self, node: exp.Expr, over: str, *, aggregate: bool = False, ordered: bool = False, windowed: bool = False
    ) -> TypedSql:
        """Write a call, with the clauses after it."""
        if isinstance(node, exp.Dot) and node.this.name == "main" and self.source is DUCKDB:
            node = node.expression
        if not isinstance(node, exp.Anonymous):
            refuse_construct(f"{node.key.upper()} ({node.sql(self.source.parser)[:60]})")
        key, arguments = self._look_up_function(node)
        function = self._functions.get(key) or refuse_construct(f"the function {key[:60]}")
        if (function.ordered and not ordered) or (windowed and not (function.ordered or function.aggregate)):
            refuse_construct(f"{key} without an ordered window" if function.ordered else f"{key} over a window")
        if aggregate and not function.aggregate:
            refuse_construct(f"{key} with a filter")
        return self._write_call(key, arguments, over)

    def _look_up_function(self, node: exp.Anonymous) -> tuple[str, list[exp.Expr]]:
        """Look up a function: its listed name, and its arguments."""
        key, arguments = node.name.lower(), list(node.expressions)
        at = UNIT_AT[self.source.name].get(key)
        if at is not None and at < len(arguments):
            unit = arguments.pop(at)
            key = (
                f"{key} {unit.this.lower()}"
                if unit.is_string
                else refuse_construct(f"{key} by a unit that is not a literal")
            )
        if key == "count" and (not arguments or (isinstance(arguments[0], exp.Star) and not arguments[1:])):
            check_no_other_parts(*arguments or [exp.Star()])
            return "count_star", []
        return key, arguments

    def _write_call(self, key: str, nodes: Sequence[exp.Expr], over: str) -> TypedSql:
        function = self._functions.get(key) or refuse_construct(f"the function {key[:60]}")
        least = len(function.arguments)
        if not least <= len(nodes) <= least + function.more:
            refuse_construct(f"{key} with {len(nodes)} arguments")
        wanted = [*function.arguments, *[function.rest] * (len(nodes) - least)]
        arguments = [self._argument(key, function, *item) for item in zip(nodes, wanted, strict=True)]
        if function.aggregate:
            arguments = [self._inside(key, *item) for item in zip(nodes, arguments, wanted, strict=True)]
            return self._fill_template(key, function, arguments, over)
        result = self._fill_template(key, function, arguments, over)
        for need in {family for family in wanted if isinstance(family, frozenset)}:
            needing = [argument for argument, want in zip(arguments, wanted, strict=True) if want == need]
            result = self.guard(needing, [need], result, key)
        same = [argument for argument, want in zip(arguments, wanted, strict=True) if want == SAME]
        return self.guard(same, FAMILIES, result, key) if same else result

    def _argument(self, key: str, function: Function, node: exp.Expr, wanted: Argument) -> TypedSql:
        if isinstance(node, exp.Distinct):
            check_no_other_parts(node, "expressions")
            if not function.aggregate or key == "avg" or len(node.expressions) != 1:
                refuse_construct(f"DISTINCT in {key}")
            return self.expression(node.expressions[0])
        if wanted in {POSITION, COUNT, PATTERN} and not _has_wanted_kind(node, str(wanted)):
            refuse_construct(f"{key} with an argument that is not {wanted}")
        return self.expression(node)

    def _inside(self, key: str, node: exp.Expr, argument: TypedSql, wanted: Argument) -> TypedSql:
        """Put an aggregate's guard around its argument: outside of the aggregate, the argument is of no group."""
        if isinstance(wanted, frozenset):
            argument = self.guard([argument], [wanted], argument, key)
        if isinstance(node, exp.Distinct):
            return TypedSql(f"DISTINCT {argument.text}", f"DISTINCT {argument.bare}", argument.kinds)
        return argument

    def _fill_template(self, key: str, function: Function, arguments: Sequence[TypedSql], over: str) -> TypedSql:
        """Fill a function's SQL with its arguments, without and with guards."""
        first = arguments[0] if arguments else make_plain("")
        fixed, more = arguments[: len(function.arguments)], arguments[len(function.arguments) :]
        template = REST.get(key, {}).get(self.target.name, ", {}")

        def fill(guards: bool) -> str:
            texts = [a.text if guards else a.bare for a in fixed]
            rest = "".join(template.format(a.text if guards else a.bare) for a in more)
            return function.sql.format(*texts, rest=rest, bare=first.bare, over=over)

        text, bare = fill(True), fill(False)
        if function.cased:
            problem = self.target.error(f"{key} of a text with letters whose case {self.source.name} sees otherwise")
            found = self.target.match_pattern(first.text, CASES_DIFFER)
            text = f"CASE WHEN {found} THEN {problem} ELSE {text} END"
        return TypedSql(text, bare, frozenset({function.gives}) if function.gives else None)


def _has_wanted_kind(node: exp.Expr, wanted: str) -> bool:
    if wanted == PATTERN:
        return bool(node.is_string and node.this)
    whole = bool(node.is_number and isinstance(node, exp.Literal) and re.fullmatch(r"\d{1,9}", node.this))
    return whole and (wanted == COUNT or int(node.this) > 0)
