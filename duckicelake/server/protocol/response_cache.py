"""Cache of requests, by digest of their bytes, with the handlers that replay their responses."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from duckicelake.server.http.headers import RawHeader

RESPONSE_CACHE_EXTENSION: Final = "duckicelake.repeats"
RequestKey = tuple[str, bytes]
_LRU_ENTRIES: Final = 4096


class ReplayedResponse(NamedTuple):
    """A response over HTTP/1.1. headers: without those of the server and the request's id."""

    status: int
    headers: tuple[RawHeader, ...]
    request_id: str
    pieces: tuple[bytes, ...]


ScopeKeys = Mapping[str, object]

ReplyCallback = Callable[[ReplayedResponse | ScopeKeys], None]
"""Called once, after the handler has returned: with the response, or with keys for the ASGI scope of a request that
the app must answer.
"""

ReplayHandler = Callable[[int, ReplyCallback], bool]
"""Start to answer the request again, which came from this port. False: it won't, and never calls back."""


class ResponseCache:
    """Handlers by digest, because requests hold tokens; the oldest entries are dropped first."""

    def __init__(self) -> None:
        self._known: dict[RequestKey, ReplayHandler] = {}

    def find(self, key: RequestKey) -> ReplayHandler | None:
        return self._known.get(key)

    def learn(self, key: RequestKey, replay: ReplayHandler) -> None:
        self._known.pop(key, None)
        self._known[key] = replay
        if len(self._known) > _LRU_ENTRIES:
            del self._known[next(iter(self._known))]


def build_request_key(address: str, request: bytes) -> RequestKey:
    """Build the cache key of a request from the client's address and all bytes of the request."""
    return address, sha256(request).digest()
