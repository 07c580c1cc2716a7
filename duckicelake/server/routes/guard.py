"""Authenticate and authorize each request before its endpoint."""

import copy
from collections.abc import Iterable, Mapping
from typing import cast

from fastapi import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from duckicelake.catalog.context.caller import ANY_PRINCIPAL, SESSION, Principal
from duckicelake.errors import ForbiddenError, InvalidRequestError
from duckicelake.server.auth.permissions import (
    AnyToken,
    InBody,
    InPath,
    InQuery,
    Need,
    Public,
    WholeCatalog,
    check_path,
    check_query,
    check_whole_catalog,
    is_for_writers,
)
from duckicelake.server.http.scope import NEED_KEY, PATH_NAMES_KEY, note_caller, parse_parent
from duckicelake.server.routes.dependencies import ServerContext


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
        context = cast("ServerContext", scope["app"].state.context)
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
            _check_need(need, principal, request)
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


def _check_need(need: Need, principal: Principal, request: Request) -> None:
    match need:
        case InPath():
            check_path(need, principal, request.scope[PATH_NAMES_KEY].namespace)
        case InQuery(parameter):
            check_query(principal, parse_parent(request.query_params.get(parameter)))
        case WholeCatalog():
            check_whole_catalog(principal)
        case Public() | AnyToken() | InBody():
            pass
