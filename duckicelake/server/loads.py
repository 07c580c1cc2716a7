"""The quick way for loads: past routing, threads and FastAPI, for those that memory answers (`catalog.quick_loads`)."""

import re
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from duckicelake.catalog.answers import ALL, REFS
from duckicelake.catalog.cache import LoadedTable
from duckicelake.catalog.principal import ANYBODY, Principal
from duckicelake.catalog.quick_loads import QuickLoads
from duckicelake.errors import CatalogError
from duckicelake.iceberg.names import Namespace, check_name, decode_name, decode_namespace, schema_name
from duckicelake.server.auth import Authentication
from duckicelake.server.caching import outcome
from duckicelake.server.context import address_of, note_principal
from duckicelake.server.delegation import parse_wish
from duckicelake.server.permissions import NEEDS, InPath, grants_path

_LONGEST: Final = 1024
"""Letters of a path and its query that are worth remembering what they name."""
_REMEMBERED: Final = 4096


_REPRESENTATIONS: Final = {b"": ALL, b"snapshots=all": ALL, b"snapshots=refs": REFS}


@dataclass(frozen=True, slots=True)
class _Named:
    """What a URL asks for."""

    namespace: Namespace
    named_as: tuple[str, str]
    representation: str


@dataclass(slots=True)
class _Said:
    """What the headers say, as far as it matters to a load."""

    authorization: bytes = b""
    if_none_match: bytes | None = None
    delegation: tuple[str, ...] = ()


class Loads:
    """ASGI middleware: answers a load with what the route would answer, or lets the request through to it.

    It answers none but those who were let through to the route lately, with the rights that this takes.
    """

    def __init__(self, app: ASGIApp, route: Route, loads: QuickLoads, authentication: Authentication | None) -> None:
        need = NEEDS["GET", route.path]
        assert isinstance(need, InPath)
        self._app = app
        self._route = route
        self._loads = loads
        self._authentication = authentication
        self._named = lru_cache(_REMEMBERED)(partial(_named, route.path_regex))
        self._grants = lru_cache(_REMEMBERED)(partial(grants_path, need))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and await self._answers(scope, send):
            return
        await self._app(scope, receive, send)

    async def _answers(self, scope: Scope, send: Send) -> bool:
        path, query = scope["path"], scope["query_string"]
        asked = self._named(path, query) if len(path) + len(query) <= _LONGEST else None
        if asked is None:
            return False
        said = _said(scope)
        principal = self._principal(said.authorization)
        if principal is None or not self._grants(principal, asked.namespace):
            return False
        wish = parse_wish(said.delegation)
        loaded = await self._loads.load(principal, address_of(scope), wish, asked.named_as, asked.representation)
        if loaded is None:
            return False
        scope["route"] = self._route
        note_principal(scope, principal)
        await _send(send, loaded, None if said.if_none_match == b"*" and wish else said.if_none_match)
        return True

    def _principal(self, authorization: bytes) -> Principal | None:
        return ANYBODY if self._authentication is None else self._authentication.known(authorization)


def _named(pattern: re.Pattern[str], path: str, query: bytes) -> _Named | None:
    """None for what isn't a load, or one that only the route understands."""
    match, representation = pattern.fullmatch(path), _REPRESENTATIONS.get(query)
    if match is None or representation is None:
        return None
    try:
        namespace = decode_namespace(match["namespace"])
        name = check_name(decode_name(match["table"]), "table name")
    except CatalogError:
        return None
    return _Named(namespace, (schema_name(namespace), name), representation)


async def _send(send: Send, loaded: LoadedTable, if_none_match: bytes | None) -> None:
    status, headers, body = outcome(loaded, if_none_match)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _said(scope: Scope) -> _Said:
    said = _Said()
    for name, value in scope["headers"]:
        if name == b"authorization":
            said.authorization = said.authorization or value
        elif name == b"if-none-match":
            said.if_none_match = said.if_none_match or value
        elif name == b"x-iceberg-access-delegation":
            said.delegation = (*said.delegation, value.decode("latin-1"))
    return said
