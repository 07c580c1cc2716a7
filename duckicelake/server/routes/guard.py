"""Authenticate and authorize each request before its endpoint."""

import copy
from collections.abc import Iterable, Mapping
from typing import cast

from fastapi import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from duckicelake.catalog.context.caller import SESSION, Caller, Principal
from duckicelake.errors import ForbiddenError, InvalidRequestError
from duckicelake.server.auth.authentication import authenticate
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
    format_resource,
    is_for_writers,
)
from duckicelake.server.http.headers import read_client
from duckicelake.server.http.scope import (
    CALLER_KEY,
    NEED_KEY,
    find_address,
    find_path_names,
    find_port,
    find_request_id,
    find_session,
    note_principal,
    parse_parent,
)
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
            principal = await authenticate(context.authentication, request.headers.get("authorization"))
            note_principal(scope, principal)
            scope[CALLER_KEY] = self._caller(scope, principal)
            _check_need(need, principal, request)
            if is_for_writers(need):
                context.services.reads.note_write(scope[CALLER_KEY].client[SESSION])
        await self._app(scope, receive, send)

    def _caller(self, scope: Scope, principal: Principal) -> Caller:
        where, request_id = find_address(scope), find_request_id(scope)
        client = {**read_client(scope), SESSION: find_session(scope, principal).on(find_port(scope))}
        return Caller(principal, where, request_id, self._operation, _find_resource(scope), client)


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
            names = find_path_names(request.scope)
            assert names is not None
            check_path(need, principal, names.namespace)
        case InQuery(parameter):
            check_query(principal, parse_parent(request.query_params.get(parameter)))
        case WholeCatalog():
            check_whole_catalog(principal)
        case Public() | AnyToken() | InBody():
            pass


def _find_resource(scope: Scope) -> str:
    names = find_path_names(scope)
    return "" if names is None else format_resource(*names)
