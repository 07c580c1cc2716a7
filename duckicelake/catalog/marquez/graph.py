"""Graphs as Marquez's API tells them: of datasets and the jobs between them, and of fields."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from duckicelake.catalog.lineage import graph as lineage
from duckicelake.catalog.lineage.graph import Question, splits
from duckicelake.catalog.lineage.limits import MOST_DEPTH, MOST_NODES
from duckicelake.catalog.marquez.lists import jobs_of, listing
from duckicelake.catalog.marquez.nodes import MarquezEdge, MarquezGraph, MarquezNode
from duckicelake.catalog.marquez.shapes import MarquezDataset, MarquezJob
from duckicelake.catalog.marquez.views import dataset_of, input_field
from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest, NotFound
from duckicelake.lake.lineage.listing import ColumnListed, DatasetListed, Listing
from duckicelake.lake.lineage.told import Name
from duckicelake.lineage.graph import Walk

_KINDS: Final = ("dataset", "job", "datasetField")


class _Place(NamedTuple):
    """A dataset or a job."""

    is_job: bool
    id: int


def graph(services: Services, node: str, depth: int) -> MarquezGraph:
    """Datasets and jobs around a node, `dataset:…` or `job:…`; NotFound."""
    kind, rest = _parse(node, _KINDS[:2])
    with listing(services) as known:
        start = _find(known, kind, rest)
        walk: Walk[_Place] = Walk()
        walk.go([start], _step(known, is_upstream=True), depth, MOST_NODES, -1)
        walk.go([start], _step(known, is_upstream=False), depth, MOST_NODES, 1)
        datasets = known.datasets_of([place.id for place in walk.distances if not place.is_job])
        job_ids = [place.id for place in walk.distances if place.is_job]
        jobs = jobs_of(known, list(known.jobs_of(job_ids).values()))
        io = known.job_io(job_ids)
    shown = {number: dataset_of(row) for number, row in datasets.items()}
    pairs = []
    for each in io:
        if each.dataset_id in shown and each.job_id in jobs:
            ends = (_dataset_id(shown[each.dataset_id]), _job_id(jobs[each.job_id]))
            pairs.append(ends[::-1] if each.is_output else ends)
    nodes: Iterator[tuple[str, str, Any]] = (
        *((_dataset_id(each), "DATASET", each) for each in shown.values()),
        *((_job_id(each), "JOB", each) for each in jobs.values()),
    )  # type: ignore[assignment]
    return _assembled(nodes, pairs)


def column_graph(services: Services, node: str, depth: int, *, with_downstream: bool) -> MarquezGraph:
    """Fields around those of a dataset, or around one of its fields (`datasetField:…`); NotFound."""
    kind, rest = _parse(node, ("dataset", "datasetField"))
    with listing(services) as known:
        start, column = _find_column(known, rest) if kind == "datasetField" else (_find(known, kind, rest).id, None)
    direction = "both" if with_downstream else "upstream"
    asked = f"{start}#{column}" if column else str(start)
    question = Question(asked, direction, min(depth, MOST_DEPTH), with_columns=True)  # type: ignore[arg-type]
    found = lineage.graph(services.database, services.caller.principal, question)
    with listing(services) as known:
        datasets = known.datasets_of([each.id for each in found.nodes])
        columns = [row for row in known.columns_to(datasets) if row.source in datasets]
    on_the_way = {each.id: set(each.columns) for each in found.nodes}
    told = [row for row in columns if row.target_field in on_the_way[row.target]]
    return _fields(datasets, [row for row in told if row.source_field in on_the_way[row.source]])


def _fields(datasets: dict[int, DatasetListed], columns: Collection[ColumnListed]) -> MarquezGraph:
    made_of: dict[tuple[int, str], list[ColumnListed]] = {}
    for row in columns:
        made_of.setdefault((row.source, row.source_field), [])
        made_of.setdefault((row.target, row.target_field), []).append(row)
    nodes = [
        (_field_id(datasets[number], field), "DATASET_FIELD", _field(datasets[number], field, rows))
        for (number, field), rows in made_of.items()
    ]
    pairs = [
        (_field_id(datasets[row.source], row.source_field), _field_id(datasets[row.target], row.target_field))
        for row in columns
    ]
    return _assembled(nodes, pairs)


def _field(dataset: DatasetListed, field: str, made_of: Iterable[ColumnListed]) -> dict[str, Any]:
    types = {each.name: each.type for each in dataset_of(dataset).fields}
    return {
        "namespace": dataset.shown_namespace,
        "dataset": dataset.shown_name,
        "datasetVersion": None,
        "field": field,
        "fieldType": types.get(field),
        "transformationDescription": None,
        "transformationType": None,
        "inputFields": [input_field(row).model_dump(by_alias=True) | {"datasetVersion": None} for row in made_of],
    }


def _assembled(nodes: Iterable[tuple[str, str, Any]], pairs: Iterable[tuple[str, str]]) -> MarquezGraph:
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
    return MarquezGraph(graph=tuple(sorted(made, key=lambda each: each.id)))


def _step(known: Listing, *, is_upstream: bool) -> Callable[[Collection[_Place], int], Iterator[tuple[_Place, _Place]]]:
    """Upstream of a dataset are jobs that write it, of a job the datasets that it reads."""

    def step(places: Collection[_Place], limit: int) -> Iterator[tuple[_Place, _Place]]:  # noqa: ARG001
        datasets = [place.id for place in places if not place.is_job]
        jobs = [place.id for place in places if place.is_job]
        if datasets:
            for number, is_output, job_id in known.io_of_datasets(datasets):
                if is_output == is_upstream:
                    yield _Place(False, number), _Place(True, job_id)
        if jobs:
            for each in known.job_io(jobs):
                if each.is_output != is_upstream:
                    yield _Place(True, each.job_id), _Place(False, each.dataset_id)

    return step


def _parse(node: str, kinds: Collection[str]) -> tuple[str, str]:
    kind, _, rest = node.partition(":")
    if kind not in kinds or ":" not in rest:
        wanted = " or ".join(f"{each}:<namespace>:<name>" for each in kinds)
        raise InvalidRequest(f"nodeId {node!r} is not one: write {wanted}")
    return kind, rest


def _find(known: Listing, kind: str, rest: str) -> _Place:
    is_job = kind == "job"
    found = known.find_job(splits(rest)) if is_job else known.find_dataset(splits(rest))
    if found is not None:
        return _Place(is_job, found)
    raise NotFound(f"There is no {kind} {rest}, or none that you may know of")


def _find_column(known: Listing, rest: str) -> tuple[int, str]:
    dataset, _, column = rest.rpartition(":")
    return _find(known, "dataset", dataset).id, column


def _dataset_id(dataset: MarquezDataset) -> str:
    return _id("dataset", Name(dataset.namespace, dataset.name))


def _job_id(job: MarquezJob) -> str:
    return _id("job", Name(job.namespace, job.name))


def _field_id(dataset: DatasetListed, field: str) -> str:
    return _id("datasetField", Name(dataset.shown_namespace, dataset.shown_name)) + f":{field}"


def _id(kind: str, name: Name) -> str:
    return f"{kind}:{name.namespace}:{name.name}"
