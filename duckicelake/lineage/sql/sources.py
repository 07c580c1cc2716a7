"""PURE. Read FROM: tables, files, functions and queries, and how they are joined."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from duckicelake.lineage.sql.expressions import ExpressionReader, apply_pivot
from duckicelake.lineage.sql.functions import is_file_name, is_file_reader
from duckicelake.lineage.sql.model import (
    NO_FLOW,
    ColumnOrigin,
    Files,
    Flow,
    FlowEffect,
    FlowSubtype,
    Lookup,
    OpenColumns,
    SqlColumn,
    SqlDataset,
    SqlRelation,
    build_deciding_flow,
    merge_flows,
    pass_through,
)
from duckicelake.lineage.sql.scopes import Fold, NameScope, ScopeSource, expand_star, is_closed, merge_coalesced

UNKNOWN: Final = SqlRelation((OpenColumns(flow=NO_FLOW),), NO_FLOW)
_NAMED: Final = (exp.EQ, exp.PropertyEQ, exp.Kwarg)
"""Arguments with names: options, as `nullstr = 'NA'`."""
_SERIES: Final = (exp.GenerateSeries, exp.GenerateDateArray, exp.GenerateTimestampArray)


class SourceReader(ExpressionReader):
    """Reads FROM, and collects its tables and files in `inputs`."""

    def __init__(self, fold: Fold, lookup: Lookup, files: Files) -> None:
        super().__init__(fold)
        self._lookup, self._files = lookup, files
        self.inputs: dict[SqlDataset, None] = {}

    @abstractmethod
    def named_query(self, name: str) -> SqlRelation | None:
        """Find the query of a name of WITH."""

    def read_from(self, node: exp.Expr, scope: NameScope) -> Flow:
        """Add the sources in FROM to the scope; return the flow that decides about rows."""
        from_ = node.args.get("from_")
        influence = [NO_FLOW if from_ is None else self.add(from_.this, scope)]
        influence += [self._join(join, scope) for join in node.args.get("joins") or ()]
        influence += [self.add(lateral, scope) for lateral in node.args.get("laterals") or ()]
        return merge_flows(influence)

    def add(self, node: exp.Expr, scope: NameScope) -> Flow:
        """Add one source, with its joins, to the scope."""
        inner = node.this if isinstance(node, exp.Subquery | exp.Paren) else None
        if isinstance(inner, exp.Table | exp.Subquery) and not node.alias and not node.args.get("pivots"):
            influence = self.add(inner, scope)
        else:
            source = self.find_source(node, scope, scope)
            scope.sources.append(source)
            influence = source.relation.influence
        joined = [self._join(join, scope) for join in node.args.get("joins") or ()]
        views = [self.add(lateral, scope) for lateral in node.args.get("laterals") or ()]
        return merge_flows([influence, *joined, *views])

    def find_source(self, node: exp.Expr, scope: NameScope, outer: NameScope) -> ScopeSource:
        """Read one item of FROM. It may use names of the scope, which DuckDB allows for all items."""
        self.count()
        relation, parts = self._item(node, scope, outer)
        for pivot in node.args.get("pivots") or ():
            relation = apply_pivot(self, relation, pivot, parts)
        alias = node.args.get("alias")
        if isinstance(alias, exp.TableAlias):
            relation = relation.rename([column.name for column in alias.args.get("columns") or ()])
            parts = (alias.name,) if alias.name else parts
        self.count(len(relation.columns))
        return ScopeSource(parts, relation)

    def _item(self, node: exp.Expr, scope: NameScope, outer: NameScope) -> tuple[SqlRelation, tuple[str, ...]]:
        if isinstance(node, exp.Table):
            return self._table(node, scope)
        if isinstance(node, exp.Pivot):
            source = self.find_source(node.this, scope, outer)
            return apply_pivot(self, source.relation, node, source.parts), ()
        if isinstance(node, exp.Subquery | exp.Paren):
            return self._in_parentheses(node.this, scope, outer), ()
        if isinstance(node, exp.Lateral):
            return self._lateral(node, scope), ()
        if isinstance(node, exp.Unnest):
            return self._unnest(node, scope), ("unnest",)
        if isinstance(node, exp.Values):
            return self._values(node, scope), ()
        return (self.relation(node, scope) if isinstance(node, exp.Query) else UNKNOWN), ()

    def _in_parentheses(self, inner: exp.Expr, scope: NameScope, outer: NameScope) -> SqlRelation:
        if isinstance(inner, exp.Query) and not isinstance(inner, exp.Subquery):
            return self.relation(inner, scope)
        inside = outer.inner()
        influence = self.add(inner, inside)
        return SqlRelation(tuple(expand_star(inside, inside.sources)), influence)

    def _table(self, node: exp.Table, scope: NameScope) -> tuple[SqlRelation, tuple[str, ...]]:
        if not isinstance(node.this, exp.Identifier | exp.Dot):
            return self._function(node.this, scope), ()
        parts = tuple(part.name for part in node.parts)
        found = self.named_query(parts[0]) if len(parts) == 1 else None
        if found is not None:
            return found, parts
        dataset = self._lookup(parts)
        if dataset is None and len(parts) == 1 and is_file_name(parts[0]):
            dataset = self._files(parts[0])
            return self._of([dataset]), (parts[0].rpartition("/")[2].partition(".")[0],)
        return self._of([dataset]), parts

    def _of(self, datasets: Sequence[SqlDataset | None]) -> SqlRelation:
        known = [dataset for dataset in datasets if dataset is not None]
        self.inputs |= dict.fromkeys(known)
        return build_base_relation(known[0]) if len(known) == len(datasets) == 1 else UNKNOWN

    def _function(self, node: exp.Expr | None, scope: NameScope) -> SqlRelation:
        if node is None or not isinstance(node, exp.Func):
            return UNKNOWN
        if is_file_reader(node):
            return self._of([self._files(path) for path in _find_paths(node)] or [None])
        arguments = [_find_argument(expression) for expression in node.iter_expressions()]
        flow = pass_through(self.all_of(arguments, scope), FlowSubtype.TRANSFORMATION)
        return SqlRelation((SqlColumn(None, flow) if isinstance(node, _SERIES) else OpenColumns(flow=flow),), NO_FLOW)

    def _lateral(self, node: exp.Lateral, scope: NameScope) -> SqlRelation:
        inner = node.this
        if isinstance(inner, exp.Subquery):
            return self.relation(inner.this, scope)
        if isinstance(inner, exp.Unnest):
            return self._unnest(inner, scope)
        flow = pass_through(self.flow(inner, scope), FlowSubtype.TRANSFORMATION)
        alias = node.args.get("alias")
        names = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
        return SqlRelation(
            tuple(SqlColumn(name.name, flow) for name in names) if names else (OpenColumns(flow=flow),), NO_FLOW
        )

    def _unnest(self, node: exp.Unnest, scope: NameScope) -> SqlRelation:
        flows = [
            pass_through(self.flow(expression, scope), FlowSubtype.TRANSFORMATION) for expression in node.expressions
        ]
        alias, offset = node.args.get("alias"), node.args.get("offset")
        names = [column.name for column in alias.args.get("columns") or ()] if isinstance(alias, exp.TableAlias) else []
        if len(names) > len(flows):
            flows = [merge_flows(flows)] * len(names)
        columns = [SqlColumn("unnest", flow) for flow in flows]
        if offset:
            columns.append(SqlColumn(offset.name if isinstance(offset, exp.Identifier) else None, NO_FLOW))
        return SqlRelation(tuple(columns), NO_FLOW)

    def _values(self, node: exp.Values, scope: NameScope) -> SqlRelation:
        rows = [
            expression.expressions if isinstance(expression, exp.Tuple) else [expression]
            for expression in node.expressions
        ]
        self.count(sum(map(len, rows)))
        width = max(map(len, rows), default=0)
        by_column = [[row[at] for row in rows if at < len(row)] for at in range(width)]
        return SqlRelation(tuple(SqlColumn(None, self.all_of(cells, scope)) for cells in by_column), NO_FLOW)

    def _join(self, node: exp.Join, scope: NameScope) -> Flow:
        count = len(scope.sources)
        influence = self.add(node.this, scope)
        left, right = scope.sources[:count], scope.sources[count:]
        names = [column.name for column in node.args.get("using") or ()]
        if (node.args.get("method") or "").upper() == "NATURAL":
            names = _find_common(left, right, self.fold)
        on = node.args.get("on")
        by = [NO_FLOW if on is None else self.flow(on, scope)]
        sides = NameScope(self.fold, left, shared=scope.shared), NameScope(self.fold, right)
        by += [self._use(name, scope, sides, (node.args.get("side") or "").upper()) for name in names]
        hidden = frozenset(map(self.fold, names))
        scope.sources[count:] = [replace(source, hidden=source.hidden | hidden) for source in right]
        if (node.args.get("kind") or "").upper() in {"SEMI", "ANTI"}:
            del scope.sources[count:]
        return merge_flows([influence, build_deciding_flow(merge_flows(by), FlowSubtype.JOIN)])

    def _use(self, name: str, scope: NameScope, sides: tuple[NameScope, NameScope], outer: str) -> Flow:
        """Merge a column of USING; return the flow that decides about the join."""
        self.count(len(scope.sources))
        left, right = sides[0].find([name]), sides[1].find([name])
        if outer in {"FULL", "RIGHT"}:
            scope.shared[self.fold(name)] = right if outer == "RIGHT" else merge_coalesced([left, right])
        return merge_flows([left, right])


def build_base_relation(dataset: SqlDataset) -> SqlRelation:
    """Build the relation of a table."""
    if dataset.columns is None:
        return SqlRelation((OpenColumns(dataset),), NO_FLOW)
    same = frozenset({FlowEffect(FlowSubtype.IDENTITY)})
    return SqlRelation(
        tuple(SqlColumn(column, {ColumnOrigin(dataset, column): same}) for column in dataset.columns), NO_FLOW
    )


def _find_paths(node: exp.Func) -> list[str]:
    """Find the files that a call reads: its first unnamed argument, a text or a list of texts."""
    arguments = [node.this] if isinstance(node.this, exp.Expr) else []
    arguments += node.expressions
    first = next((argument for argument in arguments if not isinstance(argument, _NAMED)), None)
    found = first.expressions if isinstance(first, exp.Array | exp.List) else [first]
    texts = [literal.this for literal in found if isinstance(literal, exp.Literal) and literal.is_string]
    return texts if len(texts) == len(found) else []


def _find_argument(node: exp.Expr) -> exp.Expr:
    """Return the value of an argument, without its name, which is no column."""
    return node.expression if isinstance(node, _NAMED) else node


def _find_common(left: Sequence[ScopeSource], right: Sequence[ScopeSource], fold: Fold) -> list[str]:
    """Find the columns of a NATURAL join."""
    if not all(is_closed(joined.relation) for joined in (*left, *right)):
        return []
    others = {fold(column.name or "") for source in right for column in source.relation.known or ()}
    return [
        column.name
        for source in left
        for column in source.relation.known or ()
        if column.name is not None and fold(column.name) in others and fold(column.name) not in source.hidden
    ]
