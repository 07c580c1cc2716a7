"""Graphs of Marquez's API: of datasets and jobs, and of fields."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequestError, NotFoundError
from duckicelake.lineage.graph import traversal as lineage
from duckicelake.lineage.graph.lists import ColumnListed, DatasetListed, LineageLists
from duckicelake.lineage.graph.model import MAX_DEPTH, MAX_NODES, GraphWalk
from duckicelake.lineage.graph.parsed_event import EventName
from duckicelake.lineage.graph.traversal import GraphQuery, split_name
from duckicelake.lineage.marquez.lists import build_jobs, open_lists
from duckicelake.lineage.marquez.rows import build_dataset, build_input_field
from duckicelake.lineage.marquez.shapes import MarquezDataset, MarquezEdge, MarquezGraph, MarquezJob, MarquezNode

_KINDS: Final = ("dataset", "job", "datasetField")


class _Place(NamedTuple):
    """A dataset or a job."""

    is_job: bool
    id: int


def read_graph(services: Services, node: str, depth: int) -> MarquezGraph:
    """Read datasets and jobs around a node, `dataset:…` or `job:…`; NotFoundError."""
    kind, rest = _parse(node, _KINDS[:2])
    with open_lists(services) as known:
        start = _find(known, kind, rest)
        walk: GraphWalk[_Place] = GraphWalk()
        walk.go([start], _step_once(known, is_upstream=True), depth, MAX_NODES, -1)
        walk.go([start], _step_once(known, is_upstream=False), depth, MAX_NODES, 1)
        datasets = known.read_datasets_by_id([place.id for place in walk.distances if not place.is_job])
        job_ids = [place.id for place in walk.distances if place.is_job]
        jobs = build_jobs(known, list(known.jobs_of(job_ids).values()))
        io = known.job_io(job_ids)
    shown = {number: build_dataset(row) for number, row in datasets.items()}
    pairs = []
    for side in io:
        if side.dataset_id in shown and side.job_id in jobs:
            ends = (_format_dataset_id(shown[side.dataset_id]), _format_job_id(jobs[side.job_id]))
            pairs.append(ends[::-1] if side.is_output else ends)
    nodes: Iterator[tuple[str, str, Any]] = (
        *((_format_dataset_id(dataset), "DATASET", dataset) for dataset in shown.values()),
        *((_format_job_id(job), "JOB", job) for job in jobs.values()),
    )  # type: ignore[assignment]
    return _build_graph(nodes, pairs)


def read_column_graph(services: Services, node: str, depth: int, *, with_downstream: bool) -> MarquezGraph:
    """Read fields around those of a dataset, or around one field (`datasetField:…`); NotFoundError."""
    kind, rest = _parse(node, ("dataset", "datasetField"))
    with open_lists(services) as known:
        start, column = _find_column(known, rest) if kind == "datasetField" else (_find(known, kind, rest).id, None)
    direction = "both" if with_downstream else "upstream"
    asked = f"{start}#{column}" if column else str(start)
    question = GraphQuery(asked, direction, min(depth, MAX_DEPTH), with_columns=True)  # type: ignore[arg-type]
    found = lineage.read_graph(services.database, services.caller.principal, question)
    with open_lists(services) as known:
        datasets = known.read_datasets_by_id([found_node.id for found_node in found.nodes])
        columns = [row for row in known.columns_to(datasets) if row.source in datasets]
    on_the_way = {found_node.id: set(found_node.columns) for found_node in found.nodes}
    reachable = [row for row in columns if row.target_field in on_the_way[row.target]]
    return _read_fields(datasets, [row for row in reachable if row.source_field in on_the_way[row.source]])


def _read_fields(datasets: dict[int, DatasetListed], columns: Collection[ColumnListed]) -> MarquezGraph:
    made_of: dict[tuple[int, str], list[ColumnListed]] = {}
    for row in columns:
        made_of.setdefault((row.source, row.source_field), [])
        made_of.setdefault((row.target, row.target_field), []).append(row)
    nodes = [
        (_format_field_id(datasets[number], field), "DATASET_FIELD", _build_field(datasets[number], field, rows))
        for (number, field), rows in made_of.items()
    ]
    pairs = [
        (
            _format_field_id(datasets[row.source], row.source_field),
            _format_field_id(datasets[row.target], row.target_field),
        )
        for row in columns
    ]
    return _build_graph(nodes, pairs)


def _build_field(dataset: DatasetListed, field: str, made_of: Iterable[ColumnListed]) -> dict[str, Any]:
    types = {column.name: column.type for column in build_dataset(dataset).fields}
    return {
        "namespace": dataset.shown_namespace,
        "dataset": dataset.shown_name,
        "datasetVersion": None,
        "field": field,
        "fieldType": types.get(field),
        "transformationDescription": None,
        "transformationType": None,
        "inputFields": [build_input_field(row).model_dump(by_alias=True) | {"datasetVersion": None} for row in made_of],
    }


def _build_graph(nodes: Iterable[tuple[str, str, Any]], pairs: Iterable[tuple[str, str]]) -> MarquezGraph:
    into: dict[str, list[MarquezEdge]] = {}
    out: dict[str, list[MarquezEdge]] = {}
    for origin, destination in dict.fromkeys(pairs):
        edge = MarquezEdge(origin=origin, destination=destination)
        into.setdefault(destination, []).append(edge)
        out.setdefault(origin, []).append(edge)
    made = [
        MarquezNode(
            id=name, type=kind, data=data, in_edges=tuple(into.get(name, ())), out_edges=tuple(out.get(name, ()))
        )
        for name, kind, data in nodes
    ]
    return MarquezGraph(graph=tuple(sorted(made, key=lambda node: node.id)))


def _step_once(
    known: LineageLists, *, is_upstream: bool
) -> Callable[[Collection[_Place], int], Iterator[tuple[_Place, _Place]]]:
    """Make one step of a walk: upstream of a dataset are the jobs that write it, of a job its inputs."""

    def step(places: Collection[_Place], limit: int) -> Iterator[tuple[_Place, _Place]]:  # noqa: ARG001
        datasets = [place.id for place in places if not place.is_job]
        jobs = [place.id for place in places if place.is_job]
        if datasets:
            for number, is_output, job_id in known.io_of_datasets(datasets):
                if is_output == is_upstream:
                    yield _Place(False, number), _Place(True, job_id)
        if jobs:
            for side in known.job_io(jobs):
                if side.is_output != is_upstream:
                    yield _Place(True, side.job_id), _Place(False, side.dataset_id)

    return step


def _parse(node: str, kinds: Collection[str]) -> tuple[str, str]:
    kind, _, rest = node.partition(":")
    if kind not in kinds or ":" not in rest:
        wanted = " or ".join(f"{kind}:<namespace>:<name>" for kind in kinds)
        raise InvalidRequestError(f"Invalid nodeId {node!r}: expected {wanted}")
    return kind, rest


def _find(known: LineageLists, kind: str, rest: str) -> _Place:
    is_job = kind == "job"
    found = known.find_job(split_name(rest)) if is_job else known.find_dataset(split_name(rest))
    if found is not None:
        return _Place(is_job, found)
    raise NotFoundError(f"There is no {kind} {rest}, or none that you may read")


def _find_column(known: LineageLists, rest: str) -> tuple[int, str]:
    dataset, _, column = rest.rpartition(":")
    return _find(known, "dataset", dataset).id, column


def _format_dataset_id(dataset: MarquezDataset) -> str:
    return _format_id("dataset", EventName(dataset.namespace, dataset.name))


def _format_job_id(job: MarquezJob) -> str:
    return _format_id("job", EventName(job.namespace, job.name))


def _format_field_id(dataset: DatasetListed, field: str) -> str:
    return _format_id("datasetField", EventName(dataset.shown_namespace, dataset.shown_name)) + f":{field}"


def _format_id(kind: str, name: EventName) -> str:
    return f"{kind}:{name.namespace}:{name.name}"
