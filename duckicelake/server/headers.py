"""Headers that every answer carries: no browser shall read anything into JSON, show it in a frame, or keep it.

What is made for browsers (`pages`) says itself what of that counts for it.
"""

from functools import lru_cache
from typing import Final

Header = tuple[bytes, bytes]

_REMEMBERED: Final = 4096
_ALWAYS: Final[tuple[Header, ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)
_UNLESS_SAID: Final[tuple[Header, ...]] = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
_OVER_TLS: Final[Header] = (b"strict-transport-security", b"max-age=31536000")


@lru_cache(_REMEMBERED)
def with_safety(headers: tuple[Header, ...], *, is_https: bool) -> tuple[Header, ...]:
    """The headers and those of every answer; what the answer itself says about caching and its contents counts."""
    said = {name for name, _ in headers}
    made = [*headers, *_ALWAYS, *(header for header in _UNLESS_SAID if header[0] not in said)]
    if is_https:
        made.append(_OVER_TLS)
    return tuple(made)
