"""The server under attack: every answer is held against what no answer may be."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

SECONDS: Final = 30
MAX_GROWTH: Final = 1 << 30
"""Bytes that the server may have more than at first, whatever it was sent."""
_INSIDES: Final = re.compile(
    r"Traceback|site-packages|File \"|\.py[\":]|psycopg|postgres(ql)?://|0x[0-9a-f]{8,}|duckdb\.\w+Exception|sqlstate"
    r"|object at 0x|pydantic_core|SELECT .* FROM duck|INTERNAL Error",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """An answer that shouldn't be, and the request that it answers."""

    problem: str
    request: str
    answer: str

    def __str__(self) -> str:
        return f"{self.problem}\n    {self.request}\n    -> {self.answer}"


@dataclass(slots=True)
class Target:
    """Sends requests, counts their answers by campaign and status, and keeps what is wrong with them."""

    http: httpx.Client
    secrets: tuple[str, ...] = ()
    memory: Callable[[], int] = lambda: 0
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    campaign: str = ""
    slowest: float = 0
    _memory_before: int = 0
    peak: int = 0

    def send(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response | None:
        """The answer, None if there was none in time or the client library refuses the request."""
        shown = f"{method} {path[:300]} {(content or b'')[:1500]!r}"
        began = time.monotonic()
        try:
            answer = self.http.request(method, path, content=content, headers=dict(headers or {}))
        except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeEncodeError, ValueError):
            return None
        except httpx.HTTPError as error:
            self.found(f"no answer: {error!r}", shown, "")
            return None
        self.slowest = max(self.slowest, time.monotonic() - began)
        self.counts[self.campaign, answer.status_code] += 1
        self.examine(shown, answer)
        return answer

    def examine(self, shown: str, answer: httpx.Response) -> None:
        """Keep what is wrong with an answer."""
        text = answer.text
        if answer.status_code >= 500 and answer.status_code != 503:
            self.found(f"status {answer.status_code}", shown, text)
        if answer.status_code >= 400 and answer.request.method != "HEAD" and not _is_envelope(text):
            self.found("an error without an envelope", shown, text)
        inside = _INSIDES.search(text) if answer.status_code >= 400 else None
        if inside is not None and inside.group() not in shown:
            self.found(f"the server's insides: {inside.group()!r}", shown, text)
        for secret in self.secrets:
            if secret in text or any(secret in value for value in answer.headers.values()):
                self.found("a secret", shown, text)

    def watch_memory(self) -> None:
        """Keep it if the server has grown too much."""
        now = self.memory()
        self._memory_before = self._memory_before or now
        self.peak = max(self.peak, now)
        if now > self._memory_before + MAX_GROWTH:
            self.found(f"memory grew from {self._memory_before >> 20} to {now >> 20} MB", self.campaign, "")
            self._memory_before = now

    def is_fine(self) -> bool:
        """Whether the server answers at all."""
        try:
            return self.http.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def found(self, problem: str, request: str, answer: str) -> None:
        """Keep what is wrong."""
        self.findings.append(Finding(problem, f"[{self.campaign}] {request}", answer[:1500]))


def _is_envelope(text: str) -> bool:
    """Whether it is Iceberg's error document, or OAuth's."""
    try:
        document: Any = json.loads(text)
    except ValueError:
        return False
    error = document.get("error") if isinstance(document, dict) else None
    return isinstance(error, str) or (isinstance(error, dict) and {"message", "type", "code"} <= error.keys())
