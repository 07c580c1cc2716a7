"""Answer loads from memory, past routing, threads and FastAPI."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final

from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from duckicelake.catalog.context.cache import LoadedTable
from duckicelake.catalog.context.caller import ANY_PRINCIPAL, Principal
from duckicelake.catalog.delegation import AccessRequest
from duckicelake.catalog.load_response import ALL, REFS, LoadTableFastPath
from duckicelake.errors import CatalogError
from duckicelake.iceberg.identifiers import Namespace, check_name, decode_name, decode_namespace, to_schema_name
from duckicelake.server.auth.authentication import Authentication, hash_authorization
from duckicelake.server.auth.permissions import NEEDS, InPath, grants_path
from duckicelake.server.http.headers import RawHeader, add_safety_headers, build_outcome, parse_access_request
from duckicelake.server.http.scope import ClientSession, find_address, find_port, find_session, note_principal
from duckicelake.server.middleware.load_limit import RequestSlots
from duckicelake.server.middleware.request_log import RequestLog, make_request_id
from duckicelake.server.protocol.response_cache import RESPONSE_CACHE_EXTENSION, ReplayedResponse, ReplyCallback

_MAX_CACHED_CHARS: Final = 1024
"""Letters of a path and its query, and of a header, that are worth remembering."""
_LRU_ENTRIES: Final = 4096
_MAX_PORTS: Final = 256
"""For so many it is remembered when a load was noted last; more than that at a time aren't noted."""

_NEVER: Final = float("-inf")
_REPRESENTATIONS: Final = {b"": ALL, b"snapshots=all": ALL, b"snapshots=refs": REFS}
_UNCACHED_HEADERS: Final = frozenset({b"origin", b"x-request-id"})
"""Headers of requests that get an answer of their own."""

LoadOutcome = tuple[int, tuple[RawHeader, ...], tuple[bytes, ...]]
"""(Status, headers, pieces of the body)"""
OutcomeCallback = Callable[[LoadOutcome | None], object]


@dataclass(frozen=True, slots=True)
class _RequestedTable:
    """What a URL asks for."""

    namespace: Namespace
    named_as: tuple[str, str]
    representation: str
    is_lookup: bool


@dataclass(slots=True)
class _LoadHeaders:
    """What the headers say, as far as it matters to a load."""

    authorization: bytes = b""
    if_none_match: bytes | None = None
    delegation: tuple[str, ...] = ()
    may_repeat: bool = True


@dataclass(frozen=True, slots=True)
class _LoadRequest:
    """A request for a table, or whether there is one (HEAD), of somebody who may ask so."""

    route: Route
    method: str
    path: str
    is_https: bool
    address: str
    token: bytes
    """Digest of the header Authorization."""
    principal: Principal
    asked: _RequestedTable
    wish: AccessRequest
    if_none_match: bytes | None
    may_repeat: bool
    session: ClientSession
    noted: dict[int, float] = field(default_factory=dict)
    """When it was noted that this was read, by the port that it came from; 0: by whichever."""


