"""Pauses between our transactions, so that DuckDB's clients get snapshot ids, too (design §6.11).

A DuckDB client that loses an id waits 50 ms or more, reads the newest one and tries the next, some ten times. Without a
pause every one of its tries meets another transaction of ours. So once one was seen to wait for us, or to come too
late for an id, we let time pass before every transaction, for as long as they go on losing.
"""

from time import monotonic, sleep
from typing import Final

from duckicelake.catalog.measuring import Meter
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.snapshots import Seen, last_snapshot

SHORTEST: Final = 0.025
LONGEST: Final = 0.25
"""Seconds of a pause."""
_FIRST: Final = 0.05
_SUSPECTED: Final = 2.0
"""Seconds for which one that seems to have lost is left pauses: it tries again several times meanwhile."""
_SHARE: Final = 1.5
"""Seconds of a pause for each second that our last transaction had a snapshot id, if that is more."""
_SHORTER: Final = 0.8
_LONGER: Final = 1.5
_REMEMBERED: Final = 5.0
"""Seconds after which a client that doesn't lose any more is taken to be gone; the longest wait of DuckDB's own."""


class Courtesy:
    """What one process has noticed of DuckDB's clients; used by one thread at a time."""

    def __init__(self) -> None:
        self._until = 0.0
        self._pause = _FIRST
        self._held = 0.0

    def keep(self, cursor: Transaction, meter: Meter) -> None:
        """Wait for as long as there must be no snapshot of ours; `lock` is held, so that there is none.

        The next pause is shorter if a client of DuckDB's used this one, else longer.
        """
        if monotonic() >= self._until:
            return
        before, age = last_snapshot(cursor)
        pause = max(self._pause, _SHARE * self._held)
        if age > self._held + pause:
            return
        with meter.phase("duckdb_pause"):
            sleep(pause)
        after, _ = last_snapshot(cursor)
        factor = _SHORTER if after > before else _LONGER
        self._pause = min(max(self._pause * factor, SHORTEST), LONGEST)

    def noted(self, seen: Seen, held: float, *, are_quick: bool) -> None:
        """What was seen of DuckDB's clients before COMMIT of a transaction that had a snapshot id for `held` seconds.

        are_quick: these transactions are over so soon that who loses is hardly ever seen to wait. Who only reads never
        seems to have lost, however busy.
        """
        self._held = held
        now = monotonic()
        if now >= self._until:
            self._pause = _FIRST
        if seen.waits:
            self._until = now + _REMEMBERED
        elif seen.lost and are_quick:
            self._until = max(self._until, now + _SUSPECTED)
