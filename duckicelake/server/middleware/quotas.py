"""Limit what a principal may send in a second."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Final

from duckicelake.server.telemetry.shared_files import QuotaAccounts

_HOUR: Final = 3600.0
Seconds = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one principal, in a second; 0: any number. lineage_bytes: in an hour."""

    requests: float = 0
    bytes: float = 0
    lineage_bytes: float = 0


@dataclass(frozen=True, slots=True)
class Quota:
    """So many in a second by each principal; what wasn't used in the last second is forfeited.

    clock: seconds that only grow. What is larger than the rate is let through once, and paid for by waiting after it.
    burst: seconds that count in place of the last one.
    """

    rate: float
    clock: Seconds
    accounts: QuotaAccounts = field(default_factory=QuotaAccounts)
    burst: float = 1.0

    @classmethod
    def of(cls, rate: float, name: str, clock: Seconds, shared: Path | None = None, burst: float = 1.0) -> "Quota":
        """Open a quota; UnavailableError. shared: the folder by which workers share it; None: one worker."""
        path = shared / f"quota_{name}" if shared is not None and rate else None
        return cls(rate, clock, QuotaAccounts(path), burst)

    def wait(self, principal: str) -> int:
        """Return for how many whole seconds the principal is refused; 0 if it is not."""
        return max(0, ceil(self.accounts.get(principal) - self.clock())) if self.rate else 0

    def spend(self, principal: str, amount: float) -> None:
        """Count what the principal has used."""
        if self.rate:
            earliest = self.clock() - self.burst  # so far back an account may lie: that much may come at once
            self.accounts.change(principal, lambda paid_until: max(paid_until, earliest) + amount / self.rate)


@dataclass(frozen=True, slots=True)
class Quotas:
    """How much the workers of a server take, together."""

    requests: Quota
    bytes: Quota
    lineage: Quota

    @classmethod
    def of(cls, rates: Rates, clock: Seconds, shared: Path | None = None) -> "Quotas":
        """Open the quotas; UnavailableError. shared: the folder by which workers share them; None: one worker."""
        return cls(
            Quota.of(rates.requests, "requests", clock, shared),
            Quota.of(rates.bytes, "bytes", clock, shared),
            Quota.of(rates.lineage_bytes / _HOUR, "lineage", clock, shared, _HOUR),
        )

    def wait(self, principal: str) -> int:
        """Return for how many whole seconds the principal is refused; if it is not, count a request and return 0."""
        wait = max(self.requests.wait(principal), self.bytes.wait(principal))
        if not wait:
            self.requests.spend(principal, 1)
        return wait
