"""PURE. Read the lineage of SQL statements from their text and known tables, and build its OpenLineage facet."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckicelake.lineage.openlineage.names import PRODUCER
from duckicelake.lineage.sql.dialects import SqlDialect, find_dialect
from duckicelake.lineage.sql.expressions import SqlTooComplexError
from duckicelake.lineage.sql.functions import name_file_dataset
from duckicelake.lineage.sql.model import (
    NO_FLOW,
    ColumnOrigin,
    Fields,
    Files,
    Flow,
    FlowEffect,
    FlowSubtype,
    Lookup,
    OpenColumns,
    SqlColumn,
    SqlDataset,
    SqlRelation,
    StatementLineage,
    build_deciding_flow,
    match_by_name,
    match_by_position,
    merge_fields,
    merge_flows,
    name_all,
)
from duckicelake.lineage.sql.queries import QueryReader
from duckicelake.lineage.sql.scopes import Fold, NameScope, ScopeSource, fold_ascii
from duckicelake.lineage.sql.sources import build_base_relation


class StatementReader:
    """Reads one statement."""

    def __init__(self, fold: Fold, lookup: Lookup, files: Files) -> None:
        self.fold, self._lookup, self._files = fold, lookup, files
        self.queries = QueryReader(fold, lookup, files)

    def lineage(self, node: exp.Expr, names: Sequence[str] | None = None) -> StatementLineage | None:
        """Read a statement's lineage; None if it neither reads nor writes.

        names: of a query's columns, if known.
        """
        if isinstance(node, exp.Query | exp.Values | exp.Pivot):
            relation = self.queries.relation(node, NameScope(self.fold))
            return self._build_write(
                None, match_by_position(relation, names) if names else match_by_name(relation), relation.influence
            )
        for kind, read in self._readers.items():
            if isinstance(node, kind):
                return read(self, node)
        return None

    def _create(self, node: exp.Create) -> StatementLineage | None:
        query = node.expression
        if (node.args.get("kind") or "").upper() not in {"TABLE", "VIEW"} or not isinstance(query, exp.Query):
            return None
        target, names = _find_target(node.this)
        relation = self.queries.relation(query, NameScope(self.fold)).rename(names)
        output = self._output(target)
        columns = output.columns if output is not None else None
        fields = name_all(relation, columns) if columns else match_by_name(relation)
        return self._build_write(output, fields, relation.influence)

    def _insert(self, node: exp.Insert) -> StatementLineage | None:
        target, names = _find_target(node.this)
        output = self._output(target)
        query = node.expression
        if query is None:
            return self._build_write(output, {}, NO_FLOW)
        scope = NameScope(self.fold)
        if node.args.get("with_"):
            self.queries.define(node.args["with_"], scope)
        relation = self.queries.relation(query, scope)
        if not names and output is not None and not node.args.get("partition"):
            names = list(output.columns or ())
        if node.args.get("by_name"):
            fields = self._spell_as_output(match_by_name(relation), output)
        else:
            fields = self._spell_as_output(match_by_position(relation, names), output) if names else {}
        updated, influence = self._on_conflict(node, output, target, relation.rename(names))
        return self._build_write(output, merge_fields(fields, updated), merge_flows([relation.influence, influence]))

    def _on_conflict(
        self, node: exp.Insert, output: SqlDataset | None, target: exp.Table | None, new: SqlRelation
    ) -> tuple[Fields, Flow]:
        conflict = node.args.get("conflict")
        if conflict is None or target is None:
            return {}, NO_FLOW
        scope = NameScope(self.fold, [self._as_source(target, output), ScopeSource(("excluded",), new)])
        where = conflict.args.get("where")
        influence = build_deciding_flow(self.queries.flow(where.this, scope), FlowSubtype.FILTER) if where else NO_FLOW
        return self._read_assignments(conflict.expressions, scope, output), influence

    def _update(self, node: exp.Update) -> StatementLineage | None:
        if not isinstance(node.this, exp.Table):
            return None
        output, scope = self._find_changed_table(node.this, node)
        influence = [self._joined_to(node.this, scope), self.queries.read_from(node, scope), self._where(node, scope)]
        return self._build_write(
            output, self._read_assignments(node.expressions, scope, output), merge_flows(influence)
        )

    def _delete(self, node: exp.Delete) -> StatementLineage | None:
        if not isinstance(node.this, exp.Table):
            return None
        output, scope = self._find_changed_table(node.this, node)
        influence = [self.queries.add(used, scope) for used in node.args.get("using") or ()]
        return self._build_write(output, {}, merge_flows([*influence, self._where(node, scope)]))

    def _merge(self, node: exp.Merge) -> StatementLineage | None:
        if not isinstance(node.this, exp.Table):
            return None
        output, scope = self._find_changed_table(node.this, node)
        influence = [self.queries.add(node.args["using"], scope)]
        by = [self.queries.flow(node.args["on"], scope)] if node.args.get("on") else []
        for condition in node.args.get("using_cond") or ():
            by += [NameScope(self.fold, [source]).find([condition.name]) for source in scope.sources]
        influence.append(build_deciding_flow(merge_flows(by), FlowSubtype.JOIN))
        fields: Fields = {}
        for when in node.args["whens"].expressions:
            if when.args.get("condition"):
                influence.append(
                    build_deciding_flow(self.queries.flow(when.args["condition"], scope), FlowSubtype.FILTER)
                )
            fields = merge_fields(fields, self._when(when.args["then"], scope, output))
        return self._build_write(output, fields, merge_flows(influence))

    def _when(self, then: exp.Expr, scope: NameScope, output: SqlDataset | None) -> Fields:
        """Read one WHEN of a MERGE. If it names no columns it writes all, by position or name."""
        new = NameScope(self.fold, scope.sources[1:], outer=scope.outer)
        if isinstance(then, exp.Update):
            named = [expression for expression in then.expressions or () if isinstance(expression, exp.EQ)]
            if named or isinstance(then.expressions, exp.Star):
                return self._read_assignments(named, scope, output)
            return self._alike(new, output)
        if not isinstance(then, exp.Insert):
            return {}
        columns = then.this.expressions if isinstance(then.this, exp.Tuple) else []
        names = [column.name for column in columns if isinstance(column, exp.Column | exp.Identifier)]
        values = then.expression.expressions if isinstance(then.expression, exp.Tuple) else []
        if not values:
            return self._alike(new, output)
        names = names or list(output.columns or () if output is not None else ())
        if len(names) != len(values):
            return {}
        flows = [self.queries.flow(value, new) for value in values]
        return self._spell_as_output(dict(zip(names, flows, strict=True)), output)

    def _alike(self, new: NameScope, output: SqlDataset | None) -> Fields:
        """Match columns by name, as `UPDATE *` and `INSERT *` do."""
        columns = output.columns if output is not None else None
        return {name: flow for name in columns or () if (flow := new.find([name]))}

    def _copy(self, node: exp.Copy) -> StatementLineage | None:
        files = [
            self._files(literal.this) for literal in node.args.get("files") or () if isinstance(literal, exp.Literal)
        ]
        file = files[0] if len(files) == 1 else None
        target, names = _find_target(node.this)
        if node.args.get("kind"):
            self.queries.inputs |= dict.fromkeys(dataset for dataset in files if dataset is not None)
            return self._build_write(self._output(target), {}, NO_FLOW)
        if target is None:
            query = node.this
            relation = self.queries.relation(
                query.this if isinstance(query, exp.Subquery) else query, NameScope(self.fold)
            )
        else:
            relation = self.queries.find_source(target, NameScope(self.fold), NameScope(self.fold)).relation
            if names:
                relation = _choose_columns(relation, names, self.fold)
        return self._build_write(file, match_by_name(relation), relation.influence)

    def _find_changed_table(self, target: exp.Table, node: exp.Expr) -> tuple[SqlDataset | None, NameScope]:
        """Find the table whose rows a statement changes, and the names in its scope.

        The table's own names are first.
        """
        output, scope = self._output(target), self._with(node)
        scope.sources.append(self._as_source(target, output))
        return output, scope

    def _with(self, node: exp.Expr) -> NameScope:
        scope = NameScope(self.fold)
        if node.args.get("with_"):
            self.queries.define(node.args["with_"], scope)
        return scope

    def _where(self, node: exp.Expr, scope: NameScope) -> Flow:
        where = node.args.get("where")
        return (
            NO_FLOW if where is None else build_deciding_flow(self.queries.flow(where.this, scope), FlowSubtype.FILTER)
        )

    def _joined_to(self, target: exp.Table, scope: NameScope) -> Flow:
        """Find the flow of tables joined to the table of an UPDATE, as some dialects allow."""
        return self.queries.read_from(exp.Select(joins=target.args.get("joins")), scope)

    def _read_assignments(self, nodes: Iterable[exp.Expr], scope: NameScope, output: SqlDataset | None) -> Fields:
        fields: Fields = {}
        for node in nodes:
            if isinstance(node, exp.EQ) and isinstance(node.this, exp.Column):
                parts = [part.name for part in node.this.parts]
                fields = merge_fields(fields, {parts[-1]: self.queries.flow(node.expression, scope)})
        return self._spell_as_output(fields, output)

    def _spell_as_output(self, fields: Mapping[str, Flow], output: SqlDataset | None) -> Fields:
        """Rename fields to the table's spelling of their names."""
        columns = output.columns if output is not None else None
        if columns is None:
            return dict(fields)
        known = {self.fold(column): column for column in columns}
        return {known[self.fold(name)]: flow for name, flow in fields.items() if self.fold(name) in known}

    def _output(self, target: exp.Table | None) -> SqlDataset | None:
        if target is None or not isinstance(target.this, exp.Identifier | exp.Dot):
            return None
        return self._lookup(tuple(part.name for part in target.parts))

    def _as_source(self, target: exp.Table, output: SqlDataset | None) -> ScopeSource:
        parts = (target.alias,) if target.alias else tuple(part.name for part in target.parts)
        return ScopeSource(
            parts, SqlRelation((OpenColumns(flow=NO_FLOW),), NO_FLOW) if output is None else build_base_relation(output)
        )

    def _build_write(self, output: SqlDataset | None, fields: Fields, influence: Flow) -> StatementLineage:
        """Build a statement's lineage. The written table is also an input if values come from it."""
        inputs = self.queries.inputs
        read = [origin.dataset for flow in (*fields.values(), influence) for origin in flow]
        return StatementLineage(tuple({**inputs, **dict.fromkeys(read)}), output, fields, influence)

    _readers: ClassVar[dict[type[exp.Expr], Callable[..., StatementLineage | None]]] = {
        exp.Create: _create,
        exp.Insert: _insert,
        exp.Update: _update,
        exp.Delete: _delete,
        exp.Merge: _merge,
        exp.Copy: _copy,
    }


