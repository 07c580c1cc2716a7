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
from duckicelake.server.telemetry.metrics import Metrics

UNMATCHED = "unmatched"
CLIENT_CLOSED_REQUEST = 499
"""What the log and the metrics show, as nginx does, when the client left before the answer."""

_ids = random.Random()  # noqa: S311 - ids tell requests apart, they needn't be hard to guess
_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})


@dataclass(frozen=True, slots=True)
class Register:
    """What every request leaves behind: its metrics, and its line in the log."""

    metrics: Metrics
    log: FilteringBoundLogger

    def begun(self) -> None:
        self.metrics.request_started()

    def handed_over(self) -> None:
        """Take `begun` back: the request goes another way, on which it begins again."""
        self.metrics.request_handed_over()

    def ended(
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
        """started: by time.perf_counter. error: what makes it no ordinary line."""
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
        elif route not in _QUIET:
            self.log.info("request", **line)


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

    def __init__(self, app: ASGIApp, register: Register) -> None:
        self._app = app
        self._register = register

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(send, scope, _request_id(scope))
        scope[REQUEST_ID_KEY] = exchange.request_id
        self._register.begun()
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
        route = getattr(scope.get("route"), "path", UNMATCHED)
        if CONFLICT_KEY in scope:
            self._register.metrics.conflict(scope[CONFLICT_KEY])
        what = (scope["method"], route, scope["path"], exchange.status, exchange.started, exchange.request_id)
        self._register.ended(*what, scope.get(PRINCIPAL_KEY), scope.get(ERROR_KEY))


def new_request_id() -> str:
    return f"{_ids.getrandbits(128):032x}"


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return str(value, "ascii")
    return new_request_id()
