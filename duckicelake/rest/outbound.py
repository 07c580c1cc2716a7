"""Guard requests to URLs that callers or administrators give at run time, against reaching the server's own network.

Use it for every URL that didn't come from the settings: issuers, endpoints of stores, receivers.

- `OutboundGuard.parse(settings.allowed_addresses)` once, at the start;
- `guard.check_url(url)` where the URL is given: it is refused with a message for its author, before it is stored;
- `HttpConnection(uri, guard)` for each request: the addresses of the host are checked again when it connects, and the
  socket connects to an address that was checked, so that a name that changes between both (DNS rebinding) is no way in.

A redirect opens a connection as any request does, so it is checked, too. URLs of the settings need no guard: the
operator wrote them. Libraries that connect by themselves (obstore, boto3, DuckDB) can't be handed a checked socket;
for those call `check_url` before each client of theirs is made.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import LocationValueError
from urllib3.util import Url, parse_url

from duckicelake.errors import InvalidSettingsError, RefusedAddressError
from duckicelake.rest.deadline import keep_deadline

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
SocketAddress = tuple[socket.AddressFamily, tuple[Any, ...]]

MAX_URL_CHARS: Final = 2048
_MAX_ADDRESSES: Final = 8
"""Addresses of one host that are tried."""
_HOST_PATTERN: Final = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_NUMBER_PATTERN: Final = re.compile(r"(.*\.)?(0x[0-9a-f]*|[0-9]+)\.?")
"""Hosts that resolvers read as an address in some spelling: 127.1, 2130706433, 0x7f.1, 0177.0.0.1."""
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")
_REFUSED: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            # What Python's is_global lets through, or let through once.
            *("168.63.129.16/32", "192.88.99.0/24", "192.0.0.0/24", "100.64.0.0/10", "240.0.0.0/4"),
            *("2001::/23", "2001:db8::/32", "3fff::/20", "fec0::/10", "5f00::/16"),
        ),
    )
)
"""Azure's host (which gives keys), relays of 6to4, special purposes (IANA's registries)."""


def is_public(address: Address) -> bool:
    """Return whether an address is one of the public internet, and so is the one of IPv4 that it holds."""
    if isinstance(address, ipaddress.IPv6Address):
        held = _find_ipv4(address)
        if held is not None:
            return is_public(held)
        if address not in _GLOBAL_V6 or address.scope_id is not None:
            return False
    if any(address.version == network.version and address in network for network in _REFUSED):
        return False
    return address.is_global and not address.is_multicast


def _find_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Find the address of IPv4 that gateways make of one of IPv6: mapped, 6to4, NAT64."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


@dataclass(frozen=True, slots=True)
class OutboundGuard:
    """What requests may reach besides public addresses. hosts: names, `*.example` for all below a domain."""

    networks: tuple[Network, ...] = ()
    hosts: tuple[str, ...] = ()

    @classmethod
    def parse(cls, allowed: Iterable[str]) -> "OutboundGuard":
        """Parse the setting allowed_addresses: addresses, networks and names of hosts. Raises InvalidSettingsError."""
        networks, hosts = [], []
        for text in allowed:
            try:
                networks.append(ipaddress.ip_network(text.strip("[]")))
            except ValueError as error:
                host = text.lower().rstrip(".")
                if not _HOST_PATTERN.fullmatch(host) or _NUMBER_PATTERN.fullmatch(host):
                    raise InvalidSettingsError(
                        f"allowed_addresses: {text!r} is no address, network (10.0.0.0/8) or host (*.example)"
                    ) from error
                hosts.append(host)
        return cls(tuple(networks), tuple(hosts))

    def lists_host(self, host: str) -> bool:
        """Return whether a host is listed by name: it is trusted as one of the settings, whatever its addresses are."""
        name = host.lower().rstrip(".")
        return any(name.endswith(listed[1:]) if listed.startswith("*.") else name == listed for listed in self.hosts)

    def lets_in(self, address: Address) -> bool:
        """Return whether requests may go to an address."""
        return is_public(address) or any(
            held.version == network.version and held in network
            for held in _unfold(address)
            for network in self.networks
        )

    def check_url(self, url: str, *, what: str = "URL", needs_address: bool = True) -> str:
        """Check a URL where it is given, its host's addresses included, and return it.

        needs_address: refuse a host that has none now; else the first request finds out.

        Raises RefusedAddressError, which says what is wrong with it.
        """
        parts = parse_outbound(url, what)
        try:
            self.resolve(str(parts.host), parts.port or (443 if parts.scheme == "https" else 80))
        except OSError as error:
            if not needs_address:
                return url
            raise RefusedAddressError(f"Invalid {what} {url!r}: its host has no address ({error})") from error
        return url

    def resolve(self, host: str, port: int) -> list[SocketAddress]:
        """Resolve a host to socket addresses that requests may go to; all of its addresses must be such.

        Raises:
            RefusedAddressError: one of them isn't.
            OSError: the host has no address.

        """
        bare = host.strip("[]")
        _check_host(bare)
        found = [
            (socket.AddressFamily(family), address)
            for family, _, _, _, address in socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM)
        ]
        if not self.lists_host(bare):
            for _, address in found:
                if not self.lets_in(_parse_address(address)):
                    raise RefusedAddressError(
                        f"{host} has an address that isn't public, so no URL that a caller gives may lead there: "
                        "the operator can list the host or its network in DUCKICELAKE_ALLOWED_ADDRESSES"
                    )
        return found[:_MAX_ADDRESSES]

    def connect(self, host: str, port: int, seconds: float | None) -> socket.socket:
        """Connect to the first address that answers, of those just checked. Raises as `resolve` does."""
        problem: OSError = OSError(f"{host} has no address")
        for family, address in self.resolve(host, port):
            connection = socket.socket(family, socket.SOCK_STREAM)
            try:
                connection.settimeout(seconds)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.connect(address)
            except OSError as error:
                connection.close()
                problem = error
            else:
                return connection
        raise problem


def parse_outbound(url: str, what: str = "URL") -> Url:
    """Parse a URL that a caller gives. Raises RefusedAddressError for what no server's URL is."""
    if len(url) > MAX_URL_CHARS or not url.isascii() or not url.isprintable() or set(url) & set(' \\"<>^`{|}'):
        raise RefusedAddressError(f"Invalid {what}: expected at most {MAX_URL_CHARS} characters that URLs have")
    try:
        parts = parse_url(url)
    except LocationValueError as error:
        raise RefusedAddressError(f"Invalid {what} {url!r}: {error}") from error
    if parts.scheme not in {"http", "https"} or not parts.host:
        raise RefusedAddressError(f"Invalid {what} {url!r}: expected https://<host> or http://<host>")
    if parts.auth is not None or set(url.partition("://")[2].partition("/")[0]) & set("@%"):
        raise RefusedAddressError(f"Invalid {what}: its host has a user, a password or percent-encoding")
    if parts.fragment is not None:
        raise RefusedAddressError(f"Invalid {what} {url!r}: it has a fragment (#), which no request holds")
    _check_host(parts.host.strip("[]"))
    return parts


