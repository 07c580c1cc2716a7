"""JSON responses of `/lineage/v1`, the command line and the page: graphs and runs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from duckicelake.iceberg.identifiers import parse_schema_name
from duckicelake.iceberg.model import SpecModel
from duckicelake.lineage.graph.model import ColumnEdge, GraphEdge, GraphJob, GraphNode, GraphRun, LineageGraphView
from duckicelake.lineage.graph.parsed_event import read_engine, read_facet_word, read_word
from duckicelake.lineage.graph.traversal import KnownRun
from duckicelake.lineage.graph.view import IoRow


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


def build_graph_response(graph: LineageGraphView, direction: str, depth: int, at: datetime | None) -> LineageGraph:
    """Build the JSON of the graph."""
    return LineageGraph(
        node=str(graph.start),
        column=graph.column,
        direction=direction,
        depth=depth,
        at=at,
        truncated=graph.is_truncated,
        nodes=tuple(_build_placed_node(node) for node in graph.nodes),
        edges=tuple(map(_build_edge, graph.edges)),
    )


def build_node_response(node: GraphNode) -> LineageNode:
    """Build the JSON of a dataset."""
    return LineageNode(
        id=str(node.id),
        name=node.name,
        kind=node.kind,
        ours=node.table is not None,
        table=LineageTable(namespace=parse_schema_name(node.table[0]), name=node.table[1]) if node.table else None,
        namespace=node.namespace,
        location=node.location,
        state=node.lifecycle,
        dropped=node.lifecycle == "DROP",
        updated=node.updated,
        fields=tuple(dict(field) for field in node.fields),
    )


def _build_placed_node(node: GraphNode) -> LineageNode:
    return build_node_response(node).model_copy(update={"distance": node.distance, "columns": node.columns})


def _build_edge(edge: GraphEdge) -> LineageEdge:
    return LineageEdge(
        source=str(edge.source),
        target=str(edge.target),
        job=None if edge.job is None else _build_job(edge.job),
        first_seen=edge.first_seen,
        last_seen=edge.last_seen,
        inferred=edge.confidence is not None,
        confidence=edge.confidence,
        runs=tuple(map(_build_run, edge.runs)),
        columns=tuple(map(_build_column, edge.columns)),
    )


def _build_job(job: GraphJob) -> LineageJob:
    return LineageJob(namespace=job.namespace, name=job.name, type=job.kind, integration=job.integration)


def _build_run(run: GraphRun) -> LineageRun:
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


def _build_column(column: ColumnEdge) -> LineageColumns:
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


class LineageSide(SpecModel):
    """What a run read or wrote."""

    id: str
    name: str
    version: str | None = None
    state: str | None = None
    inferred: bool
    confidence: float | None = None


class LineageRunDetails(SpecModel):
    """A run. complete: whether all that it read and wrote is the reader's to know; else what it said is left out."""

    id: UUID
    state: str
    origin: str
    job: LineageJob
    started: datetime
    ended: datetime | None = None
    engine: str | None = None
    application: str | None = None
    principal: str | None = None
    complete: bool
    parent: dict[str, Any] | None = None
    inputs: tuple[LineageSide, ...]
    outputs: tuple[LineageSide, ...]
    facets: dict[str, Any]
    events: tuple[dict[str, Any], ...]


def build_run_response(known: KnownRun) -> LineageRunDetails:
    """Build the JSON of a run."""
    run = known.run
    commit = run.facets.get("duckicelake_commit")
    parent = known.facets.get("parent")
    return LineageRunDetails(
        id=run.id,
        state=run.state,
        origin=run.origin,
        job=LineageJob(
            namespace=run.job_namespace,
            name=run.job_name,
            type=read_facet_word(run.job_facets, "jobType", "processingType"),
            integration=read_facet_word(run.job_facets, "jobType", "integration"),
        ),
        started=run.started,
        ended=run.ended,
        engine=read_engine(run.facets.get("processing_engine")),
        application=read_word(commit, "application"),
        principal=read_word(commit, "principal"),
        complete=known.is_complete,
        parent=dict(parent) if isinstance(parent, Mapping) else None,
        inputs=tuple(_build_side(side) for side in known.io if not side.is_output),
        outputs=tuple(_build_side(side) for side in known.io if side.is_output),
        facets=dict(known.facets),
        events=tuple(dict(event) for event in known.events),
    )


def _build_side(io: IoRow) -> LineageSide:
    name = io.name if io.schema_name is None else f"{io.schema_name}.{io.table_name}"
    return LineageSide(
        id=str(io.dataset_id),
        name=name,
        version=io.version,
        state=io.lifecycle,
        inferred=io.confidence is not None,
        confidence=io.confidence,
    )
