"""Bearer tokens of the server for Google and Microsoft: asked for by HTTP, and kept until shortly before their end."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Final, TypedDict
from urllib.parse import urlsplit

from urllib3 import PoolManager, ProxyManager, Timeout
from urllib3.exceptions import HTTPError
from urllib3.util import make_headers

from duckicelake.errors import StoreDeniedError, UnavailableError

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

_RENEW_BEFORE_MS: Final = 6 * 60 * 1000
"""Milliseconds before the end at which a token is renewed. obstore asks for another five minutes before it."""
_MAX_ANSWER_BYTES: Final = 1 << 20
_DENIED_STATUSES: Final = frozenset({400, 401, 403})


class ObstoreToken(TypedDict):
    """A token as obstore takes it."""

    token: str
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A bearer token, and its end in epoch milliseconds."""

    text: str = field(repr=False)
    expires_at_ms: int


class TokenHttp:
    """Requests to token services. Errors name the service, and never what was sent."""

    def __init__(self, seconds: float, certificates: str | None = None, proxy: str | None = None) -> None:
        """Open no connection yet. proxy: URL, with user and password if it wants them."""
        options = {"timeout": Timeout(seconds), "retries": False, "ca_certs": certificates}
        if proxy is None:
            self._pool: PoolManager = PoolManager(**options)  # type: ignore[arg-type]
            return
        parts = urlsplit(proxy)
        login = None if parts.username is None else f"{parts.username}:{parts.password or ''}"
        headers = make_headers(proxy_basic_auth=login)
        self._pool = ProxyManager(f"http://{parts.hostname}:{parts.port}", proxy_headers=headers, **options)  # type: ignore[arg-type]

    def post_form(self, url: str, fields: Mapping[str, str]) -> Mapping[str, object]:
        """Send a form; return the JSON object of the answer. Raises StoreDeniedError, UnavailableError."""
        return _parse(url, self._send("POST", url, fields=dict(fields), encode_multipart=False))

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Send a body; return that of the answer. Raises StoreDeniedError, UnavailableError."""
        return self._send("POST", url, body=body, headers=dict(headers)).data

    def get(self, url: str, headers: Mapping[str, str]) -> Mapping[str, object]:
        """Return the JSON object of an answer. Raises StoreDeniedError, UnavailableError."""
        return _parse(url, self._send("GET", url, headers=dict(headers)))

    def get_text(self, url: str, headers: Mapping[str, str]) -> str:
        """Return the text of an answer. Raises StoreDeniedError, UnavailableError."""
        return self._send("GET", url, headers=dict(headers)).data.decode(errors="replace").strip()

    def close(self) -> None:
        self._pool.clear()

    def _send(self, method: str, url: str, **options: object) -> "BaseHTTPResponse":
        service = urlsplit(url).netloc
        try:
            answer = self._pool.request(method, url, redirect=False, **options)  # type: ignore[arg-type]
        except HTTPError as error:
            raise UnavailableError(f"{service} gives no token ({type(error).__name__}): try again") from error
        if answer.status in _DENIED_STATUSES:
            raise StoreDeniedError(f"{service} refuses the server's credentials ({_find_reason(answer)})")
        if answer.status >= 300:
            raise UnavailableError(f"{service} gives no token: it answers {answer.status}")
        return answer


class KeptToken:
    """The server's token, renewed by one thread at a time. Threads share it."""

    def __init__(self, ask: Callable[[], BearerToken], clock: Callable[[], int]) -> None:
        self._ask, self._clock = ask, clock
        self._kept: BearerToken | None = None
        self._lock = Lock()

    def find(self) -> BearerToken:
        """Return a token that holds for some minutes. Raises StoreDeniedError, UnavailableError."""
        with self._lock:
            if self._kept is None or self._kept.expires_at_ms - _RENEW_BEFORE_MS < self._clock():
                self._kept = self._ask()
            return self._kept

    def provide(self) -> ObstoreToken:
        """Return the token as obstore takes it."""
        found = self.find()
        return {"token": found.text, "expires_at": datetime.fromtimestamp(found.expires_at_ms / 1000, UTC)}


def read_token(answer: Mapping[str, object], clock: Callable[[], int], service: str) -> BearerToken:
    """Read a token of OAuth's form. Raises UnavailableError."""
    text, seconds = answer.get("access_token"), answer.get("expires_in")
    if not isinstance(text, str) or not isinstance(seconds, int | str) or not str(seconds).isdigit():
        raise UnavailableError(f"{urlsplit(service).netloc} answers without access_token and expires_in")
    return BearerToken(text, clock() + int(seconds) * 1000)


def _parse(url: str, answer: "BaseHTTPResponse") -> Mapping[str, object]:
    try:
        parsed = json.loads(answer.data[:_MAX_ANSWER_BYTES])
    except ValueError as error:
        raise UnavailableError(f"{urlsplit(url).netloc} answers no JSON") from error
    if not isinstance(parsed, dict):
        raise UnavailableError(f"{urlsplit(url).netloc} answers no JSON object")
    return parsed


def _find_reason(answer: "BaseHTTPResponse") -> str:
    """Return OAuth's word for the reason, or the status: descriptions may repeat what was sent."""
    try:
        error = json.loads(answer.data[:_MAX_ANSWER_BYTES])["error"]
    except (ValueError, KeyError, TypeError):
        return str(answer.status)
    return error if isinstance(error, str) and error.isascii() and len(error) < 60 else str(answer.status)
