"""Write new snapshots and requests to the changelog; one background thread of all processes does so."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from duckicelake.bridge.values.columns import to_schema
from duckicelake.catalog.context.background_threads import Failed, LeaderTask, run_as_leader
from duckicelake.catalog.context.services import Services
from duckicelake.changelog import object_names, source
from duckicelake.changelog.changed_objects import ChangedObject, ChangedObjectReader
from duckicelake.changelog.entries import (
    SNAPSHOTS,
    ChangeKind,
    LoggedChange,
    SkippedError,
    is_caused_by_change,
    record_skipped,
)
from duckicelake.changelog.facts import (
    Metrics,
    MetricsKey,
    SnapshotRequests,
    collect_facts,
    find_asker,
    find_source,
    place_changes,
    read_metrics,
    read_summary_metrics,
    read_unplaced_changes,
    sum_rows,
)
from duckicelake.changelog.source import AuditedRequest, ChangelogProgress, IcebergSnapshot, LakeSnapshot
from duckicelake.errors import CatalogError
from duckicelake.iceberg.identifiers import parse_schema_name
from duckicelake.lake.ducklake import native
from duckicelake.postgres import frozen_sessions
from duckicelake.postgres.notify import NotificationListener
from duckicelake.postgres.queries import Transaction

MAX_BATCH_SNAPSHOTS: Final = 1_000
"""Snapshots that are written at a time."""
_DEFINES: Final = frozenset({ChangeKind.CREATE_TABLE, ChangeKind.ALTER_TABLE})
_OPERATIONS: Final = {
    kind.value: kind for kind in (ChangeKind.APPEND, ChangeKind.DELETE, ChangeKind.OVERWRITE, ChangeKind.REPLACE)
}
WAKE_SECONDS: Final = 5.0
"""Seconds after which the lake is checked without a notification."""
MAX_TRIES: Final = 8
"""Attempts after which a change is skipped; they take about a minute."""
_REST_SECONDS: Final = 0.06
_UNAWAITED_REST_SECONDS: Final = 0.5
"""Seconds between two writes if no reader waits."""


class WrittenBatch(NamedTuple):
    """The numbers of written snapshots, and of changes without one. is_awaited: a reader waits for more."""

    number: int
    is_awaited: bool


def write_new_changes(
    services: Services, cursor: Transaction, most: int = MAX_BATCH_SNAPSHOTS, unplaced_most: int = MAX_BATCH_SNAPSHOTS
) -> WrittenBatch:
    """Write the next snapshots; after the last one, changes without a snapshot."""
    with source.open_state(cursor):
        news = source.read_news(cursor, most)
        snapshots, progress = _drop_open_transaction(news.snapshots, most), news.progress
        is_last = len(news.snapshots) < most
        unplaced = source.take_unplaced(cursor, unplaced_most) if is_last and news.has_unplaced else []
        if snapshots or unplaced:
            snapshot_change = _ChangeBuilder(services, cursor, progress, snapshots).changes()
            changes, position = place_changes(
                snapshot_change, read_unplaced_changes(cursor, unplaced), snapshots, progress.position
            )
            next_file_id = max([progress.next_file_id, *(snapshot.next_file_id for snapshot in snapshots)])
            source.write_entries(cursor, changes, position, next_file_id)
    return WrittenBatch(len(snapshots) + len(unplaced), news.is_awaited)


def write_all_changes(services: Services) -> None:
    """Bring the changelog up to date."""
    with services.database.open_listener(SNAPSHOTS).connect() as cursor:
        while write_new_changes(services, cursor).number:
            pass


def _drop_open_transaction(found: Sequence[LakeSnapshot], most: int) -> Sequence[LakeSnapshot]:
    """Drop the last snapshots whose transaction may have more: all snapshots of one have the same time."""
    if len(found) < most:
        return found
    whole = [snapshot for snapshot in found if snapshot.at != found[-1].at]
    return whole or found


@dataclass(frozen=True, slots=True)
class _SnapshotChange:
    """An object, and the facts of its change."""

    snapshot: LakeSnapshot
    thing: ChangedObject
    entries: Sequence[AuditedRequest]
    iceberg: IcebergSnapshot | None


class _ChangeBuilder:
    """Builds the changes of some snapshots, with one query of each kind for all."""

    def __init__(
        self, services: Services, cursor: Transaction, progress: ChangelogProgress, snapshots: Sequence[LakeSnapshot]
    ) -> None:
        self._services = services
        self._cursor = cursor
        self._progress = progress
        self._snapshots = snapshots

    def changes(self) -> list[LoggedChange]:
        if not self._snapshots:
            return []
        snapshot_change = self._list_changes()
        metrics = self._metrics(snapshot_change)
        dropped = {
            change.thing.object_id or -1
            for change in snapshot_change
            if ChangeKind.DROP_TABLE in change.thing.kinds and change.thing.place is None
        }
        places = object_names.read_last_places(self._cursor, dropped)
        return [self._change(change, metrics, places) for change in snapshot_change]

    def _list_changes(self) -> list[_SnapshotChange]:
        iceberg = {
            (snapshot.snapshot_id, table.table_id): table for snapshot in self._snapshots for table in snapshot.iceberg
        }
        requests = SnapshotRequests(self._snapshots)
        things = ChangedObjectReader(self._cursor, self._snapshots)
        return [
            _SnapshotChange(
                snapshot,
                thing,
                requests.of(snapshot, thing),
                iceberg.get((snapshot.snapshot_id, thing.object_id or -1)),
            )
            for snapshot in self._snapshots
            for thing in things.of(snapshot.snapshot_id)
        ]

    def _metrics(self, snapshot_change: Sequence[_SnapshotChange]) -> Mapping[MetricsKey, Metrics]:
        things, rows = {}, {}
        for change in snapshot_change:
            if change.thing.object_id is not None:
                place = change.snapshot.snapshot_id, change.thing.object_id
                things[place] = change.thing
                known = _find_rows(change)
                if known is not None:
                    rows[place] = known
        before = self._progress.position.snapshot_id, self._progress.next_file_id
        return read_metrics(self._cursor, self._snapshots, before, things, rows)

    def _change(
        self,
        snapshot_change: _SnapshotChange,
        metrics: Mapping[MetricsKey, Metrics],
        places: Mapping[int, tuple[str, int | None]],
    ) -> LoggedChange:
        snapshot, thing, entries = snapshot_change.snapshot, snapshot_change.thing, snapshot_change.entries
        kinds = _find_kinds(snapshot_change)
        summary = dict(snapshot_change.iceberg.summary) if snapshot_change.iceberg else {}
        location, version = thing.place or places.get(thing.object_id or -1) or (self._location(thing), None)
        counted = metrics.get((snapshot.snapshot_id, thing.object_id or -1))
        facts = {
            "location": location,
            "format-version": version,
            "summary": summary,
            "metrics": read_summary_metrics(summary, whole=not thing.words) | dict(counted or {}),
            "schema": self._schema(thing, snapshot.snapshot_id),
            "kinds": kinds if len(kinds) > 1 else None,
            "author": None if entries else snapshot.author,
            "message": summary.get("ducklake.commit-message") if entries else snapshot.message,
            **collect_facts(entries),
        }
        return LoggedChange(
            snapshot_id=snapshot.snapshot_id,
            ordinal=0,
            at=snapshot.at,
            kind=kinds[0],
            namespace=thing.namespace,
            name=thing.name,
            previous=thing.previous,
            object_id=thing.object_id,
            uuid=thing.uuid,
            source=find_source(entries),
            iceberg_snapshot_id=snapshot_change.iceberg.snapshot_id if snapshot_change.iceberg else None,
            facts={name: value for name, value in facts.items() if value},
            **find_asker(entries),
        )

    def _location(self, thing: ChangedObject) -> str | None:
        """Predict the location of a table that no Iceberg client has seen yet."""
        if thing.born is None or thing.uuid is None or not thing.words:
            return None
        schema, name = thing.born
        return self._services.policy.table_location(parse_schema_name(schema), name or "", thing.uuid)

    def _schema(self, thing: ChangedObject, at: int) -> dict[str, Any] | None:
        """Build the schema of a table that was created or altered; None if Iceberg can't express it."""
        if thing.object_id is None or not _DEFINES & set(thing.kinds):
            return None
        with suppress(CatalogError):
            definition = native.read_definition(self._cursor, thing.object_id, at)
            return None if definition is None else dict(to_schema(definition.columns, 0).to_json())
        return None


