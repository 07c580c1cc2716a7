"""HTTP on a connection that is kept from request to request, by the proxy that the environment names."""

from collections.abc import Mapping
from dataclasses import dataclass
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

from duckicelake.client.patience import AgainError
from duckicelake.errors import CatalogUnreachable

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 120.0
_UNSENT: Final = (ConnectTimeoutError, NewConnectionError, ProxyError, SSLError)


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. headers: their names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class KeptHttp:
    """To one server. For one thread at a time."""

    def __init__(self, uri: str) -> None:
        self._uri = uri.rstrip("/")
        self._manager: urllib3.PoolManager | None = None

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """The answer, whatever it is; AgainError where none comes, and CatalogUnreachable where none ever will."""
        if not all(each.isascii() and each.isprintable() for each in headers.values()):
            raise CatalogUnreachable(f"{self._uri} can't be asked: the token has letters that no header may have")
        sent = {"User-Agent": "duckicelake", **headers}
        try:
            self._manager = self._manager or _manager_for(self._uri)
            answer = self._manager.urlopen(
                method, self._uri + path, body=body, headers=sent, retries=False, redirect=False
            )
        except (ValueError, LocationValueError) as error:
            raise CatalogUnreachable(f"{self._uri} can't be asked: {error}") from error
        except (HTTPError, OSError) as error:
            why = f"{self._uri} doesn't answer ({error})"
            raise AgainError(why, is_unsent=isinstance(error, _UNSENT)) from error
        return Response(answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.data)

    def close(self) -> None:
        if self._manager is not None:
            self._manager.clear()
            self._manager = None


def _manager_for(uri: str) -> urllib3.PoolManager:
    server, timeout = urlsplit(uri), urllib3.Timeout(connect=CONNECT_SECONDS, read=ANSWER_SECONDS)
    proxy = getproxies().get(server.scheme)
    if not proxy or proxy_bypass(server.hostname or ""):
        return urllib3.PoolManager(timeout=timeout)
    named = urlsplit(proxy)
    known = None
    if named.username is not None:
        both = f"{unquote(named.username)}:{unquote(named.password or '')}"
        known = urllib3.make_headers(proxy_basic_auth=both)
    return urllib3.ProxyManager(proxy, timeout=timeout, proxy_headers=known)
