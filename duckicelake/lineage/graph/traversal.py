"""Read the graph around a table or column, upstream and downstream, as far as the caller may."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from duckicelake.catalog.context.caller import Principal
from duckicelake.errors import InvalidRequestError, NotFoundError, summarize
from duckicelake.lineage.graph.model import (
    ColumnEdge,
    Direction,
    GraphEdge,
    GraphJob,
    GraphNode,
    GraphRun,
    GraphWalk,
    LineageGraphView,
    is_same_or_nested,
)
from duckicelake.lineage.graph.parsed_event import EventName, read_engine, read_field_names, read_word
from duckicelake.lineage.graph.view import ColumnRow, DatasetRow, EdgeRow, Field, GraphView, IoRow, RunRow
from duckicelake.postgres.database import Database

_MAX_EDGES: Final = 10_000
_MAX_COLUMNS: Final = 50_000
_MAX_EVENTS: Final = 10_000
_MAX_NAMES: Final = 20
_OF_JOB: Final = ("processingType", "integration")


@dataclass(frozen=True, slots=True)
class GraphQuery:
    """A question about the graph. node: `ns.table`, `ns.table#column` or a dataset's id. limit: of nodes.

    at: a time; tables have the names that they had then. with_columns: also edges between fields.
    """

    node: str
    direction: Direction = "both"
    depth: int = 5
    at: datetime | None = None
    with_columns: bool = False
    limit: int = 200


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run, its visible inputs and outputs, and its events, unless something is hidden."""

    run: RunRow
    io: tuple[IoRow, ...]
    facets: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...]
    is_complete: bool


def read_graph(database: Database, reader: Principal, question: GraphQuery) -> LineageGraphView:
    """Read the graph around a node; NotFoundError: the reader may see nothing there, or there is no such column."""
    with database.reading() as cursor:
        view = GraphView.of_reader(cursor, reader, question.at)
        start, column = _find_start(view, question.node)
        if column is None:
            return _read_dataset_graph(view, start, question)
        return _read_column_graph(view, start, column, question)


def search_datasets(database: Database, reader: Principal, text: str, limit: int) -> tuple[GraphNode, ...]:
    """Find datasets with a name that contains the text."""
    with database.reading() as cursor:
        return tuple(map(_build_node, GraphView.of_reader(cursor, reader).search(text, limit)))


def read_run(database: Database, reader: Principal, run_id: UUID) -> KnownRun:
    """Read a run; NotFoundError: the reader may see none of its datasets.

    Its facets are left out if the reader may not see all.
    """
    with database.reading() as cursor:
        view = GraphView.of_reader(cursor, reader)
        found, io = view.run(run_id), view.io(run_id)
        known = tuple(side for side in io if side.may_be_known)
        if found is None or (view.granted is not None and not known):
            raise NotFoundError(f"There is no run {run_id}, or none that you may read")
        if not found.may_be_shown:
            return KnownRun(found, known, {}, (), is_complete=False)
        events = tuple(view.events_of_run(run_id, _MAX_EVENTS))
        return KnownRun(found, known, found.facets, events, is_complete=True)


def read_events(
    database: Database, reader: Principal, found: LineageGraphView, at: datetime | None = None
) -> list[dict[str, Any]]:
    """Read the events of the runs behind the graph's edges, without those that name hidden datasets."""
    with database.reading() as cursor:
        view = GraphView.of_reader(cursor, reader, at)
        return view.events_of([node.id for node in found.nodes], _MAX_EVENTS)


def _find_start(view: GraphView, node: str) -> tuple[int, str | None]:
    name, hash_sign, column = node.partition("#")
    if not name or (hash_sign and not column):
        raise InvalidRequestError(f"Invalid node {node!r}: expected ns.table, ns.table#column or the id of a dataset")
    if name.isdecimal():
        found = next((row.id for row in view.datasets([int(name)])), None) if len(name) < 19 else None
    elif name.startswith("dataset:"):
        found = view.find_named(split_name(name.removeprefix("dataset:")))
    else:
        found = view.find(name)
    if found is None:
        raise NotFoundError(f"There is no lineage of {name}, or none that you may read")
    return found, column or None


def split_name(text: str) -> Iterator[EventName]:
    """Yield the possible splits of `namespace:name`: both may contain colons."""
    at = len(text)
    while (at := text.rfind(":", 0, at)) >= 0:
        yield EventName(text[:at], text[at + 1 :])


def _read_dataset_graph(view: GraphView, start: int, question: GraphQuery) -> LineageGraphView:
    walk: GraphWalk[int] = GraphWalk()
    if question.direction != "downstream":
        walk.go([start], view.upstream, question.depth, question.limit, -1)
    if question.direction != "upstream":
        walk.go([start], view.downstream, question.depth, question.limit, 1)
    edges = view.edges(walk.distances, _MAX_EDGES)
    columns = view.columns(walk.distances, _MAX_COLUMNS) if question.with_columns else []
    is_truncated = walk.is_truncated or len(edges) == _MAX_EDGES or len(columns) == _MAX_COLUMNS
    return _build_graph(view, (start, None), walk.distances, edges, columns, is_truncated=is_truncated)


