"""Answer loads from memory, without routing, threads and FastAPI.

`LoadTableResponder` answers requests that were parsed. For requests that come again byte for byte it leaves a handler
in `ResponseCache`, which the HTTP protocol asks before it parses anything.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import sha256
from typing import Final

from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from duckicelake.catalog.context.cache import LoadedTable
from duckicelake.catalog.context.caller import ANY_PRINCIPAL, Principal
from duckicelake.catalog.load_response import ALL, BRIEF, REFS, LoadTableFastPath, TableLoad
from duckicelake.catalog.table.load import TableCheck
from duckicelake.errors import CatalogError
from duckicelake.iceberg.identifiers import check_name, decode_name, decode_namespace, to_schema_name
from duckicelake.server.auth.authentication import Authentication, hash_authorization
from duckicelake.server.auth.permissions import NEEDS, InPath, grants_path
from duckicelake.server.http.headers import RawHeader, add_safety_headers, build_outcome
from duckicelake.server.http.scope import (
    LEARN_KEY,
    PATH_NAMES_KEY,
    REFERENCED_BY,
    TABLE_CHECK_KEY,
    ClientSession,
    PathNames,
    find_address,
    find_port,
    find_session,
    note_principal,
    parse_access_request,
)
from duckicelake.server.middleware.requests import RequestLog, RequestSlots, make_request_id
from duckicelake.server.protocol.http import ReplayedResponse, ReplyCallback

_MAX_CACHED_CHARS: Final = 1024
"""Characters of a path with its query, and of If-None-Match, above which a request is not cached."""
_LRU_ENTRIES: Final = 4096
_MAX_PORTS: Final = 256
"""Ports of one client session for which the time of the last recorded read is kept."""

_NEVER: Final = float("-inf")
_TRUST_SECONDS: Final = 0.05
"""Seconds for which a caller that was looked up isn't again: a look-up takes 1.1 µs, 4 % of a warm load."""
_REPRESENTATIONS: Final = {
    b"": ALL,
    b"snapshots=all": ALL,
    b"snapshots=refs": REFS,
    b"snapshots=brief": BRIEF,
}
_REFERENCED_BY: Final = f"{REFERENCED_BY}=".encode()
"""An option that changes no response of those whose own rights suffice, whom alone memory answers."""
_UNCACHED_HEADERS: Final = frozenset({b"origin", b"x-request-id"})
"""Headers whose values appear in the response."""

LoadOutcome = tuple[int, tuple[RawHeader, ...], tuple[bytes, ...]]
"""(Status, headers, pieces of the body)"""
OutcomeCallback = Callable[[LoadOutcome | TableCheck | None], object]
"""Receives the response, or what Postgres answered about a table that has changed, or None: the route must ask."""
ReplayHandler = Callable[[int, ReplyCallback], bool]
"""Start to answer a request again, which came from this port; return whether the callback will be called."""


class ResponseCache:
    """Handlers of requests that come again byte for byte; a `ReplayCache` of the HTTP protocol.

    Without it a warm load takes 2.15 times the CPU (paired, 1.9 to 2.9; 32 connections), and reaches 0.34 of a bare
    Starlette route instead of 0.75. It may go once parsing and middleware take less than half of a warm load.
    """

    def __init__(self) -> None:
        self._handlers: dict[tuple[str, bytes], ReplayHandler] = {}

    def replay(self, client: tuple[str, int], request: bytes, reply: ReplyCallback) -> bool:
        """Start to answer a request that came before from the same address."""
        address, port = client
        handler = self._handlers.get(_build_key(address, request))
        return handler is not None and handler(port, reply)

    def learn(self, address: str, request: bytes, handler: ReplayHandler) -> None:
        """Keep the handler of a request; the oldest is dropped first."""
        key = _build_key(address, request)
        self._handlers.pop(key, None)
        self._handlers[key] = handler
        if len(self._handlers) > _LRU_ENTRIES:
            del self._handlers[next(iter(self._handlers))]


def _build_key(address: str, request: bytes) -> tuple[str, bytes]:
    """Build a key without the request itself, which holds a token."""
    return address, sha256(request).digest()


@dataclass(frozen=True, slots=True)
class _RequestedTable:
    """A table and its representation, from a URL. full_name: schema and table name."""

    names: PathNames
    full_name: tuple[str, str]
    representation: str
    is_lookup: bool


@dataclass(slots=True)
class _LoadHeaders:
    """The headers that decide how a load is answered."""

    authorization: bytes = b""
    if_none_match: bytes | None = None
    delegation: tuple[str, ...] = ()
    is_cacheable: bool = True


@dataclass(slots=True)
class _ParsedLoad:
    """An authorized request to load a table (GET), or to find out whether it exists (HEAD).

    Attributes:
        token: The digest of the header Authorization; empty where authentication is off.
        read_at: Seconds at which a read was last recorded, by the client's port; 0 is any port.
        trusted_at: When its principal was last looked up, by time.monotonic and by the clock of tokens.

    """

    route: Route
    method: str
    path: str
    is_https: bool
    token: bytes
    request: TableLoad
    names: PathNames
    is_lookup: bool
    if_none_match: bytes | None
    is_cacheable: bool
    session: ClientSession
    read_at: dict[int, float] = field(default_factory=dict)
    trusted_at: tuple[float, float] = (_NEVER, _NEVER)


