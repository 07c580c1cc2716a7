"""PURE. Flows of columns: where values come from, what else decides about them, and how fields match."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True)
class SqlDataset:
    """A table, view or file by its OpenLineage name; `columns` in their order, None where they are unknown."""

    namespace: str
    name: str
    columns: tuple[str, ...] | None = field(default=None, compare=False)


Lookup = Callable[[tuple[str, ...]], SqlDataset | None]
"""Gives what a name stands for, its parts as they are written; None for what isn't known, and so isn't claimed."""

Files = Callable[[str], SqlDataset | None]
"""Gives the dataset that a path is."""


class FlowSubtype(StrEnum):
    """How an input column takes part; the first three hand its values on, the others decide about rows or values."""

    IDENTITY = "IDENTITY"
    TRANSFORMATION = "TRANSFORMATION"
    AGGREGATION = "AGGREGATION"
    JOIN = "JOIN"
    FILTER = "FILTER"
    GROUP_BY = "GROUP_BY"
    SORT = "SORT"
    WINDOW = "WINDOW"
    CONDITIONAL = "CONDITIONAL"


_DIRECT: Final = (FlowSubtype.IDENTITY, FlowSubtype.TRANSFORMATION, FlowSubtype.AGGREGATION)


@dataclass(frozen=True, slots=True, order=True)
class FlowEffect:
    """One of OpenLineage's transformations; `masking` if the result hides the value."""

    subtype: FlowSubtype
    masking: bool = False

    @property
    def is_direct(self) -> bool:
        """Whether values are passed on."""
        return self.subtype in _DIRECT


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """A column of an input."""

    dataset: SqlDataset
    column: str


Flow = Mapping[ColumnOrigin, frozenset[FlowEffect]]
"""What flows into something: columns of inputs, and how each does."""

NO_FLOW: Final[Flow] = {}


def merge_flows(flows: Iterable[Flow]) -> Flow:
    """Return all that flows in any of them."""
    result: dict[ColumnOrigin, frozenset[FlowEffect]] = {}
    for flow in flows:
        for origin, effects in flow.items():
            result[origin] = result.get(origin, frozenset()) | effects
    return result


def pass_through(flow: Flow, subtype: FlowSubtype, *, masking: bool = False) -> Flow:
    """Return the flow after one more direct step.

    The step that changes most names it, what masked before still does.
    """
    return {
        origin: frozenset(_chain_effects(effect, subtype, masking) for effect in effects)
        for origin, effects in flow.items()
    }


def build_deciding_flow(flow: Flow, subtype: FlowSubtype) -> Flow:
    """Return the flow of what isn't handed on, but decides."""
    return dict.fromkeys(flow, frozenset({FlowEffect(subtype)}))


def _chain_effects(effect: FlowEffect, subtype: FlowSubtype, masking: bool) -> FlowEffect:
    if not effect.is_direct:
        return effect
    return FlowEffect(max(effect.subtype, subtype, key=_DIRECT.index), effect.masking or masking)


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column of a relation; its name is None where only the engine knows how it calls the expression."""

    name: str | None
    flow: Flow


@dataclass(frozen=True, slots=True)
class OpenColumns:
    """Unknown columns, of any number: all of a dataset, or with the flow that each of them has."""

    dataset: SqlDataset | None = None
    flow: Flow | None = None

    def find_flow(self, name: str) -> Flow:
        """Return the flow of the one that has the name."""
        if self.dataset is not None:
            return {ColumnOrigin(self.dataset, name): frozenset({FlowEffect(FlowSubtype.IDENTITY)})}
        return self.flow or NO_FLOW


@dataclass(frozen=True, slots=True)
class SqlRelation:
    """What a query gives; `influence` decides about all of its rows."""

    columns: tuple[SqlColumn | OpenColumns, ...]
    influence: Flow

    @property
    def known(self) -> tuple[SqlColumn, ...] | None:
        """All columns, None if there are others."""
        known = tuple(column for column in self.columns if isinstance(column, SqlColumn))
        return known if len(known) == len(self.columns) else None

    def flows(self) -> Flow:
        """Return all that flows into any column."""
        return merge_flows(column.flow for column in self.columns if isinstance(column, SqlColumn))

    def rename(self, names: Sequence[str]) -> "SqlRelation":
        """Return the relation with names for its first columns."""
        columns = list(self.columns)
        for at, name in enumerate(names[: len(columns)]):
            column = columns[at]
            if isinstance(column, OpenColumns):
                columns[at:] = [OpenColumns(flow=column.flow or NO_FLOW)]
                break
            columns[at] = replace(column, name=name)
        return replace(self, columns=tuple(columns))


@dataclass(frozen=True, slots=True)
class StatementLineage:
    """What a statement read and wrote.

    `fields` are the output's columns that are known, `influence` decides about all its rows.
    """

    inputs: tuple[SqlDataset, ...]
    output: SqlDataset | None = None
    fields: Mapping[str, Flow] | None = None
    influence: Flow | None = None


Fields = dict[str, Flow]


def match_by_name(relation: SqlRelation) -> Fields:
    """Return the columns whose names are known; those of one name aren't."""
    times = Counter(column.name for column in relation.columns if isinstance(column, SqlColumn))
    columns = (column for column in relation.columns if isinstance(column, SqlColumn))
    return {column.name: column.flow for column in columns if column.name is not None and times[column.name] == 1}


def match_by_position(relation: SqlRelation, names: Sequence[str]) -> Fields:
    """Return the columns under other names, as far as each is known to be the one at its place."""
    if relation.known is not None and len(relation.columns) != len(names):
        return {}
    fields: Fields = {}
    for name, column in zip(names, relation.columns, strict=False):
        if isinstance(column, OpenColumns):
            break
        fields[name] = column.flow
    return fields


def name_all(relation: SqlRelation, names: Sequence[str]) -> Fields:
    """Return the columns of what is made of a query: unknown ones, too, if they are all of one dataset's."""
    columns = relation.columns
    if len(columns) == 1 and isinstance(columns[0], OpenColumns) and columns[0].dataset is not None:
        return {name: columns[0].find_flow(name) for name in names}
    return match_by_position(relation, names)


def merge_fields(fields: Fields, others: Fields) -> Fields:
    """Return what flows into each, by either way."""
    return {name: merge_flows([fields.get(name, NO_FLOW), others.get(name, NO_FLOW)]) for name in {**fields, **others}}