def _find_kinds(snapshot_change: _SnapshotChange) -> tuple[ChangeKind, ...]:
    """Find the kinds of a change. For rows of main, Iceberg's operation counts."""
    kinds = snapshot_change.thing.kinds
    operation = (
        _OPERATIONS.get(snapshot_change.iceberg.summary.get("operation", "")) if snapshot_change.iceberg else None
    )
    if operation is None:
        return kinds
    return tuple(operation if kind.value in _OPERATIONS else kind for kind in kinds)


def _find_rows(snapshot_change: _SnapshotChange) -> int | None:
    """Find the number of added rows, if it needn't be counted."""
    if snapshot_change.iceberg is not None:
        return read_summary_metrics(snapshot_change.iceberg.summary, whole=True).get("added-records")
    return sum_rows(snapshot_change.entries)


def skip_snapshot(services: Services, cursor: Transaction) -> SkippedError | None:
    """Write up to the first snapshot that fails, and skip it; if none fails, skip the failing request.

    It isn't tried again: call this only after repeated failures. The cursor's connection must be in no transaction.
    """
    most = MAX_BATCH_SNAPSHOTS
    while True:
        try:
            if not write_new_changes(services, cursor, most, unplaced_most=0).number:
                return _skip_requests(services, cursor)
        except Exception as error:
            if not is_caused_by_change(error):
                raise
            if most == 1:
                with source.open_state(cursor):
                    return record_skipped(cursor, "changelog", f"snapshot {source.pass_snapshot(cursor)}", error)
            most //= 2


