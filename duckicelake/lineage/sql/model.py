"""PURE. Flows of columns: where values come from, what else decides about them, and how fields match."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True)
class SqlDataset:
    """A table, view or file by its OpenLineage name. columns: in order, None if unknown."""

    namespace: str
    name: str
    columns: tuple[str, ...] | None = field(default=None, compare=False)


Lookup = Callable[[tuple[str, ...]], SqlDataset | None]
"""Finds the dataset of a name, given its parts as written; None if unknown."""

Files = Callable[[str], SqlDataset | None]
"""Finds the dataset of a path."""


class FlowSubtype(StrEnum):
    """The role of an input column. The first three pass its values on, the others decide about rows or values."""

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
    """An OpenLineage transformation. masking: the result hides the value."""

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
"""The sources of a value: columns of inputs, with the effects of each."""

NO_FLOW: Final[Flow] = {}


def merge_flows(flows: Iterable[Flow]) -> Flow:
    """Merge flows."""
    result: dict[ColumnOrigin, frozenset[FlowEffect]] = {}
    for flow in flows:
        for origin, effects in flow.items():
            result[origin] = result.get(origin, frozenset()) | effects
    return result


def pass_through(flow: Flow, subtype: FlowSubtype, *, masking: bool = False) -> Flow:
    """Extend a flow by one direct step.

    The step that changes most gives the name. Masking of earlier steps stays.
    """
    return {
        origin: frozenset(_chain_effects(effect, subtype, masking) for effect in effects)
        for origin, effects in flow.items()
    }


def build_deciding_flow(flow: Flow, subtype: FlowSubtype) -> Flow:
    """Build the flow of columns that decide, without passing values on."""
    return dict.fromkeys(flow, frozenset({FlowEffect(subtype)}))


def _chain_effects(effect: FlowEffect, subtype: FlowSubtype, masking: bool) -> FlowEffect:
    if not effect.is_direct:
        return effect
    return FlowEffect(max(effect.subtype, subtype, key=_DIRECT.index), effect.masking or masking)


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column of a relation. Its name is None if only the engine knows it."""

    name: str | None
    flow: Flow


@dataclass(frozen=True, slots=True)
class OpenColumns:
    """Unknown columns: all of a dataset, or with one flow for each."""

    dataset: SqlDataset | None = None
    flow: Flow | None = None

    def find_flow(self, name: str) -> Flow:
        """Find the flow of the column of a name."""
        if self.dataset is not None:
            return {ColumnOrigin(self.dataset, name): frozenset({FlowEffect(FlowSubtype.IDENTITY)})}
        return self.flow or NO_FLOW


@dataclass(frozen=True, slots=True)
class SqlRelation:
    """The result of a query. influence: decides about all of its rows."""

    columns: tuple[SqlColumn | OpenColumns, ...]
    influence: Flow

    @property
    def known(self) -> tuple[SqlColumn, ...] | None:
        """All columns, None if some are unknown."""
        known = tuple(column for column in self.columns if isinstance(column, SqlColumn))
        return known if len(known) == len(self.columns) else None

    def flows(self) -> Flow:
        """Merge the flows into all columns."""
        return merge_flows(column.flow for column in self.columns if isinstance(column, SqlColumn))

    def rename(self, names: Sequence[str]) -> "SqlRelation":
        """Rename the first columns of the relation."""
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
    """The inputs and output of a statement.

    fields: known columns of the output. influence: decides about all of its rows.
    """

    inputs: tuple[SqlDataset, ...]
    output: SqlDataset | None = None
    fields: Mapping[str, Flow] | None = None
    influence: Flow | None = None


Fields = dict[str, Flow]


def match_by_name(relation: SqlRelation) -> Fields:
    """Match columns by known names; names that occur twice are left out."""
    times = Counter(column.name for column in relation.columns if isinstance(column, SqlColumn))
    columns = (column for column in relation.columns if isinstance(column, SqlColumn))
    return {column.name: column.flow for column in columns if column.name is not None and times[column.name] == 1}


def match_by_position(relation: SqlRelation, names: Sequence[str]) -> Fields:
    """Match columns by position to other names, as far as positions are known."""
    if relation.known is not None and len(relation.columns) != len(names):
        return {}
    fields: Fields = {}
    for name, column in zip(names, relation.columns, strict=False):
        if isinstance(column, OpenColumns):
            break
        fields[name] = column.flow
    return fields


def name_all(relation: SqlRelation, names: Sequence[str]) -> Fields:
    """Name all columns of a new table; unknown ones, too, if all are of one dataset."""
    columns = relation.columns
    if len(columns) == 1 and isinstance(columns[0], OpenColumns) and columns[0].dataset is not None:
        return {name: columns[0].find_flow(name) for name in names}
    return match_by_position(relation, names)


def merge_fields(fields: Fields, others: Fields) -> Fields:
    """Merge the flows into each field."""
    return {name: merge_flows([fields.get(name, NO_FLOW), others.get(name, NO_FLOW)]) for name in {**fields, **others}}
