"""PURE. The lineage graph as values: nodes, edges, limits, and how far one sees from a node."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar

MAX_NODES: Final = 2000
MAX_DEPTH: Final = 20
Direction = Literal["upstream", "downstream", "both"]
Place = TypeVar("Place", bound=Hashable)
Step = Callable[[Collection[Place], int], Iterable[tuple[Place, Place]]]
"""Finds pairs of a given place and a next one, up to a limit."""
WHOLE: Final = ""
"""The field of a column edge that concerns whole rows of its target."""


@dataclass(frozen=True, slots=True)
class GraphJob:
    """The job of an edge. kind: BATCH or STREAMING, if known. integration: its tool."""

    namespace: str
    name: str
    kind: str | None = None
    integration: str | None = None


@dataclass(frozen=True, slots=True)
class GraphRun:
    """A run of a job. version: of its output. confidence: that it read the input; None: an event states it."""

    id: str
    state: str
    started: datetime
    ended: datetime | None
    engine: str | None = None
    application: str | None = None
    principal: str | None = None
    version: str | None = None
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A dataset. table: DuckLake's schema and name, for tables of the lake. distance: negative if upstream.

    columns: reached ones. fields: of its newest schema, in OpenLineage's form.
    """

    id: int
    namespace: str
    location: str
    kind: str
    table: tuple[str, str] | None
    lifecycle: str | None
    updated: datetime
    fields: Sequence[Mapping[str, Any]]
    distance: int = 0
    columns: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name for people."""
        return ".".join(self.table) if self.table else self.location


@dataclass(frozen=True, slots=True)
class ColumnEdge:
    """An edge between fields; target_field may be WHOLE. kind: DIRECT or INDIRECT."""

    source_field: str
    target_field: str
    kind: str
    subtype: str | None
    description: str | None
    is_masked: bool
    confidence: float | None


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """An edge between datasets, by a job or by a definition.

    runs: the newest. confidence: None if an event states the edge.
    """

    source: int
    target: int
    job: GraphJob | None
    first_seen: datetime
    last_seen: datetime
    confidence: float | None
    runs: tuple[GraphRun, ...] = ()
    columns: tuple[ColumnEdge, ...] = ()


@dataclass(frozen=True, slots=True)
class LineageGraphView:
    """The graph around the node `start`, or a column of it. is_truncated: the limit was reached."""

    start: int
    column: str | None
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    is_truncated: bool

    def node(self, number: int) -> GraphNode:
        return next(node for node in self.nodes if node.id == number)


@dataclass(slots=True)
class GraphWalk(Generic[Place]):
    """The distances of places; negative: upstream."""

    distances: dict[Place, int] = field(default_factory=dict)
    is_truncated: bool = False

    def go(self, start: Iterable[Place], step: Step[Place], depth: int, most: int, sign: int) -> None:
        """Walk up to a depth, with one query for each, and up to a number of places in all."""
        frontier = list(start)
        self.distances.update(dict.fromkeys(frontier, 0))
        seen = set(frontier)
        for distance in range(1, depth + 1):
            if not frontier:
                return
            room = most - len(self.distances)
            # One more than the limit shows that there is more. Pairs may lead to known places.
            found = list(dict.fromkeys(to for _, to in step(frontier, room + len(seen) + 1) if to not in seen))
            self.is_truncated |= sum(to not in self.distances for to in found) > room
            frontier = []
            for to in found:
                if to in self.distances or len(self.distances) < most:
                    self.distances.setdefault(to, sign * distance)
                    frontier.append(to)
                    seen.add(to)


def is_same_or_nested(asked: str, field: str) -> bool:
    """Return whether two fields are related: they are the same, or one contains the other."""
    return asked == field or asked.startswith(field + ".") or field.startswith(asked + ".")
