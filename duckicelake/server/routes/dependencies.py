"""What comes before an endpoint: the guard, then FastAPI's dependencies: services, bodies, keys, names, pages."""

import asyncio
import copy
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Annotated, Any, Final, Protocol, cast
from uuid import UUID

from fastapi import Depends, Header, Query, Request
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from duckicelake.catalog.context.caller import ANY_PRINCIPAL, SESSION
from duckicelake.catalog.context.idempotency import Once
from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.delegation import AccessRequest
from duckicelake.catalog.warehouses import WarehouseWiring
from duckicelake.errors import (
    FailoverError,
    ForbiddenError,
    InvalidRequestError,
    UnavailableError,
    UnknownFormatError,
)
from duckicelake.iceberg.identifiers import Namespace, check_name
from duckicelake.server.auth.authentication import Authentication
from duckicelake.server.auth.permissions import (
    InBody,
    Need,
    Public,
    WholeCatalog,
    check_body,
    is_for_writers,
)
from duckicelake.server.auth.throttle import LoginThrottle
from duckicelake.server.auth.web_logins import WebLogins
from duckicelake.server.feed.hub import FeedHub
from duckicelake.server.http.scope import (
    CONTEXT_KEY,
    NEED_KEY,
    PATH_NAMES_KEY,
    REFERENCED_BY,
    PathNames,
    find_caller,
    note_caller,
    parse_access_request,
    parse_parent,
)
from duckicelake.server.middleware.quotas import Quotas, Rates
from duckicelake.server.protocol.connections import DRAIN
from duckicelake.server.routes.admission import bind_rights, borrow_rights, check_need
from duckicelake.server.telemetry.metrics import Metrics

CACHE_SECONDS: Final = 1.0
TIMEOUT_SECONDS: Final = 15.0
MAX_PAGE_ITEMS: Final = 10_000
ReadinessChecks = Mapping[str, Callable[[], None]]
UNBOUND_OPERATIONS: Final = frozenset({"get_config"})
"""Routes with the same answer for all principals, whatever these were granted."""
_DESCRIPTION: Final = "a UUID of version 7; sent again with the same key, a request has no more effect"
_UUID_PATTERN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

Admit = Callable[[BaseModel], Services]


@dataclass(slots=True)
class Readiness:
    """Run the checks of /readyz one at a time; an outcome is valid for CACHE_SECONDS."""

    _running: asyncio.Task[None] | None = None
    _kept_until: float = field(default=0.0)

    async def require(self, checks: ReadinessChecks) -> None:
        """Check that all parts answer. Raises UnavailableError, which names the part alone, and UnknownFormatError.

        A server that drains isn't ready, whatever answers.
        """
        if DRAIN.is_running:
            raise UnavailableError("This server ends: send requests to another one")
        if self._running is None or (self._running.done() and time.monotonic() >= self._kept_until):
            self._running = asyncio.create_task(self._find_out(checks))
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await asyncio.shield(self._running)
        except TimeoutError as error:
            message = f"It couldn't be found out within {TIMEOUT_SECONDS:g} seconds what answers and what doesn't"
            raise UnavailableError(message) from error

    async def _find_out(self, checks: ReadinessChecks) -> None:
        try:
            await run_in_threadpool(_run_checks, checks)
        finally:
            self._kept_until = time.monotonic() + CACHE_SECONDS


def _run_checks(checks: ReadinessChecks) -> None:
    for part, check in checks.items():
        try:
            check()
        except (UnknownFormatError, FailoverError):
            raise
        except UnavailableError as error:
            raise UnavailableError(f"{part} does not answer; the server's log says why") from error


class WarehouseDirectory(Protocol):
    """The warehouses beside the first."""

    wiring: WarehouseWiring

    async def find_context(self, name: str) -> "ServerContext":
        """Return the context of a warehouse, which is opened if it isn't open; NoSuchWarehouseError."""

    def forget(self) -> None:
        """Read the registry before the next request: this process has changed it."""


