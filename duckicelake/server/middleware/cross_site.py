"""Refuse requests over plain http, and what web pages of other sites make browsers send to a server without logins."""

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from duckicelake.server.http.errors import build_error_response
from duckicelake.server.http.scope import EXEMPT_PATHS

IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network
ANY_HOST: Final = "*"
_HOST_PATTERN: Final = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[^\[\]:/@?#\s]+))(?::[0-9]*)?")
_REDIRECT_HOST_PATTERN: Final = re.compile(rb"[A-Za-z0-9.:\[\]-]+")
_LRU_ENTRIES: Final = 1024
_MAX_HOST_CHARS: Final = 255
_PROBE_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Under whatever name: load balancers choose one, and the answer says no more than whether the server is there."""
_ANY_ORIGIN: Final = "*"
_BROWSER_HEADERS: Final = frozenset({b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"content-type"})
_LENGTH_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})
_SIMPLE_TYPES: Final = frozenset({b"", b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data"})
"""What a page may send to other servers without asking them first (Fetch, CORS-safelisted request-header)."""
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_SHOWN_CHARS: Final = 80
"""Letters of a header that are repeated in an error."""


class AllowedHosts:
    """Loopback names, the machine's own names and addresses where others may connect, and what the settings add."""

    def __init__(self, bound: str = "127.0.0.1", more: Iterable[str] = ()) -> None:
        """Take what the server listens on, and more: names, `*.domain`, addresses, networks, or `*` for any."""
        is_local = is_loopback(bound)
        names = {bound, *more} if is_local else {bound, *more, *_find_machine_names()}
        patterns = {name.lower().rstrip(".").strip("[]") for name in names}
        self._networks = tuple(network for name in patterns if (network := _parse_network(name)) is not None)
        self._names = frozenset(name for name in patterns if _parse_network(name) is None)
        self._suffixes = tuple(name[1:] for name in self._names if name.startswith("*."))
        self._is_any = ANY_HOST in self._names
        self._has_own_addresses = not is_local
        self.allows = lru_cache(_LRU_ENTRIES)(self._allows)

    def _allows(self, host: bytes, local_address: str) -> bool:
        """Return whether the header Host names this server. local_address: the end of the connection that is ours."""
        if self._is_any:
            return True
        match = _HOST_PATTERN.fullmatch(host[:_MAX_HOST_CHARS].decode("latin-1"))
        if match is None or len(host) > _MAX_HOST_CHARS:
            return False
        name = (match["v6"] or match["name"]).lower().removesuffix(".")
        if _is_loopback_name(name) or name in self._names or name.endswith(self._suffixes):
            return True
        address = _parse_address(name)
        if address is None:
            return False
        is_own = self._has_own_addresses and address == _parse_address(local_address)
        return is_own or any(address in network for network in self._networks)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a server that listens there."""
    address = _parse_address(host)
    return host == "localhost" if address is None else address.is_loopback


def _is_loopback_name(name: str) -> bool:
    """Return whether no DNS server has a say in where the name leads: 0.0.0.0 and :: lead to this machine, too."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _parse_address(name)
    return address is not None and (address.is_loopback or address.is_unspecified)


def _find_machine_names() -> set[str]:
    name = socket.gethostname()
    return {name, socket.getfqdn(), f"{name.partition('.')[0]}.local"}


def _parse_address(text: str) -> IpAddress | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _parse_network(text: str) -> IpNetwork | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


@dataclass(slots=True)
class _BrowserHeaders:
    """What the headers say about a request of a browser; None: the header isn't there."""

    host: bytes | None = None
    origin: bytes | None = None
    site: bytes | None = None
    mode: bytes | None = None
    content_type: bytes = b""
    has_body: bool = False


class CrossSiteRules:
    """Refuse requests with a foreign Host, by 421, and those that pages of other sites cause, by 403.

    Preflight requests (OPTIONS) pass: they change nothing, and their answer says what a page may do.
    """

    def __init__(self, *, hosts: AllowedHosts | None, origins: Iterable[str]) -> None:
        """hosts: None takes any. origins: whose pages may call, as browsers write them."""
        self._hosts = hosts
        self._origins = frozenset(origins)

    def find_refusal(self, scope: Scope) -> ASGIApp | None:
        """Find the response that refuses a request; None for one that is let in."""
        seen = _read_headers(scope)
        if not self._is_known(seen.host, scope):
            return _build_misdirected(seen.host or b"")
        return None if seen.origin is None and seen.site is None else self._refusal(seen, scope)

    def _is_known(self, host: bytes | None, scope: Scope) -> bool:
        """Return whether the name is one of this server. No browser leaves out Host, but probes of HTTP/1.0 do."""
        if self._hosts is None or host is None or scope["path"] in _PROBE_PATHS:
            return True
        server = scope.get("server")
        return self._hosts.allows(host, str(server[0]) if server else "")

    def _refusal(self, seen: _BrowserHeaders, scope: Scope) -> ASGIApp | None:
        if scope["method"] == "OPTIONS" or _is_visit(seen, scope):
            return None
        reason = self._foreign(seen, scope)
        if reason is None and seen.has_body and _is_simple(seen.content_type):
            sent = _clean(seen.content_type) or "none"
            reason = f"Content-Type is {sent}, which a page of any site could send: send application/json"
        return None if reason is None else _build_forbidden(reason)

    def _foreign(self, seen: _BrowserHeaders, scope: Scope) -> str | None:
        """Say which header shows that another site's page makes the request; None if none does."""
        site, origin = seen.site, seen.origin
        if origin is not None:
            text = origin.decode("latin-1").lower()
            if text in self._origins or _ANY_ORIGIN in self._origins:
                return None
            if site not in {None, b"same-origin"} or (site is None and not _is_own(text, seen.host, scope)):
                return (
                    f"Origin is {_clean(origin)}: pages of other sites may call this server only if "
                    "DUCKICELAKE_CORS_ORIGINS names them, or with logins (DUCKICELAKE_OAUTH_CLIENTS, "
                    "DUCKICELAKE_OIDC_ISSUER)"
                )
            return None
        if site in {b"same-origin", b"none"} or (site == b"same-site" and scope["method"] in _SAFE_METHODS):
            return None
        return (
            f"Sec-Fetch-Site is {_clean(site or b'')}: pages of other sites may call this server only with an Origin "
            "that DUCKICELAKE_CORS_ORIGINS names, or with logins (DUCKICELAKE_OAUTH_CLIENTS, DUCKICELAKE_OIDC_ISSUER)"
        )


def _read_headers(scope: Scope) -> _BrowserHeaders:
    """Read the headers of a browser. A repeated header is joined, so that no rule allows it."""
    seen: dict[bytes, bytes] = {}
    has_body = False
    for name, value in scope["headers"]:
        if name in _BROWSER_HEADERS:
            seen[name] = b"%b, %b" % (seen[name], value) if name in seen else value
        elif name in _LENGTH_HEADERS:
            has_body |= value != b"0"
    host, origin, site = seen.get(b"host"), seen.get(b"origin"), seen.get(b"sec-fetch-site")
    return _BrowserHeaders(host, origin, site, seen.get(b"sec-fetch-mode"), seen.get(b"content-type", b""), has_body)


def _is_visit(seen: _BrowserHeaders, scope: Scope) -> bool:
    """Return whether a user follows a link to a page of the server; the pages hold no data themselves."""
    path = scope["path"]
    is_page = path in {"/", "/ui"} or path.startswith("/ui/")
    return is_page and scope["method"] == "GET" and seen.origin is None and seen.mode == b"navigate"


def _is_own(origin: str, host: bytes | None, scope: Scope) -> bool:
    """Return whether the origin is this server, under the name that the request has for it.

    Behind a proxy that isn't trusted the scheme is unknown: then that of the page doesn't count.
    """
    scheme, _, authority = origin.partition("://")
    is_scheme = scheme == "https" or (scheme == "http" and scope["scheme"] == "http")
    return is_scheme and host is not None and authority == host.decode("latin-1").lower()


def _is_simple(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() in _SIMPLE_TYPES


def _build_misdirected(host: bytes) -> ASGIApp:
    message = (
        f"Host is {_clean(host)}, which this server doesn't know as its name. Without logins it answers only to names "
        "that no web page can take: add the name to DUCKICELAKE_ALLOWED_HOSTS, or set logins up"
    )
    return build_error_response(421, "MisdirectedRequestException", message)


def _build_forbidden(reason: str) -> ASGIApp:
    return build_error_response(403, "ForbiddenException", f"{reason}; nothing was done")


def _clean(value: bytes) -> str:
    text = value[:_MAX_SHOWN_CHARS].decode("latin-1")
    return "".join(letter for letter in text if letter.isprintable())


class RequireHttpsMiddleware:
    """Redirect GET and HEAD over http to https, and refuse all else over http but probes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["scheme"] == "https" or scope["path"] in EXEMPT_PATHS:
            await self._app(scope, receive, send)
            return
        await _build_https_refusal(scope)(scope, receive, send)


def _build_https_refusal(scope: Scope) -> ASGIApp:
    host = next((value for name, value in scope["headers"] if name == b"host"), b"")
    if scope["method"] in {"GET", "HEAD"} and _REDIRECT_HOST_PATTERN.fullmatch(host):
        query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
        return RedirectResponse(f"https://{host.decode()}{scope['path']}{query}", 308)
    message = (
        "This server is spoken to over https alone; nothing was done, and what was sent went over the wire in the clear"
    )
    return build_error_response(403, "ForbiddenException", message)
