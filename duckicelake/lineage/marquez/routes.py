"""/api/v1/…: lineage by Marquez's API, as far as Marquez's page needs it. Read only."""

from datetime import UTC, datetime
from typing import Annotated, Final, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import decode_name
from duckicelake.lineage.graph.lists import Counted, ListPart
from duckicelake.lineage.graph.model import MAX_NODES
from duckicelake.lineage.graph.parsed_event import EventName
from duckicelake.lineage.marquez import graph as marquez_graph
from duckicelake.lineage.marquez import lists as marquez
from duckicelake.lineage.marquez.lists import Period
from duckicelake.lineage.marquez.shapes import (
    MarquezCount,
    MarquezDataset,
    MarquezDatasets,
    MarquezDatasetVersions,
    MarquezEvents,
    MarquezFacets,
    MarquezGraph,
    MarquezJob,
    MarquezJobs,
    MarquezMetric,
    MarquezNamespaces,
    MarquezRun,
    MarquezRuns,
    MarquezSearch,
    MarquezTags,
)
from duckicelake.server.http.errors import RESPONSES
from duckicelake.server.routes.dependencies import AppServices

PREFIX: Final = "/api/v1"
router = APIRouter(prefix=PREFIX, tags=["marquez"], responses=RESPONSES)

_SPACE = "/namespaces/{space}"
_DATASET, _JOB = f"{_SPACE}/datasets/{{dataset}}", f"{_SPACE}/jobs/{{job}}"
_MAX_GRAPH_DEPTH: Final = 100


async def _build_part(
    limit: Annotated[int, Query(ge=1, le=MAX_NODES)] = 100,
    offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
) -> ListPart:
    return ListPart(limit, offset)


async def _parse_space(space: str) -> str:
    return decode_name(space)


async def _parse_dataset(space: str, dataset: str) -> EventName:
    return EventName(decode_name(space), decode_name(dataset))


async def _parse_job(space: str, job: str) -> EventName:
    return EventName(decode_name(space), decode_name(job))


PartQuery = Annotated[ListPart, Depends(_build_part)]
SpacePath = Annotated[str, Depends(_parse_space)]
DatasetPath = Annotated[EventName, Depends(_parse_dataset)]
JobPath = Annotated[EventName, Depends(_parse_job)]
States = Annotated[list[str] | None, Query(alias="lastRunStates", description="of their newest runs")]
NodeQuery = Annotated[str, Query(alias="nodeId", description="dataset:namespace:name, or job:…", max_length=20_000)]
DepthQuery = Annotated[int, Query(ge=0, le=_MAX_GRAPH_DEPTH)]
PeriodQuery = Annotated[Period, Query()]
ZoneQuery = Annotated[str, Query(max_length=100)]


@router.get("/namespaces")
def marquez_namespaces(services: AppServices, part: PartQuery) -> MarquezNamespaces:
    """List namespaces."""
    return marquez.list_namespaces(services, part)


@router.get(f"{_SPACE}/datasets")
def marquez_datasets(services: AppServices, space: SpacePath, part: PartQuery) -> MarquezDatasets:
    """List the datasets of a namespace."""
    return marquez.list_datasets(services, part, space)


@router.get(_DATASET)
def marquez_dataset(services: AppServices, dataset: DatasetPath) -> MarquezDataset:
    """Return a dataset."""
    return marquez.read_dataset(services, dataset)


@router.get(f"{_DATASET}/versions")
def marquez_versions(services: AppServices, dataset: DatasetPath, part: PartQuery) -> MarquezDatasetVersions:
    """List what runs made of a dataset, the newest first."""
    return marquez.list_versions(services, part, dataset)


@router.get("/jobs")
def marquez_jobs(services: AppServices, part: PartQuery, states: States = None) -> MarquezJobs:
    """List jobs, the newest first."""
    return marquez.list_jobs(services, part, None, states)