class SettingValue(Protocol):
    """A setting that the server runs with, and where it came from; a secret is `set` or `unset`."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> object: ...
    @property
    def source(self) -> str: ...
    @property
    def default(self) -> object: ...
    @property
    def meaning(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ServerContext:
    """What the app holds for its routes.

    warehouses: names by which clients may ask for this warehouse. authentication: None is off. others: the warehouses
    beside the first; None where there can't be any. makes_lineage: whether the server makes events of lineage.
    settings: what the server runs with.
    """

    services: Services
    metrics: Metrics
    warehouses: frozenset[str]
    feed: FeedHub
    authentication: Authentication | None = None
    throttle: LoginThrottle = field(default_factory=lambda: LoginThrottle(time.monotonic))
    web_logins: WebLogins = field(default_factory=WebLogins)
    metrics_public: bool = False
    readiness: Readiness = field(default_factory=Readiness)
    quotas: Quotas = field(default_factory=lambda: Quotas.of(Rates(), time.monotonic))
    others: WarehouseDirectory | None = None
    makes_lineage: bool = True
    settings: tuple[SettingValue, ...] = ()


def find_context(scope: Scope) -> ServerContext:
    """Find the context of the warehouse that a request is for."""
    return cast("ServerContext", scope.get(CONTEXT_KEY) or scope["app"].state.context)


class RouteGuard:
    """Authenticate and authorize the requests for one route, then call its endpoint."""

    def __init__(self, app: ASGIApp, path: str, operation: str, needs: Mapping[tuple[str, str], Need]) -> None:
        """needs: who may use each route, by method and route template."""
        self._app = app
        self._path = path
        self._operation = operation
        self._needs = needs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        context = find_context(scope)
        need = self._needs.get((scope["method"], self._path))
        if need is None:
            raise ForbiddenError("No permission rule for this route")
        scope[NEED_KEY] = need
        _check_text(scope)
        if not _is_public(need, context):
            authentication = context.authentication
            header = request.headers.get("authorization")
            principal = ANY_PRINCIPAL if authentication is None else await authentication.principal(header)
            caller = note_caller(scope, principal, self._operation)
            if not principal.awaits_grants:
                check_need(need, principal, request)
            rights = None if self._operation in UNBOUND_OPERATIONS else context.services.rights
            try:
                await bind_rights(rights, need, principal, request)
            except ForbiddenError as refusal:
                await borrow_rights(context.services, self._operation, refusal, request)
            if is_for_writers(need):
                context.services.reads.note_write(caller.client[SESSION])
        await self._app(scope, receive, send)


def guard_routes(routes: Iterable[BaseRoute], needs: Mapping[tuple[str, str], Need]) -> list[BaseRoute]:
    """Copy the routes, and guard each copy. needs: who may use each route, by method and route template."""
    return [_guard_route(route, needs) for route in routes]


def _guard_route(route: BaseRoute, needs: Mapping[tuple[str, str], Need]) -> BaseRoute:
    if not isinstance(route, Route):
        raise TypeError(f"Invalid route {route!r}: expected a Route; others can't be guarded")
    copied = copy.copy(route)  # the original belongs to its module, and to other apps
    copied.app = RouteGuard(route.app, route.path, route.name, needs)
    return copied


def _check_text(scope: Scope) -> None:
    """Refuse NUL characters, which Postgres can't store; `parse_body` does so for bodies."""
    if "%00" in scope["path"] or b"%00" in scope["query_string"]:
        raise InvalidRequestError("The path or the query holds a NUL character (%00), which nothing has in its name")


def _is_public(need: Need, context: ServerContext) -> bool:
    return isinstance(need, Public) or (
        isinstance(need, WholeCatalog) and need.unless_public and context.metrics_public
    )


async def _get_context(request: Request) -> ServerContext:
    return find_context(request.scope)


async def _get_services(request: Request) -> Services:
    """Return the services for the caller; ForbiddenError on routes whose body decides what is needed."""
    if isinstance(request.scope[NEED_KEY], InBody):
        raise ForbiddenError("What the body asks for hasn't been checked: the endpoint must take an admission")
    services = find_context(request.scope).services
    return replace(services, caller=find_caller(request.scope))


async def _get_admission(request: Request) -> Admit:
    need: Any = request.scope[NEED_KEY]
    services = find_context(request.scope).services

    def admit(parsed: BaseModel) -> Services:
        caller = find_caller(request.scope)
        resource = check_body(need, caller.principal, parsed)
        return replace(services, caller=replace(caller, resource=resource))

    return admit


AppContext = Annotated[ServerContext, Depends(_get_context)]

AppServices = Annotated[Services, Depends(_get_services)]

AppAdmission = Annotated[Admit, Depends(_get_admission)]
"""For endpoints whose body decides what is needed: gives the services for the parsed body, or raises ForbiddenError."""


async def spend_quota(request: Request) -> None:
    """Answer 429 before the body is read, if the principal has sent too much; else count its bytes."""
    context = find_context(request.scope)
    principal = find_caller(request.scope).principal.name
    wait = context.quotas.wait(principal)
    if wait:
        detail = f"You send more rows than this server takes in a second: come again in {wait} s; nothing was done"
        raise HTTPException(429, detail, {"Retry-After": str(wait), "Connection": "close"})
    context.quotas.bytes.spend(principal, len(await request.body()))


WithinQuota = Annotated[None, Depends(spend_quota)]
"""For endpoints that take rows: the first that they depend on."""


