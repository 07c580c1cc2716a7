"""The quick way for loads: past routing, threads and FastAPI, for those that memory answers (`catalog.loads.quick`)."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final

from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from duckicelake.catalog.access.delegation import Wish
from duckicelake.catalog.access.principal import ANYBODY, Principal
from duckicelake.catalog.lineage.reads import AGAIN, NEVER, load_of
from duckicelake.catalog.loads.answers import ALL, REFS
from duckicelake.catalog.loads.cache import LoadedTable
from duckicelake.catalog.loads.quick import QuickLoads
from duckicelake.errors import CatalogError
from duckicelake.iceberg.names import Namespace, check_name, decode_name, decode_namespace, schema_name
from duckicelake.server.access import Register, new_request_id
from duckicelake.server.caching import outcome
from duckicelake.server.context import address_of, note_principal
from duckicelake.server.delegation import parse_wish
from duckicelake.server.headers import Header, with_safety
from duckicelake.server.identity.auth import Authentication, digest_of
from duckicelake.server.identity.sessions import Session, port_of, session_of
from duckicelake.server.limits.load import Slots
from duckicelake.server.permissions import NEEDS, InPath, grants_path
from duckicelake.server.quick.repeats import REPEATS, Answer, Reply

_LONGEST: Final = 1024
"""Letters of a path and its query, and of a header, that are worth remembering."""
_REMEMBERED: Final = 4096
_PORTS: Final = 256
"""For so many it is remembered when a load was noted last; more than that at a time aren't noted."""

_REPRESENTATIONS: Final = {b"": ALL, b"snapshots=all": ALL, b"snapshots=refs": REFS}
_ONCE: Final = frozenset({b"origin", b"x-request-id"})
"""Headers of requests that get an answer of their own."""

Outcome = tuple[int, tuple[Header, ...], tuple[bytes, ...]]
"""(Status, headers, pieces of the body)"""
Tell = Callable[[Outcome | None], object]


@dataclass(frozen=True, slots=True)
class _Named:
    """What a URL asks for."""

    namespace: Namespace
    named_as: tuple[str, str]
    representation: str
    is_lookup: bool


@dataclass(slots=True)
class _Said:
    """What the headers say, as far as it matters to a load."""

    authorization: bytes = b""
    if_none_match: bytes | None = None
    delegation: tuple[str, ...] = ()
    may_repeat: bool = True


@dataclass(frozen=True, slots=True)
class _Load:
    """A request for a table, or whether there is one (HEAD), of somebody who may ask so."""

    route: Route
    method: str
    path: str
    is_https: bool
    address: str
    token: bytes
    """Digest of the header Authorization."""
    principal: Principal
    asked: _Named
    wish: Wish
    if_none_match: bytes | None
    may_repeat: bool
    session: Session
    noted: dict[int, float] = field(default_factory=dict)
    """When it was noted that this was read, by the port that it came from; 0: by whichever."""


