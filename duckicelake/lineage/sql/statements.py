"""PURE. What a statement writes, and what flows there."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from sqlglot import exp

from duckicelake.lineage.sql.fields import Fields, all_named, by_name, by_position, together
from duckicelake.lineage.sql.model import (
    NOTHING,
    Column,
    Dataset,
    Files,
    Flow,
    Lineage,
    Lookup,
    Relation,
    Rest,
    Subtype,
    deciding,
    merged,
)
from duckicelake.lineage.sql.queries import QueryReader
from duckicelake.lineage.sql.scopes import Fold, Scope, Source
from duckicelake.lineage.sql.sources import base_relation


class StatementReader:
    """Reads one statement."""

    def __init__(self, fold: Fold, lookup: Lookup, files: Files) -> None:
        self.fold, self._lookup, self._files = fold, lookup, files
        self.queries = QueryReader(fold, lookup, files)

    def lineage(self, node: exp.Expr, names: Sequence[str] | None = None) -> Lineage | None:
        """What the statement reads and writes; None for what does neither.

        `names` are those of the columns that a query gives, where somebody knows them.
        """
        if isinstance(node, exp.Query | exp.Values | exp.Pivot):
            relation = self.queries.relation(node, Scope(self.fold))
            return self._written(None, by_position(relation, names) if names else by_name(relation), relation.influence)
        for kind, read in self._readers.items():
            if isinstance(node, kind):
                return read(self, node)
        return None

    def _create(self, node: exp.Create) -> Lineage | None:
        query = node.expression
        if (node.args.get("kind") or "").upper() not in {"TABLE", "VIEW"} or not isinstance(query, exp.Query):
            return None
        target, names = _target(node.this)
        relation = self.queries.relation(query, Scope(self.fold)).renamed(names)
        output = self._output(target)
        columns = output.columns if output is not None else None
        fields = all_named(relation, columns) if columns else by_name(relation)
        return self._written(output, fields, relation.influence)

    def _insert(self, node: exp.Insert) -> Lineage | None:
        target, names = _target(node.this)
        output = self._output(target)
        query = node.expression
        if query is None:
            return self._written(output, {}, NOTHING)
        scope = Scope(self.fold)
        if node.args.get("with_"):
            self.queries.define(node.args["with_"], scope)
        relation = self.queries.relation(query, scope)
        if not names and output is not None and not node.args.get("partition"):
            names = list(output.columns or ())
        if node.args.get("by_name"):
            fields = self._spelled(by_name(relation), output)
        else:
            fields = self._spelled(by_position(relation, names), output) if names else {}
        updated, influence = self._on_conflict(node, output, target, relation.renamed(names))
        return self._written(output, together(fields, updated), merged([relation.influence, influence]))

    def _on_conflict(
        self, node: exp.Insert, output: Dataset | None, target: exp.Table | None, new: Relation
    ) -> tuple[Fields, Flow]:
        conflict = node.args.get("conflict")
        if conflict is None or target is None:
            return {}, NOTHING
        scope = Scope(self.fold, [self._as_source(target, output), Source(("excluded",), new)])
        where = conflict.args.get("where")
        influence = deciding(self.queries.flow(where.this, scope), Subtype.FILTER) if where else NOTHING
        return self._assigned(conflict.expressions, scope, output), influence

    def _update(self, node: exp.Update) -> Lineage | None:
        if not isinstance(node.this, exp.Table):
            return None
        output, scope = self._aimed(node.this, node)
        influence = [self._joined_to(node.this, scope), self.queries.read_from(node, scope), self._where(node, scope)]
        return self._written(output, self._assigned(node.expressions, scope, output), merged(influence))

    def _delete(self, node: exp.Delete) -> Lineage | None:
        if not isinstance(node.this, exp.Table):
            return None
        output, scope = self._aimed(node.this, node)
        influence = [self.queries.add(each, scope) for each in node.args.get("using") or ()]
        return self._written(output, {}, merged([*influence, self._where(node, scope)]))

    def _merge(self, node: exp.Merge) -> Lineage | None:
        if not isinstance(node.this, exp.Table):
            return None
        output, scope = self._aimed(node.this, node)
        influence = [self.queries.add(node.args["using"], scope)]
        by = [self.queries.flow(node.args["on"], scope)] if node.args.get("on") else []
        for each in node.args.get("using_cond") or ():
            by += [Scope(self.fold, [source]).find([each.name]) for source in scope.sources]
        influence.append(deciding(merged(by), Subtype.JOIN))
        fields: Fields = {}
        for when in node.args["whens"].expressions:
            if when.args.get("condition"):
                influence.append(deciding(self.queries.flow(when.args["condition"], scope), Subtype.FILTER))
            fields = together(fields, self._when(when.args["then"], scope, output))
        return self._written(output, fields, merged(influence))

    def _when(self, then: exp.Expr, scope: Scope, output: Dataset | None) -> Fields:
        """What one WHEN of a MERGE writes; all columns, by position or by name, where it names none."""
        new = Scope(self.fold, scope.sources[1:], outer=scope.outer)
        if isinstance(then, exp.Update):
            named = [each for each in then.expressions or () if isinstance(each, exp.EQ)]
            if named or isinstance(then.expressions, exp.Star):
                return self._assigned(named, scope, output)
            return self._alike(new, output)
        if not isinstance(then, exp.Insert):
            return {}
        columns = then.this.expressions if isinstance(then.this, exp.Tuple) else []
        names = [each.name for each in columns if isinstance(each, exp.Column | exp.Identifier)]
        values = then.expression.expressions if isinstance(then.expression, exp.Tuple) else []
        if not values:
            return self._alike(new, output)
        names = names or list(output.columns or () if output is not None else ())
        if len(names) != len(values):
            return {}
        flows = [self.queries.flow(each, new) for each in values]
        return self._spelled(dict(zip(names, flows, strict=True)), output)

    def _alike(self, new: Scope, output: Dataset | None) -> Fields:
        """Columns of the same names, as `UPDATE *` and `INSERT *` take them."""
        columns = output.columns if output is not None else None
        return {name: flow for name in columns or () if (flow := new.find([name]))}

    def _copy(self, node: exp.Copy) -> Lineage | None:
        files = [self._files(each.this) for each in node.args.get("files") or () if isinstance(each, exp.Literal)]
        file = files[0] if len(files) == 1 else None
        target, names = _target(node.this)
        if node.args.get("kind"):
            self.queries.inputs |= dict.fromkeys(each for each in files if each is not None)
            return self._written(self._output(target), {}, NOTHING)
        if target is None:
            query = node.this
            relation = self.queries.relation(query.this if isinstance(query, exp.Subquery) else query, Scope(self.fold))
        else:
            relation = self.queries.source_of(target, Scope(self.fold), Scope(self.fold)).relation
            if names:
                relation = _chosen(relation, names, self.fold)
        return self._written(file, by_name(relation), relation.influence)

    def _aimed(self, target: exp.Table, node: exp.Expr) -> tuple[Dataset | None, Scope]:
        """The table that a statement changes rows of, and the names that hold in the statement: its own come first."""
        output, scope = self._output(target), self._with(node)
        scope.sources.append(self._as_source(target, output))
        return output, scope

    def _with(self, node: exp.Expr) -> Scope:
        scope = Scope(self.fold)
        if node.args.get("with_"):
            self.queries.define(node.args["with_"], scope)
        return scope

    def _where(self, node: exp.Expr, scope: Scope) -> Flow:
        where = node.args.get("where")
        return NOTHING if where is None else deciding(self.queries.flow(where.this, scope), Subtype.FILTER)

    def _joined_to(self, target: exp.Table, scope: Scope) -> Flow:
        """What is joined to the table that an UPDATE names; as some dialects let it."""
        return self.queries.read_from(exp.Select(joins=target.args.get("joins")), scope)

    def _assigned(self, nodes: Iterable[exp.Expr], scope: Scope, output: Dataset | None) -> Fields:
        fields: Fields = {}
        for each in nodes:
            if isinstance(each, exp.EQ) and isinstance(each.this, exp.Column):
                parts = [part.name for part in each.this.parts]
                fields = together(fields, {parts[-1]: self.queries.flow(each.expression, scope)})
        return self._spelled(fields, output)

    def _spelled(self, fields: Mapping[str, Flow], output: Dataset | None) -> Fields:
        """The fields with the names that the table has for them."""
        columns = output.columns if output is not None else None
        if columns is None:
            return dict(fields)
        known = {self.fold(each): each for each in columns}
        return {known[self.fold(name)]: flow for name, flow in fields.items() if self.fold(name) in known}

    def _output(self, target: exp.Table | None) -> Dataset | None:
        if target is None or not isinstance(target.this, exp.Identifier | exp.Dot):
            return None
        return self._lookup(tuple(each.name for each in target.parts))

    def _as_source(self, target: exp.Table, output: Dataset | None) -> Source:
        parts = (target.alias,) if target.alias else tuple(each.name for each in target.parts)
        return Source(parts, Relation((Rest(flow=NOTHING),), NOTHING) if output is None else base_relation(output))

    def _written(self, output: Dataset | None, fields: Fields, influence: Flow) -> Lineage:
        """The statement's lineage; a table that it writes is read as well if it's where something comes from."""
        inputs = self.queries.inputs
        read = [origin.dataset for flow in (*fields.values(), influence) for origin in flow]
        return Lineage(tuple({**inputs, **dict.fromkeys(read)}), output, fields, influence)

    _readers: ClassVar[dict[type[exp.Expr], Callable[..., Lineage | None]]] = {
        exp.Create: _create,
        exp.Insert: _insert,
        exp.Update: _update,
        exp.Delete: _delete,
        exp.Merge: _merge,
        exp.Copy: _copy,
    }


def _target(node: exp.Expr) -> tuple[exp.Table | None, list[str]]:
    """(the table that is written, the columns that the statement names)."""
    if isinstance(node, exp.Schema):
        names = [each.name for each in node.expressions]
        return (node.this if isinstance(node.this, exp.Table) else None), names
    return (node if isinstance(node, exp.Table) else None), []


def _chosen(relation: Relation, names: Sequence[str], fold: Fold) -> Relation:
    scope = Scope(fold, [Source((), relation)])
    return Relation(tuple(Column(each, scope.find([each])) for each in names), relation.influence)
