"""Send HTTP requests on kept connections, read JSON, create idempotency keys, and log in.

Every request of duckicelake to another HTTP server goes through here, except those of libraries: obstore and boto3 to
S3, and OpenLineage's client to receivers of events. `outbound` guards those to URLs that callers gave.
"""

import json
import os
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from http.client import BadStatusLine, RemoteDisconnected
from typing import Any, BinaryIO, Final, cast
from urllib.parse import unquote, urlencode, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass
from uuid import UUID

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    NewConnectionError,
    ProtocolError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from duckicelake.errors import (
    BadCredentialsError,
    CatalogUnreachableError,
    InvalidCatalogUriError,
    RefusedAddressError,
)
from duckicelake.rest.connection import Connection
from duckicelake.rest.deadline import keep_deadline, time_pools
from duckicelake.rest.outbound import OutboundGuard, open_guarded_pool, parse_outbound

TIMEOUT_SECONDS: Final = 60.0
CONNECT_TIMEOUT_SECONDS: Final = 5.0
PIPELINE_AGENT: Final = "duckicelake-pipeline"
"""The User-Agent of the pipeline's jobs, which makes `pipeline` their source in the catalog's history."""
READ_TIMEOUT_SECONDS: Final = 120.0
BUSY_STATUSES: Final = frozenset({408, 429, 502, 503, 504})
"""Statuses of a server that may serve the same request soon."""
_MAX_CONNECTIONS: Final = 10
_MAX_REDIRECTS: Final = 3
_MAX_GUARDED_BYTES: Final = 1 << 20
"""Longest body of an answer to a guarded request, unless another length is named."""
_REDIRECT_STATUSES: Final = frozenset({301, 302, 303, 307, 308})
_UNSENT_ERRORS: Final = (ConnectTimeoutError, NewConnectionError, ProxyError, SSLError)
_REASONS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (ssl.SSLCertVerificationError, "its certificate isn't trusted: {0.verify_message}"),
    (ssl.SSLError, "it doesn't speak TLS as this client does: is its URI {other}://?"),
    (ConnectionRefusedError, "connection refused"),
    (socket.gaierror, "there is no such host"),
    (ReadTimeoutError, "it takes the request, and no answer came in time"),
    (ConnectTimeoutError, "no connection in time"),
    (RemoteDisconnected, "it closes the connection: is its URI {other}://?"),
    (BadStatusLine, "what it answers isn't HTTP"),
)
"""Why there is no answer, by the first of these that is one of an error's causes."""
_PROXY_LOGIN_STATUS: Final = 407
_TUNNEL_LOGIN: Final = "Tunnel connection failed: 407"
"""How `http.client` says that a proxy wants a login before it opens a tunnel."""
_PROXY_LOGIN: Final = "it wants a login: name it by http://user:password@host:port"
Json = Any


def create_request_key() -> UUID:
    """Create a UUID of version 7 (RFC 9562): milliseconds since the epoch, then random bits."""
    millis = time.time_ns() // 1_000_000
    value = millis << 80 | int.from_bytes(os.urandom(10), "big")
    value &= ~(0xF << 76 | 0b11 << 62)
    return UUID(int=value | 7 << 76 | 0b10 << 62)


class _ReadBodyError(Exception):
    """What reads a body failed by itself, as by a full disk: no error of the connection."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class NoAnswerError(Exception):
    """No answer came. is_unsent: the server can't have seen the request."""

    def __init__(self, why: str, *, is_unsent: bool) -> None:
        super().__init__(why)
        self.is_unsent = is_unsent


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response. Names of headers are in lower case. content: what `read_body` made of the body, else None."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    content: Any = None


ReadBody = Callable[[BinaryIO], Any]
"""Reads the body of a response to its end, and returns what it makes of it."""


