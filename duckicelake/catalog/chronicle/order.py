"""The order of the chronicle: where changes have their places, those that make no snapshot, too."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from duckicelake.catalog.chronicle.requests import asker_of, facts_of, source_of
from duckicelake.iceberg.names import namespace_of
from duckicelake.lake.chronicle import names as followed_names
from duckicelake.lake.chronicle.entries import Change, Kind, Position
from duckicelake.lake.chronicle.followed import Heard, Snapshot
from duckicelake.lake.chronicle.names import Name
from duckicelake.lake.postgres.database import Transaction

_WITHOUT_SNAPSHOT: Final = {
    "commit_table": Kind.UPDATE_TABLE,
    "commit": Kind.UPDATE_TABLE,
    "commit_view": Kind.ALTER_VIEW,
    "update_properties": Kind.UPDATE_NAMESPACE,
}
"""What operations change that make no snapshot; those of others change nothing that anybody sees."""


def without_snapshot(cursor: Transaction, entries: Sequence[tuple[datetime, Heard]]) -> list[Change]:
    """What changed by requests that made no snapshot, in the order in which they were done."""
    known = [
        (at, entry, kind, *_split(entry.resource, kind))
        for at, entry in entries
        if (kind := _WITHOUT_SNAPSHOT.get(entry.operation))
    ]
    if not known:
        return []
    names = [(namespace, name) for *_, namespace, name in known]
    ids = (
        followed_names.live_schemas(cursor, [each for each in names if each[1] is None])
        | followed_names.live_tables(cursor, [each for each in names if each[1] is not None])
        | followed_names.live_views(cursor, [each for each in names if each[1] is not None])
    )
    return [
        _unplaced_change(at, entry, kind, (namespace, name), ids.get((namespace, name)))
        for at, entry, kind, namespace, name in known
    ]


def _unplaced_change(at: datetime, entry: Heard, kind: Kind, named: Name, object_id: int | None) -> Change:
    return Change(
        snapshot_id=0,
        ordinal=0,
        at=at,
        kind=kind,
        namespace=named[0],
        name=named[1],
        object_id=object_id,
        source=source_of([entry]),
        facts=facts_of([entry]),
        **asker_of([entry]),
    )


def _split(resource: str, kind: Kind) -> tuple[str, str | None]:
    if kind == Kind.UPDATE_NAMESPACE:
        return resource, None
    namespace, _, name = resource.rpartition(".")
    return namespace, namespace_of(name)[0]


def placed(
    changes: Sequence[Change], others: Sequence[Change], snapshots: Sequence[Snapshot], last: Position
) -> tuple[list[Change], Position]:
    """All of them with their positions, and the last one; `others` follow the last snapshot that was made before them.

    A position is taken by each snapshot, if only so that a change which comes later gets another.
    """
    by_snapshot: defaultdict[int, list[Change]] = defaultdict(list)
    for change in changes:
        by_snapshot[change.snapshot_id].append(change)
    for change in others:
        before = [each.snapshot_id for each in snapshots if each.at <= change.at]
        by_snapshot[before[-1] if before else last.snapshot_id].append(change)
    found = []
    for snapshot_id in sorted(by_snapshot):
        first = last.ordinal + 1 if snapshot_id == last.snapshot_id else 0
        for ordinal, change in enumerate(by_snapshot[snapshot_id], first):
            found.append(replace(change, snapshot_id=snapshot_id, ordinal=ordinal))
    newest = snapshots[-1].snapshot_id if snapshots else last.snapshot_id
    ordinals = [change.ordinal for change in found if change.snapshot_id == newest]
    taken = last.ordinal if newest == last.snapshot_id else 0
    return found, Position(newest, max(ordinals, default=taken))
