"""A thread that follows the lake: of several processes one does, and another takes over when it has gone.

It is woken by NOTIFY at each commit, ours or DuckDB's, and rests after each fold, so that many small commits are folded
together: not for long while somebody awaits what it tells, and longer while nobody does.
"""

from contextlib import AbstractContextManager
from typing import Final

from duckicelake.catalog.chronicle.folding import MOST, Folded, fold
from duckicelake.catalog.chronicle.gaps import pass_by
from duckicelake.catalog.leading import Duty, Failed, leading
from duckicelake.catalog.services import Services
from duckicelake.lake.chronicle import followed
from duckicelake.lake.chronicle.entries import SNAPSHOTS
from duckicelake.lake.chronicle.left_out import is_of_what_is_told
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.notices import Notices

UNWOKEN: Final = 5.0
"""Seconds after which the lake is looked at though nobody has said that it changed."""
TRIES: Final = 8
"""After which what fails is left out: a minute or so."""
_REST: Final = 0.06
_REST_UNAWAITED: Final = 0.5
"""Seconds between two folds."""


def following(services: Services, failed: Failed) -> AbstractContextManager[None]:
    """Follow the lake for as long as the context lasts; `failed` hears of what went wrong, and it goes on."""
    duty = Duty("follower", SNAPSHOTS, followed.is_free, followed.lead, Follower(services, failed).follow)
    return leading(services, duty, failed)


class Follower:
    """Folds what comes; for one thread. What fails again and again is left out, so that what comes after it is told."""

    def __init__(self, services: Services, failed: Failed) -> None:
        self._services = services
        self._failed = failed
        self._failures = 0

    def follow(self, notices: Notices, cursor: Transaction) -> None:
        """Until the notices are closed; raises what fails."""
        while not notices.is_closed:
            folded = self.fold(cursor)
            if folded.number == 0:
                notices.wait(UNWOKEN)
            elif folded.number < MOST:
                notices.hear(None)  # so that commits meanwhile need tell nobody
                notices.rest(_REST if folded.is_awaited else _REST_UNAWAITED)
                notices.hear(SNAPSHOTS)

    def fold(self, cursor: Transaction) -> Folded:
        """The next fold, past what has failed too often."""
        try:
            if self._failures >= TRIES:
                left_out = pass_by(self._services, cursor)
                if left_out is not None:
                    self._failed(left_out)
            folded = fold(self._services, cursor)
        except Exception as error:
            self._failures = self._failures + 1 if is_of_what_is_told(error) else 0
            raise
        self._failures = 0
        return folded
