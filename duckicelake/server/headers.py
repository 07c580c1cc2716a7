"""Headers that every answer carries: no browser shall read anything into JSON, show it in a frame, or keep it."""

from collections.abc import Iterable
from typing import Final

Header = tuple[bytes, bytes]

_ALWAYS: Final[tuple[Header, ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-frame-options", b"DENY"),
)
_UNLESS_SAID: Final[Header] = (b"cache-control", b"no-store")
_OVER_TLS: Final[Header] = (b"strict-transport-security", b"max-age=31536000")


def with_safety(headers: Iterable[Header], *, is_https: bool) -> list[Header]:
    """The headers and those of every answer; what the answer itself says about caching counts."""
    made = [*headers, *_ALWAYS]
    for name, _ in made:
        if name == _UNLESS_SAID[0]:
            break
    else:
        made.append(_UNLESS_SAID)
    if is_https:
        made.append(_OVER_TLS)
    return made