def _read_column_graph(view: GraphView, start: int, column: str, question: GraphQuery) -> LineageGraphView:
    walk: GraphWalk[Field] = GraphWalk()
    place = (start, column)
    # A dataset has many columns: the limit is of datasets, and this keeps their columns within reason.
    most = question.limit * 20
    if question.direction != "downstream":
        walk.go([place], view.upstream_columns, question.depth, most, -1)
    if question.direction != "upstream":
        walk.go([place], view.downstream_columns, question.depth, most, 1)
    distances: dict[int, int] = {}
    for (number, _), distance in walk.distances.items():
        if number in distances or len(distances) < question.limit:
            distances.setdefault(number, distance)
    fields: dict[int, set[str]] = {}
    for number, field in walk.distances:
        fields.setdefault(number, set()).add(field)
    is_truncated = walk.is_truncated or len(distances) < len(fields)
    on_the_way = [row for row in view.columns(distances, _MAX_COLUMNS) if _is_between(row, fields)]
    if question.at is None and not any(_touches_field(row, place) for row in on_the_way):
        _check_column(view, place)
    joined = {(row.source, row.target, row.job_id) for row in on_the_way}
    edges = [edge for edge in view.edges(distances, _MAX_EDGES) if (edge.source, edge.target, edge.job_id) in joined]
    return _build_graph(view, place, distances, edges, on_the_way, is_truncated=is_truncated, fields=fields)


def _touches_field(row: ColumnRow, place: Field) -> bool:
    """Return whether an edge begins or ends at this named field."""
    ends = (row.source, row.source_field), (row.target, row.target_field)
    return any(number == place[0] and field and is_same_or_nested(place[1], field) for number, field in ends)


def _check_column(view: GraphView, place: Field) -> None:
    """Raise NotFoundError for a column that its table doesn't have.

    Events of other tools may not have all columns of a table.
    """
    for row in view.datasets([place[0]]):
        names = list(read_field_names(row.fields))
        if names and row.table_name is not None and place[1] not in names:
            columns = [name for name in names if "." not in name] or names
            events = summarize(columns, _MAX_NAMES)
            raise NotFoundError(f"{row.schema_name}.{row.table_name} has no column {place[1]!r}: there are {events}")


def _is_between(row: ColumnRow, fields: Mapping[int, Collection[str]]) -> bool:
    sources, targets = fields[row.source], fields[row.target]
    from_there = "" in sources or any(is_same_or_nested(field, row.source_field) for field in sources)
    return from_there and (
        row.target_field == "" or any(is_same_or_nested(field, row.target_field) for field in targets)
    )


def _build_graph(
    view: GraphView,
    start: tuple[int, str | None],
    distances: Mapping[int, int],
    edges: Iterable[EdgeRow],
    columns: Sequence[ColumnRow],
    *,
    is_truncated: bool,
    fields: Mapping[int, Collection[str]] | None = None,
) -> LineageGraphView:
    of_edge: dict[tuple[int, int, int], list[ColumnRow]] = {}
    for row in columns:
        of_edge.setdefault((row.source, row.target, row.job_id), []).append(row)
    reached = _collect_reached(columns) if fields is None else fields
    nodes = [
        replace(
            _build_node(row), distance=distances[row.id], columns=tuple(sorted(filter(None, reached.get(row.id, ()))))
        )
        for row in view.datasets(distances)
    ]
    nodes.sort(key=lambda node: (abs(node.distance), node.distance, node.name))
    events = tuple(_build_edge(edge, of_edge.get((edge.source, edge.target, edge.job_id), ())) for edge in edges)
    return LineageGraphView(*start, tuple(nodes), events, is_truncated)


def _collect_reached(columns: Iterable[ColumnRow]) -> dict[int, set[str]]:
    reached: dict[int, set[str]] = {}
    for row in columns:
        reached.setdefault(row.source, set()).add(row.source_field)
        reached.setdefault(row.target, set()).add(row.target_field)
    return reached


def _build_node(row: DatasetRow) -> GraphNode:
    table = None if row.schema_name is None or row.table_name is None else (row.schema_name, row.table_name)
    return GraphNode(row.id, row.namespace, row.name, row.kind, table, row.lifecycle, row.last_seen, row.fields or ())


def _build_edge(row: EdgeRow, columns: Iterable[ColumnRow]) -> GraphEdge:
    job = None
    if row.job_namespace is not None and row.job_name is not None:
        job = GraphJob(row.job_namespace, row.job_name, *(read_word(row.job_type, key) for key in _OF_JOB))
    between = tuple(
        ColumnEdge(
            column.source_field,
            column.target_field,
            column.kind,
            column.subtype or None,
            column.description,
            column.is_masked,
            column.confidence,
        )
        for column in columns
    )
    runs = tuple(map(_build_run, row.runs or ()))
    return GraphEdge(row.source, row.target, job, row.first_seen, row.last_seen, row.confidence, runs, between)


def _build_run(events: Mapping[str, Any]) -> GraphRun:
    commit = events["commit"]
    ended = None if events["ended"] is None else datetime.fromisoformat(events["ended"])
    return GraphRun(
        id=events["id"],
        state=events["state"],
        started=datetime.fromisoformat(events["started"]),
        ended=ended,
        engine=read_engine(events["engine"]),
        application=read_word(commit, "application"),
        principal=read_word(commit, "principal"),
        version=events["version"],
        confidence=events["confidence"],
    )
