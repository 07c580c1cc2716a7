"""SQL of jobs and runs, and the edges between datasets; events may come in any order."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from duckicelake.lineage.graph.datasets import RECEIVED, DatasetEntry
from duckicelake.lineage.graph.parsed_event import FLOWING, EventColumn, EventDataset, EventName, ParsedEvent
from duckicelake.postgres.pipeline import json_param
from duckicelake.postgres.queries import Transaction, load_queries

_SQL: Final = load_queries("lineage.graph", "store")
_RANKS: Final = {"OTHER": 0, "START": 0, "RUNNING": 1, "COMPLETE": 2, "FAIL": 2, "ABORT": 2}
ENDS: Final = frozenset({"COMPLETE", "FAIL", "ABORT"})
Row = dict[str, Any]


@dataclass(slots=True)
class JobRow:
    """A row of `duckicelake_lineage_job`. id: 0 until it is written."""

    id: int
    key: UUID
    namespace: str
    name: str
    origin: str
    first_seen: datetime
    last_seen: datetime
    facets: dict[str, Any]


@dataclass(slots=True)
class RunState:
    """A row of `duckicelake_lineage_run`."""

    id: UUID
    job_id: int
    origin: str
    state: str
    state_at: datetime
    started: datetime
    ended: datetime | None
    last_seen: datetime
    has_flown: bool
    facets: dict[str, Any]


def find_own_jobs(cursor: Transaction, events: Iterable[ParsedEvent]) -> set[EventName]:
    """Find the events' jobs that the catalog itself has recorded."""
    keys = list({event.job.key for event in events if event.job is not None})
    return {EventName(*row) for row in cursor.execute(_SQL.own_jobs, {"keys": keys})} if keys else set()


def record_jobs(cursor: Transaction, events: Iterable[ParsedEvent], origin: str) -> dict[EventName, int]:
    """Record the jobs of the events; return their ids. The catalog's own events replace what others sent of a job."""
    dataset = [event for event in events if event.job is not None]
    keys = list({event.job.key for event in dataset if event.job})
    if not dataset:
        return {}
    known = {EventName(row[2], row[3]): JobRow(*row) for row in cursor.execute(_SQL.jobs, {"keys": keys})}
    for received in known.values():
        if received.origin == RECEIVED != origin:
            received.origin, received.last_seen, received.facets = origin, received.first_seen, {}
    for event in dataset:
        assert event.job is not None
        job = known.get(event.job)
        if job is None:
            known[event.job] = job = JobRow(0, event.job.key, *event.job, origin, event.at, event.at, {})
        job.facets = _merge_job(job.facets, event.job_facets, is_newer=event.at >= job.last_seen)
        job.first_seen, job.last_seen = min(job.first_seen, event.at), max(job.last_seen, event.at)
    new = [job for job in known.values() if not job.id]
    for job, (number,) in zip(new, cursor.execute(_SQL.job_ids, {"count": len(new)}).fetchall(), strict=True):
        job.id = number
    cursor.execute(_SQL.save_jobs, {"rows": json_param(list(known.values()))})
    return {name: job.id for name, job in known.items()}


def read_known_runs(cursor: Transaction, events: Iterable[ParsedEvent]) -> dict[UUID, RunState]:
    """Read the known ones among the events' runs."""
    ids = list({event.run for event in events if event.run is not None})
    return {row[0]: RunState(*row) for row in cursor.execute(_SQL.runs, {"ids": ids})} if ids else {}


def record_runs(
    cursor: Transaction,
    known: dict[UUID, RunState],
    events: Sequence[ParsedEvent],
    job_ids: dict[EventName, int],
    origin: str,
) -> None:
    """Record the runs of the events."""
    for event in events:
        if event.run is None:
            continue
        assert event.job is not None
        assert event.type is not None
        run = known.get(event.run)
        if run is None:
            job_id = job_ids[event.job]
            run = RunState(event.run, job_id, origin, event.type, event.at, event.at, None, event.at, False, {})
            known[event.run] = run
        if run.origin == RECEIVED != origin:
            run.origin, run.job_id, run.last_seen, run.facets = origin, job_ids[event.job], run.started, {}
        _apply_event(run, event, event.type)
    if known:
        cursor.execute(_SQL.save_runs, {"rows": json_param(list(known.values()))})


def _apply_event(run: RunState, event: ParsedEvent, kind: str) -> None:
    if (_RANKS.get(kind, 0), event.at) >= (_RANKS.get(run.state, 0), run.state_at):
        run.state, run.state_at = kind, event.at
    run.facets = _merge_job(run.facets, event.run_facets, is_newer=event.at >= run.last_seen)
    run.started, run.last_seen = min(run.started, event.at), max(run.last_seen, event.at)
    run.ended = run.state_at if run.state in ENDS else None
    run.has_flown = run.has_flown or kind in FLOWING


