"""PURE. What flows into an expression."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, Final

from sqlglot import exp

from duckicelake.lineage.sql.functions import RANKING, aggregates, masks
from duckicelake.lineage.sql.model import NOTHING, Flow, Relation, Subtype, deciding, merged, through
from duckicelake.lineage.sql.scopes import Fold, Scope

MOST_STEPS: Final = 200_000
"""Expressions and columns that are looked at before the statement is given up."""

_CHAINS: Final = (exp.Connector, exp.Add, exp.Mul, exp.DPipe)
_WITHOUT_VALUES: Final = (exp.DataType, exp.Identifier, exp.Literal, exp.Var, exp.Star)


class TooMuch(Exception):  # noqa: N818, named for what happened, as errors.py does
    """A statement is larger than what is worth the time."""


class ExpressionReader(ABC):
    """Reads expressions; what a query in one of them gives, the subclass tells."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.steps = 0

    @abstractmethod
    def relation(self, node: exp.Expr, scope: Scope) -> Relation:
        """Give what a query gives that may use the names of the scope."""

    def count(self, steps: int = 1) -> None:
        """Go on, or raise TooMuch; a step is a column that is looked at once."""
        self.steps += steps
        if self.steps > MOST_STEPS:
            raise TooMuch

    def all_of(self, nodes: Iterable[exp.Expr], scope: Scope) -> Flow:
        """Everything that flows into any of the expressions."""
        return merged(self.flow(each, scope) for each in nodes)

    def flow(self, node: exp.Expr, scope: Scope) -> Flow:
        """What flows into the expression."""
        found = self._read(node, scope)
        self.count(1 + len(found))
        return found

    def _read(self, node: exp.Expr, scope: Scope) -> Flow:
        for kind, read in self._readers.items():
            if isinstance(node, kind):
                return read(self, node, scope)
        if isinstance(node, _WITHOUT_VALUES):
            return NOTHING
        if isinstance(node, exp.Query):
            return self._scalar(node, scope)
        return self._call(node, scope)

    def _call(self, node: exp.Expr, scope: Scope) -> Flow:
        inside = self.all_of(_values(node), scope)
        subtype = Subtype.AGGREGATION if aggregates(node) else Subtype.TRANSFORMATION
        return through(inside, subtype, masking=masks(node))

    def _column(self, node: exp.Column, scope: Scope) -> Flow:
        parts = [each.name for each in node.parts]
        if isinstance(node.this, exp.Star):
            source = scope.source(parts[:-1]) if parts[:-1] else None
            return NOTHING if source is None else source.relation.flows()
        return scope.find(parts)

    def _dot(self, node: exp.Dot, scope: Scope) -> Flow:
        if isinstance(node.expression, exp.Identifier):
            return through(self.flow(node.this, scope), Subtype.TRANSFORMATION)
        inside = NOTHING if _is_name(node.this) else self.flow(node.this, scope)
        return merged([through(inside, Subtype.TRANSFORMATION), self.flow(node.expression, scope)])

    def _same(self, node: exp.Expr, scope: Scope) -> Flow:
        return self.flow(node.this, scope)

    def _case(self, node: exp.Case, scope: Scope) -> Flow:
        branches = node.args["ifs"]
        asked = [each.this for each in branches] + ([node.this] if node.this else [])
        given = [each.args["true"] for each in branches] + ([node.args["default"]] if node.args.get("default") else [])
        return self._chosen(asked, given, scope)

    def _if(self, node: exp.If | exp.Nvl2, scope: Scope) -> Flow:
        given = [node.args[each] for each in ("true", "false") if node.args.get(each)]
        return self._chosen([node.this], given, scope)

    def _coalesce(self, node: exp.Coalesce, scope: Scope) -> Flow:
        values = [node.this, *node.expressions]
        return self._chosen(values, values, scope)

    def _chosen(self, asked: Iterable[exp.Expr], given: Iterable[exp.Expr], scope: Scope) -> Flow:
        return merged([deciding(self.all_of(asked, scope), Subtype.CONDITIONAL), self.all_of(given, scope)])

    def _window(self, node: exp.Window, scope: Scope) -> Flow:
        inside = self._windowed(node.this, scope)
        return merged([through(inside, Subtype.TRANSFORMATION), self._over(node, scope)])

    def _windowed(self, call: exp.Expr, scope: Scope) -> Flow:
        return NOTHING if isinstance(call, RANKING) else self.flow(call, scope)

    def _over(self, node: exp.Window, scope: Scope) -> Flow:
        order, spec = node.args.get("order"), node.args.get("spec")
        parts = [*(node.args.get("partition_by") or ()), *(each.this for each in (order.expressions if order else ()))]
        named = self._named_window(node)
        over = deciding(self.all_of([*parts, spec] if spec else parts, scope), Subtype.WINDOW)
        return over if named is None else merged([over, self._over(named, scope)])

    def _named_window(self, node: exp.Window) -> exp.Window | None:
        """Give the window of the WINDOW clause that this one starts from."""
        select, base = node.find_ancestor(exp.Select), node.args.get("alias")
        if select is None or base is None:
            return None
        for each in select.args.get("windows") or ():
            if each.name.lower() == base.name.lower() and each is not node:
                return each if isinstance(each, exp.Window) else None
        return None

    def _filter(self, node: exp.Filter, scope: Scope) -> Flow:
        condition = deciding(self.flow(node.expression.this, scope), Subtype.FILTER)
        return merged([self.flow(node.this, scope), condition])

    def _within_group(self, node: exp.WithinGroup, scope: Scope) -> Flow:
        ordered = [each.this for each in node.expression.expressions]
        is_value = isinstance(node.this, exp.PercentileCont | exp.PercentileDisc | exp.Mode | exp.Anonymous)
        by = self.all_of(ordered, scope)
        by = through(by, Subtype.AGGREGATION) if is_value else deciding(by, Subtype.SORT)
        return merged([self.flow(node.this, scope), by])

    def _order(self, node: exp.Order, scope: Scope) -> Flow:
        by = deciding(self.all_of((each.this for each in node.expressions), scope), Subtype.SORT)
        return by if node.this is None else merged([self.flow(node.this, scope), by])

    def _lambda(self, node: exp.Lambda, scope: Scope) -> Flow:
        return self.flow(node.this, _binding(scope, (each.name for each in node.expressions)))

    def _comprehension(self, node: exp.Comprehension, scope: Scope) -> Flow:
        iterated = self.flow(node.args["iterator"], scope)
        inside = _binding(scope, [node.expression.name])
        condition = node.args.get("condition")
        tested = deciding(self.flow(condition, inside), Subtype.FILTER) if condition else NOTHING
        return through(merged([iterated, self.flow(node.this, inside), tested]), Subtype.TRANSFORMATION)

    def _keyed(self, node: exp.Expr, scope: Scope) -> Flow:
        return through(self.flow(node.expression, scope), Subtype.TRANSFORMATION)

    def _exists(self, node: exp.Exists, scope: Scope) -> Flow:
        if not isinstance(node.this, exp.Query):
            return self._call(node, scope)
        return self.relation(node.this, scope).influence

    def _in(self, node: exp.In, scope: Scope) -> Flow:
        query = node.args.get("query")
        others = [node.this, *node.expressions, node.args.get("unnest"), node.args.get("field")]
        inside = self.all_of((each for each in others if each), scope)
        if query is not None:
            inside = merged([inside, self._scalar(query, scope)])
        return through(inside, Subtype.TRANSFORMATION)

    def _scalar(self, node: exp.Expr, scope: Scope) -> Flow:
        relation = self.relation(node, scope)
        return merged([relation.flows(), relation.influence])

    _readers: ClassVar[dict[type[exp.Expr], Callable[..., Flow]]] = {
        exp.Column: _column,
        exp.Dot: _dot,
        exp.Alias: _same,
        exp.Paren: _same,
        exp.Case: _case,
        exp.If: _if,
        exp.Nvl2: _if,
        exp.Coalesce: _coalesce,
        exp.Window: _window,
        exp.Filter: _filter,
        exp.WithinGroup: _within_group,
        exp.Order: _order,
        exp.Lambda: _lambda,
        exp.Comprehension: _comprehension,
        exp.PropertyEQ: _keyed,
        exp.Kwarg: _keyed,
        exp.Exists: _exists,
        exp.In: _in,
    }


def _values(node: exp.Expr) -> Iterable[exp.Expr]:
    """The operands; of a chain of one operator all of them, however long it is."""
    operands = node.flatten(unnest=False) if isinstance(node, _CHAINS) else node.iter_expressions()
    return (each for each in operands if not isinstance(each, _WITHOUT_VALUES))


def _is_name(node: exp.Expr) -> bool:
    """Tell whether it's the schema of a function rather than a value."""
    return isinstance(node, exp.Identifier) or (isinstance(node, exp.Dot) and _is_name(node.this))


def _binding(scope: Scope, names: Iterable[str]) -> Scope:
    inside = scope.inner()
    inside.bound = frozenset(scope.fold(each) for each in names)
    return inside
