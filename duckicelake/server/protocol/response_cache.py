"""Requests that were answered and may be answered again, byte for byte."""

from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

from duckicelake.server.http.headers import RawHeader

RESPONSE_CACHE_EXTENSION: Final = "duckicelake.repeats"
RequestKey = tuple[str, bytes]
_LRU_ENTRIES: Final = 4096


class ReplayedResponse(NamedTuple):
    """An answer over HTTP/1.1. headers: all but those of the server and the id of the request."""

    status: int
    headers: tuple[RawHeader, ...]
    request_id: str
    pieces: tuple[bytes, ...]


ReplyCallback = Callable[[ReplayedResponse | None], None]
"""To be called once, and later than `Repeat` returns. None: the request must be read after all."""

ReplayHandler = Callable[[int, ReplyCallback], bool]
"""Answers the request again, which came from this port; or says at once that it won't, and then calls nobody."""


class ResponseCache:
    """By digest, for what is sent holds tokens; those that were learnt first are forgotten first."""

    def __init__(self) -> None:
        self._known: dict[RequestKey, ReplayHandler] = {}

    def find(self, key: RequestKey) -> ReplayHandler | None:
        return self._known.get(key)

    def learn(self, key: RequestKey, repeat: ReplayHandler) -> None:
        self._known.pop(key, None)
        self._known[key] = repeat
        if len(self._known) > _LRU_ENTRIES:
            del self._known[next(iter(self._known))]


def build_request_key(address: str, request: bytes) -> RequestKey:
    """request: all that was sent of it."""
    return address, sha256(request).digest()
