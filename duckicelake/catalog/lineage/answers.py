"""The graph of lineage as its JSON tells it: of `/lineage/v1`, the command line and the page."""

from datetime import datetime
from typing import Any

from duckicelake.iceberg.model import SpecModel
from duckicelake.iceberg.names import namespace_of
from duckicelake.lineage.graph import ColumnEdge, Edge, Graph, Job, Node, Run


class LineageTable(SpecModel):
    """The name of a table or view of the lake."""

    namespace: tuple[str, ...]
    name: str


class LineageNode(SpecModel):
    """A dataset; ours if it is a table or view of the lake. fields: of its newest schema, as OpenLineage has them.

    distance: from what was asked for; negative: upstream. columns: those that were reached.
    """

    id: str
    name: str
    kind: str
    ours: bool
    table: LineageTable | None = None
    namespace: str
    location: str
    state: str | None = None
    dropped: bool
    updated: datetime
    fields: tuple[dict[str, Any], ...]
    distance: int | None = None
    columns: tuple[str, ...] | None = None


class LineageJob(SpecModel):
    """What made an edge. type: BATCH or STREAMING."""

    namespace: str
    name: str
    type: str | None = None
    integration: str | None = None


class LineageRun(SpecModel):
    """A run behind an edge. version: of what it wrote."""

    id: str
    state: str
    started: datetime
    ended: datetime | None = None
    engine: str | None = None
    application: str | None = None
    principal: str | None = None
    version: str | None = None
    inferred: bool
    confidence: float | None = None


class LineageColumns(SpecModel):
    """An edge between two fields; target_field is '' if all rows of the target depend on the source."""

    source_field: str
    target_field: str
    type: str
    subtype: str | None = None
    description: str | None = None
    masking: bool
    inferred: bool
    confidence: float | None = None


class LineageEdge(SpecModel):
    """An edge between two nodes, by a job or (none) by a definition; several jobs make several. runs: the newest."""

    source: str
    target: str
    job: LineageJob | None = None
    first_seen: datetime
    last_seen: datetime
    inferred: bool
    confidence: float | None = None
    runs: tuple[LineageRun, ...]
    columns: tuple[LineageColumns, ...]


class LineageGraph(SpecModel):
    """What is seen from a node. truncated: there is more than was asked for."""

    node: str
    column: str | None = None
    direction: str
    depth: int
    at: datetime | None = None
    truncated: bool
    nodes: tuple[LineageNode, ...]
    edges: tuple[LineageEdge, ...]


class LineageDatasets(SpecModel):
    """Datasets that were found."""

    datasets: tuple[LineageNode, ...]


def graph_answer(graph: Graph, direction: str, depth: int, at: datetime | None) -> LineageGraph:
    """The graph as JSON has it."""
    return LineageGraph(
        node=str(graph.start),
        column=graph.column,
        direction=direction,
        depth=depth,
        at=at,
        truncated=graph.is_truncated,
        nodes=tuple(_placed(node) for node in graph.nodes),
        edges=tuple(map(_edge, graph.edges)),
    )


def node_answer(node: Node) -> LineageNode:
    """A dataset by itself."""
    return LineageNode(
        id=str(node.id),
        name=node.name,
        kind=node.kind,
        ours=node.table is not None,
        table=LineageTable(namespace=namespace_of(node.table[0]), name=node.table[1]) if node.table else None,
        namespace=node.namespace,
        location=node.location,
        state=node.lifecycle,
        dropped=node.lifecycle == "DROP",
        updated=node.updated,
        fields=tuple(dict(field) for field in node.fields),
    )


def _placed(node: Node) -> LineageNode:
    return node_answer(node).model_copy(update={"distance": node.distance, "columns": node.columns})


def _edge(edge: Edge) -> LineageEdge:
    return LineageEdge(
        source=str(edge.source),
        target=str(edge.target),
        job=None if edge.job is None else _job(edge.job),
        first_seen=edge.first_seen,
        last_seen=edge.last_seen,
        inferred=edge.confidence is not None,
        confidence=edge.confidence,
        runs=tuple(map(_run, edge.runs)),
        columns=tuple(map(_column, edge.columns)),
    )


def _job(job: Job) -> LineageJob:
    return LineageJob(namespace=job.namespace, name=job.name, type=job.kind, integration=job.integration)


def _run(run: Run) -> LineageRun:
    return LineageRun(
        id=run.id,
        state=run.state,
        started=run.started,
        ended=run.ended,
        engine=run.engine,
        application=run.application,
        principal=run.principal,
        version=run.version,
        inferred=run.confidence is not None,
        confidence=run.confidence,
    )


def _column(column: ColumnEdge) -> LineageColumns:
    return LineageColumns(
        source_field=column.source_field,
        target_field=column.target_field,
        type=column.kind,
        subtype=column.subtype,
        description=column.description,
        masking=column.is_masked,
        inferred=column.confidence is not None,
        confidence=column.confidence,
    )
