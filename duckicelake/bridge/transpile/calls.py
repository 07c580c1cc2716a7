"""PURE. Calls of functions of one dialect, said in the other, with the clauses that follow them."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence

from sqlglot import exp

from duckicelake.bridge.transpile.dialects import DUCKDB, SPARK, Kind, Side, refuse
from duckicelake.bridge.transpile.functions import (
    CASES_DIFFER,
    COUNT,
    PATTERN,
    POSITION,
    REST,
    SAME,
    TO_DUCKDB,
    TO_SPARK,
    UNIT_AT,
    Argument,
    Function,
)
from duckicelake.bridge.transpile.types import FAMILIES, Sql, guarded, plain


def only(node: exp.Expr, *known: str) -> None:
    """Refuse a node that has more to it than what is known."""
    for key, value in node.args.items():
        if value and key not in known:
            refuse(f"{key.rstrip('_').upper()} of {node.key.upper()}")


class CallWriter(ABC):
    """Writes calls of `source` in `target`."""

    def __init__(self, source: Side, target: Side) -> None:
        self.source, self.target = source, target
        self._functions = TO_SPARK if target is SPARK else TO_DUCKDB

    @abstractmethod
    def expression(self, node: exp.Expr) -> Sql:
        """Give an expression in the other dialect; NotCarriedOver."""

    @abstractmethod
    def query(self, node: exp.Expr) -> str:
        """Give a query in the other dialect; one inside an expression."""

    @abstractmethod
    def column(self, node: exp.Expr) -> Sql:
        """Give what has the type of the one column that a query has."""

    def expressions(self, nodes: Sequence[exp.Expr]) -> list[Sql]:
        return [self.expression(node) for node in nodes]

    def guarded(self, operands: Sequence[Sql], families: Sequence[frozenset[Kind]], result: Sql, what: str) -> Sql:
        return guarded(self.target, operands, families, result, what)

    def extract(self, node: exp.Extract) -> Sql:
        return self._called(f"extract {node.this.name.lower()}", [node.expression], "")

    def call(self, node: exp.Expr) -> Sql:
        return self._call_over(node, "")

    def filtered(self, node: exp.Filter) -> Sql:
        condition = self.expression(node.expression.this)
        return self._call_over(node.this, f" FILTER (WHERE {condition.text})", aggregate=True)

    def windowed(self, node: exp.Window) -> Sql:
        only(node, "this", "partition_by", "order", "spec", "over")
        suffix, call = f" OVER ({self.window(node)})", node.this
        if isinstance(call, exp.Filter):
            suffix, call = f" FILTER (WHERE {self.expression(call.expression.this).text}){suffix}", call.this
        return self._call_over(call, suffix, ordered=bool(node.args.get("order")), windowed=True)

    @abstractmethod
    def window(self, node: exp.Window) -> str:
        """Give what stands between the parentheses of OVER."""

    def _call_over(
        self, node: exp.Expr, over: str, *, aggregate: bool = False, ordered: bool = False, windowed: bool = False
    ) -> Sql:
        """A call, with the clauses that follow it."""
        if isinstance(node, exp.Dot) and node.this.name == "main" and self.source is DUCKDB:
            node = node.expression
        if not isinstance(node, exp.Anonymous):
            refuse(f"{node.key.upper()} ({node.sql(self.source.parser)[:60]})")
        key, arguments = self._looked_up(node)
        function = self._functions.get(key) or refuse(f"the function {key[:60]}")
        if (function.ordered and not ordered) or (windowed and not (function.ordered or function.aggregate)):
            refuse(f"{key} without an ordered window" if function.ordered else f"{key} over a window")
        if aggregate and not function.aggregate:
            refuse(f"{key} with a filter")
        return self._called(key, arguments, over)

    def _looked_up(self, node: exp.Anonymous) -> tuple[str, list[exp.Expr]]:
        """(the name that the function is listed by, its arguments)."""
        key, arguments = node.name.lower(), list(node.expressions)
        at = UNIT_AT[self.source.name].get(key)
        if at is not None and at < len(arguments):
            unit = arguments.pop(at)
            key = f"{key} {unit.this.lower()}" if unit.is_string else refuse(f"{key} by a unit that is not a literal")
        if key == "count" and (not arguments or (isinstance(arguments[0], exp.Star) and not arguments[1:])):
            only(*arguments or [exp.Star()])
            return "count_star", []
        return key, arguments

    def _called(self, key: str, nodes: Sequence[exp.Expr], over: str) -> Sql:
        function = self._functions.get(key) or refuse(f"the function {key[:60]}")
        least = len(function.arguments)
        if not least <= len(nodes) <= least + function.more:
            refuse(f"{key} with {len(nodes)} arguments")
        wanted = [*function.arguments, *[function.rest] * (len(nodes) - least)]
        arguments = [self._argument(key, function, *each) for each in zip(nodes, wanted, strict=True)]
        if function.aggregate:
            arguments = [self._inside(key, *each) for each in zip(nodes, arguments, wanted, strict=True)]
            return self._filled(key, function, arguments, over)
        result = self._filled(key, function, arguments, over)
        for need in {each for each in wanted if isinstance(each, frozenset)}:
            needing = [argument for argument, want in zip(arguments, wanted, strict=True) if want == need]
            result = self.guarded(needing, [need], result, key)
        same = [argument for argument, want in zip(arguments, wanted, strict=True) if want == SAME]
        return self.guarded(same, FAMILIES, result, key) if same else result

    def _argument(self, key: str, function: Function, node: exp.Expr, wanted: Argument) -> Sql:
        if isinstance(node, exp.Distinct):
            only(node, "expressions")
            if not function.aggregate or key == "avg" or len(node.expressions) != 1:
                refuse(f"DISTINCT in {key}")
            return self.expression(node.expressions[0])
        if wanted in {POSITION, COUNT, PATTERN} and not _fits(node, str(wanted)):
            refuse(f"{key} with an argument that is not {wanted}")
        return self.expression(node)

    def _inside(self, key: str, node: exp.Expr, argument: Sql, wanted: Argument) -> Sql:
        """An aggregate's argument with its guard around it: outside, it may be of no group."""
        if isinstance(wanted, frozenset):
            argument = self.guarded([argument], [wanted], argument, key)
        if isinstance(node, exp.Distinct):
            return Sql(f"DISTINCT {argument.text}", f"DISTINCT {argument.bare}", argument.kinds)
        return argument

    def _filled(self, key: str, function: Function, arguments: Sequence[Sql], over: str) -> Sql:
        """The function's SQL with its arguments, without and with guards."""
        first = arguments[0] if arguments else plain("")
        fixed, more = arguments[: len(function.arguments)], arguments[len(function.arguments) :]
        each = REST.get(key, {}).get(self.target.name, ", {}")

        def fill(guards: bool) -> str:
            texts = [a.text if guards else a.bare for a in fixed]
            rest = "".join(each.format(a.text if guards else a.bare) for a in more)
            return function.sql.format(*texts, rest=rest, bare=first.bare, over=over)

        text, bare = fill(True), fill(False)
        if function.cased:
            problem = self.target.error(f"{key} of a text with letters whose case {self.source.name} sees otherwise")
            found = self.target.found(first.text, CASES_DIFFER)
            text = f"CASE WHEN {found} THEN {problem} ELSE {text} END"
        return Sql(text, bare, frozenset({function.gives}) if function.gives else None)


def _fits(node: exp.Expr, wanted: str) -> bool:
    if wanted == PATTERN:
        return bool(node.is_string and node.this)
    whole = bool(node.is_number and isinstance(node, exp.Literal) and re.fullmatch(r"\d{1,9}", node.this))
    return whole and (wanted == COUNT or int(node.this) > 0)
