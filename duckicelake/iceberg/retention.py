"""PURE. Which branches, tags and snapshots a table's retention lets go, by the rules of Iceberg's expiry."""

from dataclasses import dataclass

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.snapshot import MAIN, SnapshotRef, walk_ancestry
from duckicelake.properties import MAX_REF_AGE_MS, parse_ref_age


@dataclass(frozen=True, slots=True)
class Retention:
    """How long snapshots are kept; times are epoch milliseconds.

    Attributes:
        now_ms: from when the ages of branches and tags are counted.
        before_ms: from when on snapshots stay, but for those of a branch that says another age.
        kept: the newest snapshots of each branch that stay, however old; a branch may say another number.
        ref_age_ms: of branches and tags that say none; None: they stay for ever.
        protected_ms: from when on all snapshots stay; None: none for that alone.

    """

    now_ms: int
    before_ms: int
    kept: int = 1
    ref_age_ms: int | None = None
    protected_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Expirable:
    """Names of branches and tags, and ids of snapshots, the oldest first."""

    refs: tuple[str, ...]
    snapshots: tuple[int, ...]


def get_ref_age(metadata: TableMetadata) -> int | None:
    """Get how long a table's branches and tags are kept that don't say it. Raises InvalidRequestError."""
    text = metadata.properties.get(MAX_REF_AGE_MS)
    if text is None:
        return None
    try:
        return parse_ref_age(text)
    except ValueError as error:
        message = f"The property {MAX_REF_AGE_MS} is {text!r}: it should be milliseconds, from 1 on"
        raise InvalidRequestError(message) from error


def find_expirable(metadata: TableMetadata, retention: Retention) -> Expirable:
    """Find the branches and tags that are too old, but for main, and the snapshots that nothing keeps then."""
    gone = {name for name, ref in metadata.refs.items() if name != MAIN and _is_ref_expired(metadata, ref, retention)}
    refs = [ref for name, ref in metadata.refs.items() if name not in gone]
    stays, lines = {ref.snapshot_id for ref in refs}, set[int]()
    for branch in (ref for ref in refs if ref.type == "branch"):
        line = [*walk_ancestry(metadata.snapshots_by_id, branch.snapshot_id)]
        stays |= _find_retained(metadata, branch, line, retention)
        lines |= set(line)
    stays |= {
        one.snapshot_id
        for one in metadata.snapshots
        if (one.snapshot_id not in lines and one.timestamp_ms >= retention.before_ms)
        or (retention.protected_ms is not None and one.timestamp_ms >= retention.protected_ms)
    }
    snapshots = tuple(one.snapshot_id for one in metadata.snapshots if one.snapshot_id not in stays)
    return Expirable(tuple(sorted(gone)), snapshots)


def _is_ref_expired(metadata: TableMetadata, ref: SnapshotRef, retention: Retention) -> bool:
    age = retention.ref_age_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    return age is not None and retention.now_ms - metadata.snapshots_by_id[ref.snapshot_id].timestamp_ms > age


def _find_retained(metadata: TableMetadata, branch: SnapshotRef, line: list[int], retention: Retention) -> set[int]:
    """Find the snapshots of a branch that it keeps; line: its snapshots, the newest first."""
    age = branch.max_snapshot_age_ms
    moment = retention.before_ms if age is None else retention.now_ms - age
    least = branch.min_snapshots_to_keep or retention.kept
    return {
        id_ for number, id_ in enumerate(line) if number < least or metadata.snapshots_by_id[id_].timestamp_ms >= moment
    }