def _find_target(node: exp.Expr) -> tuple[exp.Table | None, list[str]]:
    """Find the written table, and the columns that the statement names."""
    if isinstance(node, exp.Schema):
        names = [expression.name for expression in node.expressions]
        return (node.this if isinstance(node.this, exp.Table) else None), names
    return (node if isinstance(node, exp.Table) else None), []


def _choose_columns(relation: SqlRelation, names: Sequence[str], fold: Fold) -> SqlRelation:
    scope = NameScope(fold, [ScopeSource((), relation)])
    return SqlRelation(tuple(SqlColumn(name, scope.find([name])) for name in names), relation.influence)


_COLUMN_LINEAGE: Final = (
    "https://openlineage.io/spec/facets/1-2-0/ColumnLineageDatasetFacet.json#/$defs/ColumnLineageDatasetFacet"
)
LAKE: Final = "__lake__"
"""The catalog's name in the definition of a DuckLake view, which leaves it open."""
_UNREADABLE: Final = (SqlglotError, RecursionError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Errors of sqlglot for unusual texts, and of code that meets an unexpected tree."""


def build_column_lineage(lineage: StatementLineage) -> dict[str, Any] | None:
    """Build the output's column lineage facet; None if no input column is known."""
    fields = {name: {"inputFields": _build_inputs(flow)} for name, flow in (lineage.fields or {}).items() if flow}
    influence = lineage.influence or {}
    if not fields and not influence:
        return None
    facet = {"_producer": PRODUCER, "_schemaURL": _COLUMN_LINEAGE, "fields": fields}
    return {**facet, "dataset": _build_inputs(influence)} if influence else facet


def _build_inputs(flow: Flow) -> list[dict[str, Any]]:
    return [_build_input(origin, flow[origin]) for origin in sorted(flow, key=_sort_key)]


def _sort_key(origin: ColumnOrigin) -> tuple[str, str, str]:
    return origin.dataset.namespace, origin.dataset.name, origin.column


def _build_input(origin: ColumnOrigin, effects: Iterable[FlowEffect]) -> dict[str, Any]:
    return {
        "namespace": origin.dataset.namespace,
        "name": origin.dataset.name,
        "field": origin.column,
        "transformations": [_build_transformation(effect) for effect in sorted(effects)],
    }


def _build_transformation(effect: FlowEffect) -> dict[str, Any]:
    kind = "DIRECT" if effect.is_direct else "INDIRECT"
    return {"type": kind, "subtype": effect.subtype.value, "description": "", "masking": effect.masking}


def read_view_lineage(
    sql: str, dialect: str, view: SqlDataset, lookup: Lookup, *, files: Files = name_file_dataset
) -> StatementLineage | None:
    """Read a view's lineage from its query or its CREATE VIEW; None if it can't be read.

    Tables and views have the user's names: a view in the query isn't expanded. The view's columns name the query's, in
    order.
    """
    text = sql.replace("{DUCKLAKE_CATALOG}", LAKE)

    def read() -> StatementLineage | None:
        node = parse_statement(text, dialect)
        if node is None:
            return None
        if isinstance(node, exp.Create):
            target = tuple(part.name for part in node.find(exp.Table).parts)  # type: ignore[union-attr]
            found = _build_reader(dialect, lambda parts: view if parts == target else lookup(parts), files).lineage(
                node
            )
        else:
            found = _build_reader(dialect, lookup, files).lineage(node, view.columns)
        return None if found is None else StatementLineage(found.inputs, view, found.fields, found.influence)

    return _read_guarded(read)


def parse_statement(sql: str, dialect: str) -> exp.Expr | None:
    """Parse a statement; None for several statements, none, and those too long or nested too deep."""
    found = find_dialect(dialect)
    try:
        return None if found is None else found.parse(sql)
    except _UNREADABLE:
        return None


def read_lineage(
    tree: exp.Expr, dialect: str, lookup: Lookup, files: Files = name_file_dataset
) -> StatementLineage | None:
    """Read the lineage of a parsed statement, and of its columns.

    None if it can't be read.
    """
    return _read_guarded(lambda: _build_reader(dialect, lookup, files).lineage(tree))


def _build_reader(dialect: str, lookup: Lookup, files: Files) -> StatementReader:
    fold = fold_ascii if find_dialect(dialect) is SqlDialect.DUCKDB else str.lower
    return StatementReader(fold, lookup, files)


def _read_guarded(read: Callable[[], StatementLineage | None]) -> StatementLineage | None:
    try:
        return read()
    except (*_UNREADABLE, SqlTooComplexError):
        return None
