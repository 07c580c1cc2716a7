"""Send HTTP requests on a kept connection, and decide when to retry."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    NewConnectionError,
    ProxyError,
    SSLError,
)

from duckicelake.errors import CatalogUnreachableError

FIRST_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 10.0
FIRST_CONTACT_SECONDS: Final = 10.0
"""Retry time for a server that has never answered: its address may be wrong."""
CONNECT_TIMEOUT_SECONDS: Final = 5.0
READ_TIMEOUT_SECONDS: Final = 120.0
_UNSENT_ERRORS: Final = (ConnectTimeoutError, NewConnectionError, ProxyError, SSLError)


class RetryableError(Exception):
    """The request may be sent again, after `retry_after` seconds if the server asks for a pause."""

    def __init__(self, why: str, *, retry_after: float | None = None, is_unsent: bool = False) -> None:
        super().__init__(why)
        self.retry_after = retry_after
        self.is_unsent = is_unsent


@dataclass(slots=True)
class RetryPolicy:
    """Decide the pauses between attempts of one request. Pauses double, with jitter.

    Attributes:
        seconds: time for retries, from the first failure on.

    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    attempts: int = 0
    _ends: float | None = field(default=None, repr=False)

    def pause(self, retry_after: float | None = None) -> float | None:
        """Return the seconds before the next attempt, None to give up. retry_after: the server's minimum."""
        now = self.clock()
        self._ends = now + self.seconds if self._ends is None else self._ends
        longest = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**self.attempts)
        pause = (retry_after or 0.0) + longest * (0.5 + self.chance() / 2)
        self.attempts += 1
        return pause if now + pause <= self._ends else None


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpConnection:
    """A kept connection to one server, for one thread at a time."""

    def __init__(self, uri: str) -> None:
        self._uri = uri.rstrip("/")
        self._manager: urllib3.PoolManager | None = None

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        """Send a request and return its response, whatever the status.

        Raises:
            RetryableError: no response came.
            CatalogUnreachableError: the URI or the token is invalid.

        """
        if not all(value.isascii() and value.isprintable() for value in headers.values()):
            raise CatalogUnreachableError(
                f"Invalid token for {self._uri}: the token has letters that no HTTP header may have"
            )
        sent = {"User-Agent": "duckicelake", **headers}
        try:
            self._manager = self._manager or _open_manager(self._uri)
            answer = self._manager.urlopen(
                method, self._uri + path, body=body, headers=sent, retries=False, redirect=False
            )
        except (ValueError, LocationValueError) as error:
            raise CatalogUnreachableError(f"Invalid catalog URI {self._uri!r}: {error}") from error
        except (HTTPError, OSError) as error:
            why = f"{self._uri} doesn't answer ({error})"
            raise RetryableError(why, is_unsent=isinstance(error, _UNSENT_ERRORS)) from error
        return HttpResponse(answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.data)

    def close(self) -> None:
        if self._manager is not None:
            self._manager.clear()
            self._manager = None


def _open_manager(uri: str) -> urllib3.PoolManager:
    server, timeout = urlsplit(uri), urllib3.Timeout(connect=CONNECT_TIMEOUT_SECONDS, read=READ_TIMEOUT_SECONDS)
    proxy = getproxies().get(server.scheme)
    if not proxy or proxy_bypass(server.hostname or ""):
        return urllib3.PoolManager(timeout=timeout)
    named = urlsplit(proxy)
    known = None
    if named.username is not None:
        both = f"{unquote(named.username)}:{unquote(named.password or '')}"
        known = urllib3.make_headers(proxy_basic_auth=both)
    return urllib3.ProxyManager(proxy, timeout=timeout, proxy_headers=known)
