"""How much memory the bodies of requests may take in one worker, all together."""

from typing import Final

from starlette.exceptions import HTTPException

SMALL: Final = 64 * 1024
"""Bytes of a body that are always taken: small requests are answered while large ones fill the budget."""


class BodyBudget:
    """Bytes of bodies that have arrived, and been unpacked, of requests that are under way; for one event loop."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self, size: int, *, held: int) -> None:
        """Take so many bytes more for a request that has taken `held`; HTTP 429 where they would be too many."""
        if self.used + size > self.limit and held + size > SMALL:
            message = (
                f"The bodies of requests under way fill the {self.limit} bytes that DUCKICELAKE_MAX_BODIES_BYTES gives "
                "them; nothing was done, try again"
            )
            raise HTTPException(429, message, {"Retry-After": "1", "Connection": "close"})
        self.used += size

    def leave(self, size: int) -> None:
        """Give back what a request has taken."""
        self.used -= size
