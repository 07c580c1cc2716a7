"""A thread that follows the lake: of several processes one does, and another takes over when it has gone.

It is woken by NOTIFY at each commit, ours or DuckDB's, and rests after each fold, so that many small commits are folded
together: not for long while somebody awaits what it tells, and longer while nobody does.
"""

from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from duckicelake.catalog.chronicle import MOST, fold
from duckicelake.catalog.leading import Duty, Failed, leading
from duckicelake.catalog.services import Services
from duckicelake.lake import followed
from duckicelake.lake.chronicle import SNAPSHOTS
from duckicelake.lake.database import Transaction
from duckicelake.lake.notices import Notices

UNWOKEN: Final = 5.0
"""Seconds after which the lake is looked at though nobody has said that it changed."""
_REST: Final = 0.06
_REST_UNAWAITED: Final = 0.5
"""Seconds between two folds."""


def following(services: Services, failed: Failed) -> AbstractContextManager[None]:
    """Follow the lake for as long as the context lasts; `failed` hears of what went wrong, and it goes on."""
    duty = Duty("follower", SNAPSHOTS, followed.is_free, followed.lead, partial(_follow, services))
    return leading(services, duty, failed)


def _follow(services: Services, notices: Notices, cursor: Transaction) -> None:
    while not notices.is_closed:
        folded = fold(services, cursor)
        if folded.number < MOST:
            if folded.number:
                notices.rest(_REST if folded.is_awaited else _REST_UNAWAITED)
            notices.wait(UNWOKEN)
