"""Versions whose files are written are recorded together where several threads of a process have some at one time.

So they share a statement and a wait for Postgres's disk. Who comes first records what all others have by then.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from duckicelake.catalog.commits.turns import Turns
from duckicelake.lake import artifacts
from duckicelake.lake.artifacts import WrittenVersion
from duckicelake.lake.postgres.database import Database
from duckicelake.lake.snapshots import retrying

MOST: Final = 16
"""Versions in one statement."""


@dataclass(slots=True, eq=False)
class _Recording:
    version: WrittenVersion
    is_newest: bool | None = None
    """None until it is known, and if who recorded it with others failed."""


class Recorder:
    """Where the versions of one process wait."""

    def __init__(self) -> None:
        self._turns = Turns[_Recording](MOST)

    def record(self, database: Database, version: WrittenVersion) -> bool:
        """Record the files of a version; whether it is its table's newest, so that its metadata.json counts."""
        own = _Recording(version)
        self._turns.do(own, partial(_record, database))
        if own.is_newest is None:
            _record(database, [own])
        return bool(own.is_newest)


def _record(database: Database, recordings: Sequence[_Recording]) -> None:
    def attempt() -> list[bool]:
        with database.statement() as cursor:
            return artifacts.record(cursor, [each.version for each in recordings])

    for each, is_newest in zip(recordings, retrying(attempt), strict=True):
        each.is_newest = is_newest
