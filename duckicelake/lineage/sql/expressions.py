"""PURE. Find what flows into an expression, and through PIVOT and UNPIVOT."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final

from sqlglot import exp

from duckicelake.lineage.sql.functions import RANKING, is_aggregate, is_masking
from duckicelake.lineage.sql.model import (
    NO_FLOW,
    Flow,
    FlowSubtype,
    OpenColumns,
    SqlColumn,
    SqlRelation,
    build_deciding_flow,
    merge_flows,
    pass_through,
)
from duckicelake.lineage.sql.scopes import Fold, NameScope, ScopeSource, is_closed

MAX_STEPS: Final = 200_000
"""Expressions and columns that are read before the statement is given up."""
_CHAINS: Final = (exp.Connector, exp.Add, exp.Mul, exp.DPipe)
_WITHOUT_VALUES: Final = (exp.DataType, exp.Identifier, exp.Literal, exp.Var, exp.Star)
_UNKNOWN = (OpenColumns(flow=NO_FLOW),)


class SqlTooComplexError(Exception):
    """A statement is too large to be read in time."""


class ExpressionReader(ABC):
    """Reads expressions. The subclass reads the queries in them."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.steps = 0

    @abstractmethod
    def relation(self, node: exp.Expr, scope: NameScope) -> SqlRelation:
        """Read a query that may use the names of the scope."""

    def count(self, steps: int = 1) -> None:
        """Count steps, one for each look at a column; SqlTooComplexError at the limit."""
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise SqlTooComplexError

    def all_of(self, nodes: Iterable[exp.Expr], scope: NameScope) -> Flow:
        """Merge the flows into several expressions."""
        return merge_flows(self.flow(node, scope) for node in nodes)

    def flow(self, node: exp.Expr, scope: NameScope) -> Flow:
        """Find the flow into an expression."""
        found = self._read(node, scope)
        self.count(1 + len(found))
        return found

    def _read(self, node: exp.Expr, scope: NameScope) -> Flow:
        for kind, read in self._readers.items():
            if isinstance(node, kind):
                return read(self, node, scope)
        if isinstance(node, _WITHOUT_VALUES):
            return NO_FLOW
        if isinstance(node, exp.Query):
            return self._scalar(node, scope)
        return self._call(node, scope)

    def _call(self, node: exp.Expr, scope: NameScope) -> Flow:
        inside = self.all_of(_iterate_operands(node), scope)
        subtype = FlowSubtype.AGGREGATION if is_aggregate(node) else FlowSubtype.TRANSFORMATION
        return pass_through(inside, subtype, masking=is_masking(node))

    def _column(self, node: exp.Column, scope: NameScope) -> Flow:
        parts = [part.name for part in node.parts]
        if isinstance(node.this, exp.Star):
            source = scope.source(parts[:-1]) if parts[:-1] else None
            return NO_FLOW if source is None else source.relation.flows()
        return scope.find(parts)

    def _dot(self, node: exp.Dot, scope: NameScope) -> Flow:
        if isinstance(node.expression, exp.Identifier):
            return pass_through(self.flow(node.this, scope), FlowSubtype.TRANSFORMATION)
        inside = NO_FLOW if _is_name(node.this) else self.flow(node.this, scope)
        return merge_flows([pass_through(inside, FlowSubtype.TRANSFORMATION), self.flow(node.expression, scope)])

    def _same(self, node: exp.Expr, scope: NameScope) -> Flow:
        return self.flow(node.this, scope)

    def _case(self, node: exp.Case, scope: NameScope) -> Flow:
        branches = node.args["ifs"]
        asked = [branch.this for branch in branches] + ([node.this] if node.this else [])
        given = [branch.args["true"] for branch in branches] + (
            [node.args["default"]] if node.args.get("default") else []
        )
        return self._read_choice(asked, given, scope)

    def _if(self, node: exp.If | exp.Nvl2, scope: NameScope) -> Flow:
        given = [node.args[branch] for branch in ("true", "false") if node.args.get(branch)]
        return self._read_choice([node.this], given, scope)

    def _coalesce(self, node: exp.Coalesce, scope: NameScope) -> Flow:
        values = [node.this, *node.expressions]
        return self._read_choice(values, values, scope)

    def _read_choice(self, asked: Iterable[exp.Expr], given: Iterable[exp.Expr], scope: NameScope) -> Flow:
        return merge_flows(
            [build_deciding_flow(self.all_of(asked, scope), FlowSubtype.CONDITIONAL), self.all_of(given, scope)]
        )

    def _window(self, node: exp.Window, scope: NameScope) -> Flow:
        inside = self._read_window(node.this, scope)
        return merge_flows([pass_through(inside, FlowSubtype.TRANSFORMATION), self._over(node, scope)])

    def _read_window(self, call: exp.Expr, scope: NameScope) -> Flow:
        return NO_FLOW if isinstance(call, RANKING) else self.flow(call, scope)

    def _over(self, node: exp.Window, scope: NameScope) -> Flow:
        order, spec = node.args.get("order"), node.args.get("spec")
        parts = [
            *(node.args.get("partition_by") or ()),
            *(expression.this for expression in (order.expressions if order else ())),
        ]
        named = self._named_window(node)
        over = build_deciding_flow(self.all_of([*parts, spec] if spec else parts, scope), FlowSubtype.WINDOW)
        return over if named is None else merge_flows([over, self._over(named, scope)])

    def _named_window(self, node: exp.Window) -> exp.Window | None:
        """Find the window of the WINDOW clause on which this one is based."""
        select, base = node.find_ancestor(exp.Select), node.args.get("alias")
        if select is None or base is None:
            return None
        for window in select.args.get("windows") or ():
            if window.name.lower() == base.name.lower() and window is not node:
                return window if isinstance(window, exp.Window) else None
        return None

    def _filter(self, node: exp.Filter, scope: NameScope) -> Flow:
        condition = build_deciding_flow(self.flow(node.expression.this, scope), FlowSubtype.FILTER)
        return merge_flows([self.flow(node.this, scope), condition])

    def _within_group(self, node: exp.WithinGroup, scope: NameScope) -> Flow:
        ordered = [expression.this for expression in node.expression.expressions]
        is_value = isinstance(node.this, exp.PercentileCont | exp.PercentileDisc | exp.Mode | exp.Anonymous)
        by = self.all_of(ordered, scope)
        by = pass_through(by, FlowSubtype.AGGREGATION) if is_value else build_deciding_flow(by, FlowSubtype.SORT)
        return merge_flows([self.flow(node.this, scope), by])

    def _order(self, node: exp.Order, scope: NameScope) -> Flow:
        by = build_deciding_flow(
            self.all_of((expression.this for expression in node.expressions), scope), FlowSubtype.SORT
        )
        return by if node.this is None else merge_flows([self.flow(node.this, scope), by])

    def _lambda(self, node: exp.Lambda, scope: NameScope) -> Flow:
        return self.flow(node.this, _bind_names(scope, (expression.name for expression in node.expressions)))

    def _comprehension(self, node: exp.Comprehension, scope: NameScope) -> Flow:
        iterated = self.flow(node.args["iterator"], scope)
        inside = _bind_names(scope, [node.expression.name])
        condition = node.args.get("condition")
        tested = build_deciding_flow(self.flow(condition, inside), FlowSubtype.FILTER) if condition else NO_FLOW
        return pass_through(merge_flows([iterated, self.flow(node.this, inside), tested]), FlowSubtype.TRANSFORMATION)

    def _read_keyed(self, node: exp.Expr, scope: NameScope) -> Flow:
        return pass_through(self.flow(node.expression, scope), FlowSubtype.TRANSFORMATION)

    def _exists(self, node: exp.Exists, scope: NameScope) -> Flow:
        if not isinstance(node.this, exp.Query):
            return self._call(node, scope)
        return self.relation(node.this, scope).influence

    def _in(self, node: exp.In, scope: NameScope) -> Flow:
        query = node.args.get("query")
        others = [node.this, *node.expressions, node.args.get("unnest"), node.args.get("field")]
        inside = self.all_of((other for other in others if other), scope)
        if query is not None:
            inside = merge_flows([inside, self._scalar(query, scope)])
        return pass_through(inside, FlowSubtype.TRANSFORMATION)

    def _scalar(self, node: exp.Expr, scope: NameScope) -> Flow:
        relation = self.relation(node, scope)
        return merge_flows([relation.flows(), relation.influence])

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
        exp.PropertyEQ: _read_keyed,
        exp.Kwarg: _read_keyed,
        exp.Exists: _exists,
        exp.In: _in,
    }


