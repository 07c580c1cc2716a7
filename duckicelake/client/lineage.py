"""What tables come from and what comes from them, as clients read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from duckicelake.client.models import Json, build_name
from duckicelake.rest.names import Namespace

LineageDirection = Literal["upstream", "downstream", "both"]


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The name of a table or view in its namespace."""

    namespace: Namespace
    name: str


@dataclass(frozen=True, slots=True)
class LineageNodeInfo:
    """A dataset of the graph.

    Attributes:
        table: None if it is no table or view of the lake, as a folder that Spark reads.
        fields: of its newest schema, as OpenLineage has them.
        distance: steps from the node that was asked for; negative: upstream.
        columns: those that were reached.

    """

    id: str
    name: str
    kind: str
    table: ObjectName | None
    namespace: str
    location: str
    state: str | None
    is_dropped: bool
    updated: datetime
    fields: tuple[Mapping[str, Json], ...]
    distance: int | None
    columns: tuple[str, ...] | None

    @property
    def full_name(self) -> str:
        """The name as methods take it, if it is a table or view of the lake; else the name for people."""
        return self.name if self.table is None else build_name(self.table.namespace, self.table.name)


@dataclass(frozen=True, slots=True)
class LineageJobInfo:
    """What made an edge. type: BATCH or STREAMING. integration: its tool, as SPARK."""

    namespace: str
    name: str
    type: str | None
    integration: str | None


@dataclass(frozen=True, slots=True)
class LineageRunInfo:
    """A run behind an edge. version: of what it wrote. confidence: that it read the source; None: an event says so."""

    id: str
    state: str
    started: datetime
    ended: datetime | None
    engine: str | None
    application: str | None
    principal: str | None
    version: str | None
    is_inferred: bool
    confidence: float | None


@dataclass(frozen=True, slots=True)
class LineageColumnInfo:
    """An edge between two fields; target_field is empty if all rows of the target depend on the source."""

    source_field: str
    target_field: str
    type: str
    subtype: str | None
    description: str | None
    masking: bool
    is_inferred: bool
    confidence: float | None


@dataclass(frozen=True, slots=True)
class LineageEdgeInfo:
    """An edge between two nodes, by a job or, without one, by a definition. source, target: ids. runs: the newest."""

    source: str
    target: str
    job: LineageJobInfo | None
    first_seen: datetime
    last_seen: datetime
    is_inferred: bool
    confidence: float | None
    runs: tuple[LineageRunInfo, ...]
    columns: tuple[LineageColumnInfo, ...]


@dataclass(frozen=True, slots=True)
class LineageInfo:
    """The graph around a node, or a column of it. is_truncated: there is more than was asked for."""

    node: str
    column: str | None
    direction: LineageDirection
    depth: int
    at: datetime | None
    is_truncated: bool
    nodes: tuple[LineageNodeInfo, ...]
    edges: tuple[LineageEdgeInfo, ...]

    def find_node(self, node_id: str) -> LineageNodeInfo:
        """Return the node of an id."""
        return next(node for node in self.nodes if node.id == node_id)
