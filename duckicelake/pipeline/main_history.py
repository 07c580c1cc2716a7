"""Which snapshots lead main from one state of a table to another. Pure: it reads the table's metadata alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from duckicelake.errors import BadInputError

MetadataJson = Mapping[str, Any]
_ONLY_ADDS: Final = "append"
_ONLY_MOVES: Final = "replace"
_ROW_IDS: Final = "first-row-id"


@dataclass(frozen=True, slots=True)
class SnapshotStep:
    """A snapshot and the one before it, None of the first.

    only_adds: it has the rows of the one before, and more; only_moves: it has the same. by_row_id: both have row ids.
    """

    snapshot_id: int
    parent_id: int | None
    only_adds: bool = False
    only_moves: bool = False
    by_row_id: bool = False


def list_steps(metadata: MetadataJson, after: int | None, upto: int | None) -> list[SnapshotStep]:
    """List the steps of main after a snapshot (None: all), up to another (None: where main is), oldest first.

    Snapshots go by Iceberg's ids or DuckLake's. BadInputError for those that main doesn't have, or not any more, or not
    in this order.
    """
    main = _MainHistory(metadata)
    begin = 0 if after is None else main.place(after)
    end = len(main.line) if upto is None else main.place(upto)
    if begin > end:
        raise BadInputError(
            f"Snapshot {upto} comes before {after}: changes are listed from the older one to the newer one"
        )
    if begin == 0 and end > 0 and not main.begins_with(after):
        raise main.gone("its beginning" if after is None else f"snapshot {after}")
    return [main.step(snapshot_id) for snapshot_id in main.line[begin:end]]


class _MainHistory:
    """The snapshots of main that are still listed, oldest first."""

    def __init__(self, metadata: MetadataJson) -> None:
        self._snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", ())}
        line: list[int] = []
        at: Any = metadata.get("current-snapshot-id")
        while at in self._snapshots:
            line.append(at)
            at = self._parent(at)
        self.line: Sequence[int] = line[::-1]

    def _parent(self, snapshot_id: int) -> int | None:
        found: int | None = self._snapshots[snapshot_id].get("parent-snapshot-id")
        return found

    def place(self, wanted: int) -> int:
        """Return how many of main's snapshots there are up to this one.

        It needn't be listed itself if the next one is.
        """
        names = [{snapshot_id, self._ducklake_id(snapshot_id)} for snapshot_id in self.line]
        for place, known in enumerate(names, start=1):
            if wanted in known:
                return place
        if self.line and wanted == self._parent(self.line[0]):
            return 0
        if wanted in self._snapshots:
            raise BadInputError(
                f"Snapshot {wanted} isn't in main's history: it is another branch's, or main was set back"
            )
        raise self.gone(f"snapshot {wanted}")

    def begins_with(self, after: int | None) -> bool:
        """Return whether the changes of the first listed step are known, from the beginning or from the step before."""
        step = self.step(self.line[0])
        return step.parent_id is None if after is None else step.only_adds or step.only_moves

    def gone(self, what: str) -> BadInputError:
        oldest = f"; the oldest from which changes are known is {self.line[0]}" if self.line else ""
        return BadInputError(f"The table's history doesn't have {what}, or not any more{oldest}")

    def step(self, snapshot_id: int) -> SnapshotStep:
        snapshot, parent_id = self._snapshots[snapshot_id], self._parent(snapshot_id)
        parent = snapshot if parent_id is None else self._snapshots.get(parent_id, {})
        operation = snapshot.get("summary", {}).get("operation")
        return SnapshotStep(
            snapshot_id,
            parent_id,
            only_adds=operation == _ONLY_ADDS,
            only_moves=operation == _ONLY_MOVES,
            by_row_id=_ROW_IDS in snapshot and _ROW_IDS in parent,
        )

    def _ducklake_id(self, snapshot_id: int) -> int | None:
        ducklake_id = self._snapshots[snapshot_id].get("summary", {}).get("ducklake.snapshot-id")
        return None if ducklake_id is None else int(ducklake_id)