def _iterate_operands(node: exp.Expr) -> Iterable[exp.Expr]:
    """Iterate over operands. A chain of one operator gives all of them, however long it is."""
    operands = node.flatten(unnest=False) if isinstance(node, _CHAINS) else node.iter_expressions()
    return (operand for operand in operands if not isinstance(operand, _WITHOUT_VALUES))


def _is_name(node: exp.Expr) -> bool:
    """Return whether the node is a function's schema rather than a value."""
    return isinstance(node, exp.Identifier) or (isinstance(node, exp.Dot) and _is_name(node.this))


def _bind_names(scope: NameScope, names: Iterable[str]) -> NameScope:
    inside = scope.inner()
    inside.bound = frozenset(scope.fold(name) for name in names)
    return inside


def apply_pivot(reader: ExpressionReader, relation: SqlRelation, node: exp.Pivot, parts: Sequence[str]) -> SqlRelation:
    """Apply one PIVOT or UNPIVOT to a relation."""
    scope = NameScope(reader.fold, [ScopeSource(tuple(parts), relation)])
    if not is_closed(relation):
        return SqlRelation(_UNKNOWN, relation.influence)
    return (
        _apply_unpivot(relation, node, scope)
        if node.args.get("unpivot")
        else _apply_pivot(reader, relation, node, scope)
    )


