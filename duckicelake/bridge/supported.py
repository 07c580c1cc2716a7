"""PURE. What of legal Iceberg this server refuses; MISSING.md lists it all."""

from duckicelake.errors import Unsupported
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.snapshot import Snapshot

FORMAT_VERSION = 2


def check_format_version(metadata: TableMetadata) -> None:
    """Unsupported unless the table is of a format version that is served."""
    if metadata.format_version != FORMAT_VERSION:
        raise Unsupported(
            "format-versions",
            f"Format version {metadata.format_version} is refused yet: "
            f"set the table property format-version to {FORMAT_VERSION}",
        )


def new_on_main(base: TableMetadata | None, target: TableMetadata) -> tuple[Snapshot, ...]:
    """The snapshots that a commit adds to main, oldest first.

    Unsupported for snapshots that aren't on main, and for a main that moves anywhere but to a new snapshot on top.
    """
    known = base.snapshots_by_id if base else {}
    new = [snapshot for snapshot in target.snapshots if snapshot.snapshot_id not in known]
    main = base.current_snapshot_id if base else None
    if target.current_snapshot_id == main and not new:
        return ()
    chain = _chain(target, {snapshot.snapshot_id for snapshot in new})
    if len(chain) != len(new) or not chain:
        raise Unsupported(
            "branches",
            "Snapshots outside of main and moving main to another snapshot (branches, staged commits, rollback) are "
            "refused yet",
        )
    if chain[0].parent_snapshot_id not in (None, main):
        raise Unsupported("branches", "A new snapshot on main must build on main's current snapshot")
    return chain


def _chain(target: TableMetadata, new: set[int]) -> tuple[Snapshot, ...]:
    chain: list[Snapshot] = []
    current = target.current_snapshot()
    while current is not None and current.snapshot_id in new:
        chain.append(current)
        parent = current.parent_snapshot_id
        current = None if parent is None else target.snapshot(parent)
    return tuple(reversed(chain))
