"""Note refused requests in the audit trail, with the resources that they name."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from duckicelake.catalog.context.audit_notes import PublishEntries
from duckicelake.catalog.context.caller import Caller, Principal
from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.identifiers import format_full_name, to_schema_name
from duckicelake.lake.side_tables.audit import AuditedResource, AuditEntry
from duckicelake.server.http.scope import CALLER_KEY, find_address, find_request_id, read_client
from duckicelake.server.middleware.quotas import Quota

MAX_PARSED_BYTES: Final = 1024 * 1024
"""Larger ones are not parsed for names."""
MAX_RESOURCES: Final = 20
MAX_RESOURCE_CHARS: Final = 500
"""Characters of a resource that are kept. What a refused request names is unchecked."""
UNAUDITED_ROUTES: Final = frozenset(
    {
        "report_metrics",
        "request_upkeep",
        "request_table_upkeep",
        "issue_token",
        "finish_login",
        "begin_job",
        "claim_files",
        "end_file_batch",
        "renew_job",
        "end_job",
        "find_orphans",
        "plan_table_scan",
        "fetch_scan_tasks",
        "cancel_planning",
        "explain",
        "query",
        "cancel_query",
        "query_events",
        "record_agent_call",
        "receive_lineage",
        "receive_lineage_batch",
    }
)
"""Routes that change nothing in the lake, though their method could."""
AUDITED_READ_ROUTES: Final = frozenset({"load_credentials"})
"""Routes that give something away, though their method only reads."""
_READ_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_ENTRY_FIELDS: Final = tuple(field.name for field in fields(AuditEntry))
_MAX_REFUSALS: Final = 1000
_REFUSALS_PER_SECOND: Final = 1.0
"""Entries for refusals that a worker writes for one principal; more stand in the log alone."""
_LOG_ONLY_STATUSES: Final = frozenset({401, 408, 413, 429, 503})


def find_resources(caller: Caller, scope: Scope, body: bytes) -> list[str]:
    """Find what a request names in its path, or else in its body: the first resource, and how many more."""
    named = _find_named(caller, scope, body)
    more = len(named) - MAX_RESOURCES
    first = [_shorten(resource) for resource in named[:MAX_RESOURCES]]
    return [*first, f"and {more} more"] if more > 0 else first


def _find_named(caller: Caller, scope: Scope, body: bytes) -> list[str]:
    if {"table", "view"} & scope.get("path_params", {}).keys() or len(body) > MAX_PARSED_BYTES:
        return [caller.resource]
    try:
        named = _find_in_body(orjson.loads(body), caller.resource)
    except (ValueError, TypeError, AttributeError, KeyError):
        named = []
    return named or [caller.resource]


def _shorten(resource: str) -> str:
    return resource if len(resource) <= MAX_RESOURCE_CHARS else resource[: MAX_RESOURCE_CHARS - 1] + "…"


def _find_in_body(body: Any, namespace: str) -> list[str]:
    if "table-changes" in body:
        return [_format_identifier(change["identifier"]) for change in body["table-changes"]]
    if "source" in body:
        return [_format_identifier(body["source"])]
    if "name" in body and namespace:
        return [f"{namespace}.{to_schema_name((body['name'],))}"]
    return [to_schema_name(_parse_levels(body["namespace"]))]


def _format_identifier(identifier: Any) -> str:
    return format_full_name(_parse_levels(identifier["namespace"]), identifier["name"])


def _parse_levels(namespace: Any) -> tuple[str, ...]:
    if not isinstance(namespace, list):
        raise TypeError(f"a namespace is a list of levels, not {namespace!r}")
    return tuple(namespace)


def build_audit_log(log: FilteringBoundLogger) -> PublishEntries:
    """Build a function that writes a log line for each entry."""

    def write(entries: Sequence[AuditEntry]) -> None:
        for entry in entries:
            fields = {name: value for name in _ENTRY_FIELDS if (value := getattr(entry, name)) is not None}
            log.info("audit", **fields | {"at": entry.at.isoformat()})

    return write


class AuditMiddleware:
    """Record the refusal of requests that would have changed something in the audit log."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services
        self._refusals = Quota(_REFUSALS_PER_SECOND, time.monotonic, burst=_MAX_REFUSALS / _REFUSALS_PER_SECOND)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_unnoted(scope):
            await self._app(scope, receive, send)
            return
        body = bytearray()
        status = 0

        async def receive_and_keep() -> Message:
            message = await receive()
            if len(body) <= MAX_PARSED_BYTES:
                body.extend(message.get("body", b""))
            return message

        async def note_and_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif status >= 400:
                await self._note(scope, bytes(body), f"{_read_error_type(message.get('body', b''))} {status}", status)
            await send(message)

        try:
            await self._app(scope, receive_and_keep, note_and_send)
        except Exception:
            if status == 0:
                await self._note(scope, bytes(body), "InternalServerError 500", 500)
            raise

    def _is_unnoted(self, scope: Scope) -> bool:
        """Return whether nothing that comes of a request is noted here.

        Where grants are on, there are policies, or the outside decides, refused reads are.
        """
        if scope["method"] not in _READ_METHODS or scope["path"].endswith("/credentials"):
            return False
        rights = self._services.rights
        return rights is None or not (rights.is_bound or rights.outside is not None)

    async def _note(self, scope: Scope, body: bytes, outcome: str, status: int) -> None:
        is_refused = status == 403 and CALLER_KEY in scope and scope[CALLER_KEY].principal.rights is not None
        if not (_is_audited(scope) or is_refused) or status == 405:
            return
        caller = scope.get(CALLER_KEY) or _build_stranger(scope)
        touched = [AuditedResource(resource) for resource in find_resources(caller, scope, body)]
        name = caller.principal.name
        if status in _LOG_ONLY_STATUSES or self._refusals.wait(name):
            self._services.publish_audit(_build_unwritten(caller, touched, outcome))
        else:
            self._refusals.spend(name, len(touched))
            await run_in_threadpool(self._write, caller, touched, outcome)

    def _write(self, caller: Caller, touched: Sequence[AuditedResource], outcome: str) -> None:
        try:
            replace(self._services, caller=caller).note(touched, outcome)
        except Exception:  # noqa: BLE001 - the refusal counts, not whether it could be written down
            with suppress(Exception):
                self._services.publish_audit(_build_unwritten(caller, touched, outcome))


def _is_audited(scope: Scope) -> bool:
    name = getattr(scope.get("route"), "name", None)
    if name is None:
        return False
    return name in AUDITED_READ_ROUTES if scope["method"] in _READ_METHODS else name not in UNAUDITED_ROUTES


def _build_stranger(scope: Scope) -> Caller:
    where, request_id, operation = find_address(scope), find_request_id(scope), scope["route"].name
    return Caller(Principal("", ()), where, request_id, operation, client=read_client(scope))


def _read_error_type(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["error"]["type"])
    except (ValueError, TypeError, KeyError):
        return "Error"


def _build_unwritten(caller: Caller, touched: Sequence[AuditedResource], outcome: str) -> list[AuditEntry]:
    at = datetime.now(UTC)
    who = (caller.principal.name, caller.address, caller.request_id, caller.operation)
    client = dict(caller.client) or None
    return [AuditEntry(None, at, *who, one.resource, outcome, None, one.detail, client) for one in touched]
