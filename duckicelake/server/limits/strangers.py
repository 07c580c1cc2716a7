"""How many requests may be arriving of callers who have yet to prove who they are."""

from collections import Counter
from typing import Final

from duckicelake.server.identity.throttle import network_of

MAX_STRANGERS: Final = 64
MAX_OF_ADDRESS: Final = 16
"""Of one address, or of IPv6 one network of 64 bits: a slow client leaves most places to others."""


class Strangers:
    """Counts them by address; for one event loop."""

    def __init__(self, limit: int = MAX_STRANGERS, of_address: int = MAX_OF_ADDRESS) -> None:
        self._limit = limit
        self._of_address = of_address
        self._all = 0
        self._by_address: Counter[str] = Counter()

    def enter(self, address: str) -> str | None:
        """Why one more can't be served now; None: it may, and is to `leave`."""
        network = network_of(address)
        if self._by_address[network] >= self._of_address:
            return f"{self._of_address} logins from your address are arriving; nothing was done, try again"
        if self._all >= self._limit:
            return f"{self._limit} logins are arriving; nothing was done, try again"
        self._all += 1
        self._by_address[network] += 1
        return None

    def leave(self, address: str) -> None:
        network = network_of(address)
        self._all -= 1
        self._by_address[network] -= 1
        if not self._by_address[network]:
            del self._by_address[network]
