"""The shared freshness check (design D6): the next one answers all who asked before it was sent."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from duckicelake.catalog.measuring import UNMEASURED, Meter
from duckicelake.lake.freshness import FreshnessLine
from duckicelake.lake.state import Asked, Freshness

Tell = Callable[[Freshness | None], object]
"""Hears how the table is at a moment after the question; None if it isn't there, or can't be asked about this way."""


class SharedChecks:
    """For one event loop. While a check is under way, those who ask are gathered for the next."""

    def __init__(self, line: FreshnessLine, meter: Meter = UNMEASURED) -> None:
        self._line = line
        self._meter = meter
        self._waiting: defaultdict[Asked, list[Tell]] = defaultdict(list)
        self._checking: asyncio.Task[None] | None = None

    def ask(self, asked: Asked, tell: Tell) -> None:
        """Check, and tell once, later: whatever happens."""
        self._waiting[asked].append(tell)
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check_all())

    async def _check_all(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # who is being read from the sockets just now shall have a share in this check
            waiting, self._waiting = self._waiting, defaultdict(list)
            answers = await self._answers(list(waiting))
            for tells, fresh in zip(waiting.values(), answers, strict=True):
                _tell_all(tells, fresh)

    async def _answers(self, asked: Sequence[Asked]) -> Sequence[Freshness | None]:
        """As many as were asked for: who is told None asks the other way, which can say what is wrong."""
        sent = time.perf_counter()
        try:
            answers = await self._line.freshness(asked)
            self._meter.took("freshness", time.perf_counter() - sent)
        except Exception:  # noqa: BLE001
            answers = []
        return answers if len(answers) == len(asked) else [None] * len(asked)


def _tell_all(tells: Iterable[Tell], fresh: Freshness | None) -> None:
    for tell in tells:
        try:
            tell(fresh)
        except Exception as error:  # noqa: BLE001 - a bug of one who listens must not be felt by the others
            loop = asyncio.get_running_loop()
            loop.call_exception_handler({"message": "Who asked for a check failed at its answer", "exception": error})