class Loads:
    """ASGI middleware: answers a load with what the route would answer, or lets the request through to it.

    It answers none but those who were let through to the route lately, with the rights that this takes. Where the
    server offers it, it answers the same request again without any layer between: it does then what they would do.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Mapping[str, Route],
        loads: QuickLoads,
        authentication: Authentication | None,
        slots: Slots,
        register: Register,
        *,
        may_repeat: bool,
    ) -> None:
        """routes: by method. may_repeat: whether there is no layer that must see every request."""
        self._app = app
        self._routes = routes
        self._loads = loads
        self._reads = loads.services.reads
        self._wrote = self._reads.wrote
        self._authentication = authentication
        self._slots = slots
        self._register = register
        self._may_repeat = may_repeat
        self._named = lru_cache(_REMEMBERED)(partial(_named, routes["GET"].path_regex))
        self._grants = lru_cache(_REMEMBERED)(_grants)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] in self._routes and await self._answers(scope, send):
            return
        await self._app(scope, receive, send)

    async def _answers(self, scope: Scope, send: Send) -> bool:
        load = self._understood(scope)
        if load is None:
            return False
        answer: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        found = await answer if self._ask(load, partial(_settle, answer)) else None
        if found is None:
            return False
        scope["route"] = load.route
        note_principal(scope, load.principal)
        if load.may_repeat and REPEATS in scope.get("extensions", ()):
            scope["extensions"][REPEATS]["learn"](partial(self._again, load))
        self._note(load, port_of(scope), time.perf_counter())
        status, headers, pieces = found
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"".join(pieces)})
        return True

    def _understood(self, scope: Scope) -> _Load | None:
        """None for what isn't a load, or one that only the route understands, or of somebody who may not."""
        path, query = scope["path"], scope["query_string"]
        asked = self._named(path, query) if len(path) + len(query) <= _LONGEST else None
        if asked is None:
            return None
        said, method = _said(scope), scope["method"]
        token = digest_of(said.authorization)
        principal = self._principal(token)
        if principal is None or not self._grants(method, self._routes[method].path, principal, asked.namespace):
            return None
        wish = parse_wish(said.delegation)
        known = None if said.if_none_match == b"*" and wish else said.if_none_match
        is_https, may_repeat = scope["scheme"] == "https", said.may_repeat and self._may_repeat
        where = (self._routes[method], method, path, is_https, address_of(scope))
        return _Load(*where, token, principal, asked, wish, known, may_repeat, session_of(scope, principal))

    def _principal(self, token: bytes) -> Principal | None:
        return ANYBODY if self._authentication is None else self._authentication.known(token)

    def _ask(self, load: _Load, tell: Tell) -> bool:
        """Whether the outcome will be told, or None."""
        asked = load.asked
        if load.method == "HEAD":
            self._loads.exists(asked.named_as, lambda exists: tell((204, (), ()) if exists else None))
            return True

        def told(loaded: LoadedTable | None) -> None:
            tell(None if loaded is None else outcome(loaded, load.if_none_match))

        return self._loads.load(load.principal, load.address, load.wish, asked.named_as, asked.representation, told)

    def _note(self, load: _Load, port: int, now: float) -> None:
        """Note that the table was read: of one who loads it all the time, once in a while. Quick, as most are that."""
        session = load.session
        own = port if session.is_stranger else 0
        noted = load.noted.get(own, NEVER)
        if noted + AGAIN <= now or noted <= self._wrote.get(session.program, NEVER):
            self._note_anew(load, own, now)

    def _note_anew(self, load: _Load, port: int, now: float) -> None:
        asked, noted = load.asked, load.noted
        noted.pop(port, None)
        if len(noted) >= _PORTS:
            oldest = next(iter(noted))
            if noted[oldest] + AGAIN > now:
                return
            del noted[oldest]
        noted[port] = now
        if load.method == "GET":
            session = load.session.on(port)
            self._reads.note(load_of(load.principal.name, session, asked.named_as, is_lookup=asked.is_lookup))

    def _again(self, load: _Load, port: int, reply: Reply) -> bool:
        """A `Repeat`."""
        started = time.perf_counter()
        if self._principal(load.token) is not load.principal or not self._slots.take():
            return False
        self._register.begun()
        if self._ask(load, partial(self._reply, load, port, started, reply)):
            return True
        self._slots.leave()
        self._register.handed_over()
        return False

    def _reply(self, load: _Load, port: int, started: float, reply: Reply, found: Outcome | None) -> None:
        self._slots.leave()
        if found is None:
            self._register.handed_over()
            reply(None)
            return
        self._note(load, port, started)
        status, headers, pieces = found
        request_id = new_request_id()
        reply(Answer(status, with_safety(headers, is_https=load.is_https), request_id, pieces))
        self._register.ended(load.method, load.route.path, load.path, status, started, request_id, load.principal.name)


def _settle(answer: "asyncio.Future[Outcome | None]", found: Outcome | None) -> None:
    if not answer.done():
        answer.set_result(found)


def _grants(method: str, path: str, principal: Principal, namespace: Namespace) -> bool:
    need = NEEDS[method, path]
    assert isinstance(need, InPath)
    return grants_path(need, principal, namespace)


def _named(pattern: re.Pattern[str], path: str, query: bytes) -> _Named | None:
    match, representation = pattern.fullmatch(path), _REPRESENTATIONS.get(query)
    if match is None or representation is None:
        return None
    try:
        namespace = decode_namespace(match["namespace"])
        name = check_name(decode_name(match["table"]), "table name")
    except CatalogError:
        return None
    return _Named(namespace, (schema_name(namespace), name), representation, is_lookup=bool(query))


def _said(scope: Scope) -> _Said:
    said = _Said()
    for name, value in scope["headers"]:
        if name == b"authorization":
            said.authorization = said.authorization or value
        elif name == b"if-none-match":
            said.if_none_match = said.if_none_match or value
            said.may_repeat &= len(value) <= _LONGEST
        elif name == b"x-iceberg-access-delegation":
            said.delegation = (*said.delegation, value.decode("latin-1"))
        elif name in _ONCE:
            said.may_repeat = False
    return said
