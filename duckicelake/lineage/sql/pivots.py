"""PURE. PIVOT and UNPIVOT: columns that become rows, and rows that become columns whose names only the data know."""

from collections.abc import Sequence

from sqlglot import exp

from duckicelake.lineage.sql.expressions import ExpressionReader
from duckicelake.lineage.sql.model import NOTHING, Column, Flow, Relation, Rest, Subtype, deciding, merged, through
from duckicelake.lineage.sql.scopes import Scope, Source, is_closed

_UNKNOWN = (Rest(flow=NOTHING),)


def pivoted(reader: ExpressionReader, relation: Relation, node: exp.Pivot, parts: Sequence[str]) -> Relation:
    """The relation after one PIVOT or UNPIVOT."""
    scope = Scope(reader.fold, [Source(tuple(parts), relation)])
    if not is_closed(relation):
        return Relation(_UNKNOWN, relation.influence)
    return _unpivot(relation, node, scope) if node.args.get("unpivot") else _pivot(reader, relation, node, scope)


def _pivot(reader: ExpressionReader, relation: Relation, node: exp.Pivot, scope: Scope) -> Relation:
    fields, group = node.args.get("fields"), node.args.get("group")
    values = node.expressions if fields else node.args.get("using") or []
    spread = [each.this if isinstance(each, exp.In) else each for each in fields or node.expressions]
    used = {column.name for each in [*values, *spread] for column in each.find_all(exp.Column)}
    kept = [each for each in relation.known or () if not _among(each, used, scope)]
    if group is not None:
        kept = [Column(each.alias_or_name or None, reader.flow(each, scope)) for each in group.expressions]
    chosen = deciding(reader.all_of(spread, scope), Subtype.CONDITIONAL)
    cells = merged([through(reader.all_of(values, scope), Subtype.AGGREGATION), chosen])
    grouped = deciding(merged(each.flow for each in kept), Subtype.GROUP_BY)
    return Relation((*kept, Rest(flow=cells)), merged([relation.influence, grouped]))


def _unpivot(relation: Relation, node: exp.Pivot, scope: Scope) -> Relation:
    fields, into = node.args.get("fields"), node.args.get("into")
    if fields:
        columns, names, label = fields[0].expressions, [each.name for each in node.expressions], fields[0].this.name
    elif into is not None:
        columns, names, label = node.expressions, [each.name for each in into.expressions], into.this.name
    else:
        columns, names, label = node.expressions, ["value"], "name"
    if len(names) != 1 or any(not isinstance(each, exp.Column | exp.Identifier) for each in columns):
        return Relation(_UNKNOWN, relation.influence)
    used = {each.name for each in columns}
    flow: Flow = through(merged(scope.find([each]) for each in used), Subtype.TRANSFORMATION)
    kept = [each for each in relation.known or () if not _among(each, used, scope)]
    return Relation((*kept, Column(label, NOTHING), Column(names[0], flow)), relation.influence)


def _among(column: Column, names: set[str], scope: Scope) -> bool:
    return scope.fold(column.name or "") in {scope.fold(each) for each in names}
