"""PURE. Translate calls of functions, with the clauses that follow them."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence

from sqlglot import exp

from duckicelake.sql_dialects.dialects import (
    DUCKDB,
    FAMILIES,
    TRINO,
    DialectSide,
    Kind,
    TypedSql,
    guard_operands,
    make_plain,
    refuse_construct,
)
from duckicelake.sql_dialects.functions import (
    CASES_DIFFER,
    COUNT,
    PATTERN,
    POSITION,
    REST,
    SAME,
    UNIT_AT,
    Argument,
    Function,
    find_functions,
)


def check_no_other_parts(node: exp.Expr, *known: str) -> None:
    """Refuse a node with other parts than the known ones."""
    for key, value in node.args.items():
        if value and key not in known:
            refuse_construct(f"{key.rstrip('_').upper()} of {node.key.upper()}")


class CallWriter(ABC):
    """Writes calls of `source` in `target`."""

    def __init__(self, source: DialectSide, target: DialectSide) -> None:
        self.source, self.target = source, target
        self._functions = find_functions(source, target)

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

    @property
    def families(self) -> tuple[frozenset[Kind], ...]:
        """Kinds that both engines compare in the same way, without a check of the values."""
        if TRINO not in (self.source, self.target):
            return FAMILIES
        return tuple(family - {Kind.DOUBLE, Kind.FLOAT} for family in FAMILIES if family != {Kind.FLOAT})

    def guard_same(self, operands: Sequence[TypedSql], result: TypedSql, what: str) -> TypedSql:
        """Build an expression that fails unless its operands compare in the same way."""
        return self.guard(operands, FAMILIES, self.refuse_nan(operands, result, what), what)

    def refuse_nan(self, operands: Sequence[TypedSql], result: TypedSql, what: str) -> TypedSql:
        """Build an expression that fails if an operand is NaN: Trino alone takes it for equal to nothing."""
        if TRINO not in (self.source, self.target):
            return result
        floats = [part.bare for part in operands if part.kinds is None or part.kinds & {Kind.DOUBLE, Kind.FLOAT}]
        if not floats:
            return result
        found = " OR ".join(map(self.target.nan.format, dict.fromkeys(floats)))
        problem = self.target.error(
            f"This view means something else in {self.target.name}: {what} of NaN is not carried over"
        )
        return TypedSql(f"CASE WHEN {found} THEN {problem} ELSE {result.text} END", result.bare, result.kinds)

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
        if not same:
            return result
        return self.guard(same, FAMILIES, result, key) if key == "coalesce" else self.guard_same(same, result, key)

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
            checked = self.refuse_nan([argument], argument, key) if self._functions[key].compared else argument
            argument = self.guard([argument], [wanted], checked, key)
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
