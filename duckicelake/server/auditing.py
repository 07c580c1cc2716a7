"""The audit trail at the edge: refusals are noted here, for all routes alike, and every entry becomes a log line.

What succeeds is noted by the use case, in the transaction of the change. A refusal changes nothing and has one of its
own, before its answer is sent. Whoever hasn't proved who they are, or is turned away before work is done, can't make
the server write to Postgres: such refusals stand in the log alone, and so do those while Postgres doesn't answer.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Final

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from duckicelake.catalog.access.principal import Caller, Principal
from duckicelake.catalog.auditing import Entry, Touched
from duckicelake.catalog.services import Services
from duckicelake.server.clients import client_of
from duckicelake.server.context import CALLER_KEY, address_of, request_id_of
from duckicelake.server.limits.quotas import Quota
from duckicelake.server.naming import LARGEST_BODY, resources_of

UNAUDITED: Final = frozenset(
    {
        "report_metrics",
        "issue_token",
        "begin_job",
        "renew_job",
        "end_job",
        "find_orphans",
        "query_events",
        "receive_lineage",
        "receive_lineage_batch",
    }
)
"""Routes that change nothing in the lake, though their method could."""
AUDITED_READS: Final = frozenset({"load_credentials"})
"""Routes that give something away, though their method only reads."""
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FIELDS: Final = tuple(field.name for field in fields(Entry))
_REFUSALS_AT_ONCE: Final = 1000
_REFUSALS_PER_SECOND: Final = 1.0
"""Entries for refusals that a worker writes for one principal; more stand in the log alone."""
_LOG_ALONE: Final = frozenset({401, 408, 413, 429, 503})

Journal = Callable[[Sequence[Entry]], None]


def journal_of(log: FilteringBoundLogger) -> Journal:
    """Writes entries to the log, one line each."""

    def write(entries: Sequence[Entry]) -> None:
        for entry in entries:
            told = {name: value for name in _FIELDS if (value := getattr(entry, name)) is not None}
            log.info("audit", **told | {"at": entry.at.isoformat()})

    return write


class Audit:
    """ASGI middleware around the app: notes every refusal of a request that would have changed something."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services
        self._refusals = Quota(_REFUSALS_PER_SECOND, time.monotonic, burst=_REFUSALS_AT_ONCE / _REFUSALS_PER_SECOND)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (scope["method"] in _READING and not scope["path"].endswith("/credentials")):
            await self._app(scope, receive, send)
            return
        body = bytearray()
        status = 0

        async def receive_and_keep() -> Message:
            message = await receive()
            if len(body) <= LARGEST_BODY:
                body.extend(message.get("body", b""))
            return message

        async def note_and_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif status >= 400:
                await self._note(scope, bytes(body), f"{_type_of(message.get('body', b''))} {status}", status)
            await send(message)

        try:
            await self._app(scope, receive_and_keep, note_and_send)
        except Exception:
            if status == 0:
                await self._note(scope, bytes(body), "InternalServerError 500", 500)
            raise

    async def _note(self, scope: Scope, body: bytes, outcome: str, status: int) -> None:
        if not _is_audited(scope) or status == 405:
            return
        caller = scope.get(CALLER_KEY) or _stranger(scope)
        touched = [Touched(resource) for resource in resources_of(caller, scope, body)]
        name = caller.principal.name
        if status in _LOG_ALONE or self._refusals.wait(name):
            self._services.journal(_unwritten(caller, touched, outcome))
        else:
            self._refusals.spend(name, len(touched))
            await run_in_threadpool(self._write, caller, touched, outcome)

    def _write(self, caller: Caller, touched: Sequence[Touched], outcome: str) -> None:
        try:
            replace(self._services, caller=caller).note(touched, outcome)
        except Exception:  # noqa: BLE001 - the refusal counts, not whether it could be written down
            with suppress(Exception):
                self._services.journal(_unwritten(caller, touched, outcome))


def _is_audited(scope: Scope) -> bool:
    name = getattr(scope.get("route"), "name", None)
    if name is None:
        return False
    return name in AUDITED_READS if scope["method"] in _READING else name not in UNAUDITED


def _stranger(scope: Scope) -> Caller:
    where, request_id, operation = address_of(scope), request_id_of(scope), scope["route"].name
    return Caller(Principal("", ()), where, request_id, operation, client=client_of(scope))


def _type_of(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["error"]["type"])
    except (ValueError, TypeError, KeyError):
        return "Error"


def _unwritten(caller: Caller, touched: Sequence[Touched], outcome: str) -> list[Entry]:
    at = datetime.now(UTC)
    who = (caller.principal.name, caller.address, caller.request_id, caller.operation)
    client = dict(caller.client) or None
    return [Entry(None, at, *who, each.resource, outcome, None, each.detail, client) for each in touched]
