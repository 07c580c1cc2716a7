"""Lists, search and counts of Marquez's API."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequestError, NotFoundError
from duckicelake.lineage.graph.lists import Counted, JobListed, LineageLists, ListPart, RunListed, TimeRange
from duckicelake.lineage.graph.parsed_event import EventName
from duckicelake.lineage.graph.view import GraphView
from duckicelake.lineage.marquez.rows import STATES, build_dataset, build_job, build_run, build_version
from duckicelake.lineage.marquez.shapes import (
    MarquezCount,
    MarquezDataset,
    MarquezDatasets,
    MarquezDatasetVersions,
    MarquezEvents,
    MarquezFacets,
    MarquezJob,
    MarquezJobs,
    MarquezMetric,
    MarquezNamespace,
    MarquezNamespaces,
    MarquezResult,
    MarquezRun,
    MarquezRuns,
    MarquezSearch,
)

Period = Literal["DAY", "WEEK"]
_STEPS: Final = {"DAY": (24, timedelta(hours=1)), "WEEK": (7, timedelta(days=1))}
_EARLIEST: Final = datetime(1, 1, 2, tzinfo=UTC)
_LATEST: Final = datetime(9999, 12, 30, tzinfo=UTC)


@contextmanager
def open_lists(services: Services) -> Iterator[LineageLists]:
    """Yield the lists that the caller may see, in one transaction."""
    with services.database.reading() as cursor:
        yield LineageLists(GraphView.of_reader(cursor, services.caller.principal))


def list_namespaces(services: Services, part: ListPart) -> MarquezNamespaces:
    """List the namespaces of datasets and jobs."""
    with open_lists(services) as known:
        rows = known.namespaces(part)
    return MarquezNamespaces(
        namespaces=tuple(MarquezNamespace(name=name, created_at=since, updated_at=upto) for name, since, upto in rows)
    )


def list_datasets(services: Services, part: ListPart, namespace: str) -> MarquezDatasets:
    """List the datasets of a namespace."""
    with open_lists(services) as known:
        rows = known.datasets(part, namespace)
    return MarquezDatasets(datasets=tuple(map(build_dataset, rows)), total_count=rows[0].total if rows else 0)


def read_dataset(services: Services, name: EventName) -> MarquezDataset:
    """Read a dataset with its column lineage; NotFoundError."""
    with open_lists(services) as known:
        number = _find_dataset(known, name)
        return build_dataset(known.read_datasets_by_id([number])[number], known.columns_to([number]))


def list_versions(services: Services, part: ListPart, name: EventName) -> MarquezDatasetVersions:
    """List the versions of a dataset; NotFoundError."""
    with open_lists(services) as known:
        number = _find_dataset(known, name)
        rows = known.versions(part, number)
        runs, names = known.runs_of([row.run_id for row in rows]), known.names_of(number)
        about = known.read_datasets_by_id([number])[number]
    found = tuple(build_version(row, about, names, runs.get(row.run_id)) for row in rows)
    return MarquezDatasetVersions(versions=found, total_count=rows[0].total if rows else 0)


def list_jobs(
    services: Services, part: ListPart, namespace: str | None = None, states: Collection[str] | None = None
) -> MarquezJobs:
    """List the jobs of a namespace, or all. states: Marquez's, of their newest runs."""
    wanted = None if not states else [ours for ours, theirs in STATES.items() if theirs in states]
    with open_lists(services) as known:
        rows = known.jobs(part, namespace=namespace, states=wanted)
        found = tuple(build_jobs(known, rows).values())
    return MarquezJobs(jobs=found, total_count=rows[0].total if rows else 0)


def read_job(services: Services, name: EventName) -> MarquezJob:
    """Read one job; NotFoundError."""
    with open_lists(services) as known:
        row = known.job(name)
        if row is None:
            raise NotFoundError(f"There is no job {name.name} in {name.namespace}, or none that you may read")
        return build_jobs(known, [row])[row.id]


def list_runs(services: Services, part: ListPart, name: EventName) -> MarquezRuns:
    """List the runs of a job, the newest first."""
    with open_lists(services) as known:
        rows = known.runs(part, name)
    return MarquezRuns(runs=tuple(map(build_run, rows)), total_count=rows[0].total if rows else 0)


