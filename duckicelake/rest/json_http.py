"""JSON over HTTP with what the standard library has, so that a cluster needs nothing more than pyspark."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen
from uuid import UUID

from duckicelake.errors import CatalogUnreachable, NoCatalogUri

TIMEOUT_SECONDS: Final = 60.0
PIPELINE: Final = "duckicelake-pipeline"
"""What the pipeline calls itself: the catalog's history tells by it who did what."""

Json = Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, and what the body says; None where it isn't JSON."""

    status: int
    body: Json

    @property
    def problem(self) -> tuple[str, str]:
        """(type, message) of the error that the body tells."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        if isinstance(error, dict):
            return str(error.get("type", "")), str(error.get("message", ""))
        described = self.body.get("error_description", error) if isinstance(self.body, dict) else None
        return str(error or ""), str(described or f"status {self.status}")


def send(
    method: str,
    url: str,
    *,
    body: Json = None,
    form: Mapping[str, str] | None = None,
    token: str | None = None,
    key: UUID | None = None,
    seconds: float = TIMEOUT_SECONDS,
) -> Answer:
    """Ask once. CatalogUnreachable where nobody answers in so many seconds, NoCatalogUri; any status is an answer.

    key: by which the catalog knows a request that it has had.
    """
    headers = {"Accept": "application/json", "User-Agent": PIPELINE}
    data = None
    if form is not None:
        data, headers["Content-Type"] = urlencode(form).encode(), "application/x-www-form-urlencoded"
    elif body is not None:
        data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    if key is not None:
        headers["Idempotency-Key"] = str(key)
    if not url.startswith(("http://", "https://")):
        raise NoCatalogUri(f"{_server(url)} can't be asked: the URI of a catalog begins with http:// or https://")
    request = Request(url, data, headers, method=method)  # noqa: S310 - the scheme has been looked at
    try:
        with urlopen(request, timeout=seconds) as answer:  # noqa: S310
            return Answer(answer.status, _json(answer.read()))
    except HTTPError as refused:
        with refused:
            return Answer(refused.code, _json(refused.read()))
    except (OSError, HTTPException, ValueError) as error:
        proxy = "" if request.host == urlsplit(url).netloc else f" by the proxy {request.host}"
        reason = getattr(error, "reason", error)
        raise CatalogUnreachable(
            f"{_server(url)} doesn't answer{proxy} ({reason}): check --uri, and that it runs"
        ) from error


def _server(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if "://" in url else url.partition("/")[0]


def _json(raw: bytes) -> Json:
    try:
        return json.loads(raw) if raw else {}
    except ValueError:
        return None