def _merge_job(old: dict[str, Any], news: Any, *, is_newer: bool) -> dict[str, Any]:
    facets = old | dict(news) if is_newer else dict(news) | old
    return {name: facet for name, facet in facets.items() if not facet.get("_deleted")}


@dataclass(frozen=True, slots=True)
class EventSide:
    """An input or output of a stored event, and its dataset."""

    event_id: int
    event: ParsedEvent
    dataset: EventDataset
    entry: DatasetEntry
    is_output: bool


@dataclass(frozen=True, slots=True)
class EdgeRows:
    """Builds rows of edges. ids: of the datasets. runs: those of the events, by which jobs are found."""

    id_of: Callable[[DatasetEntry], int]
    job_ids: Mapping[EventName, int]
    runs: Mapping[UUID, RunState]

    def io(self, sides: Iterable[EventSide]) -> list[Row]:
        """Build rows of the datasets of each run. Sides are in the order of their times."""
        found: dict[tuple[UUID, int, bool], Row] = {}
        for side in sides:
            if side.event.run is None:
                continue
            key = (side.event.run, self.id_of(side.entry), side.is_output)
            before = found.get(key)
            confidence = side.dataset.confidence
            if before and (before["confidence"] is None or confidence is None):
                confidence = None
            found[key] = {
                "run_id": key[0],
                "dataset_id": key[1],
                "is_output": key[2],
                "job_id": self._job(side.event),
                "at": side.event.at,
                "version": side.dataset.version or (before and before["version"]),
                "lifecycle": side.dataset.lifecycle or (before and before["lifecycle"]),
                "confidence": confidence,
                "has_columns": side.dataset.has_columns or bool(before and before["has_columns"]),
                "event_id": side.event_id,
            }
        return list(found.values())

    def job_io(self, sides: Iterable[EventSide]) -> list[Row]:
        """Build rows of the datasets of each job."""
        return [
            {
                "job_id": self._job(side.event),
                "dataset_id": self.id_of(side.entry),
                "is_output": side.is_output,
                "at": side.event.at,
            }
            for side in sides
            if side.event.job is not None
        ]

    def columns(
        self, made_of: Iterable[tuple[EventSide, EventColumn, DatasetEntry]], sides: Iterable[EventSide]
    ) -> list[Row]:
        """Build rows of the source fields of outputs' fields, with their confidence, else the input's."""
        inputs = {
            (side.event_id, self.id_of(side.entry)): side.dataset.confidence for side in sides if not side.is_output
        }
        rows = []
        for side, column, entry in made_of:
            source = self.id_of(entry)
            own = column.confidence
            rows.append(
                {
                    "source": source,
                    "source_field": column.source_field,
                    "target": self.id_of(side.entry),
                    "target_field": column.target_field,
                    "job_id": self._job(side.event),
                    "kind": column.kind,
                    "subtype": column.subtype,
                    "description": column.description,
                    "is_masked": column.is_masked,
                    "at": side.event.at,
                    "confidence": inputs.get((side.event_id, source)) if own is None else own,
                }
            )
        return rows

    def edges(self, columns: Iterable[Row], sides: Sequence[EventSide]) -> list[Row]:
        """Build edges between datasets: those of columns, and those of jobs' definitions, which have no run."""
        kept = ("source", "target", "job_id", "at", "confidence")
        return [*({name: row[name] for name in kept} for row in columns), *self._build_definition_edges(sides)]

    def _build_definition_edges(self, sides: Sequence[EventSide]) -> Iterator[Row]:
        by_event: dict[int, list[EventSide]] = {}
        for side in sides:
            if side.event.run is None:
                by_event.setdefault(side.event_id, []).append(side)
        for dataset in by_event.values():
            outputs = [side for side in dataset if side.is_output]
            for output in outputs:
                if output.dataset.has_columns and len(outputs) > 1:
                    continue
                for given in dataset:
                    if not given.is_output:
                        yield {
                            "source": self.id_of(given.entry),
                            "target": self.id_of(output.entry),
                            "job_id": self._job(output.event),
                            "at": output.event.at,
                            "confidence": given.dataset.confidence,
                        }

    def definitions(self, sides: Iterable[EventSide]) -> list[Row]:
        """Build rows of outputs with newly defined sources: all outputs of a job, and datasets with columns."""
        defined = [side for side in sides if side.event.run is None and (side.event.job or side.dataset.has_columns)]
        newest: dict[tuple[int, int], Row] = {}
        for side in defined:
            target, job_id = self.id_of(side.entry), self._job(side.event)
            newest[target, job_id] = {"target": target, "job_id": job_id, "at": side.event.at}
        return list(newest.values())

    def _job(self, event: ParsedEvent) -> int:
        """Return the id of the event's job; 0 without one."""
        if event.run is not None:
            return self.runs[event.run].job_id
        return self.job_ids[event.job] if event.job is not None else 0
