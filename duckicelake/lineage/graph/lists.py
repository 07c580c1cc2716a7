"""SQL of lists as one reader may see them: namespaces, datasets, jobs, runs and events."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

from duckicelake.lineage.graph.parsed_event import EventName
from duckicelake.lineage.graph.view import GraphView
from duckicelake.postgres.queries import Row, load_queries

_SQL: Final = load_queries("lineage.graph", "lists")
Counted = Literal["jobs", "datasets", "sources"]
_MASKED: Final = ".several-namespaces."
"""Replaces a table's name in names of jobs, as migration 0042 writes it."""
_COUNTS: Final = {"jobs": _SQL.count_jobs, "datasets": _SQL.count_datasets, "sources": _SQL.count_sources}
_MAX_COUNTED: Final = 100_000
_MAX_ROWS: Final = 100_000
EXAMINED: Final = 20_000
"""Events that are checked for a reader with limited rights; that takes about a second."""


class ListPart(NamedTuple):
    """The wanted part of a list."""

    limit: int = 100
    offset: int = 0


class DatasetListed(NamedTuple):
    """A dataset. shown_namespace, shown_name: for people. namespace, name: its location. total: length of the list."""

    id: int
    shown_namespace: str
    shown_name: str
    namespace: str
    name: str
    kind: str
    first_seen: datetime
    last_seen: datetime
    lifecycle: str | None
    facets: dict[str, Any]
    total: int


class JobListed(NamedTuple):
    """A job with its newest run. total: length of the list."""

    id: int
    namespace: str
    name: str
    first_seen: datetime
    last_seen: datetime
    facets: dict[str, Any]
    run_id: UUID | None
    total: int


class JobIo(NamedTuple):
    """A dataset that a job reads or writes."""

    job_id: int
    is_output: bool
    dataset_id: int
    namespace: str
    name: str


class RunListed(NamedTuple):
    """A run. total: length of the list."""

    id: UUID
    state: str
    started: datetime
    ended: datetime | None
    last_seen: datetime
    facets: dict[str, Any]
    job_namespace: str
    job_name: str
    job_facets: dict[str, Any]
    total: int


class VersionListed(NamedTuple):
    """A version that a run made of a dataset.

    outputs: as in its event, if the reader may see all. total: length of the list.
    """

    run_id: UUID
    at: datetime
    version: str | None
    lifecycle: str | None
    outputs: list[dict[str, Any]] | None
    total: int


class ColumnListed(NamedTuple):
    """The source of a field: a field of a dataset."""

    target: int
    target_field: str
    namespace: str
    name: str
    source: int
    source_field: str
    kind: str
    subtype: str
    description: str | None