def _apply_pivot(reader: ExpressionReader, relation: SqlRelation, node: exp.Pivot, scope: NameScope) -> SqlRelation:
    fields, group = node.args.get("fields"), node.args.get("group")
    values = node.expressions if fields else node.args.get("using") or []
    spread = [field.this if isinstance(field, exp.In) else field for field in fields or node.expressions]
    used = {column.name for value in [*values, *spread] for column in value.find_all(exp.Column)}
    kept = [column for column in relation.known or () if not _is_among(column, used, scope)]
    if group is not None:
        kept = [
            SqlColumn(expression.alias_or_name or None, reader.flow(expression, scope))
            for expression in group.expressions
        ]
    chosen = build_deciding_flow(reader.all_of(spread, scope), FlowSubtype.CONDITIONAL)
    cells = merge_flows([pass_through(reader.all_of(values, scope), FlowSubtype.AGGREGATION), chosen])
    grouped = build_deciding_flow(merge_flows(column.flow for column in kept), FlowSubtype.GROUP_BY)
    return SqlRelation((*kept, OpenColumns(flow=cells)), merge_flows([relation.influence, grouped]))


def _apply_unpivot(relation: SqlRelation, node: exp.Pivot, scope: NameScope) -> SqlRelation:
    fields, into = node.args.get("fields"), node.args.get("into")
    if fields:
        columns, names, label = (
            fields[0].expressions,
            [expression.name for expression in node.expressions],
            fields[0].this.name,
        )
    elif into is not None:
        columns, names, label = node.expressions, [expression.name for expression in into.expressions], into.this.name
    else:
        columns, names, label = node.expressions, ["value"], "name"
    if len(names) != 1 or any(not isinstance(column, exp.Column | exp.Identifier) for column in columns):
        return SqlRelation(_UNKNOWN, relation.influence)
    used = {column.name for column in columns}
    flow: Flow = pass_through(merge_flows(scope.find([name]) for name in used), FlowSubtype.TRANSFORMATION)
    kept = [column for column in relation.known or () if not _is_among(column, used, scope)]
    return SqlRelation((*kept, SqlColumn(label, NO_FLOW), SqlColumn(names[0], flow)), relation.influence)


def _is_among(column: SqlColumn, names: set[str], scope: NameScope) -> bool:
    return scope.fold(column.name or "") in {scope.fold(name) for name in names}
