"""Jobs and runs as the events of them come to be: in any order, what is newest counts, and an end beats a middle."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from duckicelake.lake.lineage.entries import RECEIVED
from duckicelake.lake.lineage.told import FLOWING, Event, Name
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.documents import document
from duckicelake.lake.postgres.queries import queries

_SQL: Final = queries("lineage_store")
_RANKS: Final = {"OTHER": 0, "START": 0, "RUNNING": 1, "COMPLETE": 2, "FAIL": 2, "ABORT": 2}
ENDS: Final = frozenset({"COMPLETE", "FAIL", "ABORT"})


@dataclass(slots=True)
class Job:
    """A row of `duckicelake_lineage_job`; id: 0 until it is written."""

    id: int
    key: UUID
    namespace: str
    name: str
    origin: str
    first_seen: datetime
    last_seen: datetime
    facets: dict[str, Any]


@dataclass(slots=True)
class Run:
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


def own_jobs(cursor: Transaction, events: Iterable[Event]) -> set[Name]:
    """Those of the jobs of the events that the catalog has told of itself."""
    keys = list({event.job.key for event in events if event.job is not None})
    return {Name(*row) for row in cursor.execute(_SQL.own_jobs, {"keys": keys})} if keys else set()


def jobs(cursor: Transaction, events: Iterable[Event], origin: str) -> dict[Name, int]:
    """Note the jobs of the events; their ids. What others sent of one is forgotten once the catalog tells of it."""
    told = [event for event in events if event.job is not None]
    keys = list({event.job.key for event in told if event.job})
    if not told:
        return {}
    known = {Name(row[2], row[3]): Job(*row) for row in cursor.execute(_SQL.jobs, {"keys": keys})}
    for received in known.values():
        if received.origin == RECEIVED != origin:
            received.origin, received.last_seen, received.facets = origin, received.first_seen, {}
    for event in told:
        assert event.job is not None
        job = known.get(event.job)
        if job is None:
            known[event.job] = job = Job(0, event.job.key, *event.job, origin, event.at, event.at, {})
        job.facets = _merged(job.facets, event.job_facets, is_newer=event.at >= job.last_seen)
        job.first_seen, job.last_seen = min(job.first_seen, event.at), max(job.last_seen, event.at)
    new = [job for job in known.values() if not job.id]
    for job, (number,) in zip(new, cursor.execute(_SQL.job_ids, {"count": len(new)}).fetchall(), strict=True):
        job.id = number
    cursor.execute(_SQL.save_jobs, {"rows": document(list(known.values()))})
    return {name: job.id for name, job in known.items()}


def known_runs(cursor: Transaction, events: Iterable[Event]) -> dict[UUID, Run]:
    """Those of the runs of the events that are known."""
    ids = list({event.run for event in events if event.run is not None})
    return {row[0]: Run(*row) for row in cursor.execute(_SQL.runs, {"ids": ids})} if ids else {}


def runs(
    cursor: Transaction, known: dict[UUID, Run], events: Sequence[Event], job_ids: dict[Name, int], origin: str
) -> None:
    """Note the runs of the events."""
    for event in events:
        if event.run is None:
            continue
        assert event.job is not None
        assert event.type is not None
        run = known.get(event.run)
        if run is None:
            job_id = job_ids[event.job]
            run = Run(event.run, job_id, origin, event.type, event.at, event.at, None, event.at, False, {})
            known[event.run] = run
        if run.origin == RECEIVED != origin:
            run.origin, run.job_id, run.last_seen, run.facets = origin, job_ids[event.job], run.started, {}
        _take_in(run, event, event.type)
    if known:
        cursor.execute(_SQL.save_runs, {"rows": document(list(known.values()))})


def _take_in(run: Run, event: Event, kind: str) -> None:
    if (_RANKS.get(kind, 0), event.at) >= (_RANKS.get(run.state, 0), run.state_at):
        run.state, run.state_at = kind, event.at
    run.facets = _merged(run.facets, event.run_facets, is_newer=event.at >= run.last_seen)
    run.started, run.last_seen = min(run.started, event.at), max(run.last_seen, event.at)
    run.ended = run.state_at if run.state in ENDS else None
    run.has_flown = run.has_flown or kind in FLOWING


def _merged(old: dict[str, Any], news: Any, *, is_newer: bool) -> dict[str, Any]:
    facets = old | dict(news) if is_newer else dict(news) | old
    return {name: facet for name, facet in facets.items() if not facet.get("_deleted")}