class SearchResult(NamedTuple):
    """A dataset or job. kind: DATASET or JOB."""

    kind: str
    namespace: str
    name: str
    last_seen: datetime


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Two times; the second is exclusive."""

    after: datetime
    before: datetime


@dataclass(frozen=True, slots=True)
class LineageLists:
    """Lists as one reader may see them."""

    view: GraphView

    def namespaces(self, part: ListPart) -> list[Row]:
        """Read namespaces, each with the first and last time at which it was seen."""
        return self._rows(_SQL.namespaces, part)

    def datasets(self, part: ListPart, namespace: str | None = None) -> list[DatasetListed]:
        return [DatasetListed(*row) for row in self._rows(_SQL.datasets, part, namespace=namespace, ids=None)]

    def read_datasets_by_id(self, ids: Collection[int]) -> dict[int, DatasetListed]:
        """Read datasets by their ids."""
        rows = self._rows(_SQL.datasets, ListPart(_MAX_ROWS), namespace=None, ids=list(ids))
        return {row[0]: DatasetListed(*row) for row in rows}

    def find_dataset(self, names: Iterable[EventName]) -> int | None:
        """Find the id of the first name that exists."""
        return self._first(_SQL.find_dataset, names)

    def find_job(self, names: Iterable[EventName]) -> int | None:
        """Find the id of the first name that exists."""
        return self._first(_SQL.find_job, map(self._stored_name, names))

    def jobs(
        self, part: ListPart, *, namespace: str | None = None, states: Collection[str] | None = None
    ) -> list[JobListed]:
        """Read jobs, the newest first. states: of their newest runs."""
        wanted = None if states is None else list(states)
        return self._jobs(part, namespace=namespace, states=wanted)

    def job(self, name: EventName) -> JobListed | None:
        return next(iter(self._jobs(ListPart(1), key=self._stored_name(name).key)), None)

    def jobs_of(self, ids: Collection[int]) -> dict[int, JobListed]:
        """Read jobs by their ids."""
        return {row.id: row for row in self._jobs(ListPart(_MAX_ROWS), ids=list(ids))}

    def job_io(self, job_ids: Collection[int]) -> list[JobIo]:
        return [JobIo(*row) for row in self._rows(_SQL.job_io, job_ids=list(job_ids))]

    def io_of_datasets(self, ids: Collection[int]) -> list[tuple[int, bool, int]]:
        """Read jobs by datasets: dataset, whether it is an output, and the job."""
        rows = self._rows(_SQL.io_of_datasets, dataset_ids=list(ids), limit=_MAX_ROWS)
        return [(dataset_id, is_output, job_id) for dataset_id, is_output, job_id in rows]

    def runs(self, part: ListPart, job: EventName) -> list[RunListed]:
        """Read the runs of a job, the newest first."""
        return [RunListed(*row) for row in self._rows(_SQL.runs, part, key=self._stored_name(job).key, ids=None)]

    def runs_of(self, ids: Collection[UUID]) -> dict[UUID, RunListed]:
        """Read runs by their ids."""
        rows = self._rows(_SQL.runs, ListPart(_MAX_ROWS), key=None, ids=list(ids))
        return {row[0]: RunListed(*row) for row in rows}

    def versions(self, part: ListPart, dataset_id: int) -> list[VersionListed]:
        """Read the versions of a dataset, the newest first."""
        return [VersionListed(*row) for row in self._rows(_SQL.versions, part, dataset_id=dataset_id)]

    def names_of(self, dataset_id: int) -> set[EventName]:
        """Read all names that the dataset ever had."""
        return {EventName(*row) for row in self._rows(_SQL.names_of, dataset_id=dataset_id)}

    def columns_to(self, ids: Collection[int]) -> list[ColumnListed]:
        """Read the source fields of the datasets' fields."""
        return [ColumnListed(*row) for row in self._rows(_SQL.columns_to, ids=list(ids), limit=_MAX_ROWS)]

    def events(self, part: ListPart, between: TimeRange, *, is_newest_first: bool) -> list[dict[str, Any]]:
        """Read the events of which the reader may see everything.

        For a reader with few grants, only the first `EXAMINED` in between are searched.
        """
        query = _SQL.events if is_newest_first else _SQL.earliest_events
        rows = self._rows(query, part, after=between.after, before=between.before, examined=EXAMINED)
        return [body for (body,) in rows]

    def count_events(self, between: TimeRange) -> int:
        """Count events, up to a limit."""
        times = {"after": between.after, "before": between.before}
        rows = self._rows(_SQL.count_events, ListPart(_MAX_COUNTED), **times, examined=EXAMINED)
        return int(rows[0][0])

    def search(self, pattern: str, filter_: str, limit: int, *, by_time: bool) -> list[SearchResult]:
        """Find datasets and jobs (filter: ALL, DATASET or JOB) whose names match the pattern."""
        rows = self._rows(_SQL.search, ListPart(limit), pattern=pattern, filter=filter_, by_time=by_time)
        return [SearchResult(*row) for row in rows]

    def count_by_type(self, between: TimeRange, step: timedelta) -> list[Row]:
        """Count events by interval and type."""
        return self._rows(_SQL.count_by_type, since=between.after, until=between.before, step=step)

    def count(self, counted: Counted, between: TimeRange, step: timedelta) -> list[Row]:
        """Count objects at the ends of intervals."""
        return self._rows(_COUNTS[counted], since=between.after, until=between.before, step=step)

    def _jobs(
        self,
        part: ListPart,
        *,
        namespace: str | None = None,
        ids: list[int] | None = None,
        key: UUID | None = None,
        states: list[str] | None = None,
    ) -> list[JobListed]:
        rows = self._rows(_SQL.jobs, part, namespace=namespace, ids=ids, key=key, states=states)
        return [JobListed(*row) for row in rows]

    def _stored_name(self, name: EventName) -> EventName:
        """Return the stored name of a job that the reader knows by a name without its table."""
        if self.view.granted is None or _MASKED not in name.name:
            return name
        found = self._rows(_SQL.find_masked_job, namespace=name.namespace, name=name.name)
        return EventName(*found[0]) if found else name

    def _first(self, query: str, names: Iterable[EventName]) -> int | None:
        row = next(iter(self._rows(query, keys=[name.key for name in names])), None)
        return None if row is None else int(row[0])

    def _rows(self, query: str, part: ListPart = ListPart(), **parameters: Any) -> list[Row]:  # noqa: B008
        return self.view.rows(query, **{"limit": part.limit, "offset": part.offset} | parameters)