class LoadTableResponder:
    """Answer a load from memory as the route would, or name the app that answers the request.

    Memory answers principals whose token was read within the last minute, and who may read the namespace. Their other
    loads go on to the route at once: these have no body, and change nothing that is audited. `_replay` answers the
    same bytes again, without any other middleware.
    """

    def __init__(
        self,
        app: ASGIApp,
        fastapi: ASGIApp,
        routes: Mapping[str, Route],
        loads: LoadTableFastPath,
        authentication: Authentication | None,
        slots: RequestSlots,
        register: RequestLog,
        *,
        is_cacheable: bool,
        warehouse: str = "",
    ) -> None:
        """Make the responder.

        app: answers all other requests. fastapi: the app without layers. routes: by method. is_cacheable: False where a
        middleware must see every request. warehouse: its name; empty for the first.
        """
        self._app = app
        self._fastapi = fastapi
        self._routes = routes
        self._loads = loads
        self._rights = loads.services.rights
        self._reads = loads.services.reads
        self._wrote = self._reads.wrote
        self._repeat_seconds = self._reads.repeat_seconds
        self._authentication = authentication
        self._clock = time.time if authentication is None else authentication.clock
        self._slots = slots
        self._register = register
        self._is_cacheable = is_cacheable
        self._warehouse = warehouse
        self.is_closed = False
        """The warehouse is closed: no request is answered from its memory any more."""
        self.replayed_at = _NEVER
        """When a request was last answered again, by time.monotonic."""
        self._parse_url = lru_cache(_LRU_ENTRIES)(partial(_parse_url, routes["GET"].path_regex))
        self._is_granted = lru_cache(_LRU_ENTRIES)(_is_granted)

    async def choose_app(self, scope: Scope) -> ASGIApp:
        """Find the app that answers a request: one with the response, if memory has it."""
        load = self._parse_request(scope) if scope["method"] in self._routes else None
        if load is None:
            return self._app
        scope[PATH_NAMES_KEY] = load.names
        found = await self._find_outcome(scope, load)
        return self._fastapi if found is None else partial(self._send, found, load)

    async def _send(self, found: LoadOutcome, load: _ParsedLoad, scope: Scope, _: Receive, send: Send) -> None:
        """Send a response from memory, and keep what replays it."""
        scope["route"] = load.route
        note_principal(scope, load.request.principal)
        if load.is_cacheable and LEARN_KEY in scope:
            scope[LEARN_KEY](partial(self._replay, load))
        self._record_read(load, find_port(scope), time.perf_counter())
        status, headers, pieces = found
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"".join(pieces)})

    async def _find_outcome(self, scope: Scope, load: _ParsedLoad) -> LoadOutcome | None:
        """Find the response in memory; else leave in the scope what Postgres has answered, so that it is asked once."""
        if TABLE_CHECK_KEY in scope:  # left by `_reply`: the table has changed
            return None
        answer: asyncio.Future[LoadOutcome | TableCheck | None] = asyncio.get_running_loop().create_future()
        found = await answer if self._ask(load, partial(_settle, answer)) else None
        if isinstance(found, TableCheck):
            scope[TABLE_CHECK_KEY] = found
            return None
        return found

    def _parse_request(self, scope: Scope) -> _ParsedLoad | None:
        """Parse a load; None for other requests, what only the route understands, and callers it must check."""
        path, query = scope["path"], scope["query_string"]
        table = self._parse_url(path, query) if len(path) + len(query) <= _MAX_CACHED_CHARS else None
        if table is None:
            return None
        headers, method = _read_load_headers(scope), scope["method"]
        token = b"" if self._authentication is None else hash_authorization(headers.authorization)
        principal = self._find_principal(token)
        if principal is None or not self._is_granted(method, self._routes[method].path, principal, table.names):
            return None
        wish = parse_access_request(headers.delegation)
        return _ParsedLoad(
            route=self._routes[method],
            method=method,
            path=path,
            is_https=scope["scheme"] == "https",
            token=token,
            request=TableLoad(principal, find_address(scope), wish, table.full_name, table.representation),
            names=table.names,
            is_lookup=table.is_lookup,
            if_none_match=None if headers.if_none_match == b"*" and wish else headers.if_none_match,
            is_cacheable=headers.is_cacheable and self._is_cacheable,
            session=find_session(scope, principal),
        )

    def _find_principal(self, token: bytes) -> Principal | None:
        """Find the principal with what memory knows of its rights; None: the route must look for it."""
        known = ANY_PRINCIPAL if self._authentication is None else self._authentication.find_known(token)
        if known is None or self._rights is None:
            return known
        return None if self._rights.outside is not None else self._rights.find_known(known)

    def _ask(self, load: _ParsedLoad, deliver: OutcomeCallback) -> bool:
        """Ask for the outcome; whether `deliver` will be called with it."""
        if load.method == "HEAD":
            self._loads.exists(load.request.named_as, lambda exists: deliver((204, (), ()) if exists else None))
            return True

        def build(found: LoadedTable | TableCheck | None) -> None:
            deliver(build_outcome(found, load.if_none_match) if isinstance(found, LoadedTable) else found)

        return self._loads.load(load.request, build)

    def _record_read(self, load: _ParsedLoad, port: int, now: float) -> None:
        """Record that the table was read, at most once in `repeat_seconds` per session that writes nothing."""
        session = load.session
        own = port if session.is_stranger else 0
        read_at = load.read_at.get(own, _NEVER)
        if read_at + self._repeat_seconds <= now or read_at <= self._wrote.get(session.program, _NEVER):
            self._record_due_read(load, own, now)

    def _record_due_read(self, load: _ParsedLoad, port: int, now: float) -> None:
        read_at = load.read_at
        read_at.pop(port, None)
        if len(read_at) >= _MAX_PORTS:
            oldest = next(iter(read_at))
            if read_at[oldest] + self._repeat_seconds > now:
                return
            del read_at[oldest]
        read_at[port] = now
        if load.method == "GET":
            session, request = load.session.on(port), load.request
            self._reads.note_load_of(request.principal.name, session, request.named_as, is_lookup=load.is_lookup)

    def _replay(self, load: _ParsedLoad, port: int, reply: ReplyCallback) -> bool:
        """Answer the same bytes again; a `ReplayHandler`."""
        started = time.perf_counter()
        if self.is_closed:
            return False
        self.replayed_at = now = time.monotonic()
        if not self._trusts(load, now) or not self._slots.take():
            return False
        self._register.start()
        if self._ask(load, partial(self._reply, load, port, started, reply)):
            return True
        self._slots.leave()
        self._register.undo_start()
        return False

    def _trusts(self, load: _ParsedLoad, now: float) -> bool:
        """Return whether the caller is who it was, and may do what it might; looked up a few times a second.

        now: by time.monotonic. A token ends by a clock that may jump.
        """
        (looked_at, clock_then), clock_now = load.trusted_at, self._clock()
        if now - looked_at < _TRUST_SECONDS and 0 <= clock_now - clock_then < _TRUST_SECONDS:
            return True
        is_same = self._find_principal(load.token) is load.request.principal
        load.trusted_at = (now, clock_now) if is_same else (_NEVER, _NEVER)
        return is_same

    def _reply(
        self,
        load: _ParsedLoad,
        port: int,
        started: float,
        reply: ReplyCallback,
        found: LoadOutcome | TableCheck | None,
    ) -> None:
        self._slots.leave()
        if found is None or isinstance(found, TableCheck):
            self._register.undo_start()
            reply({} if found is None else {TABLE_CHECK_KEY: found})
            return
        self._record_read(load, port, started)
        status, headers, pieces = found
        request_id = make_request_id()
        reply(ReplayedResponse(status, add_safety_headers(headers, is_https=load.is_https), request_id, pieces))
        path = f"/v1/{self._warehouse}{load.path.removeprefix('/v1')}" if self._warehouse else load.path
        what = (load.method, load.route.path, path, status, started, request_id)
        self._register.end(*what, load.request.principal.name, warehouse=self._warehouse)


