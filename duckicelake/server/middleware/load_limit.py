"""Refuse requests beyond the worker's slots, before any work is done on them."""

from collections import Counter
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duckicelake.server.http.errors import build_error_response
from duckicelake.server.http.scope import (
    EXEMPT_PATHS,
    LEAVE_SLOT_KEY,
    PUBLIC_BODY_PATHS,
    find_address,
    find_network,
    leave_slot,
)
from duckicelake.server.telemetry.metrics import Metrics

MAX_LOGIN_REQUESTS: Final = 64
MAX_ADDRESS_LOGIN_REQUESTS: Final = 16
"""Per address, or per IPv6 network of 64 bits, so that one slow client leaves most places to others."""
_RETRY_HEADERS: Final = {"Retry-After": "1"}


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


class LoadLimitMiddleware:
    """Answer 429 while there is no slot, without reading or routing the request.

    A request with a body takes its slot once the body has arrived, so that slow clients keep no slot. Requests with a
    body but without a login are limited apart.
    """

    def __init__(self, app: ASGIApp, slots: RequestSlots, metrics: Metrics, strangers: LoginRequestCounter) -> None:
        self._app = app
        self._slots = slots
        self._metrics = metrics
        self._strangers = strangers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in EXEMPT_PATHS:
            await self._app(scope, receive, send)
        elif self._slots.is_full():
            self._metrics.request_shed()
            await build_error_response(429, "TooManyRequestsException", self._too_many(), _RETRY_HEADERS)(
                scope, receive, send
            )
        elif scope["path"] in PUBLIC_BODY_PATHS:
            await self._serve_stranger(scope, receive, send)
        else:
            await self._serve(scope, receive, send)

    async def _serve_stranger(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = find_address(scope)
        refusal = self._strangers.enter(address)
        if refusal is not None:
            self._metrics.request_shed()
            await build_error_response(429, "TooManyRequestsException", refusal, _RETRY_HEADERS)(scope, receive, send)
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
            await self._app(scope, receive, send)
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
