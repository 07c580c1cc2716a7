"""The names under which clients reach a server without logins.

A browser takes a page's origin from the name in its URL. Who owns that name can let it resolve to this server
afterwards (DNS rebinding), and the page then reads and writes here as if it were the server's own. Such requests carry
the foreign name in the header Host.
"""

import re
import socket
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

ANY_HOST: Final = "*"
_HOST: Final = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[^\[\]:/@?#\s]+))(?::[0-9]*)?")
_REMEMBERED: Final = 1024
_LONGEST: Final = 255


class AllowedHosts:
    """Loopback names, the machine's own names and addresses where others may connect, and what the settings add."""

    def __init__(self, bound: str = "127.0.0.1", more: Iterable[str] = ()) -> None:
        """Take what the server listens on, and more: names, `*.domain`, addresses, networks, or `*` for any."""
        is_local = is_loopback(bound)
        names = {bound, *more} if is_local else {bound, *more, *_machine_names()}
        patterns = {name.lower().rstrip(".").strip("[]") for name in names}
        self._networks = tuple(network for name in patterns if (network := _network(name)) is not None)
        self._names = frozenset(name for name in patterns if _network(name) is None)
        self._suffixes = tuple(name[1:] for name in self._names if name.startswith("*."))
        self._is_any = ANY_HOST in self._names
        self._has_own_addresses = not is_local
        self.allows = lru_cache(_REMEMBERED)(self._allows)

    def _allows(self, host: bytes, local_address: str) -> bool:
        """Whether the header Host names this server. local_address: the end of the connection that is ours."""
        if self._is_any:
            return True
        match = _HOST.fullmatch(host[:_LONGEST].decode("latin-1"))
        if match is None or len(host) > _LONGEST:
            return False
        name = (match["v6"] or match["name"]).lower().removesuffix(".")
        if _is_loopback_name(name) or name in self._names or name.endswith(self._suffixes):
            return True
        address = _address(name)
        if address is None:
            return False
        is_own = self._has_own_addresses and address == _address(local_address)
        return is_own or any(address in network for network in self._networks)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens there."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _is_loopback_name(name: str) -> bool:
    """Whether no DNS server has a say in where the name leads: 0.0.0.0 and :: lead to this machine, too."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _address(name)
    return address is not None and (address.is_loopback or address.is_unspecified)


def _machine_names() -> set[str]:
    name = socket.gethostname()
    return {name, socket.getfqdn(), f"{name.partition('.')[0]}.local"}


def _address(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _network(text: str) -> Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None
