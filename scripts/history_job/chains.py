"""What must hold of the histories that the catalog itself keeps: pure functions on metadata and ids."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from scripts.history_job.history import Anomaly

Json = dict[str, Any]


def judge_chain(table: str, metadata: Json, *, expires: bool = False) -> Iterator[Anomaly]:
    """Snapshots are one chain in the order of their sequence numbers, and `main`, its log and its end agree.

    expires: parents may have left, and the log then begins after the last that has.
    """
    snapshots: list[Json] = metadata.get("snapshots", [])
    log = [entry["snapshot-id"] for entry in metadata.get("snapshot-log", [])]
    ids = [snapshot["snapshot-id"] for snapshot in snapshots]
    if ids and not expires and snapshots[0].get("parent-snapshot-id") is not None:
        yield _broken(table, f"the first snapshot, {ids[0]}, has a parent")
    for before, after in pairwise(snapshots):
        name = f"snapshot {after['snapshot-id']}"
        has_left = expires and after.get("parent-snapshot-id") not in ids
        if after.get("parent-snapshot-id") != before["snapshot-id"] and not has_left:
            yield _broken(
                table, f"{name} has the parent {after.get('parent-snapshot-id')}, not {before['snapshot-id']}"
            )
        if after["sequence-number"] <= before["sequence-number"]:
            yield _broken(table, f"{name} has the sequence number {after['sequence-number']} like one before it")
        if after["timestamp-ms"] < before["timestamp-ms"]:
            yield _broken(table, f"{name} is older than its parent")
    if any(times > 1 for times in Counter(ids).values()):
        yield _broken(table, "a snapshot id is there twice")
    current = metadata.get("current-snapshot-id")
    end = ids[-1] if ids else None
    if (None if current == -1 else current) != end or metadata.get("refs", {}).get("main", {}).get(
        "snapshot-id"
    ) != end:
        yield _broken(table, f"main isn't the last snapshot, {end}")
    if log != (ids[len(ids) - len(log) :] if expires else ids):
        yield _broken(table, f"the snapshot log has {len(log)} entries, which are not the {len(ids)} snapshots")
    if snapshots and metadata["last-sequence-number"] < snapshots[-1]["sequence-number"]:
        yield _broken(table, "last-sequence-number is less than the last snapshot's")


def judge_ids(ids: Sequence[int]) -> Iterator[Anomaly]:
    """DuckLake's snapshot ids begin with 0 and have no gaps."""
    expected = list(range(len(ids)))
    if list(ids) != expected:
        wrong = next((at for at, (id_, there) in enumerate(zip(ids, expected, strict=True)) if id_ != there), 0)
        yield Anomaly("broken chain", f"DuckLake's snapshot ids have a gap: {ids[wrong]} where {wrong} would follow")


def _broken(table: str, text: str) -> Anomaly:
    return Anomaly("broken chain", f"{table}: {text}")