class HttpConnection:
    """Kept connections to one server, straight or by the proxy of the environment. Threads may share it.

    guard: for a URI that a caller gave. Each request then connects anew, straight, to a checked address, and all of it
    takes at most the seconds of `ask`. Hosts that the guard lists by name are asked as if there were no guard.
    """

    def __init__(self, uri: str, guard: OutboundGuard | None = None) -> None:
        self.uri = uri.rstrip("/")
        self._guard = guard
        self._pool: urllib3.PoolManager | None = None

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        seconds: float = READ_TIMEOUT_SECONDS,
        most_bytes: int | None = None,
        is_cut: bool = False,
        is_timed: bool = False,
        may_repeat: bool = False,
        read_body: ReadBody | None = None,
    ) -> HttpResponse:
        """Send a request and return its response, whatever the status.

        GET and HEAD follow redirects within the server, and from http to https there: the headers may hold a token.

        Args:
            method: of HTTP.
            path: behind the server's URI, with the query.
            headers: by name.
            body: what is sent.
            seconds: longest wait for bytes of the answer.
            most_bytes: longest body of an answer; None: any.
            is_cut: of a longer body, return the first `most_bytes` + 1 bytes, and close the connection.
            is_timed: the seconds are those of the whole request, however slowly the answer comes.
            may_repeat: whether the request may be sent twice, as where the server closes a kept connection.
            read_body: reads the body of a success as it comes, in place of one text of all its bytes.

        Raises:
            NoAnswerError: no response came, or too long a one.
            InvalidCatalogUriError: the URI has no host, or no port that there is.
            BadCredentialsError: the token has letters that no header may have.
            Exception: what `read_body` raises, unless the body is why.

        """
        if not all(value.isascii() and value.isprintable() for value in headers.values()):
            raise BadCredentialsError(
                f"Invalid token for {self.uri}: the token has letters that no HTTP header may have"
            )
        url, sent = self.uri + path, {"User-Agent": "duckicelake", **headers}
        options: Json = {"headers": sent, "body": body, "seconds": seconds, "is_cut": is_cut, "read_body": read_body}
        try:
            if self._guard is not None and not self._guard.lists_host(str(parse_outbound(url).host)):
                with open_guarded_pool(self._guard, seconds) as pool:
                    send = partial(self._send_anew, pool, method, **options)
                    return _follow(send, method, url, most_bytes or _MAX_GUARDED_BYTES)
            send = partial(self._send_twice if may_repeat else self._send, self._open_kept(), method, **options)
            with keep_deadline(seconds) if is_timed else nullcontext():
                return _follow(send, method, url, most_bytes)
        except _ReadBodyError as failed:
            raise failed.error from None
        except RefusedAddressError as error:
            raise NoAnswerError(str(error), is_unsent=True) from error
        except (ValueError, LocationValueError) as error:
            form = "expected http:// or https://, a host, and a port up to 65535"
            raise InvalidCatalogUriError(f"Invalid catalog URI {self.uri!r}: {form}") from error
        except (HTTPError, OSError) as error:
            raise NoAnswerError(self._explain(error), is_unsent=isinstance(error, _UNSENT_ERRORS)) from error

    def close(self) -> None:
        if self._pool is not None:
            self._pool.clear()
            self._pool = None

    def _open_kept(self) -> urllib3.PoolManager:
        if self._pool is None:
            self._pool = _open_pool(_find_proxy(self.uri))
        return self._pool

    def _send_twice(
        self, pool: urllib3.PoolManager, method: str, url: str, most_bytes: int | None, **sent: Any
    ) -> HttpResponse:
        try:
            return self._send(pool, method, url, most_bytes, **sent)
        except ProtocolError:
            return self._send(pool, method, url, most_bytes, **sent)

    def _send_anew(
        self, pool: urllib3.PoolManager, method: str, url: str, most_bytes: int | None, **sent: Any
    ) -> HttpResponse:
        """Send on a new connection, so that addresses are checked again."""
        pool.clear()
        return self._send(pool, method, url, most_bytes, **sent)

    def _send(
        self,
        pool: urllib3.PoolManager,
        method: str,
        url: str,
        most_bytes: int | None,
        *,
        headers: Json,
        body: bytes | None,
        seconds: float,
        is_cut: bool,
        read_body: ReadBody | None,
    ) -> HttpResponse:
        timeout = urllib3.Timeout(connect=min(CONNECT_TIMEOUT_SECONDS, seconds), read=seconds)
        answer = pool.urlopen(
            method,
            url,
            body=body,
            headers=headers,
            timeout=timeout,
            retries=False,
            redirect=False,
            preload_content=most_bytes is None and read_body is None,
        )
        if answer.status == _PROXY_LOGIN_STATUS and _find_proxy(url) is not None:
            raise ProxyError(_TUNNEL_LOGIN, OSError())
        names = {name.lower(): value for name, value in answer.headers.items()}
        if read_body is not None and answer.status < 300:
            return HttpResponse(answer.status, names, b"", _read_whole(answer, read_body))
        if most_bytes is None:
            return HttpResponse(answer.status, names, answer.data)
        with answer:
            found = answer.read(most_bytes + 1, decode_content=True)
        if len(found) > most_bytes and not is_cut:
            raise NoAnswerError(f"{url} answers with more than {most_bytes} bytes", is_unsent=False)
        return HttpResponse(answer.status, names, found)

    def _explain(self, error: Exception) -> str:
        proxy = _find_proxy(self.uri) if self._pool is not None else None
        by = "" if proxy is None else f" by the proxy {urlsplit(proxy).netloc.rpartition('@')[2]}"
        return f"{self.uri} doesn't answer{by} ({_find_reason(error, self.uri)})"


