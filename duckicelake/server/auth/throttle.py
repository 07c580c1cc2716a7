"""Slow down failed logins, by client and address and by address; every failure doubles the wait."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from threading import Lock
from typing import Final

from duckicelake.server.http.scope import find_network

MAX_FREE_CLIENT_FAILURES: Final = 5
MAX_FREE_ADDRESS_FAILURES: Final = 20
MAX_WAIT_SECONDS: Final = 300.0
MAX_FAILURE_ENTRIES: Final = 10_000
MAX_NAME_CHARS: Final = 128
"""Of a client or an address: what follows isn't kept."""
_WHILE_BLOCKED: Final = "while blocked"

Seconds = Callable[[], float]
ThrottleKey = tuple[str, ...]


@dataclass(slots=True)
class _Failures:
    count: int = 0
    blocked_until: float = 0.0


@dataclass(slots=True)
class LoginThrottle:
    """clock: seconds that only grow. What failed longest ago is forgotten first, and all in time."""

    clock: Seconds
    _failures: OrderedDict[ThrottleKey, _Failures] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def wait(self, client_id: str, address: str) -> int:
        """Return for how many whole seconds logins are refused; 0 if they are not."""
        with self._lock:
            now = self.clock()
            self._forget(now)
            key = _build_key(client_id, address)
            return max(self._left(key[:1], now), self._left(key, now))

    def is_blocked_by_others(self, client_id: str, address: str) -> bool:
        """Return whether the client waits only because of other clients' failures at its address."""
        with self._lock:
            now, key = self.clock(), _build_key(client_id, address)
            mine = max(self._left(key, now), self._left((*key, _WHILE_BLOCKED), now))
            return mine == 0 and self._left(key[:1], now) > 0

    def record_failure(self, client_id: str, address: str) -> None:
        with self._lock:
            now = self.clock()
            key = _build_key(client_id, address)
            self._count(key[:1], MAX_FREE_ADDRESS_FAILURES, now)
            self._count(key, MAX_FREE_CLIENT_FAILURES, now)

    def failed_while_blocked(self, client_id: str, address: str) -> None:
        """Count a failure apart from others, so that `wait` doesn't reveal which clients exist."""
        with self._lock:
            self._count((*_build_key(client_id, address), _WHILE_BLOCKED), MAX_FREE_CLIENT_FAILURES, self.clock())

    def record_success(self, client_id: str, address: str) -> None:
        with self._lock:
            key = _build_key(client_id, address)
            self._failures.pop(key, None)
            self._failures.pop((*key, _WHILE_BLOCKED), None)

    def _left(self, key: ThrottleKey, now: float) -> int:
        failures = self._failures.get(key)
        return 0 if failures is None else max(0, ceil(failures.blocked_until - now))

    def _count(self, key: ThrottleKey, free: int, now: float) -> None:
        failures = self._failures.setdefault(key, _Failures())
        self._failures.move_to_end(key)
        failures.count += 1
        wait = 0.0 if failures.count < free else min(MAX_WAIT_SECONDS, 2.0 ** min(failures.count - free, 10))
        failures.blocked_until = now + wait
        while len(self._failures) > MAX_FAILURE_ENTRIES:
            self._failures.popitem(last=False)

    def _forget(self, now: float) -> None:
        while self._failures:
            oldest = next(iter(self._failures.values()))
            if oldest.blocked_until + 2 * MAX_WAIT_SECONDS > now:
                return
            self._failures.popitem(last=False)


def _build_key(client_id: str, address: str) -> ThrottleKey:
    return find_network(address)[:MAX_NAME_CHARS], client_id[:MAX_NAME_CHARS]
