"""PURE. What a query gives: its columns with what flows into them, and what decides about its rows."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from duckicelake.lineage.sql.model import (
    NOTHING,
    Column,
    Files,
    Lookup,
    Relation,
    Rest,
    Subtype,
    deciding,
    merged,
)
from duckicelake.lineage.sql.scopes import Fold, Scope, is_closed
from duckicelake.lineage.sql.selects import SelectReader
from duckicelake.lineage.sql.sources import UNKNOWN

_MOST_ROUNDS: Final = 8
"""How often a recursive query is read until nothing new flows."""


class QueryReader(SelectReader):
    """Reads queries of one statement; the tables that it meets are its `inputs`."""

    def __init__(self, fold: Fold, lookup: Lookup, files: Files) -> None:
        super().__init__(fold, lookup, files)
        self._ctes: list[dict[str, Callable[[], Relation]]] = [{}]

    def relation(self, node: exp.Expr, scope: Scope) -> Relation:
        """Give what a query gives that may use the names of the scope."""
        self.count()
        with_ = node.args.get("with_")
        self._ctes.append(self._ctes[-1])
        try:
            if with_ is not None:
                self.define(with_, scope)
            return self._query(node, scope)
        finally:
            self._ctes.pop()

    def define(self, with_: exp.With, scope: Scope) -> None:
        """Let the names of WITH be known from here on."""
        for cte in with_.expressions:
            before = self._ctes[-1]
            names = [each.name for each in cte.args["alias"].args.get("columns") or ()]
            read = self._later(cte, names, scope, before, recursive=bool(with_.args.get("recursive")))
            self._ctes[-1] = {**before, self.fold(cte.alias): read}

    def named_query(self, name: str) -> Relation | None:
        """What a name of WITH stands for."""
        read = self._ctes[-1].get(self.fold(name))
        return None if read is None else read()

    def _later(
        self,
        cte: exp.CTE,
        names: Sequence[str],
        scope: Scope,
        before: dict[str, Callable[[], Relation]],
        *,
        recursive: bool,
    ) -> Callable[[], Relation]:
        found: list[Relation] = []

        def read() -> Relation:
            if not found:
                self._ctes.append(before)
                try:
                    found.append(self._cte(cte, names, scope, recursive=recursive))
                finally:
                    self._ctes.pop()
            return found[0]

        return read

    def _cte(self, cte: exp.CTE, names: Sequence[str], scope: Scope, *, recursive: bool) -> Relation:
        query = cte.this
        if not isinstance(query, exp.Query):
            return UNKNOWN
        if not (recursive and isinstance(query, exp.SetOperation)):
            return self.relation(query, scope).renamed(names)
        before = self._ctes[-1]
        known = self.relation(query.this, scope).renamed(names)
        for _ in range(_MOST_ROUNDS):
            now = known
            self._ctes[-1] = {**before, self.fold(cte.alias): lambda now=now: now}  # type: ignore[misc]
            known = self.relation(query, scope).renamed(names)
            if known == now:
                break
        self._ctes[-1] = before
        return known

    def _query(self, node: exp.Expr, scope: Scope) -> Relation:
        if isinstance(node, exp.Select):
            return self.select(node, scope)
        if isinstance(node, exp.SetOperation):
            return self._ordered(node, self._set_operation(node, scope), scope)
        if isinstance(node, exp.Subquery | exp.Paren):
            return self._ordered(node, self.source_of(node, scope.inner(), scope).relation, scope)
        if isinstance(node, exp.Values | exp.Pivot | exp.Table):
            return self.source_of(node, scope.inner(), scope).relation
        return UNKNOWN

    def _ordered(self, node: exp.Expr, relation: Relation, scope: Scope) -> Relation:
        """The query with its ORDER BY and LIMIT, which see nothing but its columns."""
        if not node.args.get("order") and not node.args.get("limit"):
            return relation
        inside = scope.inner()
        inside.aliases = {inside.fold(each.name): each.flow for each in relation.known or () if each.name}
        return replace(relation, influence=merged([relation.influence, self.tail(node, inside, relation.columns)]))

    def _set_operation(self, node: exp.SetOperation, scope: Scope) -> Relation:
        left, right = self.relation(node.this, scope), self.relation(node.expression, scope)
        influence = merged([left.influence, right.influence])
        if not isinstance(node, exp.Union):
            matched = deciding(merged([left.flows(), right.flows()]), Subtype.JOIN)
            return Relation(left.columns, merged([influence, matched]))
        columns = self._united_by_name(left, right) if node.args.get("by_name") else _united(left, right)
        if node.args.get("distinct"):
            grouped = deciding(Relation(columns, NOTHING).flows(), Subtype.GROUP_BY)
            influence = merged([influence, grouped])
        return Relation(columns, influence)

    def _united_by_name(self, left: Relation, right: Relation) -> tuple[Column | Rest, ...]:
        if not (is_closed(left) and is_closed(right)):
            return (Rest(flow=NOTHING),)
        columns = {self.fold(each.name or ""): each for each in left.known or ()}
        for each in right.known or ():
            key = self.fold(each.name or "")
            before = columns.get(key)
            columns[key] = each if before is None else replace(before, flow=merged([before.flow, each.flow]))
        return tuple(columns.values())


def _united(left: Relation, right: Relation) -> tuple[Column | Rest, ...]:
    first, second = left.known, right.known
    if first is None or second is None or len(first) != len(second):
        return (Rest(flow=NOTHING),)
    pairs = zip(first, second, strict=True)
    return tuple(replace(one, flow=merged([one.flow, other.flow])) for one, other in pairs)