@router.get(f"{_SPACE}/jobs")
def marquez_jobs_of(services: AppServices, space: SpacePath, part: PartQuery, states: States = None) -> MarquezJobs:
    """List the jobs of a namespace, the newest first."""
    return marquez.list_jobs(services, part, space, states)


@router.get(_JOB)
def marquez_job(services: AppServices, job: JobPath) -> MarquezJob:
    """Return a job."""
    return marquez.read_job(services, job)


@router.get(f"{_JOB}/runs")
def marquez_runs(services: AppServices, job: JobPath, part: PartQuery) -> MarquezRuns:
    """List the runs of a job, the newest first."""
    return marquez.list_runs(services, part, job)


@router.get("/jobs/runs/{run}")
def marquez_run(services: AppServices, run: UUID) -> MarquezRun:
    """Return a run."""
    return marquez.read_run(services, run)


@router.get("/jobs/runs/{run}/facets")
def marquez_facets(
    services: AppServices, run: UUID, of: Annotated[Literal["run", "job"], Query(alias="type")] = "run"
) -> MarquezFacets:
    """Return the facets of a run or of its job."""
    return marquez.read_facets(services, run, of)


@router.get("/lineage")
@router.get("/lineage/", include_in_schema=False)
def marquez_graph_of(services: AppServices, node: NodeQuery, depth: DepthQuery = 20) -> MarquezGraph:
    """Return the datasets and jobs around a node."""
    return marquez_graph.read_graph(services, node, depth)


@router.get("/column-lineage")
def marquez_columns(
    services: AppServices,
    node: NodeQuery,
    depth: DepthQuery = 20,
    with_downstream: Annotated[bool, Query(alias="withDownstream")] = False,
) -> MarquezGraph:
    """Return the fields around those of a dataset."""
    return marquez_graph.read_column_graph(services, node, depth, with_downstream=with_downstream)


@router.get("/events/lineage")
def marquez_events(
    services: AppServices,
    part: PartQuery,
    after: Annotated[str, Query(max_length=50)] = "",
    before: Annotated[str, Query(max_length=50)] = "",
    direction: Annotated[Literal["asc", "desc"], Query(alias="sortDirection")] = "desc",
) -> MarquezEvents:
    """List events between two times."""
    times = _parse_time("after", after), _parse_time("before", before)
    return marquez.list_events(services, part, *times, is_newest_first=direction == "desc")


@router.get("/search")
@router.get("/search/", include_in_schema=False)
def marquez_search(
    services: AppServices,
    q: Annotated[str, Query(max_length=1000)],
    filter_: Annotated[Literal["ALL", "DATASET", "JOB", "all", "dataset", "job"], Query(alias="filter")] = "ALL",
    sort: Annotated[str, Query(description="NAME or UPDATED_AT", max_length=50)] = "NAME",
    limit: Annotated[int, Query(ge=1, le=1000)] = 10,
) -> MarquezSearch:
    """Find datasets and jobs."""
    return marquez.search_names(services, q, filter_.upper(), limit, by_time=sort.lower() == "updated_at")


@router.get("/tags")
def marquez_tags(services: AppServices) -> MarquezTags:  # noqa: ARG001
    """List the tags that there are: none."""
    return MarquezTags()


@router.get("/stats/lineage-events")
def marquez_metrics(
    services: AppServices, period: PeriodQuery = "DAY", timezone: ZoneQuery = "UTC"
) -> tuple[MarquezMetric, ...]:
    """Count events by the hour of the last day, or by the day of the last week."""
    return marquez.count_events(services, period, timezone)


@router.get("/stats/{counted}")
def marquez_counts(
    services: AppServices, counted: Counted, period: PeriodQuery = "DAY", timezone: ZoneQuery = "UTC"
) -> tuple[MarquezCount, ...]:
    """Count jobs, datasets or sources at the ends of the same intervals."""
    return marquez.count_objects(services, counted, period, timezone)


def _parse_time(name: str, text: str) -> datetime | None:
    """Parse a time; InvalidRequestError names the parameter."""
    if not text:
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(f"{name} {text!r} is not a time, as 2026-05-01T12:00:00Z") from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
