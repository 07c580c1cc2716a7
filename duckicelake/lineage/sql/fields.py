"""PURE. Columns of what a statement writes, by the names that they have there."""

from collections import Counter
from collections.abc import Sequence

from duckicelake.lineage.sql.model import NOTHING, Column, Flow, Relation, Rest, merged

Fields = dict[str, Flow]


def by_name(relation: Relation) -> Fields:
    """The columns whose names are known; those of one name aren't."""
    times = Counter(each.name for each in relation.columns if isinstance(each, Column))
    columns = (each for each in relation.columns if isinstance(each, Column))
    return {each.name: each.flow for each in columns if each.name is not None and times[each.name] == 1}


def by_position(relation: Relation, names: Sequence[str]) -> Fields:
    """The columns under other names, as far as each is known to be the one at its place."""
    if relation.known is not None and len(relation.columns) != len(names):
        return {}
    fields: Fields = {}
    for name, column in zip(names, relation.columns, strict=False):
        if isinstance(column, Rest):
            break
        fields[name] = column.flow
    return fields


def all_named(relation: Relation, names: Sequence[str]) -> Fields:
    """The columns of what is made of a query: those that nobody knew, too, if they are all of one dataset's."""
    columns = relation.columns
    if len(columns) == 1 and isinstance(columns[0], Rest) and columns[0].dataset is not None:
        return {name: columns[0].named(name) for name in names}
    return by_position(relation, names)


def together(fields: Fields, others: Fields) -> Fields:
    """What flows into each, by either way."""
    return {name: merged([fields.get(name, NOTHING), others.get(name, NOTHING)]) for name in {**fields, **others}}