class LoadTableMiddleware:
    """ASGI middleware: answers a load with what the route would answer, or lets the request through to it.

    It answers none but those who were let through to the route lately, with the rights that this takes. Where the
    server offers it, it answers the same request again without any layer between: it does then what they would do.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Mapping[str, Route],
        loads: LoadTableFastPath,
        authentication: Authentication | None,
        slots: RequestSlots,
        register: RequestLog,
        *,
        may_repeat: bool,
    ) -> None:
        """routes: by method. may_repeat: whether there is no layer that must see every request."""
        self._app = app
        self._routes = routes
        self._loads = loads
        self._reads = loads.services.reads
        self._wrote = self._reads.wrote
        self._repeat_seconds = self._reads.repeat_seconds
        self._authentication = authentication
        self._slots = slots
        self._register = register
        self._may_repeat = may_repeat
        self._named = lru_cache(_LRU_ENTRIES)(partial(_parse_url, routes["GET"].path_regex))
        self._grants = lru_cache(_LRU_ENTRIES)(_is_granted)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] in self._routes and await self._answers(scope, send):
            return
        await self._app(scope, receive, send)

    async def _answers(self, scope: Scope, send: Send) -> bool:
        load = self._parse_request(scope)
        if load is None:
            return False
        answer: asyncio.Future[LoadOutcome | None] = asyncio.get_running_loop().create_future()
        found = await answer if self._ask(load, partial(_settle, answer)) else None
        if found is None:
            return False
        scope["route"] = load.route
        note_principal(scope, load.principal)
        if load.may_repeat and RESPONSE_CACHE_EXTENSION in scope.get("extensions", ()):
            scope["extensions"][RESPONSE_CACHE_EXTENSION]["learn"](partial(self._replay, load))
        self._note(load, find_port(scope), time.perf_counter())
        status, headers, pieces = found
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"".join(pieces)})
        return True

    def _parse_request(self, scope: Scope) -> _LoadRequest | None:
        """None for what isn't a load, or one that only the route understands, or of somebody who may not."""
        path, query = scope["path"], scope["query_string"]
        asked = self._named(path, query) if len(path) + len(query) <= _MAX_CACHED_CHARS else None
        if asked is None:
            return None
        said, method = _read_load_headers(scope), scope["method"]
        token = hash_authorization(said.authorization)
        principal = self._principal(token)
        if principal is None or not self._grants(method, self._routes[method].path, principal, asked.namespace):
            return None
        wish = parse_access_request(said.delegation)
        known = None if said.if_none_match == b"*" and wish else said.if_none_match
        is_https, may_repeat = scope["scheme"] == "https", said.may_repeat and self._may_repeat
        where = (self._routes[method], method, path, is_https, find_address(scope))
        return _LoadRequest(*where, token, principal, asked, wish, known, may_repeat, find_session(scope, principal))

    def _principal(self, token: bytes) -> Principal | None:
        return ANY_PRINCIPAL if self._authentication is None else self._authentication.known(token)

    def _ask(self, load: _LoadRequest, tell: OutcomeCallback) -> bool:
        """Whether the outcome will be told, or None."""
        asked = load.asked
        if load.method == "HEAD":
            self._loads.exists(asked.named_as, lambda exists: tell((204, (), ()) if exists else None))
            return True

        def told(loaded: LoadedTable | None) -> None:
            tell(None if loaded is None else build_outcome(loaded, load.if_none_match))

        return self._loads.load(load.principal, load.address, load.wish, asked.named_as, asked.representation, told)

    def _note(self, load: _LoadRequest, port: int, now: float) -> None:
        """Note that the table was read: of one who loads it all the time, once in a while. Quick, as most are that."""
        session = load.session
        own = port if session.is_stranger else 0
        noted = load.noted.get(own, _NEVER)
        if noted + self._repeat_seconds <= now or noted <= self._wrote.get(session.program, _NEVER):
            self._note_again(load, own, now)

    def _note_again(self, load: _LoadRequest, port: int, now: float) -> None:
        asked, noted = load.asked, load.noted
        noted.pop(port, None)
        if len(noted) >= _MAX_PORTS:
            oldest = next(iter(noted))
            if noted[oldest] + self._repeat_seconds > now:
                return
            del noted[oldest]
        noted[port] = now
        if load.method == "GET":
            session = load.session.on(port)
            self._reads.note_load_of(load.principal.name, session, asked.named_as, is_lookup=asked.is_lookup)

    def _replay(self, load: _LoadRequest, port: int, reply: ReplyCallback) -> bool:
        """A `Repeat`."""
        started = time.perf_counter()
        if self._principal(load.token) is not load.principal or not self._slots.take():
            return False
        self._register.begun()
        if self._ask(load, partial(self._reply, load, port, started, reply)):
            return True
        self._slots.leave()
        self._register.undo_begun()
        return False

    def _reply(
        self, load: _LoadRequest, port: int, started: float, reply: ReplyCallback, found: LoadOutcome | None
    ) -> None:
        self._slots.leave()
        if found is None:
            self._register.undo_begun()
            reply(None)
            return
        self._note(load, port, started)
        status, headers, pieces = found
        request_id = make_request_id()
        reply(ReplayedResponse(status, add_safety_headers(headers, is_https=load.is_https), request_id, pieces))
        self._register.ended(load.method, load.route.path, load.path, status, started, request_id, load.principal.name)


def _settle(answer: "asyncio.Future[LoadOutcome | None]", found: LoadOutcome | None) -> None:
    if not answer.done():
        answer.set_result(found)


def _is_granted(method: str, path: str, principal: Principal, namespace: Namespace) -> bool:
    need = NEEDS[method, path]
    assert isinstance(need, InPath)
    return grants_path(need, principal, namespace)


def _parse_url(pattern: re.Pattern[str], path: str, query: bytes) -> _RequestedTable | None:
    match, representation = pattern.fullmatch(path), _REPRESENTATIONS.get(query)
    if match is None or representation is None:
        return None
    try:
        namespace = decode_namespace(match["namespace"])
        name = check_name(decode_name(match["table"]), "table name")
    except CatalogError:
        return None
    return _RequestedTable(namespace, (to_schema_name(namespace), name), representation, is_lookup=bool(query))


def _read_load_headers(scope: Scope) -> _LoadHeaders:
    said = _LoadHeaders()
    for name, value in scope["headers"]:
        if name == b"authorization":
            said.authorization = said.authorization or value
        elif name == b"if-none-match":
            said.if_none_match = said.if_none_match or value
            said.may_repeat &= len(value) <= _MAX_CACHED_CHARS
        elif name == b"x-iceberg-access-delegation":
            said.delegation = (*said.delegation, value.decode("latin-1"))
        elif name in _UNCACHED_HEADERS:
            said.may_repeat = False
    return said
