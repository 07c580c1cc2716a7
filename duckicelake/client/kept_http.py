"""HTTP with what the standard library has, on one connection that is kept from request to request."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, InvalidURL
from selectors import EVENT_READ, DefaultSelector
from socket import socket
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from duckicelake.client.patience import AgainError
from duckicelake.errors import CatalogUnreachable

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 120.0
_SMALL: Final = 64 * 1024
"""Bytes of a body that goes in one piece with its headers."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. headers: their names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class KeptHttp:
    """To one server, by the proxy that the environment names for it. For one thread at a time."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._connection: HTTPConnection | None = None
        self._before_path = ""
        self._always: dict[str, str] = {}

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """The answer, whatever it is; AgainError where none comes, and CatalogUnreachable where none ever will."""
        line = self._connected().sock
        try:
            self._send(line, method, path, headers, body or b"")
            return self._received(line, method)
        except (OSError, HTTPException) as error:
            self.close()
            raise AgainError(f"{self._uri} doesn't answer ({error or type(error).__name__})") from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> HTTPConnection:
        """The connection, made anew if the server has closed it: nothing else makes an idle one readable."""
        if self._connection is not None and _is_readable(self._connection.sock):
            self.close()
        if self._connection is None:
            try:
                self._connection = self._connect(urlsplit(self._uri))
            except (ValueError, InvalidURL) as error:
                raise CatalogUnreachable(f"{self._uri} can't be asked: {error}") from error
            except (OSError, HTTPException) as error:
                why = f"{self._uri} doesn't answer ({error or type(error).__name__})"
                raise AgainError(why, is_unsent=True) from error
        return self._connection

    def _connect(self, server: SplitResult) -> HTTPConnection:
        proxy, is_encrypted = _proxy_for(server), server.scheme == "https"
        nearest = proxy or server
        known = {} if proxy is None else _known_as(proxy)
        kind = HTTPSConnection if is_encrypted else HTTPConnection
        connection = kind(nearest.hostname or "", nearest.port, timeout=CONNECT_SECONDS)
        host = server.netloc.rpartition("@")[2].encode("idna").decode()
        self._always = {"Host": host, "User-Agent": "duckicelake"}
        self._before_path = server.path.rstrip("/")
        if proxy is not None and is_encrypted:
            connection.set_tunnel(server.hostname or "", server.port, known)
        elif proxy is not None:
            self._always |= known
            self._before_path = f"{server.scheme}://{host}{self._before_path}"
        connection.connect()
        connection.sock.settimeout(ANSWER_SECONDS)
        return connection

    def _send(self, line: socket, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        lines = [f"{method} {self._before_path}{path} HTTP/1.1", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (self._always | dict(headers)).items()]
        if not all(each.isascii() and each.isprintable() for each in lines):
            raise CatalogUnreachable(f"{self._uri} can't be asked: the token has letters that no header may have")
        head = "\r\n".join(lines).encode() + b"\r\n\r\n"
        for piece in (head + body,) if len(body) <= _SMALL else (head, body):
            line.sendall(piece)

    def _received(self, line: socket, method: str) -> Response:
        with HTTPResponse(line, method=method) as answer:
            answer.begin()
            body = answer.read()
        if answer.will_close:
            self.close()
        return Response(answer.status, {name.lower(): value for name, value in answer.getheaders()}, body)


def _is_readable(line: socket) -> bool:
    with DefaultSelector() as selector:
        selector.register(line, EVENT_READ)
        return bool(selector.select(0))


def _proxy_for(server: SplitResult) -> SplitResult | None:
    uri = getproxies().get(server.scheme)
    return urlsplit(uri) if uri and not proxy_bypass(server.hostname or "") else None


def _known_as(proxy: SplitResult) -> dict[str, str]:
    """How the proxy is told who comes, if its URI says so."""
    if proxy.username is None:
        return {}
    both = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(both.encode()).decode()}"}
