"""Folds what happened in the lake into the chronicle: DuckLake snapshots, and changes that make none.

One fold is one transaction that reads one state of the lake and moves the chronicle on: killed at any point, it has
happened or it hasn't. Of several that try at the same time one waits for the other, and then finds nothing.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from duckicelake.bridge.columns import schema_of
from duckicelake.catalog.chronicle.metrics import Metrics, Place, from_summary, metrics_of
from duckicelake.catalog.chronicle.order import placed, without_snapshot
from duckicelake.catalog.chronicle.requests import Requests, asker_of, facts_of, rows_of, source_of
from duckicelake.catalog.chronicle.things import Thing, Things
from duckicelake.catalog.services import Services
from duckicelake.errors import CatalogError
from duckicelake.iceberg.names import namespace_of
from duckicelake.lake import native
from duckicelake.lake.chronicle import followed
from duckicelake.lake.chronicle import names as followed_names
from duckicelake.lake.chronicle.entries import SNAPSHOTS, Change, Kind
from duckicelake.lake.chronicle.followed import Heard, IcebergSnapshot, Progress, Snapshot
from duckicelake.lake.postgres.database import Transaction

MOST: Final = 1_000
"""Snapshots in one fold."""
_DEFINES: Final = frozenset({Kind.CREATE_TABLE, Kind.ALTER_TABLE})
_OPERATIONS: Final = {kind.value: kind for kind in (Kind.APPEND, Kind.DELETE, Kind.OVERWRITE, Kind.REPLACE)}


class Folded(NamedTuple):
    """How many snapshots were, and changes without any. is_awaited: somebody waits for what comes next."""

    number: int
    is_awaited: bool


def fold(services: Services, cursor: Transaction, most: int = MOST, unplaced_most: int = MOST) -> Folded:
    """Fold the next snapshots, and after the last changes without any. The cursor's connection is in no transaction."""
    with followed.one_state(cursor):
        news = followed.news(cursor, most)
        snapshots, progress = _whole_transactions(news.snapshots, most), news.progress
        is_last = len(news.snapshots) < most
        unplaced = followed.take_unplaced(cursor, unplaced_most) if is_last and news.has_unplaced else []
        if snapshots or unplaced:
            told = _Telling(services, cursor, progress, snapshots).changes()
            changes, position = placed(told, without_snapshot(cursor, unplaced), snapshots, progress.position)
            next_file_id = max([progress.next_file_id, *(each.next_file_id for each in snapshots)])
            followed.write(cursor, changes, position, next_file_id)
    return Folded(len(snapshots) + len(unplaced), news.is_awaited)


def fold_all(services: Services) -> None:
    """Bring the chronicle up to date."""
    with services.database.notices(SNAPSHOTS).listening() as cursor:
        while fold(services, cursor).number:
            pass


def _whole_transactions(found: Sequence[Snapshot], most: int) -> Sequence[Snapshot]:
    """Without those at the end whose transaction may go on after them: all of one have the same time."""
    if len(found) < most:
        return found
    whole = [each for each in found if each.at != found[-1].at]
    return whole or found


@dataclass(frozen=True, slots=True)
class _Told:
    """A thing and what is known of how it was touched."""

    snapshot: Snapshot
    thing: Thing
    entries: Sequence[Heard]
    iceberg: IcebergSnapshot | None