def _skip_requests(services: Services, cursor: Transaction) -> SkippedError | None:
    while True:
        try:
            if not write_new_changes(services, cursor, unplaced_most=1).number:
                return None
        except Exception as error:
            if not is_caused_by_change(error):
                raise
            with source.open_state(cursor):
                requests = [entry.request_id for _, entry in source.take_unplaced(cursor, 1)]
                return record_skipped(cursor, "changelog", f"what the request {requests} changed", error)


def follow_in_background(services: Services, failed: Failed) -> AbstractContextManager[None]:
    """Write the changelog in a thread until the block ends. failed: called with errors; the thread goes on."""
    duty = LeaderTask(
        "follower", SNAPSHOTS, source.is_follower_free, source.take_lead, ChangelogWriter(services, failed).follow
    )
    return run_as_leader(services, duty, failed)


class ChangelogWriter:
    """Writes new changes, in one thread. A change that fails repeatedly is skipped, so that later ones are written."""

    def __init__(self, services: Services, failed: Failed) -> None:
        self._services = services
        self._failed = failed
        self._failures = 0

    def follow(self, notices: NotificationListener, cursor: Transaction) -> None:
        """Run until the notices are closed; raises what fails."""
        while not notices.is_closed:
            frozen_sessions.WATCH.look(cursor)
            folded = self.fold(cursor)
            if folded.number == 0:
                notices.wait(WAKE_SECONDS)
            elif folded.number < MAX_BATCH_SNAPSHOTS:
                notices.listen_to(None)  # so that commits send no notifications meanwhile
                notices.rest(_REST_SECONDS if folded.is_awaited else _UNAWAITED_REST_SECONDS)
                notices.listen_to(SNAPSHOTS)

    def fold(self, cursor: Transaction) -> WrittenBatch:
        """Write the next batch; skip a change that has failed too often."""
        try:
            if self._failures >= MAX_TRIES:
                skipped = skip_snapshot(self._services, cursor)
                if skipped is not None:
                    self._failed(skipped)
            folded = write_new_changes(self._services, cursor)
        except Exception as error:
            self._failures = self._failures + 1 if is_caused_by_change(error) else 0
            raise
        self._failures = 0
        return folded