def read_run(services: Services, run_id: UUID) -> MarquezRun:
    """Read one run; NotFoundError."""
    return build_run(_find_run(services, run_id))


def read_facets(services: Services, run_id: UUID, of: Literal["run", "job"]) -> MarquezFacets:
    """Read the facets of a run, or of its job; NotFoundError."""
    row = _find_run(services, run_id)
    return MarquezFacets(run_id=str(run_id), facets=row.facets if of == "run" else row.job_facets)


def list_events(
    services: Services, part: ListPart, after: datetime | None, before: datetime | None, *, is_newest_first: bool
) -> MarquezEvents:
    """List events of runs whose datasets the caller may all see; a caller with all rights gets all events."""
    between = TimeRange(after or _EARLIEST, before or _LATEST)
    with open_lists(services) as known:
        found = known.events(part, between, is_newest_first=is_newest_first)
        return MarquezEvents(events=tuple(found), total_count=known.count_events(between))


def search_names(services: Services, text: str, filter_: str, limit: int, *, by_time: bool) -> MarquezSearch:
    """Find datasets and jobs. In the text, % matches any characters and _ one."""
    with open_lists(services) as known:
        found = known.search(f"%{text.rstrip(chr(92))}%", filter_, limit, by_time=by_time)
    results = tuple(
        MarquezResult(
            namespace=row.namespace,
            name=row.name,
            node_id=f"{row.kind.lower()}:{row.namespace}:{row.name}",
            type=row.kind,
            updated_at=row.last_seen,
        )
        for row in found
    )
    return MarquezSearch(total_count=len(results), results=results)


def count_events(services: Services, period: Period, timezone: str) -> tuple[MarquezMetric, ...]:
    """Count events by the hour of the last day, or by the day of the last week."""
    between, step = _build_intervals(services, period, timezone)
    counted: dict[tuple[datetime, datetime], dict[str, int]] = {}
    with open_lists(services) as known:
        for since, until, kind, number in known.count_by_type(between, step):
            counted.setdefault((since, until), {})[str(kind).lower()] = number
    types = ("fail", "start", "complete", "abort")
    return tuple(
        MarquezMetric(start_interval=since, end_interval=until, **{kind: found.get(kind, 0) for kind in types})
        for (since, until), found in counted.items()
    )


def count_objects(services: Services, counted: Counted, period: Period, timezone: str) -> tuple[MarquezCount, ...]:
    """Count objects at the ends of the same intervals."""
    between, step = _build_intervals(services, period, timezone)
    with open_lists(services) as known:
        rows = known.count(counted, between, step)
    return tuple(MarquezCount(start_interval=since, end_interval=until, count=number) for since, until, number in rows)


def build_jobs(known: LineageLists, rows: Sequence[JobListed]) -> dict[int, MarquezJob]:
    """Build jobs with inputs, outputs and newest runs, by id."""
    io = known.job_io([row.id for row in rows])
    newest = known.runs_of([row.run_id for row in rows if row.run_id is not None])
    return {row.id: build_job(row, io, newest.get(row.run_id) if row.run_id else None) for row in rows}


def _find_dataset(known: LineageLists, name: EventName) -> int:
    found = known.find_dataset([name])
    if found is None:
        raise NotFoundError(f"There is no dataset {name.name} in {name.namespace}, or none that you may read")
    return found


def _find_run(services: Services, run_id: UUID) -> RunListed:
    with open_lists(services) as known:
        found = known.runs_of([run_id]).get(run_id)
    if found is None:
        raise NotFoundError(f"There is no run {run_id}, or none that you may read")
    return found


def _build_intervals(services: Services, period: Period, timezone: str) -> tuple[TimeRange, timedelta]:
    number, step = _STEPS[period]
    now = datetime.fromtimestamp(services.clock() / 1000, _parse_zone(timezone))
    last = now.replace(minute=0, second=0, microsecond=0)
    last = last if period == "DAY" else last.replace(hour=0)
    return TimeRange(last - (number - 1) * step, last), step


def _parse_zone(name: str) -> Any:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidRequestError(f"Invalid timezone {name!r}: use an IANA name such as Europe/Berlin") from None
