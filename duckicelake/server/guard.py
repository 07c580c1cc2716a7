"""The layer around each route that lets a request through: who asks is found out, and whether they may.

It stands between the routing and the endpoint, so the body hasn't been read yet. What a body names is checked once the
endpoint has parsed it (`context.AppAdmission`); until then there are no services for it.
"""

import copy
from collections.abc import Iterable
from typing import cast

from fastapi import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from duckicelake.catalog.access.principal import Caller, Principal
from duckicelake.catalog.lineage.reads import SESSION
from duckicelake.errors import Forbidden, InvalidRequest
from duckicelake.iceberg.names import decode_name, decode_namespace
from duckicelake.server.clients import client_of
from duckicelake.server.context import CALLER_KEY, NEED_KEY, Context, address_of, note_principal, request_id_of
from duckicelake.server.identity.auth import authenticate
from duckicelake.server.identity.sessions import port_of, session_of
from duckicelake.server.paths import parent_of
from duckicelake.server.permissions import (
    NEEDS,
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
    spelled,
)


class Guard:
    """ASGI app of one route, around the endpoint's."""

    def __init__(self, app: ASGIApp, path: str, operation: str) -> None:
        self._app = app
        self._path = path
        self._operation = operation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        context = cast("Context", scope["app"].state.context)
        need = NEEDS.get((scope["method"], self._path))
        if need is None:
            raise Forbidden("Nobody has said who may use this route")
        scope[NEED_KEY] = need
        _check_text(scope)
        if not _is_public(need, context):
            principal = await authenticate(context.authentication, request.headers.get("authorization"))
            note_principal(scope, principal)
            scope[CALLER_KEY] = self._caller(scope, principal)
            _check(need, principal, request)
            if is_for_writers(need):
                context.services.reads.note_write(scope[CALLER_KEY].client[SESSION])
        await self._app(scope, receive, send)

    def _caller(self, scope: Scope, principal: Principal) -> Caller:
        where, request_id = address_of(scope), request_id_of(scope)
        client = {**client_of(scope), SESSION: session_of(scope, principal).on(port_of(scope))}
        return Caller(principal, where, request_id, self._operation, _resource(scope), client)


def guarded(routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """The same routes, each with its guard."""
    return [_guarded(route) for route in routes]


def _guarded(route: BaseRoute) -> BaseRoute:
    if not isinstance(route, Route):
        raise TypeError(f"{route!r} can't be guarded: only plain routes can")
    copied = copy.copy(route)  # the original belongs to its module, and to other apps
    copied.app = Guard(route.app, route.path, route.name)
    return copied


def _check_text(scope: Scope) -> None:
    """As `parse_body` sees to it for bodies: Postgres stores no NUL character, and can't be asked for one."""
    if "%00" in scope["path"] or b"%00" in scope["query_string"]:
        raise InvalidRequest("The path or the query holds a NUL character (%00), which nothing has in its name")


def _is_public(need: Need, context: Context) -> bool:
    return isinstance(need, Public) or (
        isinstance(need, WholeCatalog) and need.unless_public and context.metrics_public
    )


def _check(need: Need, principal: Principal, request: Request) -> None:
    match need:
        case InPath():
            check_path(need, principal, decode_namespace(request.path_params["namespace"]))
        case InQuery(parameter):
            check_query(principal, parent_of(request.query_params.get(parameter)))
        case WholeCatalog():
            check_whole_catalog(principal)
        case Public() | AnyToken() | InBody():
            pass


def _resource(scope: Scope) -> str:
    names = scope["path_params"]
    if "namespace" not in names:
        return ""
    name = names.get("table") or names.get("view") or ""
    return spelled(decode_namespace(names["namespace"]), decode_name(name))
