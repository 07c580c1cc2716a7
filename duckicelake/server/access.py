"""The outermost layer: every request gets an id, one log line, its metrics, and an answer whatever happens inside."""

import random
import re
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from duckicelake.server.context import PRINCIPAL_KEY, REQUEST_ID_KEY
from duckicelake.server.errors import CONFLICT_KEY, ERROR_KEY, internal_error
from duckicelake.server.headers import with_safety
from duckicelake.server.metrics import Metrics

UNMATCHED = "unmatched"
CLIENT_CLOSED_REQUEST = 499
"""What the log and the metrics show, as nginx does, when the client left before the answer."""

_ids = random.Random()  # noqa: S311 - ids tell requests apart, they needn't be hard to guess
_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})


@dataclass(slots=True)
class _Exchange:
    """One request on its way: passes messages on to the server and remembers the status."""

    send: Send
    scope: Scope
    request_id: str
    status: int = 0
    started: float = field(default_factory=time.perf_counter)

    def forward(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = with_safety(tuple(message.get("headers", ())), is_https=self.scope["scheme"] == "https")
            message["headers"] = [*headers, (b"x-request-id", self.request_id.encode())]
        elif self.scope["method"] == "HEAD":
            message["body"] = b""
        return self.send(message)


class Access:
    """ASGI middleware, to be placed around everything that may fail."""

    def __init__(self, app: ASGIApp, metrics: Metrics, log: FilteringBoundLogger) -> None:
        self._app = app
        self._metrics = metrics
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(send, scope, _request_id(scope))
        scope[REQUEST_ID_KEY] = exchange.request_id
        self._metrics.request_started()
        try:
            await self._app(scope, receive, exchange.forward)
        except ClientDisconnect:
            exchange.status = CLIENT_CLOSED_REQUEST
        except Exception as error:  # noqa: BLE001 - the last resort: whatever it is, the client gets an answer
            await self._answer_for(error, scope, receive, exchange)
        finally:
            self._record(scope, exchange)

    async def _answer_for(self, error: Exception, scope: Scope, receive: Receive, exchange: _Exchange) -> None:
        scope[ERROR_KEY] = error
        if exchange.status == 0:
            await internal_error(exchange.request_id)(scope, receive, exchange.forward)

    def _record(self, scope: Scope, exchange: _Exchange) -> None:
        seconds = time.perf_counter() - exchange.started
        route = getattr(scope.get("route"), "path", UNMATCHED)
        self._metrics.request_ended(scope["method"], route, exchange.status, seconds)
        if CONFLICT_KEY in scope:
            self._metrics.conflict(scope[CONFLICT_KEY])
        error = scope.get(ERROR_KEY)
        if error is not None:
            self._log.error("request", **_line(scope, exchange, route, seconds), exc_info=error)
        elif route not in _QUIET:
            self._log.info("request", **_line(scope, exchange, route, seconds))


def _line(scope: Scope, exchange: _Exchange, route: str, seconds: float) -> dict[str, object]:
    line = {
        "request_id": exchange.request_id,
        "method": scope["method"],
        "route": route,
        "path": scope["path"],
        "status": exchange.status,
        "ms": round(seconds * 1000, 2),
    }
    if PRINCIPAL_KEY in scope:
        line["principal"] = scope[PRINCIPAL_KEY]
    return line


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return str(value, "ascii")
    return f"{_ids.getrandbits(128):032x}"
