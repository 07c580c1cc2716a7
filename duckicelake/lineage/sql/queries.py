"""PURE. Read queries and SELECT: their columns with what flows into them and what decides about rows."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from duckicelake.lineage.sql.functions import is_aggregate
from duckicelake.lineage.sql.model import (
    NO_FLOW,
    Files,
    Flow,
    FlowSubtype,
    Lookup,
    OpenColumns,
    SqlColumn,
    SqlRelation,
    build_deciding_flow,
    merge_flows,
)
from duckicelake.lineage.sql.scopes import Fold, NameScope, expand_star, is_closed
from duckicelake.lineage.sql.sources import UNKNOWN, SourceReader

_MAX_ROUNDS: Final = 8
"""Rounds in which a recursive query is read until no new flow is found."""


class SelectReader(SourceReader):
    """Reads SELECT."""

    def select(self, node: exp.Select, outer: NameScope) -> SqlRelation:
        """Read a SELECT, which may use the names of the outer scope."""
        scope = outer.inner()
        influence = [self.read_from(node, scope)]
        columns = self._columns(node, scope)
        influence += [self._condition(node, clause, scope) for clause in ("where", "having", "qualify")]
        influence.append(self._grouping(node, scope, columns))
        influence.append(self._distinct(node, scope, columns))
        self._prefer_aliases(scope, columns)
        influence.append(self.tail(node, scope, columns))
        return SqlRelation(tuple(columns), merge_flows(influence))

    def _columns(self, node: exp.Select, scope: NameScope) -> list[SqlColumn | OpenColumns]:
        columns: list[SqlColumn | OpenColumns] = []
        for expression in node.expressions:
            new = self._read_projection(expression, scope)
            self.count(len(new))
            columns += new
            for column in new if isinstance(expression, exp.Alias) else ():
                if isinstance(column, SqlColumn) and column.name is not None:
                    scope.aliases.setdefault(scope.fold(column.name), column.flow)
        return columns

    def _read_projection(self, node: exp.Expr, scope: NameScope) -> list[SqlColumn | OpenColumns]:
        star = node.this if isinstance(node, exp.Column) else node
        if isinstance(star, exp.Star):
            return self._star(node, star, scope)
        if isinstance(node, exp.Aliases):
            flow = self.flow(node.this, scope)
            return [SqlColumn(expression.name, flow) for expression in node.expressions]
        if node.find(exp.Columns) or isinstance(node.this, exp.Star) or _is_spread(node):
            return [OpenColumns(flow=NO_FLOW)]
        return [SqlColumn(_find_name(node), self.flow(node, scope))]

    def _star(self, node: exp.Expr, star: exp.Star, scope: NameScope) -> list[SqlColumn | OpenColumns]:
        sources = scope.sources
        if node is not star:
            source = scope.source([part.name for part in node.parts[:-1]]) if isinstance(node, exp.Column) else None
            if source is None:
                return [OpenColumns(flow=NO_FLOW)]
            sources = [replace(source, hidden=frozenset())]
        columns = expand_star(scope, sources)
        left_out = {scope.fold(excluded.name) for excluded in star.args.get("except_") or ()}
        renamed = {scope.fold(alias.this.name): alias.alias for alias in star.args.get("rename") or ()}
        changed = {scope.fold(alias.alias): alias.this for alias in star.args.get("replace") or ()}
        return [
            self._in_star(column, changed, renamed, scope)
            for column in columns
            if isinstance(column, OpenColumns) or column.name is None or scope.fold(column.name) not in left_out
        ]

    def _in_star(
        self, column: SqlColumn | OpenColumns, changed: dict[str, exp.Expr], renamed: dict[str, str], scope: NameScope
    ) -> SqlColumn | OpenColumns:
        if isinstance(column, OpenColumns):
            return OpenColumns(flow=NO_FLOW) if changed or renamed else column
        name = scope.fold(column.name or "")
        flow = self.flow(changed[name], scope) if name in changed else column.flow
        return SqlColumn(renamed.get(name, column.name), flow)

    def _condition(self, node: exp.Expr, clause: str, scope: NameScope) -> Flow:
        condition = node.args.get(clause)
        return (
            NO_FLOW if condition is None else build_deciding_flow(self.flow(condition.this, scope), FlowSubtype.FILTER)
        )

    def _grouping(self, node: exp.Select, scope: NameScope, columns: Sequence[SqlColumn | OpenColumns]) -> Flow:
        group = node.args.get("group")
        if group is None:
            return NO_FLOW
        if group.args.get("all"):
            plain = [expression for expression in node.expressions if not _is_computed_from_group(expression)]
            flow = self.all_of(plain, scope)
        else:
            sets = [part for key in ("rollup", "cube", "grouping_sets") for part in group.args.get(key) or ()]
            flow = merge_flows(self._by(key, scope, columns) for key in [*group.expressions, *sets])
        return build_deciding_flow(flow, FlowSubtype.GROUP_BY)

    def _by(self, node: exp.Expr, scope: NameScope, columns: Sequence[SqlColumn | OpenColumns]) -> Flow:
        """Resolve an expression of ORDER BY or GROUP BY: a column's number, its alias, or itself."""
        if isinstance(node, exp.Literal) and not node.is_string:
            at = int(node.this) - 1 if node.this.isdecimal() else -1
            chosen = columns[at] if 0 <= at < len(columns) else None
            numbered = all(isinstance(column, SqlColumn) for column in columns[: at + 1])
            return chosen.flow if numbered and isinstance(chosen, SqlColumn) else NO_FLOW
        return self.flow(node, scope)

    def _distinct(self, node: exp.Select, scope: NameScope, columns: Sequence[SqlColumn | OpenColumns]) -> Flow:
        distinct = node.args.get("distinct")
        if distinct is None:
            return NO_FLOW
        on = distinct.args.get("on")
        flow = self.flow(on, scope) if on else SqlRelation(tuple(columns), NO_FLOW).flows()
        return build_deciding_flow(flow, FlowSubtype.GROUP_BY)

    def _prefer_aliases(self, scope: NameScope, columns: Sequence[SqlColumn | OpenColumns]) -> None:
        """Build a scope in which the query's own columns come first, as in ORDER BY."""
        for column in columns:
            if isinstance(column, SqlColumn) and column.name is not None:
                scope.shared[scope.fold(column.name)] = column.flow

    def tail(self, node: exp.Expr, scope: NameScope, columns: Sequence[SqlColumn | OpenColumns]) -> Flow:
        """Find the flow that decides by ORDER BY and LIMIT."""
        order, limit = node.args.get("order"), node.args.get("limit")
        flows: list[Flow] = []
        for expression in order.expressions if order is not None else ():
            is_all = isinstance(expression.this, exp.Var) and expression.this.name.upper() == "ALL"
            by = SqlRelation(tuple(columns), NO_FLOW).flows() if is_all else self._by(expression.this, scope, columns)
            flows.append(build_deciding_flow(by, FlowSubtype.SORT))
        if limit is not None and limit.expression is not None:
            flows.append(build_deciding_flow(self.flow(limit.expression, scope), FlowSubtype.FILTER))
        return merge_flows(flows)