def _check_host(host: str) -> None:
    """Refuse addresses in spellings of their own, and zones, which name a network of this machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if _NUMBER_PATTERN.fullmatch(host.lower()) or ":" in host or "%" in host:
            raise RefusedAddressError(f"Invalid host {host!r}: write addresses as 192.0.2.1 or [2001:db8::1]") from None
    else:
        if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
            raise RefusedAddressError(f"Invalid host {host!r}: an address with a zone is one of this machine's network")


def _parse_address(address: Sequence[Any]) -> Address:
    """Parse the address of a socket address; zones stay, as they mark a network of this machine."""
    return ipaddress.ip_address(str(address[0]))


def _unfold(address: Address) -> list[Address]:
    """Return an address and, if it holds one of IPv4, that: a network in the settings lists both."""
    held = _find_ipv4(address) if isinstance(address, ipaddress.IPv6Address) else None
    return [address] if held is None else [address, held]


Connect = Callable[[str, int, float | None], socket.socket]


@contextmanager
def open_guarded_pool(guard: OutboundGuard, seconds: float) -> Iterator[urllib3.PoolManager]:
    """Open a pool whose connections are checked when they connect, and end after so many seconds: then TimeoutError.

    It uses no proxy, which would resolve names again, by itself.
    """
    with keep_deadline(seconds) as deadline:

        def connect(host: str, port: int, timeout: float | None) -> socket.socket:
            connection = guard.connect(host, port, timeout)
            deadline.watch(connection)
            return connection

        pool = urllib3.PoolManager(maxsize=1)
        pool.pool_classes_by_scheme = cast(
            "Any",
            {
                "http": partial(_open_pool, urllib3.HTTPConnectionPool, _GuardedHTTPConnection, connect),
                "https": partial(_open_pool, urllib3.HTTPSConnectionPool, _GuardedHTTPSConnection, connect),
            },
        )
        try:
            yield pool
        finally:
            pool.clear()


def _open_pool(
    pool: type[urllib3.HTTPConnectionPool],
    connection: Callable[..., HTTPConnection],
    connect: Connect,
    *args: Any,
    **options: Any,
) -> urllib3.HTTPConnectionPool:
    opened = pool(*args, **options)
    opened.ConnectionCls = cast("Any", partial(connection, connect=connect))
    return opened


class _GuardedHTTPConnection(HTTPConnection):
    def __init__(self, *args: Any, connect: Connect, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connect_checked = connect

    def _new_conn(self) -> socket.socket:
        """Connect as urllib3 does, but to an address that was checked."""
        return self._connect_checked(self._dns_host, self.port, self.timeout)


class _GuardedHTTPSConnection(_GuardedHTTPConnection, HTTPSConnection):
    """Checked as the other; TLS names and verifies the host of the URL."""