def _find_reason(error: Exception, uri: str) -> str:
    """Find why there is no answer. The texts of urllib3 name objects of Python."""
    if isinstance(error, TimeoutError):  # of a deadline, which has closed the connection
        return str(error)
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    if any(isinstance(cause, ProxyError) and _TUNNEL_LOGIN in str(cause) for cause in causes):
        return _PROXY_LOGIN
    for kind, reason in _REASONS:
        for cause in causes:
            if isinstance(cause, kind):
                return reason.format(cause, other="http" if uri.startswith("https:") else "https")
    return str(getattr(error, "reason", None) or error)


def _read_whole(answer: urllib3.BaseHTTPResponse, read_body: ReadBody) -> Any:
    """Read a body and its end, without which the server has cut it. Keep the connection only if there was no error.

    urllib3 has classes of its own for errors of sockets. pyarrow raises an OSError without a number for a cut stream.
    """
    try:
        content = _read_body(answer, read_body)
        answer.read()
    except BaseException:
        answer.close()
        raise
    return content


def _read_body(answer: urllib3.BaseHTTPResponse, read_body: ReadBody) -> Any:
    try:
        return read_body(cast("BinaryIO", answer))
    except HTTPError:
        raise
    except ValueError as error:
        raise NoAnswerError(f"{answer.url} answers with what can't be read ({error})", is_unsent=False) from error
    except OSError as error:
        if error.errno is None:
            raise
        raise _ReadBodyError(error) from error


def _follow(
    send: Callable[[str, int | None], HttpResponse], method: str, url: str, most_bytes: int | None
) -> HttpResponse:
    answer = send(url, most_bytes)
    for _ in range(_MAX_REDIRECTS):
        target = _find_redirect(method, url, answer)
        if target is None:
            break
        url = target
        answer = send(url, most_bytes)
    return answer


def _find_redirect(method: str, url: str, answer: HttpResponse) -> str | None:
    """Return the URL of a redirect that may be followed with the same headers, a token among them."""
    if method not in {"GET", "HEAD"} or answer.status not in _REDIRECT_STATUSES or "location" not in answer.headers:
        return None
    target = urljoin(url, answer.headers["location"])
    old, new = urlsplit(url), urlsplit(target)
    is_same = (new.scheme, new.netloc) == (old.scheme, old.netloc)
    is_secured = (old.scheme, new.scheme) == ("http", "https") and new.hostname == old.hostname
    return target if is_same or is_secured else None


