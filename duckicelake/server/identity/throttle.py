"""Failed logins slow down whoever makes them, by client and address and by address: each failure doubles the wait."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil
from threading import Lock
from typing import Final

FREE_BY_CLIENT: Final = 5
FREE_BY_ADDRESS: Final = 20
LONGEST_SECONDS: Final = 300.0
REMEMBERED: Final = 10_000
LONGEST_NAME: Final = 128
"""Of a client or an address: what follows isn't kept."""
_WHILE_BLOCKED: Final = "while blocked"

Seconds = Callable[[], float]
Key = tuple[str, ...]


@dataclass(slots=True)
class _Failures:
    count: int = 0
    blocked_until: float = 0.0


@dataclass(slots=True)
class Throttle:
    """clock: seconds that only grow. What failed longest ago is forgotten first, and all in time."""

    clock: Seconds
    _failures: OrderedDict[Key, _Failures] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def wait(self, client_id: str, address: str) -> int:
        """For how many whole seconds no login is tried; 0: go ahead."""
        with self._lock:
            now = self.clock()
            self._forget(now)
            key = _key(client_id, address)
            return max(self._left(key[:1], now), self._left(key, now))

    def is_blocked_by_others(self, client_id: str, address: str) -> bool:
        """Whether nothing but others' failures at its address makes the client wait."""
        with self._lock:
            now, key = self.clock(), _key(client_id, address)
            mine = max(self._left(key, now), self._left((*key, _WHILE_BLOCKED), now))
            return mine == 0 and self._left(key[:1], now) > 0

    def failed(self, client_id: str, address: str) -> None:
        with self._lock:
            now = self.clock()
            key = _key(client_id, address)
            self._count(key[:1], FREE_BY_ADDRESS, now)
            self._count(key, FREE_BY_CLIENT, now)

    def failed_while_blocked(self, client_id: str, address: str) -> None:
        """Counted apart from other failures, so that `wait` doesn't tell which clients there are."""
        with self._lock:
            self._count((*_key(client_id, address), _WHILE_BLOCKED), FREE_BY_CLIENT, self.clock())

    def succeeded(self, client_id: str, address: str) -> None:
        with self._lock:
            key = _key(client_id, address)
            self._failures.pop(key, None)
            self._failures.pop((*key, _WHILE_BLOCKED), None)

    def _left(self, key: Key, now: float) -> int:
        failures = self._failures.get(key)
        return 0 if failures is None else max(0, ceil(failures.blocked_until - now))

    def _count(self, key: Key, free: int, now: float) -> None:
        failures = self._failures.setdefault(key, _Failures())
        self._failures.move_to_end(key)
        failures.count += 1
        wait = 0.0 if failures.count < free else min(LONGEST_SECONDS, 2.0 ** min(failures.count - free, 10))
        failures.blocked_until = now + wait
        while len(self._failures) > REMEMBERED:
            self._failures.popitem(last=False)

    def _forget(self, now: float) -> None:
        while self._failures:
            oldest = next(iter(self._failures.values()))
            if oldest.blocked_until + 2 * LONGEST_SECONDS > now:
                return
            self._failures.popitem(last=False)


def _key(client_id: str, address: str) -> Key:
    return network_of(address)[:LONGEST_NAME], client_id[:LONGEST_NAME]


def network_of(address: str) -> str:
    """The address, or of IPv6 the network of 64 bits, in which one machine may take any address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    return str(parsed.ipv4_mapped or ip_network((parsed.packed, 64), strict=False))
