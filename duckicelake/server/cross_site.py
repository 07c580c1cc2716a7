"""The layer of a server without logins that refuses what web pages of others make browsers send.

Without logins a request may do everything, and a browser sends what any page asks of it. Pages of the server itself,
and of the origins in DUCKICELAKE_CORS_ORIGINS, are no others. Programs send none of these headers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from duckicelake.server.errors import error_response
from duckicelake.server.hosts import AllowedHosts

_PROBES: Final = frozenset({"/healthz", "/readyz"})
"""Under whatever name: load balancers choose one, and the answer says no more than whether the server is there."""
_ANY_ORIGIN: Final = "*"
_SEEN: Final = frozenset({b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"content-type"})
_LENGTHS: Final = frozenset({b"content-length", b"transfer-encoding"})
_SIMPLE_TYPES: Final = frozenset({b"", b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data"})
"""What a page may send to other servers without asking them first (Fetch, CORS-safelisted request-header)."""
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LONGEST: Final = 80
"""Letters of a header that are repeated in an error."""


@dataclass(slots=True)
class _Browsing:
    """What the headers say about a request of a browser; None: the header isn't there."""

    host: bytes | None = None
    origin: bytes | None = None
    site: bytes | None = None
    mode: bytes | None = None
    content_type: bytes = b""
    has_body: bool = False


class CrossSite:
    """ASGI middleware: answers 421 to a foreign Host, 403 to requests that pages of other sites cause.

    Preflight requests (OPTIONS) pass: they change nothing, and their answer says what a page may do.
    """

    def __init__(self, app: ASGIApp, *, hosts: AllowedHosts | None, origins: Iterable[str]) -> None:
        """hosts: None takes any. origins: whose pages may call, as browsers write them."""
        self._app = app
        self._hosts = hosts
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            seen = _seen(scope)
            if not self._is_known(seen.host, scope):
                app = _misdirected(seen.host or b"")
            elif seen.origin is not None or seen.site is not None:
                app = self._refusal(seen, scope) or app
        await app(scope, receive, send)

    def _is_known(self, host: bytes | None, scope: Scope) -> bool:
        """Whether the name is one of this server. No browser leaves out Host, but probes of HTTP/1.0 do."""
        if self._hosts is None or host is None or scope["path"] in _PROBES:
            return True
        server = scope.get("server")
        return self._hosts.allows(host, str(server[0]) if server else "")

    def _refusal(self, seen: _Browsing, scope: Scope) -> ASGIApp | None:
        if scope["method"] == "OPTIONS" or _is_visit(seen, scope):
            return None
        reason = self._foreign(seen, scope)
        if reason is None and seen.has_body and _is_simple(seen.content_type):
            sent = _shown(seen.content_type) or "none"
            reason = f"Content-Type is {sent}, which a page of any site could send: send application/json"
        return None if reason is None else _forbidden(reason)

    def _foreign(self, seen: _Browsing, scope: Scope) -> str | None:
        """Which header says that another site's page makes the request; None: no such page does."""
        site, origin = seen.site, seen.origin
        if origin is not None:
            text = origin.decode("latin-1").lower()
            if text in self._origins or _ANY_ORIGIN in self._origins:
                return None
            if site not in {None, b"same-origin"} or (site is None and not _is_own(text, seen.host, scope)):
                return (
                    f"Origin is {_shown(origin)}: pages of other sites may call this server only if "
                    "DUCKICELAKE_CORS_ORIGINS names them, or with logins (DUCKICELAKE_OAUTH_CLIENTS, "
                    "DUCKICELAKE_OIDC_ISSUER)"
                )
            return None
        if site in {b"same-origin", b"none"} or (site == b"same-site" and scope["method"] in _SAFE):
            return None
        return (
            f"Sec-Fetch-Site is {_shown(site or b'')}: pages of other sites may call this server only with an Origin "
            "that DUCKICELAKE_CORS_ORIGINS names, or with logins (DUCKICELAKE_OAUTH_CLIENTS, DUCKICELAKE_OIDC_ISSUER)"
        )


def _seen(scope: Scope) -> _Browsing:
    """The headers that count. A header that is there twice counts as one that nobody allows."""
    seen: dict[bytes, bytes] = {}
    has_body = False
    for name, value in scope["headers"]:
        if name in _SEEN:
            seen[name] = b"%b, %b" % (seen[name], value) if name in seen else value
        elif name in _LENGTHS:
            has_body |= value != b"0"
    host, origin, site = seen.get(b"host"), seen.get(b"origin"), seen.get(b"sec-fetch-site")
    return _Browsing(host, origin, site, seen.get(b"sec-fetch-mode"), seen.get(b"content-type", b""), has_body)


def _is_visit(seen: _Browsing, scope: Scope) -> bool:
    """Whether somebody follows a link to a page of the server, which shows no data by itself (`pages`)."""
    path = scope["path"]
    is_page = path == "/" or path.startswith("/ui/")
    return is_page and scope["method"] == "GET" and seen.origin is None and seen.mode == b"navigate"


def _is_own(origin: str, host: bytes | None, scope: Scope) -> bool:
    """Whether the origin is this server, under the name that the request has for it.

    Behind a proxy that isn't trusted the scheme is unknown: then that of the page doesn't count.
    """
    scheme, _, authority = origin.partition("://")
    is_scheme = scheme == "https" or (scheme == "http" and scope["scheme"] == "http")
    return is_scheme and host is not None and authority == host.decode("latin-1").lower()


def _is_simple(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() in _SIMPLE_TYPES


def _misdirected(host: bytes) -> ASGIApp:
    message = (
        f"Host is {_shown(host)}, which this server doesn't know as its name. Without logins it answers only to names "
        "that no web page can take: add the name to DUCKICELAKE_ALLOWED_HOSTS, or set logins up"
    )
    return error_response(421, "MisdirectedRequestException", message)


def _forbidden(reason: str) -> ASGIApp:
    return error_response(403, "ForbiddenException", f"{reason}; nothing was done")


def _shown(value: bytes) -> str:
    text = value[:_LONGEST].decode("latin-1")
    return "".join(letter for letter in text if letter.isprintable())
