"""PURE. Which snapshots an expiry takes, as engines do it: branches keep what their retention says, tags theirs."""

from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.snapshot import SnapshotRef, ancestry


def expirable(metadata: TableMetadata, before_ms: int, kept: int = 1) -> tuple[int, ...]:
    """The ids of snapshots from before a moment that nothing keeps, oldest first.

    kept: so many of each branch stay however old they are. A branch's own retention keeps more.
    """
    stays = {each.snapshot_id for each in metadata.snapshots if each.timestamp_ms >= before_ms}
    stays |= {ref.snapshot_id for ref in metadata.refs.values()}
    for branch in (ref for ref in metadata.refs.values() if ref.type == "branch"):
        stays |= _kept(metadata, branch, before_ms, kept)
    return tuple(each.snapshot_id for each in metadata.snapshots if each.snapshot_id not in stays)


def _kept(metadata: TableMetadata, branch: SnapshotRef, before_ms: int, kept: int) -> set[int]:
    age = branch.max_snapshot_age_ms
    moment = before_ms if age is None else min(before_ms, metadata.last_updated_ms - age)
    least = branch.min_snapshots_to_keep or kept
    line = enumerate(ancestry(metadata.snapshots_by_id, branch.snapshot_id))
    return {id_ for number, id_ in line if number < least or metadata.snapshots_by_id[id_].timestamp_ms >= moment}
