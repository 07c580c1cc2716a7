"""Headers that every answer carries: no browser shall read anything into JSON, show it in a frame, or keep it."""

from functools import lru_cache
from typing import Final

Header = tuple[bytes, bytes]

_REMEMBERED: Final = 4096
_ALWAYS: Final[tuple[Header, ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-frame-options", b"DENY"),
)
_UNLESS_SAID: Final[Header] = (b"cache-control", b"no-store")
_OVER_TLS: Final[Header] = (b"strict-transport-security", b"max-age=31536000")


@lru_cache(_REMEMBERED)
def with_safety(headers: tuple[Header, ...], *, is_https: bool) -> tuple[Header, ...]:
    """The headers and those of every answer; what the answer itself says about caching counts."""
    made = [*headers, *_ALWAYS]
    for name, _ in made:
        if name == _UNLESS_SAID[0]:
            break
    else:
        made.append(_UNLESS_SAID)
    if is_https:
        made.append(_OVER_TLS)
    return tuple(made)
