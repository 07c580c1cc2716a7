"""PURE. Where a reader of row changes is: behind a snapshot, or so many rows within one."""

import re
from dataclasses import dataclass, field
from typing import Final

_POSITION: Final = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})\.([0-9]{1,18})(?:\.([0-9]{1,18}))?")


@dataclass(frozen=True, slots=True, order=True)
class RowChangePosition:
    """A place in a table's changes, written as `18.0.4`, within a snapshot as `18.2500.4.23`.

    Attributes:
        snapshot_id: DuckLake's number of the snapshot.
        rows: of its changes that were read; 0: all of them.
        ordinal: of the next change, by snapshots that changed rows.
        seen: the newest snapshot of the lake when the rows were read; None where that isn't known.

    """

    snapshot_id: int
    rows: int = 0
    ordinal: int = 0
    seen: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        seen = f".{self.seen}" if self.rows > 0 and self.seen is not None else ""
        return f"{self.snapshot_id}.{self.rows}.{self.ordinal}{seen}"

    @property
    def complete_id(self) -> int:
        """The last snapshot of which everything was read."""
        return self.snapshot_id - 1 if self.rows else self.snapshot_id


def find_position(text: str) -> RowChangePosition | None:
    """Find the position that a text writes; None for a text that is none, as a number, a time or a branch."""
    found = _POSITION.fullmatch(text)
    return None if found is None else RowChangePosition(*(int(part) for part in found.groups() if part is not None))
