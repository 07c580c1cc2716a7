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
            where = _network(address)
            known = (self._failures.get(key) for key in ((where,), (where, client_id)))
            return max(0, *(ceil(each.blocked_until - now) for each in known if each is not None), 0)

    def failed(self, client_id: str, address: str) -> None:
        with self._lock:
            now = self.clock()
            where = _network(address)
            self._count((where,), FREE_BY_ADDRESS, now)
            self._count((where, client_id), FREE_BY_CLIENT, now)
            while len(self._failures) > REMEMBERED:
                self._failures.popitem(last=False)

    def succeeded(self, client_id: str, address: str) -> None:
        with self._lock:
            self._failures.pop((_network(address), client_id), None)

    def _count(self, key: Key, free: int, now: float) -> None:
        failures = self._failures.setdefault(key, _Failures())
        self._failures.move_to_end(key)
        failures.count += 1
        wait = 0.0 if failures.count < free else min(LONGEST_SECONDS, 2.0 ** min(failures.count - free, 10))
        failures.blocked_until = now + wait

    def _forget(self, now: float) -> None:
        while self._failures:
            oldest = next(iter(self._failures.values()))
            if oldest.blocked_until + 2 * LONGEST_SECONDS > now:
                return
            self._failures.popitem(last=False)


def _network(address: str) -> str:
    """The address, or of IPv6 the network of 64 bits, in which one machine may take any address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    return str(parsed.ipv4_mapped or ip_network((parsed.packed, 64), strict=False))
