"""What happened in a lake, as clients read it: changes of its history, events of the change feed, jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from duckicelake.client.models import Json, build_name
from duckicelake.rest.names import Namespace

_HELD_NAMES: Final = ("identifier", "destination", "namespace")
"""Of an event's operation, that name the object; after a rename it is the new name."""


@dataclass(frozen=True, slots=True)
class CommitNotes:
    """The committer's notes: from DuckDB's `set_commit_message`, else from the snapshot's summary."""

    author: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeInfo:
    """A change of a table, view or namespace.

    Attributes:
        version: the DuckLake snapshot that made it, or the last one before it.
        previous: the full name before a rename.
        source: rest, pipeline or duckdb.
        operation, parameters: of the request.
        metrics: of the snapshot, as `added-records`.

    """

    version: int
    position: str
    timestamp: datetime
    kind: str
    namespace: Namespace
    name: str | None
    previous: str | None
    principal: str | None
    engine: str | None
    source: str
    operation: str | None
    parameters: Mapping[str, Json]
    metrics: Mapping[str, int]
    notes: CommitNotes
    iceberg_snapshot_id: int | None
    request_id: str | None

    @property
    def resource(self) -> str:
        """The full name."""
        return build_name(self.namespace, *filter(None, [self.name]))


@dataclass(frozen=True, slots=True)
class EventInfo:
    """An event of the change feed.

    Attributes:
        position: by which the feed goes on behind it.
        type: of the operation, as Iceberg's draft has it: update-table.
        kind: the finer one of this server, as append.
        name: the full name of the namespace, table or view; after a rename the new one.
        request_events: how many events the request made.
        operation: as Iceberg's draft has it.
        details: what the draft lacks: updates, metrics, summary.

    """

    position: str
    timestamp: datetime
    type: str
    kind: str
    name: str
    ducklake_snapshot_id: int
    iceberg_snapshot_id: int | None
    source: str
    principal: str | None
    engine: str | None
    request_id: str
    request_events: int
    operation: Mapping[str, Json] = field(repr=False)
    details: Mapping[str, Json] = field(repr=False)


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events behind a position, and the position behind them; there may be more behind that."""

    events: tuple[EventInfo, ...]
    position: str


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job of the pipeline on a table. result: running, done, unchanged, skipped, failed or lost."""

    id: str
    kind: str
    namespace: Namespace
    table: str
    run_id: str | None
    lease: str | None
    principal: str | None
    engine: str
    parameters: Mapping[str, Json]
    started: datetime
    lease_until: datetime
    ended: datetime | None
    result: Literal["running", "done", "unchanged", "skipped", "failed", "lost"]
    message: str | None
    snapshot_ids: tuple[int, ...]
    counts: Mapping[str, Json]


def parse_event(event: Json) -> EventInfo:
    """Parse an event of the route `/v1/events`."""
    operation, own, actor = event["operation"], event["duckicelake"], event.get("actor") or {}
    return EventInfo(
        own["position"],
        datetime.fromtimestamp(event["timestamp-ms"] / 1000, UTC),
        operation["operation-type"],
        own["kind"],
        _name_object(operation),
        own["snapshot-id"],
        own.get("iceberg-snapshot-id"),
        own["source"],
        actor.get("id"),
        own.get("engine"),
        event["request-id"],
        event["request-event-count"],
        operation,
        own,
    )


def _name_object(operation: Mapping[str, Json]) -> str:
    held = next(operation[name] for name in _HELD_NAMES if name in operation)
    if isinstance(held, dict):
        return build_name(tuple(held["namespace"]), held["name"])
    return build_name(tuple(held))
