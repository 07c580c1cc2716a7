"""PURE. What SQL does with columns: where values come from, and what else decides about them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table, view or file by its OpenLineage name; `columns` in their order, None where nobody knows them."""

    namespace: str
    name: str
    columns: tuple[str, ...] | None = field(default=None, compare=False)


Lookup = Callable[[tuple[str, ...]], Dataset | None]
"""Gives what a name stands for, its parts as they are written; None for what isn't known, and so isn't claimed."""
Files = Callable[[str], Dataset | None]
"""Gives the dataset that a path is."""


class Subtype(StrEnum):
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


_DIRECT: Final = (Subtype.IDENTITY, Subtype.TRANSFORMATION, Subtype.AGGREGATION)


@dataclass(frozen=True, slots=True, order=True)
class Effect:
    """One of OpenLineage's transformations; `masking` if the value can't be told from what is left of it."""

    subtype: Subtype
    masking: bool = False

    @property
    def is_direct(self) -> bool:
        """Tell whether values are handed on."""
        return self.subtype in _DIRECT


@dataclass(frozen=True, slots=True)
class Origin:
    """A column of an input."""

    dataset: Dataset
    column: str


Flow = Mapping[Origin, frozenset[Effect]]
"""What flows into something: columns of inputs, and how each does."""

NOTHING: Final[Flow] = {}


def merged(flows: Iterable[Flow]) -> Flow:
    """All that flows in any of them."""
    result: dict[Origin, frozenset[Effect]] = {}
    for flow in flows:
        for origin, effects in flow.items():
            result[origin] = result.get(origin, frozenset()) | effects
    return result


def through(flow: Flow, subtype: Subtype, *, masking: bool = False) -> Flow:
    """The flow after one more direct step: the step that changes most names it, what masked before still does."""
    return {origin: frozenset(_after(each, subtype, masking) for each in effects) for origin, effects in flow.items()}


def deciding(flow: Flow, subtype: Subtype) -> Flow:
    """The flow of what isn't handed on, but decides."""
    return dict.fromkeys(flow, frozenset({Effect(subtype)}))


def _after(effect: Effect, subtype: Subtype, masking: bool) -> Effect:
    if not effect.is_direct:
        return effect
    return Effect(max(effect.subtype, subtype, key=_DIRECT.index), effect.masking or masking)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation; its name is None where only the engine knows how it calls the expression."""

    name: str | None
    flow: Flow


@dataclass(frozen=True, slots=True)
class Rest:
    """Columns that nobody knows, as many as there may be: all of a dataset, or with the flow that each of them has."""

    dataset: Dataset | None = None
    flow: Flow | None = None

    def named(self, name: str) -> Flow:
        """Give the flow of the one that has the name."""
        if self.dataset is not None:
            return {Origin(self.dataset, name): frozenset({Effect(Subtype.IDENTITY)})}
        return self.flow or NOTHING


@dataclass(frozen=True, slots=True)
class Relation:
    """What a query gives; `influence` decides about all of its rows."""

    columns: tuple[Column | Rest, ...]
    influence: Flow

    @property
    def known(self) -> tuple[Column, ...] | None:
        """All columns, None if there are others."""
        known = tuple(each for each in self.columns if isinstance(each, Column))
        return known if len(known) == len(self.columns) else None

    def flows(self) -> Flow:
        """All that flows into any column."""
        return merged(each.flow for each in self.columns if isinstance(each, Column))

    def renamed(self, names: Sequence[str]) -> "Relation":
        """The relation with names for its first columns."""
        columns = list(self.columns)
        for at, name in enumerate(names[: len(columns)]):
            column = columns[at]
            if isinstance(column, Rest):
                columns[at:] = [Rest(flow=column.flow or NOTHING)]
                break
            columns[at] = replace(column, name=name)
        return replace(self, columns=tuple(columns))


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a statement read and wrote.

    `fields` are the output's columns that are known, `influence` decides about all its rows.
    """

    inputs: tuple[Dataset, ...]
    output: Dataset | None = None
    fields: Mapping[str, Flow] | None = None
    influence: Flow | None = None
