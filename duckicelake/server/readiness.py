"""Whether the server can work, found out once for all who ask at about the same time: anybody may ask, at any rate."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from starlette.concurrency import run_in_threadpool

from duckicelake.errors import Unavailable, UnknownFormatError

KEPT_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 15.0

Checks = Mapping[str, Callable[[], None]]


@dataclass(slots=True)
class Readiness:
    """One check at a time, whose outcome counts for a second."""

    _running: asyncio.Task[None] | None = None
    _kept_until: float = field(default=0.0)

    async def require(self, checks: Checks) -> None:
        """Unavailable naming the part that doesn't answer, and nothing else; its cause says why. UnknownFormatError."""
        if self._running is None or (self._running.done() and time.monotonic() >= self._kept_until):
            self._running = asyncio.create_task(self._find_out(checks))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.shield(self._running)
        except TimeoutError as error:
            message = f"It couldn't be found out within {PATIENCE_SECONDS:g} seconds what answers and what doesn't"
            raise Unavailable(message) from error

    async def _find_out(self, checks: Checks) -> None:
        try:
            await run_in_threadpool(_check, checks)
        finally:
            self._kept_until = time.monotonic() + KEPT_SECONDS


def _check(checks: Checks) -> None:
    for part, check in checks.items():
        try:
            check()
        except UnknownFormatError:
            raise
        except Unavailable as error:
            raise Unavailable(f"{part} does not answer; the server's log says why") from error
