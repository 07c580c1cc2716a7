"""How long to wait before a request is sent again, and when to give up."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0
STRANGER_SECONDS: Final = 10.0
"""For how long a server that has never answered is asked: the address may be wrong."""


class AgainError(Exception):
    """The request may be sent again; `wanted` is how many seconds the server wants to be left alone."""

    def __init__(self, why: str, *, wanted: float | None = None, is_unsent: bool = False) -> None:
        super().__init__(why)
        self.wanted = wanted
        self.is_unsent = is_unsent


@dataclass(slots=True)
class Patience:
    """Of one request. seconds: from the first failure on. Pauses double, and differ from client to client."""

    seconds: float
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    attempts: int = 0
    _ends: float | None = field(default=None, repr=False)

    def pause(self, wanted: float | None = None) -> float | None:
        """Seconds to wait before the next attempt; None: give up. wanted: the least, as the server says."""
        now = self.clock()
        self._ends = now + self.seconds if self._ends is None else self._ends
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self.attempts)
        pause = (wanted or 0.0) + longest * (0.5 + self.chance() / 2)
        self.attempts += 1
        return pause if now + pause <= self._ends else None
