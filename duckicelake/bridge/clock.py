"""PURE. The times of new snapshots on the catalog's clock: a client's clock can't spoil a table (design §6.20)."""

from collections import ChainMap
from collections.abc import Sequence

from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.iceberg.updates import AddSnapshot, TableUpdate

TOLERANCE_MS = 30_000


def on_our_clock(updates: Sequence[TableUpdate], base: TableMetadata | None, now_ms: int) -> tuple[TableUpdate, ...]:
    """The updates with `now_ms` for snapshots of the future, and no snapshot older than its parent.

    Java refuses metadata whose logs go back by more than a minute; one wrong clock would make a table unreadable.
    Negative times are left for `apply` to refuse.
    """
    known = ChainMap[int, Snapshot]({}, base.snapshots_by_id if base else {})
    return tuple(_timed(update, known, now_ms) for update in updates)


def _timed(update: TableUpdate, known: ChainMap[int, Snapshot], now_ms: int) -> TableUpdate:
    """The update, its snapshot's time set right and noted in `known`."""
    if not isinstance(update, AddSnapshot) or update.snapshot.timestamp_ms < 0:
        return update
    snapshot = update.snapshot
    moment = now_ms if snapshot.timestamp_ms > now_ms + TOLERANCE_MS else snapshot.timestamp_ms
    parent = None if snapshot.parent_snapshot_id is None else known.get(snapshot.parent_snapshot_id)
    moment = moment if parent is None else max(moment, parent.timestamp_ms)
    if moment == snapshot.timestamp_ms:
        known[snapshot.snapshot_id] = snapshot
        return update
    timed = known[snapshot.snapshot_id] = snapshot.replaced(timestamp_ms=moment)
    return update.replaced(snapshot=timed)