def _settle(answer: "asyncio.Future[LoadOutcome | TableCheck | None]", found: LoadOutcome | TableCheck | None) -> None:
    if not answer.done():
        answer.set_result(found)


def _is_granted(method: str, path: str, principal: Principal, names: PathNames) -> bool:
    need = NEEDS[method, path]
    assert isinstance(need, InPath)
    return grants_path(need, principal, names)


def _parse_url(pattern: re.Pattern[str], path: str, query: bytes) -> _RequestedTable | None:
    options = b"&".join(option for option in query.split(b"&") if not option.startswith(_REFERENCED_BY))
    match, representation = pattern.fullmatch(path), _REPRESENTATIONS.get(options)
    if match is None or representation is None:
        return None
    try:
        namespace = decode_namespace(match["namespace"])
        name = check_name(decode_name(match["table"]), "table name")
    except CatalogError:
        return None
    full_name = to_schema_name(namespace), name
    return _RequestedTable(PathNames(namespace, name), full_name, representation, is_lookup=bool(options))


def _read_load_headers(scope: Scope) -> _LoadHeaders:
    headers = _LoadHeaders()
    for name, value in scope["headers"]:
        if name == b"authorization":
            headers.authorization = headers.authorization or value
        elif name == b"if-none-match":
            headers.if_none_match = headers.if_none_match or value
            headers.is_cacheable &= len(value) <= _MAX_CACHED_CHARS
        elif name == b"x-iceberg-access-delegation":
            headers.delegation = (*headers.delegation, value.decode("latin-1"))
        elif name in _UNCACHED_HEADERS:
            headers.is_cacheable = False
    return headers
