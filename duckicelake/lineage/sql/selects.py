"""PURE. What SELECT gives: the columns that it computes, and the clauses that decide about its rows."""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from duckicelake.lineage.sql.functions import aggregates
from duckicelake.lineage.sql.model import NOTHING, Column, Flow, Relation, Rest, Subtype, deciding, merged
from duckicelake.lineage.sql.scopes import Scope, all_columns
from duckicelake.lineage.sql.sources import SourceReader


class SelectReader(SourceReader):
    """Reads SELECT."""

    def select(self, node: exp.Select, outer: Scope) -> Relation:
        """What it gives, where the outer scope's names may be used."""
        scope = outer.inner()
        influence = [self.read_from(node, scope)]
        columns = self._columns(node, scope)
        influence += [self._condition(node, each, scope) for each in ("where", "having", "qualify")]
        influence.append(self._grouping(node, scope, columns))
        influence.append(self._distinct(node, scope, columns))
        self._prefer_aliases(scope, columns)
        influence.append(self.tail(node, scope, columns))
        return Relation(tuple(columns), merged(influence))

    def _columns(self, node: exp.Select, scope: Scope) -> list[Column | Rest]:
        columns: list[Column | Rest] = []
        for each in node.expressions:
            new = self._projected(each, scope)
            self.count(len(new))
            columns += new
            for column in new if isinstance(each, exp.Alias) else ():
                if isinstance(column, Column) and column.name is not None:
                    scope.aliases.setdefault(scope.fold(column.name), column.flow)
        return columns

    def _projected(self, node: exp.Expr, scope: Scope) -> list[Column | Rest]:
        star = node.this if isinstance(node, exp.Column) else node
        if isinstance(star, exp.Star):
            return self._star(node, star, scope)
        if isinstance(node, exp.Aliases):
            flow = self.flow(node.this, scope)
            return [Column(each.name, flow) for each in node.expressions]
        if node.find(exp.Columns) or isinstance(node.this, exp.Star) or _spreads(node):
            return [Rest(flow=NOTHING)]
        return [Column(_name(node), self.flow(node, scope))]

    def _star(self, node: exp.Expr, star: exp.Star, scope: Scope) -> list[Column | Rest]:
        sources = scope.sources
        if node is not star:
            source = scope.source([each.name for each in node.parts[:-1]]) if isinstance(node, exp.Column) else None
            if source is None:
                return [Rest(flow=NOTHING)]
            sources = [replace(source, hidden=frozenset())]
        columns = all_columns(scope, sources)
        left_out = {scope.fold(each.name) for each in star.args.get("except_") or ()}
        renamed = {scope.fold(each.this.name): each.alias for each in star.args.get("rename") or ()}
        changed = {scope.fold(each.alias): each.this for each in star.args.get("replace") or ()}
        return [
            self._in_star(each, changed, renamed, scope)
            for each in columns
            if isinstance(each, Rest) or each.name is None or scope.fold(each.name) not in left_out
        ]

    def _in_star(
        self, column: Column | Rest, changed: dict[str, exp.Expr], renamed: dict[str, str], scope: Scope
    ) -> Column | Rest:
        if isinstance(column, Rest):
            return Rest(flow=NOTHING) if changed or renamed else column
        name = scope.fold(column.name or "")
        flow = self.flow(changed[name], scope) if name in changed else column.flow
        return Column(renamed.get(name, column.name), flow)

    def _condition(self, node: exp.Expr, clause: str, scope: Scope) -> Flow:
        condition = node.args.get(clause)
        return NOTHING if condition is None else deciding(self.flow(condition.this, scope), Subtype.FILTER)

    def _grouping(self, node: exp.Select, scope: Scope, columns: Sequence[Column | Rest]) -> Flow:
        group = node.args.get("group")
        if group is None:
            return NOTHING
        if group.args.get("all"):
            plain = [each for each in node.expressions if not _is_computed_from_group(each)]
            flow = self.all_of(plain, scope)
        else:
            sets = [part for key in ("rollup", "cube", "grouping_sets") for part in group.args.get(key) or ()]
            flow = merged(self._by(each, scope, columns) for each in [*group.expressions, *sets])
        return deciding(flow, Subtype.GROUP_BY)

    def _by(self, node: exp.Expr, scope: Scope, columns: Sequence[Column | Rest]) -> Flow:
        """What an expression of ORDER BY or GROUP BY means: a column's number, its alias, or itself."""
        if isinstance(node, exp.Literal) and not node.is_string:
            at = int(node.this) - 1 if node.this.isdecimal() else -1
            chosen = columns[at] if 0 <= at < len(columns) else None
            numbered = all(isinstance(each, Column) for each in columns[: at + 1])
            return chosen.flow if numbered and isinstance(chosen, Column) else NOTHING
        return self.flow(node, scope)

    def _distinct(self, node: exp.Select, scope: Scope, columns: Sequence[Column | Rest]) -> Flow:
        distinct = node.args.get("distinct")
        if distinct is None:
            return NOTHING
        on = distinct.args.get("on")
        flow = self.flow(on, scope) if on else Relation(tuple(columns), NOTHING).flows()
        return deciding(flow, Subtype.GROUP_BY)

    def _prefer_aliases(self, scope: Scope, columns: Sequence[Column | Rest]) -> None:
        """ORDER BY means the query's own columns first."""
        for each in columns:
            if isinstance(each, Column) and each.name is not None:
                scope.shared[scope.fold(each.name)] = each.flow

    def tail(self, node: exp.Expr, scope: Scope, columns: Sequence[Column | Rest]) -> Flow:
        """What decides by ORDER BY and LIMIT."""
        order, limit = node.args.get("order"), node.args.get("limit")
        flows: list[Flow] = []
        for each in order.expressions if order is not None else ():
            is_all = isinstance(each.this, exp.Var) and each.this.name.upper() == "ALL"
            by = Relation(tuple(columns), NOTHING).flows() if is_all else self._by(each.this, scope, columns)
            flows.append(deciding(by, Subtype.SORT))
        if limit is not None and limit.expression is not None:
            flows.append(deciding(self.flow(limit.expression, scope), Subtype.FILTER))
        return merged(flows)


def _name(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Subquery):
        return node.alias or None
    if isinstance(node, exp.Alias | exp.Column):
        return str(node.alias_or_name) or None
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        return node.expression.name
    return None


def _spreads(node: exp.Expr) -> bool:
    """Tell whether the expression becomes several columns, or ones that are called otherwise."""
    inside = node.unalias()
    if not isinstance(inside, exp.Explode | exp.Unnest | exp.Inline | exp.Posexplode):
        return False
    return not isinstance(node, exp.Alias) or any(isinstance(each, exp.PropertyEQ) for each in inside.expressions)


def _is_computed_from_group(node: exp.Expr) -> bool:
    return any(isinstance(each, exp.Window) or aggregates(each) for each in node.walk())