class _Telling:
    """The changes of some snapshots; everything is looked up for all of them at once."""

    def __init__(
        self, services: Services, cursor: Transaction, progress: Progress, snapshots: Sequence[Snapshot]
    ) -> None:
        self._services = services
        self._cursor = cursor
        self._progress = progress
        self._snapshots = snapshots

    def changes(self) -> list[Change]:
        if not self._snapshots:
            return []
        told = self._told()
        metrics = self._metrics(told)
        dropped = {
            each.thing.object_id or -1
            for each in told
            if Kind.DROP_TABLE in each.thing.kinds and each.thing.place is None
        }
        places = followed_names.last_places(self._cursor, dropped)
        return [self._change(each, metrics, places) for each in told]

    def _told(self) -> list[_Told]:
        iceberg = {
            (snapshot.snapshot_id, each.table_id): each for snapshot in self._snapshots for each in snapshot.iceberg
        }
        requests = Requests(self._snapshots)
        things = Things(self._cursor, self._snapshots)
        return [
            _Told(
                snapshot,
                thing,
                requests.of(snapshot, thing),
                iceberg.get((snapshot.snapshot_id, thing.object_id or -1)),
            )
            for snapshot in self._snapshots
            for thing in things.of(snapshot.snapshot_id)
        ]

    def _metrics(self, told: Sequence[_Told]) -> Mapping[Place, Metrics]:
        things, rows = {}, {}
        for each in told:
            if each.thing.object_id is not None:
                place = each.snapshot.snapshot_id, each.thing.object_id
                things[place] = each.thing
                known = _rows(each)
                if known is not None:
                    rows[place] = known
        before = self._progress.position.snapshot_id, self._progress.next_file_id
        return metrics_of(self._cursor, self._snapshots, before, things, rows)

    def _change(
        self, told: _Told, metrics: Mapping[Place, Metrics], places: Mapping[int, tuple[str, int | None]]
    ) -> Change:
        snapshot, thing, entries = told.snapshot, told.thing, told.entries
        kinds = _kinds(told)
        summary = dict(told.iceberg.summary) if told.iceberg else {}
        location, version = thing.place or places.get(thing.object_id or -1) or (self._location(thing), None)
        counted = metrics.get((snapshot.snapshot_id, thing.object_id or -1))
        facts = {
            "location": location,
            "format-version": version,
            "summary": summary,
            "metrics": from_summary(summary, whole=not thing.words) | dict(counted or {}),
            "schema": self._schema(thing, snapshot.snapshot_id),
            "kinds": kinds if len(kinds) > 1 else None,
            "author": None if entries else snapshot.author,
            "message": summary.get("ducklake.commit-message") if entries else snapshot.message,
            **facts_of(entries),
        }
        return Change(
            snapshot_id=snapshot.snapshot_id,
            ordinal=0,
            at=snapshot.at,
            kind=kinds[0],
            namespace=thing.namespace,
            name=thing.name,
            previous=thing.previous,
            object_id=thing.object_id,
            uuid=thing.uuid,
            source=source_of(entries),
            iceberg_snapshot_id=told.iceberg.snapshot_id if told.iceberg else None,
            facts={name: value for name, value in facts.items() if value},
            **asker_of(entries),
        )

    def _location(self, thing: Thing) -> str | None:
        """Where a table will be that no client of Iceberg has seen yet."""
        if thing.born is None or thing.uuid is None or not thing.words:
            return None
        schema, name = thing.born
        return self._services.policy.table_location(namespace_of(schema), name or "", thing.uuid)

    def _schema(self, thing: Thing, at: int) -> dict[str, Any] | None:
        """Of a table that was created or altered; None where Iceberg can't say it."""
        if thing.object_id is None or not _DEFINES & set(thing.kinds):
            return None
        with suppress(CatalogError):
            definition = native.definition(self._cursor, thing.object_id, at)
            return None if definition is None else dict(schema_of(definition.columns, 0).to_json())
        return None


def _kinds(told: _Told) -> tuple[Kind, ...]:
    """What Iceberg says that became of the rows counts, where they are main's."""
    kinds = told.thing.kinds
    operation = _OPERATIONS.get(told.iceberg.summary.get("operation", "")) if told.iceberg else None
    if operation is None:
        return kinds
    return tuple(operation if kind.value in _OPERATIONS else kind for kind in kinds)


def _rows(told: _Told) -> int | None:
    """How many rows were added, where that needn't be counted."""
    if told.iceberg is not None:
        return from_summary(told.iceberg.summary, whole=True).get("added-records")
    return rows_of(told.entries)