async def _read_body(request: Request) -> bytes:
    return await request.body()


Body = Annotated[bytes, Depends(_read_body)]


def describe_body(model: type[BaseModel]) -> dict[str, Any]:
    """Build the `openapi_extra` of an operation whose endpoint parses the body as this model."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def parse_idempotency_key(text: str) -> UUID:
    """Parse the key, a UUID of version 7 in its usual spelling (RFC 9562); InvalidRequestError."""
    if not _UUID_PATTERN.fullmatch(text):
        raise InvalidRequestError(
            f"Idempotency-Key must be a UUID of version 7, 36 characters long (got {text[:60]!r})"
        )
    key = UUID(text)
    if key.version != 7:
        found = "of no version" if key.version is None else f"of version {key.version}"
        raise InvalidRequestError(f"Idempotency-Key must be a UUID of version 7, not {found} (got {text})")
    return key


async def _parse_once(
    request: Request, body: Body, idempotency_key: Annotated[str | None, Header(description=_DESCRIPTION)] = None
) -> Once | None:
    return (
        None if idempotency_key is None else Once(parse_idempotency_key(idempotency_key), _hash_request(request, body))
    )


OptionalOnce = Annotated[Once | None, Depends(_parse_once)]


async def _get_keyed_services(services: AppServices, once: OptionalOnce) -> Services:
    return services if once is None else replace(services, once=once)


async def _get_keyed_admission(admit: AppAdmission, once: OptionalOnce) -> Admit:
    return admit if once is None else lambda parsed: replace(admit(parsed), once=once)


def _hash_request(request: Request, body: bytes) -> bytes:
    line = f"{request.method} {request.scope['path']}?".encode("latin-1") + request.scope["query_string"]
    who = sha256(find_caller(request.scope).principal.name.encode()).digest()
    return sha256(who + line + b"\n" + body).digest()


KeyedServices = Annotated[Services, Depends(_get_keyed_services)]
KeyedAdmission = Annotated[Admit, Depends(_get_keyed_admission)]
"""For endpoints that change something; the second kind for those whose body decides what is needed."""


def _get_path_names(scope: Scope) -> PathNames:
    """Return the names of the path, which the guard has decoded."""
    names: PathNames = scope[PATH_NAMES_KEY]
    return names


async def _parse_namespace(request: Request, namespace: str) -> Namespace:  # noqa: ARG001 - FastAPI documents it
    return _get_path_names(request.scope).namespace


async def _parse_table(request: Request, table: str) -> str:  # noqa: ARG001
    return check_name(_get_path_names(request.scope).name, "table name")


async def _parse_view(request: Request, view: str) -> str:  # noqa: ARG001
    return check_name(_get_path_names(request.scope).name, "view name")


async def _parse_parent(
    parent: Annotated[
        str | None, Query(description="list the children of this namespace; levels joined by %1F")
    ] = None,
) -> Namespace | None:
    return parse_parent(parent)


async def _parse_namespace_filter(
    namespace: Annotated[str | None, Query(description="of tables in this one; levels joined by %1F")] = None,
) -> Namespace | None:
    return parse_parent(namespace)


async def _parse_page(
    token: Annotated[str | None, Query(alias="pageToken", description="empty: the first page; absent: all")] = None,
    size: Annotated[int | None, Query(alias="pageSize", ge=1, description="most items on a page")] = None,
) -> PageRequest:
    return PageRequest(token, None if size is None else min(size, MAX_PAGE_ITEMS))


async def _read_access_request(
    x_iceberg_access_delegation: Annotated[
        list[str] | None,
        Header(description="comma-separated: vended-credentials, remote-signing; the first that the server has"),
    ] = None,
) -> AccessRequest:
    return parse_access_request(tuple(x_iceberg_access_delegation or ()))


AccessRequestHeader = Annotated[AccessRequest, Depends(_read_access_request)]

NamespacePath = Annotated[Namespace, Depends(_parse_namespace)]

TablePath = Annotated[str, Depends(_parse_table)]

ViewPath = Annotated[str, Depends(_parse_view)]

DroppedQuery = Annotated[bool, Query(alias="dropped", description="what was dropped and can be brought back")]

PageQuery = Annotated[PageRequest, Depends(_parse_page)]

ParentQuery = Annotated[Namespace | None, Depends(_parse_parent)]

NamespaceQuery = Annotated[Namespace | None, Depends(_parse_namespace_filter)]


async def _declare_referenced_by(
    views: Annotated[
        str | None,
        Query(
            alias=REFERENCED_BY,
            description="the views through which it is loaded, the outermost first; definer views lend rights",
        ),
    ] = None,
) -> None:
    """Declare the parameter; the guard has read it."""


ReferencedBy = Depends(_declare_referenced_by)
