"""What the app holds for its routes, as FastAPI dependencies. They are async so that no thread is spent on them."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from pydantic import BaseModel
from starlette.types import Scope

from duckicelake.catalog.access.principal import NOBODY_IN_PARTICULAR, Caller, Principal
from duckicelake.catalog.rows.groups import PreparedRows, append_together
from duckicelake.catalog.rows.inserts import RowsAnswer
from duckicelake.catalog.services import Services
from duckicelake.errors import Forbidden
from duckicelake.server.feed.hub import FeedHub
from duckicelake.server.identity.auth import Authentication
from duckicelake.server.identity.throttle import Throttle
from duckicelake.server.limits.quotas import Quotas, Rates
from duckicelake.server.permissions import InBody, check_body
from duckicelake.server.quick.gathering import Gathering
from duckicelake.server.readiness import Readiness
from duckicelake.server.telemetry.metrics import Metrics

REQUEST_ID_KEY: Final = "duckicelake.request-id"
PRINCIPAL_KEY: Final = "duckicelake.principal"
CALLER_KEY: Final = "duckicelake.caller"
NEED_KEY: Final = "duckicelake.need"
"""Where in the ASGI scope the layers leave for each other what they know of the request."""


RowsGathering = Gathering[PreparedRows, RowsAnswer | None]


@dataclass(frozen=True, slots=True)
class Context:
    """warehouses: the names by which clients may ask for the one warehouse there is; authentication: None is off."""

    services: Services
    metrics: Metrics
    warehouses: frozenset[str]
    feed: FeedHub
    authentication: Authentication | None = None
    throttle: Throttle = field(default_factory=lambda: Throttle(time.monotonic))
    metrics_public: bool = False
    readiness: Readiness = field(default_factory=Readiness)
    quotas: Quotas = field(default_factory=lambda: Quotas.of(Rates(), time.monotonic))
    rows: RowsGathering = field(default_factory=lambda: Gathering(append_together, "rows"))


def address_of(scope: Scope) -> str:
    """Where the request comes from."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def request_id_of(scope: Scope) -> str:
    return str(scope.get(REQUEST_ID_KEY, ""))


def note_principal(scope: Scope, principal: Principal) -> None:
    """For the request log."""
    scope[PRINCIPAL_KEY] = principal.name


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


def caller_of(request: Request) -> Caller:
    """Who asks, as the guard has found out."""
    caller: Caller = request.scope.get(CALLER_KEY, NOBODY_IN_PARTICULAR)
    return caller


async def _services(request: Request) -> Services:
    """For whoever asks; Forbidden where the body decides what is needed."""
    if isinstance(request.scope[NEED_KEY], InBody):
        raise Forbidden("What the body asks for hasn't been checked: the endpoint must take an admission")
    services: Services = request.app.state.context.services
    return replace(services, caller=caller_of(request))


Admit = Callable[[BaseModel], Services]


async def _admission(request: Request) -> Admit:
    need: Any = request.scope[NEED_KEY]
    services: Services = request.app.state.context.services

    def admit(parsed: BaseModel) -> Services:
        caller = caller_of(request)
        resource = check_body(need, caller.principal, parsed)
        return replace(services, caller=replace(caller, resource=resource))

    return admit


AppContext = Annotated[Context, Depends(_context)]
AppServices = Annotated[Services, Depends(_services)]
AppAdmission = Annotated[Admit, Depends(_admission)]
"""For endpoints whose body decides what is needed: gives the services for the parsed body, or raises Forbidden."""
