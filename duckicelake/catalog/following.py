"""A thread that follows the lake: of several processes one does, and another takes over when it has gone.

It is woken by NOTIFY at each commit, ours or DuckDB's, and rests after each fold, so that many small commits are folded
together and it never takes more than a small part of a processor.
"""

import time
from contextlib import AbstractContextManager
from functools import partial
from time import monotonic
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
_REST: Final = 9
"""Times as long as it takes to fold: that makes a tenth of a processor."""
_LONGEST_REST: Final = 0.08


def following(services: Services, failed: Failed) -> AbstractContextManager[None]:
    """Follow the lake for as long as the context lasts; `failed` hears of what went wrong, and it goes on."""
    duty = Duty("follower", SNAPSHOTS, followed.is_free, followed.lead, partial(_follow, services))
    return leading(services, duty, failed)


def _follow(services: Services, notices: Notices, cursor: Transaction) -> None:
    while not notices.is_closed:
        began = monotonic()
        folded = fold(services, cursor)
        if folded < MOST:
            time.sleep(min(_REST * (monotonic() - began), _LONGEST_REST) if folded else 0)
            notices.wait(UNWOKEN)
