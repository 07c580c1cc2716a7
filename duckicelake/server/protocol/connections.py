"""Limit the connections of clients, by worker and by address; drain them before the process ends."""

import logging
import os
import resource
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Final, Protocol

from duckicelake.errors import format_count
from duckicelake.server.http.scope import find_network

_LOG: Final = logging.getLogger(__name__)
_WANTED_DESCRIPTORS: Final = 16_384
_RESERVED_DESCRIPTORS: Final = 512
"""Descriptors for all else: Postgres, the store, files."""
_MIN_CONNECTIONS: Final = 16
_EVICTION_SHARE: Final = 8
"""Connections of an address per one that is closed; closing several at a time searches them once."""
_SECONDS_BETWEEN_LINES: Final = 10.0


class Closable(Protocol):
    """A connection as its server knows it."""

    def is_waiting(self) -> bool:
        """Return whether no request on it is under way."""
        ...

    def close_idle(self) -> None:
        """Close it."""
        ...


@dataclass(slots=True)
class ConnectionTally:
    """Connections of one process, for its metrics."""

    open: int = 0
    evicted: int = 0
    refused: int = 0

    def statistics(self) -> dict[str, int]:
        return {"open": self.open, "evicted": self.evicted, "refused": self.refused}


TALLY: Final = ConnectionTally()


class Drain:
    """Keeps this process at work after the signal that ends it, while /readyz says that it ends.

    A proxy that asks /readyz takes the server out of service meanwhile. Each connection is closed after its next
    response: a proxy that sent a request over a connection that is just being closed couldn't send it again.
    """

    def __init__(self) -> None:
        self.is_running = False
        self._seconds = 0.0

    def allow(self, seconds: float) -> None:
        """Set how long to drain; 0 is not at all."""
        self._seconds = seconds

    def begin(self) -> bool:
        """Begin with the first signal; return whether the process goes on. The next signal comes when time is up."""
        if self.is_running or not self._seconds:
            return False
        self.is_running = True
        timer = threading.Timer(self._seconds, os.kill, (os.getpid(), signal.SIGTERM))
        timer.daemon = True
        timer.start()
        return True


DRAIN: Final = Drain()
"""Of this process."""


@dataclass(slots=True)
class ConnectionTable:
    """Connections of one server by address, for one event loop. proxies: networks whose addresses have no limit."""

    limit: int
    of_address: int
    proxies: Sequence[str] = ()
    _all: int = 0
    _by_address: dict[str, dict[Closable, None]] = field(default_factory=dict)
    _said: float = float("-inf")

    def add(self, connection: Closable, address: str) -> bool:
        """Return whether there is room for it, or room could be made."""
        network = find_network(address)
        own = self._by_address.setdefault(network, {})
        is_admitted = self._admits(own, network)
        if is_admitted:
            own[connection] = None
            self._all += 1
            TALLY.open += 1
        else:
            TALLY.refused += 1
        if not own:
            self._by_address.pop(network, None)
        return is_admitted

    def remove(self, connection: Closable, address: str) -> None:
        """Forget a connection that has ended; it may be unknown."""
        network = find_network(address)
        own = self._by_address.get(network, {})
        if connection in own:
            del own[connection]
            self._all -= 1
            TALLY.open -= 1
            if not own:
                del self._by_address[network]

    def _admits(self, own: dict[Closable, None], network: str) -> bool:
        if len(own) >= self.of_address and not self._is_proxy(network):
            self._warn(f"{network} has {format_count(len(own), 'connection')}, as many as one address may")
            if not self._make_room(own, network):
                return False
        if self._all < self.limit:
            return True
        largest = max(self._by_address, key=lambda network: len(self._by_address[network]))
        self._warn(f"there are {self._all} connections, as many as this worker takes; {largest} has most")
        return self._make_room(self._by_address[largest], largest)

    def _make_room(self, connections: dict[Closable, None], address: str) -> bool:
        """Close idle connections, the oldest first; several at once, because each search looks at all."""
        idle = [connection for connection in connections if connection.is_waiting()]
        for connection in idle[: max(1, len(connections) // _EVICTION_SHARE)]:
            self.remove(connection, address)
            connection.close_idle()
            TALLY.evicted += 1
        return bool(idle)

    def _is_proxy(self, network: str) -> bool:
        try:
            address = ip_address(network)
        except ValueError:
            return False
        return any(address in ip_network(proxy) for proxy in self.proxies)

    def _warn(self, reason: str) -> None:
        now = time.monotonic()
        if now - self._said >= _SECONDS_BETWEEN_LINES:
            self._said = now
            _LOG.warning("%s: idle ones are closed, else new ones refused (DUCKICELAKE_MAX_CONNECTIONS)", reason)


def raise_descriptor_limit() -> None:
    """Raise the limit of descriptors of this process and its children to what they can use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_WANTED_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def build_connection_table(limit: int | None, of_address: int | None, proxies: Sequence[str]) -> ConnectionTable:
    """Build a table within the process's descriptors. limit: None is as many as there are. of_address: None is half."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = _WANTED_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    room = max(_MIN_CONNECTIONS, descriptors - min(_RESERVED_DESCRIPTORS, descriptors // 2))
    most = min(limit or room, room)
    return ConnectionTable(most, min(of_address or max(1, most // 2), most), tuple(proxies))
