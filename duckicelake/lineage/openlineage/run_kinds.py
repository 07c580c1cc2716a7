"""PURE. Runs that are no single transaction: refused requests, and programs that write again and again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Self

from openlineage.client.facet_v2 import error_message_run

from duckicelake.lineage.openlineage.changes import CatalogChange, Json, KnownObject, is_streaming
from duckicelake.lineage.openlineage.facets import add_counts, encode_facet, strip_to_names, sum_counts
from duckicelake.lineage.openlineage.names import NamedLake
from duckicelake.lineage.openlineage.runs import (
    RunChanges,
    build_run_event,
    describe_run,
    find_job_identity,
    format_job_name,
    may_name_table,
)

_REPORTED_OPERATIONS: Final = frozenset(
    {
        "CommitFailedException",
        "ConflictException",
        "BadRequestException",
        "IllegalArgumentException",
        "UnprocessableEntityException",
        "UnsupportedOperationException",
        "DamagedTableException",
    }
)
_UNKNOWN: Final = "CommitStateUnknownException"
"""The error of an unknown outcome: if the commit was written, it is in the changelog."""


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """A refused request, as the change that it would have been. result: an error's type and status.

    object_id, location: None if there is no such table. A resource that is no table has no name.
    """

    id: int
    at: datetime
    principal: str | None
    request_id: str | None
    operation: str
    namespace: str
    name: str | None
    result: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    object_id: int | None = None
    source: str = "rest"
    snapshot_id: int = -1
    previous: None = None
    uuid: None = None
    iceberg_snapshot_id: None = None

    @property
    def ordinal(self) -> int:
        return self.id

    @property
    def kind(self) -> str:
        return self.operation

    @property
    def agent(self) -> str | None:
        return (self.facts.get("client") or {}).get("user-agent")

    @property
    def resource(self) -> str:
        return self.namespace if self.name is None else f"{self.namespace}.{self.name}"


def is_failure(result: str) -> bool:
    """Return whether a request's result is a failure of its job."""
    error, _, status = result.rpartition(" ")
    return error != _UNKNOWN and (error in _REPORTED_OPERATIONS or status.startswith("5"))


def build_failed_runs(refused: Sequence[RefusedRequest], lake: NamedLake) -> list[Json]:
    """Build begin and end of failed runs. Repeated failures of one job are one run."""
    found: dict[tuple[str, str], list[RefusedRequest]] = {}
    for refusal in refused:
        found.setdefault((format_job_name([_build_change(refusal)], lake), refusal.result), []).append(refusal)
    return [event for group in found.values() for event in _build_failed(group, lake)]


def _build_failed(group: Sequence[RefusedRequest], lake: NamedLake) -> list[Json]:
    first, last = group[0], group[-1]
    times = f", {len(group)} times" if len(group) > 1 else ""
    error = encode_facet(error_message_run.ErrorMessageRunFacet(f"{first.operation}: {first.result}{times}", "PYTHON"))
    body = describe_run([_build_change(first)], lake)
    run = {**body["run"], "facets": {**body["run"]["facets"], "errorMessage": error}}
    outputs = strip_to_names(body["outputs"]) if first.object_id is not None else []
    body = {**body, "run": run, "outputs": outputs}
    return [build_run_event(body, "START", first.at), build_run_event(body, "FAIL", last.at)]


def _build_change(refused: RefusedRequest) -> CatalogChange:
    return CatalogChange(refused, KnownObject(refused.facts.get("location")))


@dataclass(frozen=True, slots=True)
class StreamPace:
    """Times at which a stream reports progress, ends, and is cut. most: number of open streams."""

    report_interval: timedelta = timedelta(seconds=10)
    idle: timedelta = timedelta(seconds=10)
    longest: timedelta = timedelta(hours=1)
    most: int = 200


