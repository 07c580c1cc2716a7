"""Give each request an id, a slot, a response, a log line and metrics."""

import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from duckicelake.server.http.errors import CONFLICT_KEY, ERROR_KEY, build_error_response, build_internal_error
from duckicelake.server.http.headers import add_safety_headers
from duckicelake.server.http.scope import (
    EXEMPT_PATHS,
    LEAVE_SLOT_KEY,
    PRINCIPAL_KEY,
    PUBLIC_BODY_PATHS,
    REQUEST_ID_KEY,
    WAREHOUSE_KEY,
    find_address,
    find_network,
    leave_slot,
)
from duckicelake.server.middleware.cross_site import CrossSiteRules
from duckicelake.server.telemetry.metrics import Metrics

MAX_LOGIN_REQUESTS: Final = 64
MAX_ADDRESS_LOGIN_REQUESTS: Final = 16
"""Per address, or per IPv6 network of 64 bits, so that one slow client leaves most places to others."""
UNMATCHED_ROUTE = "unmatched"
CLIENT_CLOSED_STATUS = 499
"""What the log and the metrics show, as nginx does, when the client left before the answer."""

_RETRY_HEADERS: Final = {"Retry-After": "1"}
_random = random.Random()  # noqa: S311 - ids distinguish requests, they need no secrecy
_REQUEST_ID_PATTERN = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_UNLOGGED_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
ChooseApp = Callable[[Scope], Awaitable[ASGIApp]]
"""Chooses the app that answers a request."""


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
        warehouse: str = "",
    ) -> None:
        """Write the request's line.

        started: by time.perf_counter. error: of a request that failed unexpectedly. warehouse: empty for the first.
        """
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
        if warehouse:
            line["warehouse"] = warehouse
            self.metrics.warehouse_request(warehouse, status, seconds)
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
        facts = scope.get(PRINCIPAL_KEY), scope.get(ERROR_KEY), scope.get(WAREHOUSE_KEY, "")
        self._register.end(*what, *facts)


def make_request_id() -> str:
    return f"{_random.getrandbits(128):032x}"


def _read_request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID_PATTERN.fullmatch(value):
            return str(value, "ascii")
    return make_request_id()


class LoginRequestCounter:
    """Count logins under way, by address; for one event loop."""

    def __init__(self, limit: int = MAX_LOGIN_REQUESTS, of_address: int = MAX_ADDRESS_LOGIN_REQUESTS) -> None:
        self._limit = limit
        self._of_address = of_address
        self._all = 0
        self._by_address: Counter[str] = Counter()

    def enter(self, address: str) -> str | None:
        """Count one more, which must `leave`; or return why it can't be served now."""
        network = find_network(address)
        if self._by_address[network] >= self._of_address:
            return f"{self._of_address} logins from your address are arriving; nothing was done, try again"
        if self._all >= self._limit:
            return f"{self._limit} logins are arriving; nothing was done, try again"
        self._all += 1
        self._by_address[network] += 1
        return None

    def leave(self, address: str) -> None:
        network = find_network(address)
        self._all -= 1
        self._by_address[network] -= 1
        if not self._by_address[network]:
            del self._by_address[network]


class RequestSlots:
    """Count the requests under way; for one event loop."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken = 0

    def take(self) -> bool:
        """Take a slot, which must be left again; whether there was one."""
        if self._taken >= self.most:
            return False
        self._taken += 1
        return True

    def leave(self) -> None:
        self._taken -= 1

    def is_full(self) -> bool:
        return self._taken >= self.most


class DispatchMiddleware:
    """Refuse requests of other sites' pages and those beyond the worker's slots; hand the others to their app.

    It answers 429 while there is no slot, without reading or routing the request. A request with a body takes its slot
    once the body has arrived, so that slow clients keep no slot. Requests with a body but without a login are limited
    apart.
    """

    def __init__(
        self,
        app: ASGIApp,
        choose_app: ChooseApp,
        slots: RequestSlots,
        metrics: Metrics,
        strangers: LoginRequestCounter,
        sites: CrossSiteRules | None,
    ) -> None:
        """Make the layer. app: answers requests of EXEMPT_PATHS. sites: None lets pages of any site in."""
        self._app = app
        self._choose_app = choose_app
        self._slots = slots
        self._metrics = metrics
        self._strangers = strangers
        self._sites = sites

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_http = scope["type"] == "http"
        refusal = self._sites.find_refusal(scope) if is_http and self._sites is not None else None
        if refusal is not None:
            await refusal(scope, receive, send)
        elif not is_http or scope["path"] in EXEMPT_PATHS:
            await self._app(scope, receive, send)
        elif self._slots.is_full():
            await self._shed(self._too_many())(scope, receive, send)
        elif scope["path"] in PUBLIC_BODY_PATHS:
            await self._serve_stranger(scope, receive, send)
        else:
            await self._serve(scope, receive, send)

    def _shed(self, message: str) -> ASGIApp:
        self._metrics.request_shed()
        return build_error_response(429, "TooManyRequestsException", message, _RETRY_HEADERS)

    async def _serve_stranger(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = find_address(scope)
        refusal = self._strangers.enter(address)
        if refusal is not None:
            await self._shed(refusal)(scope, receive, send)
            return
        leaving = [address]

        async def leave_after_the_body() -> Message:
            message = await receive()
            if leaving and not message.get("more_body", False):
                self._strangers.leave(leaving.pop())
            return message

        try:
            await self._serve(scope, leave_after_the_body, send)
        finally:
            while leaving:
                self._strangers.leave(leaving.pop())

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _has_body(scope):
            receive = self._take_slot_after_body(scope, receive)
        else:
            self._slots.take()
            scope[LEAVE_SLOT_KEY] = self._slots.leave
        try:
            app = await self._choose_app(scope)
            await app(scope, receive, send)
        finally:
            leave_slot(scope)

    def _take_slot_after_body(self, scope: Scope, receive: Receive) -> Receive:
        is_complete = False

        async def take_after_the_body() -> Message:
            nonlocal is_complete
            message = await receive()
            if not is_complete and message["type"] == "http.request" and not message.get("more_body", False):
                is_complete = True
                if not self._slots.take():
                    self._metrics.request_shed()
                    raise HTTPException(429, self._too_many(), _RETRY_HEADERS)
                scope[LEAVE_SLOT_KEY] = self._slots.leave
            return message

        return take_after_the_body

    def _too_many(self) -> str:
        most = self._slots.most
        return (
            f"This worker answers {most} requests at a time, and that many are under way; try again, nothing was done"
        )


def _has_body(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if (name == b"content-length" and value != b"0") or name == b"transfer-encoding":
            return True
    return False
