"""Give each request an id, a log line, metrics and a response."""

import random
import re
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from duckicelake.server.http.errors import CONFLICT_KEY, ERROR_KEY, build_internal_error
from duckicelake.server.http.headers import add_safety_headers
from duckicelake.server.http.scope import PRINCIPAL_KEY, REQUEST_ID_KEY
from duckicelake.server.telemetry.metrics import Metrics

UNMATCHED_ROUTE = "unmatched"
CLIENT_CLOSED_STATUS = 499
"""What the log and the metrics show, as nginx does, when the client left before the answer."""

_random = random.Random()  # noqa: S311 - ids distinguish requests, they need no secrecy
_REQUEST_ID_PATTERN = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_UNLOGGED_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Write the metrics and the log line of requests."""

    metrics: Metrics
    log: FilteringBoundLogger

    def start(self) -> None:
        self.metrics.request_started()

    def undo_start(self) -> None:
        """Take `start` back, because the request starts again on another path."""
        self.metrics.undo_request_started()

    def end(
        self,
        method: str,
        route: str,
        path: str,
        status: int,
        started: float,
        request_id: str,
        principal: str | None,
        error: object = None,
    ) -> None:
        """Write the request's line. started: by time.perf_counter. error: of a request that failed unexpectedly."""
        seconds = time.perf_counter() - started
        self.metrics.request_ended(method, route, status, seconds)
        line: dict[str, object] = {
            "request_id": request_id,
            "method": method,
            "route": route,
            "path": path,
            "status": status,
            "ms": round(seconds * 1000, 2),
        }
        if principal is not None:
            line["principal"] = principal
        if error is not None:
            self.log.error("request", **line, exc_info=error)
        elif route not in _UNLOGGED_PATHS:
            self.log.info("request", **line)


@dataclass(slots=True)
class _RequestRecord:
    """Pass a request's messages on to the server, and keep the status."""

    send: Send
    scope: Scope
    request_id: str
    status: int = 0
    started: float = field(default_factory=time.perf_counter)

    def forward(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = add_safety_headers(tuple(message.get("headers", ())), is_https=self.scope["scheme"] == "https")
            message["headers"] = [*headers, (b"x-request-id", self.request_id.encode())]
        elif self.scope["method"] == "HEAD":
            message["body"] = b""
        return self.send(message)


class RequestLogMiddleware:
    """Give requests their id, log line and metrics, and answer bugs; it belongs around all other middleware."""

    def __init__(self, app: ASGIApp, register: RequestLog) -> None:
        self._app = app
        self._register = register

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _RequestRecord(send, scope, _read_request_id(scope))
        scope[REQUEST_ID_KEY] = exchange.request_id
        self._register.start()
        try:
            await self._app(scope, receive, exchange.forward)
        except ClientDisconnect:
            exchange.status = CLIENT_CLOSED_STATUS
        except Exception as error:  # noqa: BLE001 - the last resort: whatever it is, the client gets an answer
            await self._answer_for(error, scope, receive, exchange)
        finally:
            self._record(scope, exchange)

    async def _answer_for(self, error: Exception, scope: Scope, receive: Receive, exchange: _RequestRecord) -> None:
        scope[ERROR_KEY] = error
        if exchange.status == 0:
            await build_internal_error(exchange.request_id)(scope, receive, exchange.forward)

    def _record(self, scope: Scope, exchange: _RequestRecord) -> None:
        route = getattr(scope.get("route"), "path", UNMATCHED_ROUTE)
        if CONFLICT_KEY in scope:
            self._register.metrics.conflict(scope[CONFLICT_KEY])
        what = (scope["method"], route, scope["path"], exchange.status, exchange.started, exchange.request_id)
        self._register.end(*what, scope.get(PRINCIPAL_KEY), scope.get(ERROR_KEY))


def make_request_id() -> str:
    return f"{_random.getrandbits(128):032x}"


def _read_request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID_PATTERN.fullmatch(value):
            return str(value, "ascii")
    return make_request_id()
