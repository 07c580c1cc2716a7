"""Load shedding: what is too much for a worker is refused before any work is done on it."""

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from duckicelake.server.errors import error_response
from duckicelake.server.metrics import Metrics

EXEMPT: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""A busy server is alive, and who watches it must see so."""


class LoadLimit:
    """ASGI middleware: answers 429 while `most` requests are being answered, without reading or routing the request."""

    def __init__(self, app: ASGIApp, most: int, metrics: Metrics) -> None:
        self._app = app
        self._most = most
        self._metrics = metrics
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in EXEMPT:
            await self._app(scope, receive, send)
        elif self._running >= self._most:
            self._metrics.request_shed()
            await _too_many(self._most)(scope, receive, send)
        else:
            self._running += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._running -= 1


def _too_many(most: int) -> ASGIApp:
    message = f"This worker answers {most} requests at a time, and that many are under way; nothing was done, try again"
    return error_response(429, "TooManyRequestsException", message, {"Retry-After": "1"})
