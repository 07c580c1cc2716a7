"""Send JSON over HTTP with the standard library, create idempotency keys, and log in."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen
from uuid import UUID

from duckicelake.errors import BadCredentialsError, CatalogUnreachableError, InvalidCatalogUriError
from duckicelake.rest.connection import Connection

TIMEOUT_SECONDS: Final = 60.0
PIPELINE_AGENT: Final = "duckicelake-pipeline"
"""The User-Agent of the pipeline; the catalog's history shows it."""
Json = Any


def create_request_key() -> UUID:
    """Create a UUID of version 7 (RFC 9562): milliseconds since the epoch, then random bits."""
    millis = time.time_ns() // 1_000_000
    value = millis << 80 | int.from_bytes(os.urandom(10), "big")
    value &= ~(0xF << 76 | 0b11 << 62)
    return UUID(int=value | 7 << 76 | 0b10 << 62)


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


def send_request(
    method: str,
    url: str,
    *,
    body: Json = None,
    form: Mapping[str, str] | None = None,
    token: str | None = None,
    key: UUID | None = None,
    seconds: float = TIMEOUT_SECONDS,
) -> JsonAnswer:
    """Send a request once and return its response, whatever the status. key: the idempotency key.

    Raises:
        InvalidCatalogUriError: the URL isn't http:// or https://.
        CatalogUnreachableError: no response within so many seconds.

    """
    headers = {"Accept": "application/json", "User-Agent": PIPELINE_AGENT}
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
        raise InvalidCatalogUriError(
            f"Invalid catalog URI {_format_server(url)!r}: must start with http:// or https://"
        )
    request = Request(url, data, headers, method=method)  # noqa: S310 - the scheme was checked
    try:
        with urlopen(request, timeout=seconds) as answer:  # noqa: S310
            return JsonAnswer(answer.status, _parse_json(answer.read()))
    except HTTPError as refused:
        with refused:
            return JsonAnswer(refused.code, _parse_json(refused.read()))
    except (OSError, HTTPException, ValueError) as error:
        proxy = "" if request.host == urlsplit(url).netloc else f" by the proxy {request.host}"
        reason = getattr(error, "reason", error)
        raise CatalogUnreachableError(
            f"{_format_server(url)} doesn't answer{proxy} ({reason}): check --uri, and that it runs"
        ) from error


def _format_server(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if "://" in url else url.partition("/")[0]


def _parse_json(raw: bytes) -> Json:
    try:
        return json.loads(raw) if raw else {}
    except ValueError:
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
