"""Decide when a request is sent again: pauses between attempts, and how long the other side wants to be left alone."""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_FIRST_PAUSE_SECONDS: Final = 0.1
_MAX_DOUBLINGS: Final = 10
MAX_PAUSE_SECONDS: Final = 10.0


@dataclass(slots=True)
class RetryPolicy:
    """Decide the pauses between attempts of one request. Pauses double, with jitter.

    Attributes:
        seconds: time for retries, from the first failure on; `inf` for no end.

    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    attempts: int = 0
    _ends: float | None = field(default=None, repr=False)

    def pause(self, retry_after: float | None = None) -> float | None:
        """Return the seconds before the next attempt, None to give up. retry_after: the server's minimum.

        The last attempt is when the time ends, also where the server asks for more: it may be back earlier.
        """
        now = self.clock()
        self._ends = now + self.seconds if self._ends is None else self._ends
        longest = min(MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(self.attempts, _MAX_DOUBLINGS))
        pause = (retry_after or 0.0) + longest * (0.5 + self.chance() / 2)
        self.attempts += 1
        return min(pause, self._ends - now) if now < self._ends else None


def parse_retry_after(text: str | None) -> float | None:
    """Parse the header Retry-After, seconds or a time, to seconds from now; None for what is neither."""
    if text is None:
        return None
    with suppress(ValueError, OverflowError):
        if text.strip().isdigit():
            return float(text)
        moment = parsedate_to_datetime(text)
        return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    return None