def _find_proxy(uri: str) -> str | None:
    """Return the proxy that the environment names for a server."""
    server = urlsplit(uri)
    proxy = getproxies().get(server.scheme)
    return proxy if proxy and not proxy_bypass(server.netloc.rpartition("@")[2]) else None


def _open_pool(proxy: str | None) -> urllib3.PoolManager:
    if proxy is None:
        return time_pools(urllib3.PoolManager(maxsize=_MAX_CONNECTIONS))
    named = urlsplit(proxy)
    known = None
    if named.username is not None:
        both = f"{unquote(named.username)}:{unquote(named.password or '')}"
        known = urllib3.make_headers(proxy_basic_auth=both)
    return time_pools(urllib3.ProxyManager(proxy, maxsize=_MAX_CONNECTIONS, proxy_headers=known))


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """A response. body: parsed JSON; None if it isn't JSON."""

    status: int
    body: Json

    @property
    def problem(self) -> tuple[str, str]:
        """(type, message) of the error in the body."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        if isinstance(error, dict):
            return str(error.get("type", "")), str(error.get("message", ""))
        described = self.body.get("error_description", error) if isinstance(self.body, dict) else None
        return str(error or ""), str(described or f"status {self.status}")


def send_request(method: str, url: str, **options: Any) -> JsonAnswer:
    """Send a request to any URL, as `send_json` does."""
    server = _format_server(url)
    with closing(HttpConnection(server)) as http:
        return send_json(http, method, url.removeprefix(server), **options)


def send_json(
    http: HttpConnection,
    method: str,
    path: str,
    *,
    body: Json = None,
    form: Mapping[str, str] | None = None,
    token: str | None = None,
    key: UUID | None = None,
    named: Mapping[str, str] | None = None,
    seconds: float = TIMEOUT_SECONDS,
) -> JsonAnswer:
    """Send a request that may be sent twice and return its response, whatever the status.

    key: the idempotency key. named: headers that name the program.

    Raises:
        InvalidCatalogUriError: the URI isn't http:// or https://.
        CatalogUnreachableError: no response within so many seconds.

    """
    headers = {"Accept": "application/json", **(named or {})}
    data = None
    if form is not None:
        data, headers["Content-Type"] = urlencode(form).encode(), "application/x-www-form-urlencoded"
    elif body is not None:
        data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    if key is not None:
        headers["Idempotency-Key"] = str(key)
    if not http.uri.startswith(("http://", "https://")):
        raise InvalidCatalogUriError(f"Invalid catalog URI {http.uri!r}: must start with http:// or https://")
    try:
        answer = http.ask(method, path, headers, data, seconds=seconds, may_repeat=True)
    except NoAnswerError as error:
        raise CatalogUnreachableError(f"{error}: check --uri, and that it runs") from error
    return JsonAnswer(answer.status, parse_json(answer.body))


def _format_server(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if "://" in url else url.partition("/")[0]


def parse_json(raw: bytes) -> Json:
    try:
        return json.loads(raw) if raw else {}
    except (ValueError, RecursionError):  # lists in lists, 100,000 deep
        return None


def log_in(connection: Connection) -> str:
    """Get a token for the connection's credential. Raises BadCredentialsError, CatalogUnreachableError."""
    name, colon, secret = (connection.credential or "").partition(":")
    if not colon:
        raise BadCredentialsError("Invalid credential: expected <id>:<secret>, and it has no colon")
    form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
    if connection.scope is not None:
        form["scope"] = connection.scope
    answer = send_request("POST", connection.login_uri, form=form)
    if answer.status in {400, 401, 403}:
        wrong = "--credential" if connection.scope is None else "--credential and --scope"
        raise BadCredentialsError(f"{connection.login_uri} refuses {name!r}: {answer.problem[1]}; check {wrong}")
    if answer.status != 200 or not isinstance(answer.body, dict) or "access_token" not in answer.body:
        raise CatalogUnreachableError(f"{connection.login_uri} gives no token: {answer.problem[1]}")
    return str(answer.body["access_token"])
