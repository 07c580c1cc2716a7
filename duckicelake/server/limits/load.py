"""Load shedding: what is too much for a worker is refused before any work is done on it."""

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from duckicelake.server.errors import error_response
from duckicelake.server.telemetry.metrics import Metrics

EXEMPT: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""A busy server is alive, and who watches it must see so."""
_LEAVE: Final = "duckicelake.leave-slot"


class Slots:
    """How many requests are being answered; for one event loop."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken = 0

    def take(self) -> bool:
        """Whether there was one, which is to be given back."""
        if self._taken >= self.most:
            return False
        self._taken += 1
        return True

    def leave(self) -> None:
        self._taken -= 1


def leave_slot(scope: Scope) -> None:
    """Let others have the slot of this request, which from now on only waits."""
    leave = scope.pop(_LEAVE, None)
    if leave is not None:
        leave()


class LoadLimit:
    """ASGI middleware: answers 429 while there is no slot, without reading or routing the request."""

    def __init__(self, app: ASGIApp, slots: Slots, metrics: Metrics) -> None:
        self._app = app
        self._slots = slots
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in EXEMPT:
            await self._app(scope, receive, send)
        elif not self._slots.take():
            self._metrics.request_shed()
            await _too_many(self._slots.most)(scope, receive, send)
        else:
            scope[_LEAVE] = self._slots.leave
            try:
                await self._app(scope, receive, send)
            finally:
                leave_slot(scope)


def _too_many(most: int) -> ASGIApp:
    message = f"This worker answers {most} requests at a time, and that many are under way; nothing was done, try again"
    return error_response(429, "TooManyRequestsException", message, {"Retry-After": "1"})
