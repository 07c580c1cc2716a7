"""Requests of web pages, slow clients and packed bodies: none may get anything, or keep others waiting."""

import gzip
import socket
from contextlib import ExitStack
from itertools import product
from typing import Any, Final

from scripts.attack_job.target import Target

_FOREIGN: Final[tuple[dict[str, str], ...]] = (
    {"Host": "evil.example"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "none", "Content-Type": "text/plain"},
)
_PROBES: Final = frozenset({"/healthz", "/readyz"})
_HALF_SENT: Final = 300
_BOMB: Final = gzip.compress(bytes(60_000_000), 9)
_BOMBS: Final = 16


def cross_sites(target: Target, description: dict[str, Any]) -> None:
    """Each route of the description as a foreign page would have it called: refused before anything is done."""
    target.campaign = "cross-site"
    for (path, operations), foreign in product(description["paths"].items(), _FOREIGN):
        for method in operations:
            if path in _PROBES or method not in {"get", "head", "post", "delete"}:
                continue
            if "Content-Type" in foreign and method != "post":
                continue
            body = b'{"namespace": ["stolen"]}' if method == "post" else None
            answer = target.send(method.upper(), path, body, foreign)
            if answer is not None and answer.status_code not in {403, 421}:
                target.found("a foreign page is served", f"{method} {path} {foreign}", str(answer.status_code))


def half_send(target: Target) -> None:
    """Many bodies that never come to their end, while others are served."""
    target.campaign = "slow bodies"
    url = target.http.base_url
    with ExitStack() as stack:
        for path in ("/v1/oauth/tokens", "/v1/namespaces"):
            head = f"POST {path} HTTP/1.1\r\nHost: {url.host}\r\nContent-Length: 100\r\n\r\n{{".encode()
            for _ in range(_HALF_SENT):
                connection = stack.enter_context(socket.create_connection((url.host, url.port or 80), 10))
                connection.sendall(head)
        for _ in range(20):
            answer = target.send("GET", "/v1/namespaces")
            if answer is None or answer.status_code != 200:
                target.found("slow bodies keep others out", "GET /v1/namespaces", repr(answer))


def unpack(target: Target) -> None:
    """Bodies that unpack to a thousand times their size; what the server takes then, `Target` watches."""
    target.campaign = "gzip"
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    for _ in range(_BOMBS):
        answer = target.send("POST", "/v1/namespaces", _BOMB, headers)
        if answer is not None and answer.status_code == 200:
            target.found("zeros are a namespace", "POST /v1/namespaces", answer.text)
        target.watch_memory()