def _find_name(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Subquery):
        return node.alias or None
    if isinstance(node, exp.Alias | exp.Column):
        return str(node.alias_or_name) or None
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        return node.expression.name
    return None


def _is_spread(node: exp.Expr) -> bool:
    """Return whether the expression becomes several columns, or columns of other names."""
    inside = node.unalias()
    if not isinstance(inside, exp.Explode | exp.Unnest | exp.Inline | exp.Posexplode):
        return False
    return not isinstance(node, exp.Alias) or any(
        isinstance(expression, exp.PropertyEQ) for expression in inside.expressions
    )


def _is_computed_from_group(node: exp.Expr) -> bool:
    return any(isinstance(inner, exp.Window) or is_aggregate(inner) for inner in node.walk())


class QueryReader(SelectReader):
    """Reads queries of one statement, and collects their tables in `inputs`."""

    def __init__(self, fold: Fold, lookup: Lookup, files: Files) -> None:
        super().__init__(fold, lookup, files)
        self._ctes: list[dict[str, Callable[[], SqlRelation]]] = [{}]

    def relation(self, node: exp.Expr, scope: NameScope) -> SqlRelation:
        """Read a query that may use the names of the scope."""
        self.count()
        with_ = node.args.get("with_")
        self._ctes.append(self._ctes[-1])
        try:
            if with_ is not None:
                self.define(with_, scope)
            return self._query(node, scope)
        finally:
            self._ctes.pop()

    def define(self, with_: exp.With, scope: NameScope) -> None:
        """Define the names of WITH from here on."""
        for cte in with_.expressions:
            before = self._ctes[-1]
            names = [column.name for column in cte.args["alias"].args.get("columns") or ()]
            read = self._later(cte, names, scope, before, recursive=bool(with_.args.get("recursive")))
            self._ctes[-1] = {**before, self.fold(cte.alias): read}

    def named_query(self, name: str) -> SqlRelation | None:
        """Find the query of a name of WITH."""
        read = self._ctes[-1].get(self.fold(name))
        return None if read is None else read()

    def _later(
        self,
        cte: exp.CTE,
        names: Sequence[str],
        scope: NameScope,
        before: dict[str, Callable[[], SqlRelation]],
        *,
        recursive: bool,
    ) -> Callable[[], SqlRelation]:
        found: list[SqlRelation] = []

        def read() -> SqlRelation:
            if not found:
                self._ctes.append(before)
                try:
                    found.append(self._cte(cte, names, scope, recursive=recursive))
                finally:
                    self._ctes.pop()
            return found[0]

        return read

    def _cte(self, cte: exp.CTE, names: Sequence[str], scope: NameScope, *, recursive: bool) -> SqlRelation:
        query = cte.this
        if not isinstance(query, exp.Query):
            return UNKNOWN
        if not (recursive and isinstance(query, exp.SetOperation)):
            return self.relation(query, scope).rename(names)
        before = self._ctes[-1]
        known = self.relation(query.this, scope).rename(names)
        for _ in range(_MAX_ROUNDS):
            now = known
            self._ctes[-1] = {**before, self.fold(cte.alias): lambda now=now: now}  # type: ignore[misc]
            known = self.relation(query, scope).rename(names)
            if known == now:
                break
        self._ctes[-1] = before
        return known

    def _query(self, node: exp.Expr, scope: NameScope) -> SqlRelation:
        if isinstance(node, exp.Select):
            return self.select(node, scope)
        if isinstance(node, exp.SetOperation):
            return self._read_order(node, self._set_operation(node, scope), scope)
        if isinstance(node, exp.Subquery | exp.Paren):
            return self._read_order(node, self.find_source(node, scope.inner(), scope).relation, scope)
        if isinstance(node, exp.Values | exp.Pivot | exp.Table):
            return self.find_source(node, scope.inner(), scope).relation
        return UNKNOWN

    def _read_order(self, node: exp.Expr, relation: SqlRelation, scope: NameScope) -> SqlRelation:
        """Add ORDER BY and LIMIT to a query. They see only its columns."""
        if not node.args.get("order") and not node.args.get("limit"):
            return relation
        inside = scope.inner()
        inside.aliases = {inside.fold(column.name): column.flow for column in relation.known or () if column.name}
        return replace(relation, influence=merge_flows([relation.influence, self.tail(node, inside, relation.columns)]))

    def _set_operation(self, node: exp.SetOperation, scope: NameScope) -> SqlRelation:
        left, right = self.relation(node.this, scope), self.relation(node.expression, scope)
        influence = merge_flows([left.influence, right.influence])
        if not isinstance(node, exp.Union):
            matched = build_deciding_flow(merge_flows([left.flows(), right.flows()]), FlowSubtype.JOIN)
            return SqlRelation(left.columns, merge_flows([influence, matched]))
        columns = self._united_by_name(left, right) if node.args.get("by_name") else _unite_columns(left, right)
        if node.args.get("distinct"):
            grouped = build_deciding_flow(SqlRelation(columns, NO_FLOW).flows(), FlowSubtype.GROUP_BY)
            influence = merge_flows([influence, grouped])
        return SqlRelation(columns, influence)

    def _united_by_name(self, left: SqlRelation, right: SqlRelation) -> tuple[SqlColumn | OpenColumns, ...]:
        if not (is_closed(left) and is_closed(right)):
            return (OpenColumns(flow=NO_FLOW),)
        columns = {self.fold(column.name or ""): column for column in left.known or ()}
        for column in right.known or ():
            key = self.fold(column.name or "")
            before = columns.get(key)
            columns[key] = column if before is None else replace(before, flow=merge_flows([before.flow, column.flow]))
        return tuple(columns.values())


def _unite_columns(left: SqlRelation, right: SqlRelation) -> tuple[SqlColumn | OpenColumns, ...]:
    first, second = left.known, right.known
    if first is None or second is None or len(first) != len(second):
        return (OpenColumns(flow=NO_FLOW),)
    pairs = zip(first, second, strict=True)
    return tuple(replace(one, flow=merge_flows([one.flow, other.flow])) for one, other in pairs)
