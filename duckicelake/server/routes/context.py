"""What the app holds for its routes, as FastAPI dependencies; readiness of its parts."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.types import Scope

from duckicelake.catalog.context.caller import SERVER_CALLER, Caller, Principal
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.inserts import PreparedPost, RowsAnswer, append_together
from duckicelake.errors import Forbidden, Unavailable, UnknownFormatError
from duckicelake.server.auth.authentication import Authentication
from duckicelake.server.auth.permissions import InBody, check_body
from duckicelake.server.auth.throttle import LoginThrottle
from duckicelake.server.feed.hub import FeedHub
from duckicelake.server.middleware.quotas import Quotas, Rates
from duckicelake.server.routes.coalescer import Coalescer
from duckicelake.server.telemetry.metrics import Metrics

CACHE_SECONDS: Final = 1.0
TIMEOUT_SECONDS: Final = 15.0
ReadinessChecks = Mapping[str, Callable[[], None]]
REQUEST_ID_KEY: Final = "duckicelake.request-id"
PRINCIPAL_KEY: Final = "duckicelake.principal"
CALLER_KEY: Final = "duckicelake.caller"
NEED_KEY: Final = "duckicelake.need"
"""Where in the ASGI scope the layers leave for each other what they know of the request."""
RowsCoalescer = Coalescer[PreparedPost, RowsAnswer | None]
Admit = Callable[[BaseModel], Services]


@dataclass(slots=True)
class Readiness:
    """One check at a time, whose outcome counts for a second."""

    _running: asyncio.Task[None] | None = None
    _kept_until: float = field(default=0.0)

    async def require(self, checks: ReadinessChecks) -> None:
        """Unavailable naming the part that doesn't answer, and nothing else; its cause says why. UnknownFormatError."""
        if self._running is None or (self._running.done() and time.monotonic() >= self._kept_until):
            self._running = asyncio.create_task(self._find_out(checks))
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await asyncio.shield(self._running)
        except TimeoutError as error:
            message = f"It couldn't be found out within {TIMEOUT_SECONDS:g} seconds what answers and what doesn't"
            raise Unavailable(message) from error

    async def _find_out(self, checks: ReadinessChecks) -> None:
        try:
            await run_in_threadpool(_run_checks, checks)
        finally:
            self._kept_until = time.monotonic() + CACHE_SECONDS


def _run_checks(checks: ReadinessChecks) -> None:
    for part, check in checks.items():
        try:
            check()
        except UnknownFormatError:
            raise
        except Unavailable as error:
            raise Unavailable(f"{part} does not answer; the server's log says why") from error


@dataclass(frozen=True, slots=True)
class ServerContext:
    """warehouses: the names by which clients may ask for the one warehouse there is; authentication: None is off."""

    services: Services
    metrics: Metrics
    warehouses: frozenset[str]
    feed: FeedHub
    authentication: Authentication | None = None
    throttle: LoginThrottle = field(default_factory=lambda: LoginThrottle(time.monotonic))
    metrics_public: bool = False
    readiness: Readiness = field(default_factory=Readiness)
    quotas: Quotas = field(default_factory=lambda: Quotas.of(Rates(), time.monotonic))
    rows: RowsCoalescer = field(default_factory=lambda: Coalescer(append_together, "rows"))


def find_address(scope: Scope) -> str:
    """Where the request comes from."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def find_request_id(scope: Scope) -> str:
    return str(scope.get(REQUEST_ID_KEY, ""))


def note_principal(scope: Scope, principal: Principal) -> None:
    """For the request log."""
    scope[PRINCIPAL_KEY] = principal.name


async def _get_context(request: Request) -> ServerContext:
    context: ServerContext = request.app.state.context
    return context


def find_caller(request: Request) -> Caller:
    """Who asks, as the guard has found out."""
    caller: Caller = request.scope.get(CALLER_KEY, SERVER_CALLER)
    return caller


async def _get_services(request: Request) -> Services:
    """For whoever asks; Forbidden where the body decides what is needed."""
    if isinstance(request.scope[NEED_KEY], InBody):
        raise Forbidden("What the body asks for hasn't been checked: the endpoint must take an admission")
    services: Services = request.app.state.context.services
    return replace(services, caller=find_caller(request))


async def _get_admission(request: Request) -> Admit:
    need: Any = request.scope[NEED_KEY]
    services: Services = request.app.state.context.services

    def admit(parsed: BaseModel) -> Services:
        caller = find_caller(request)
        resource = check_body(need, caller.principal, parsed)
        return replace(services, caller=replace(caller, resource=resource))

    return admit


AppContext = Annotated[ServerContext, Depends(_get_context)]

AppServices = Annotated[Services, Depends(_get_services)]

AppAdmission = Annotated[Admit, Depends(_get_admission)]
"""For endpoints whose body decides what is needed: gives the services for the parsed body, or raises Forbidden."""
