"""How much a principal may send in a second: who is over is told when to come again, before the body is read."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from threading import Lock
from typing import Final

REMEMBERED: Final = 10_000
"""Principals; the one that was heard of longest ago is forgotten first."""

Seconds = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one principal, in a second; 0: any number."""

    requests: float = 0
    bytes: float = 0


@dataclass(slots=True)
class Quota:
    """So many in a second by each principal; what wasn't used in the last second is forfeited.

    clock: seconds that only grow. What is larger than the rate is let through once, and paid for by waiting after it.
    """

    rate: float
    clock: Seconds
    _paid_until: OrderedDict[str, float] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def wait(self, principal: str) -> int:
        """For how many whole seconds the principal must keep still; 0: go ahead."""
        with self._lock:
            return max(0, ceil(self._paid_until.get(principal, 0.0) - self.clock()))

    def spend(self, principal: str, amount: float) -> None:
        """The principal has had so many."""
        if not self.rate:
            return
        with self._lock:
            # A second's worth may come at once: so far back an account may lie.
            begins = max(self._paid_until.pop(principal, 0.0), self.clock() - 1.0)
            self._paid_until[principal] = begins + amount / self.rate
            if len(self._paid_until) > REMEMBERED:
                self._paid_until.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Quotas:
    """The accounts of one process."""

    requests: Quota
    bytes: Quota

    @classmethod
    def of(cls, rates: Rates, clock: Seconds) -> "Quotas":
        return cls(Quota(rates.requests, clock), Quota(rates.bytes, clock))

    def wait(self, principal: str) -> int:
        """For how many whole seconds the principal must keep still; 0: go ahead, and one request is spent."""
        wait = max(self.requests.wait(principal), self.bytes.wait(principal))
        if not wait:
            self.requests.spend(principal, 1)
        return wait