PACE: Final = StreamPace()
_STORED_TIMES: Final = {"started": "started", "last": "last", "told": "reported"}
"""Attributes of a stream by the keys of its stored JSON."""


@dataclass(frozen=True, slots=True)
class LineageStream:
    """An open run. body: as last reported or stored. latest: later changes. counts: of the whole run."""

    body: Json
    counts: dict[str, int]
    started: datetime
    last: datetime
    reported: datetime
    latest: RunChanges = field(default_factory=list)

    def to_json(self) -> Json:
        times = {key: getattr(self, name).isoformat() for key, name in _STORED_TIMES.items()}
        return {"body": self.body, "counts": self.counts, **times}

    @classmethod
    def from_json(cls, kept: Json) -> Self:
        times = {name: datetime.fromisoformat(kept[key]) for key, name in _STORED_TIMES.items()}
        return cls(kept["body"], kept["counts"], times["started"], times["last"], times["reported"])


class StreamGroups:
    """Open streams by their jobs' identities, and their events. describe: builds a run's body."""

    def __init__(self, kept: Sequence[Json], describe: Callable[[RunChanges], Json], pace: StreamPace = PACE) -> None:
        self._describe = describe
        self._pace = pace
        self._open = {
            find_job_identity(stream["body"]["job"]["name"]): LineageStream.from_json(stream) for stream in kept
        }
        self.events: list[Json] = []

    def add(self, name: str, run: RunChanges) -> None:
        """Add the next run of the job of this name, in the order of the changelog."""
        at, counts, name = run[0].change.at, sum_counts(run), find_job_identity(name)
        known = self._open.get(name)
        if known is not None and self._is_over(known, at):
            self._end(name)
            known = None
        if known is None:
            body = self._describe(run)
            self.events.append(build_run_event(body, "START", at))
            self._open[name] = self._report(LineageStream(body, counts, at, at, at))
            return
        total = {key: known.counts.get(key, 0) + counts.get(key, 0) for key in sorted({*known.counts, *counts})}
        stream = replace(known, counts=total, last=at, latest=run)
        self._open[name] = self._report(stream) if at - known.reported >= self._pace.report_interval else stream

    def pass_until(self, now: datetime) -> None:
        """Advance the time: end silent streams, and the oldest if there are too many."""
        oldest_first = sorted(self._open, key=lambda name: self._open[name].last)
        too_many = oldest_first[: max(0, len(oldest_first) - self._pace.most)]
        for name in oldest_first:
            if name in too_many or now - self._open[name].last >= self._pace.idle:
                self._end(name)

    def list_open(self) -> list[Json]:
        """Return the open streams as JSON."""
        self._open = {name: self._current(stream) for name, stream in self._open.items()}
        return [stream.to_json() for stream in self._open.values()]

    def _is_over(self, stream: LineageStream, at: datetime) -> bool:
        return at - stream.last >= self._pace.idle or at - stream.started >= self._pace.longest

    def _report(self, stream: LineageStream) -> LineageStream:
        current = self._current(stream)
        self.events.append(build_run_event(current.body, "RUNNING", current.last))
        return replace(current, reported=current.last)

    def _end(self, name: str) -> None:
        current = self._current(self._open.pop(name))
        self.events.append(build_run_event(current.body, "COMPLETE", current.last))

    def _current(self, stream: LineageStream) -> LineageStream:
        """Return the stream with the body of its last change."""
        if not stream.latest:
            return stream
        body = self._describe(stream.latest)
        run = {**body["run"], "runId": stream.body["run"]["runId"]}
        job = body["job"] if may_name_table(stream.body["job"]["name"]) else stream.body["job"]
        outputs = [add_counts(output, stream.counts) for output in body["outputs"]]
        return replace(stream, body={**body, "run": run, "job": job, "outputs": outputs}, latest=[])


def is_of_stream(run: RunChanges) -> bool:
    """Return whether a run is part of a stream."""
    return len(run) == 1 and is_streaming(run[0])
