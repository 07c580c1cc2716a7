"""Read the history of the lake, a namespace, a table or a view, as far as the caller may."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from duckicelake.catalog.context.caller import SESSION, Capability, Principal
from duckicelake.catalog.context.services import Services
from duckicelake.changelog import object_names
from duckicelake.changelog.entries import (
    END_POSITION,
    ChangeKind,
    LoggedChange,
    LogPosition,
    WantedChanges,
    read_latest,
)
from duckicelake.errors import InvalidRequestError, NoSuchNamespaceError, NoSuchTableError
from duckicelake.iceberg.identifiers import Namespace, format_full_name, parse_schema_name, to_schema_name
from duckicelake.iceberg.model import SpecModel
from duckicelake.lake.ducklake.schemas import has_namespace
from duckicelake.postgres.queries import Transaction

KINDS: Final = tuple(kind.value for kind in ChangeKind)
SOURCES: Final = ("rest", "pipeline", "duckdb")


class Notes(SpecModel):
    """The committer's notes: from DuckDB's `set_commit_message`, else from the snapshot's summary."""

    author: str | None = None
    message: str | None = None


class HistoryEntry(SpecModel):
    """A change. version: the DuckLake snapshot that made it, or the last one before it."""

    version: int
    position: str
    timestamp: datetime
    kind: str
    namespace: Namespace
    name: str | None = None
    previous: str | None = None
    principal: str | None = None
    engine: str | None = None
    source: str
    operation: str | None = None
    parameters: dict[str, Any]
    metrics: dict[str, int]
    notes: Notes
    iceberg_snapshot_id: int | None = None
    request_id: str | None = None

    @property
    def resource(self) -> str:
        """The full name, as the audit trail spells it."""
        return format_full_name(self.namespace, self.name)


class HistoryPage(SpecModel):
    """A page of changes, the newest first. next_before: `before` of the next page, None at the end."""

    history: tuple[HistoryEntry, ...]
    next_before: str | None = None


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """The wanted changes. kinds: joined by commas. before: a position; None: from the newest on."""

    limit: int = 100
    before: str | None = None
    kinds: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    principal: str | None = None
    engine: str | None = None
    source: str | None = None


def read_history(
    services: Services, asked: HistoryQuery, namespace: Namespace | None = None, name: str | None = None
) -> HistoryPage:
    """Read the history as far as the caller may: of the lake, a namespace and all below it, a table or a view.

    Raises NoSuchNamespaceError and NoSuchTableError if the changelog never had the name, and InvalidRequestError.
    """
    reader = services.caller.principal
    at_most = reader.without_outside()
    wanted = replace(parse_wanted(asked), visible=at_most.readable_schemas(), visible_ids=at_most.readable_ids())
    before = END_POSITION if asked.before is None else LogPosition.parse(asked.before)
    with services.database.reading() as cursor:
        if namespace is not None:
            wanted = resolve_wanted(cursor, wanted, to_schema_name(namespace), name)
        found = read_latest(cursor, before, asked.limit + 1, wanted)
    page = found[: asked.limit]
    following = str(page[-1].position) if len(found) > asked.limit else None
    seen = reader.filter_readable(page, _find_place)
    entries = [_hide_previous(build_entry(change), reader) for change in seen]
    return HistoryPage(history=tuple(entries), next_before=following)


def _find_place(change: LoggedChange) -> tuple[Namespace, str]:
    return parse_schema_name(change.namespace), change.name or ""


def parse_wanted(asked: HistoryQuery) -> WantedChanges:
    """Parse a query into the changes to read; InvalidRequestError."""
    kinds = None if asked.kinds is None else [_parse_kind(kind.strip()) for kind in asked.kinds.split(",")]
    if asked.source is not None and asked.source not in SOURCES:
        raise InvalidRequestError(f"{asked.source!r} is no source of changes: there are {', '.join(SOURCES)}")
    return WantedChanges(
        kinds=kinds,
        since=asked.since,
        until=asked.until,
        principal=asked.principal,
        engine=asked.engine,
        source=asked.source,
    )


def resolve_wanted(cursor: Transaction, wanted: WantedChanges, schema: str, name: str | None) -> WantedChanges:
    """Narrow the wanted changes to a namespace, table or view; a live one has all names that it ever had."""
    if name is None:
        of_namespace = replace(wanted, namespace=schema)
        if not has_namespace(cursor, schema) and not _is_known(cursor, WantedChanges(namespace=schema)):
            raise NoSuchNamespaceError(f"Namespace does not exist: {schema}")
        return of_namespace
    if table := object_names.find_live_tables(cursor, [(schema, name)]):
        return replace(wanted, object_id=table[schema, name])
    if view := object_names.find_live_views(cursor, [(schema, name)]):  # DuckDB replaces a view by another
        return replace(wanted, object_id=view[schema, name], namespace=schema, name=name)
    if not _is_known(cursor, WantedChanges(namespace=schema, name=name)):
        raise NoSuchTableError(f"Table does not exist: {format_full_name(schema, name)}")
    return replace(wanted, namespace=schema, name=name)


def resolve_full_name(cursor: Transaction, wanted: WantedChanges, name: str) -> WantedChanges:
    """Resolve the full name of a table or view, else of a namespace; NoSuchTableError."""
    schema, _, last = name.rpartition(".")
    if schema:
        with suppress(NoSuchTableError):
            return resolve_wanted(cursor, wanted, schema, parse_schema_name(last)[0])
    try:
        return resolve_wanted(cursor, wanted, name, None)
    except NoSuchNamespaceError:
        raise NoSuchTableError(f"There is no table, view or namespace {name}, and none is remembered") from None


def build_entry(change: LoggedChange) -> HistoryEntry:
    facts = change.facts
    updates = {"updates": facts["updates"]} if "updates" in facts else {}
    requests = {"requests": [_hide_session(request) for request in facts["requests"]]} if "requests" in facts else {}
    return HistoryEntry(
        version=change.snapshot_id,
        position=str(change.position),
        timestamp=change.at,
        kind=change.kind,
        namespace=parse_schema_name(change.namespace),
        name=change.name,
        previous=change.previous,
        principal=change.principal,
        engine=name_engine(change),
        source=change.source,
        operation=change.operation,
        parameters=updates | facts.get("parameters", {}) | requests,
        metrics=facts.get("metrics", {}),
        notes=Notes(author=facts.get("author"), message=facts.get("message")),
        iceberg_snapshot_id=change.iceberg_snapshot_id,
        request_id=change.request_id,
    )


def _hide_session(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the session from facts: it is made of addresses, which are private."""
    client = {name: value for name, value in facts.get("client", {}).items() if name != SESSION}
    return {**facts, "client": client} if "client" in facts else dict(facts)


def _hide_previous(entry: HistoryEntry, principal: Principal) -> HistoryEntry:
    """Remove the former name if the reader may not read what has it."""
    if entry.previous is None:
        return entry
    *namespace, name = parse_schema_name(entry.previous)
    former = ((*namespace, name), "") if entry.name is None else (tuple(namespace), name)
    if principal.may(Capability.READ, *former):
        return entry
    return entry.replace_fields(previous=None)


def name_engine(change: LoggedChange) -> str | None:
    """Return the engine as named in the snapshot, else in the request; None for DuckDB, which names none."""
    summary: Mapping[str, str] = change.facts.get("summary", {})
    client: Mapping[str, str] = change.facts.get("client", {})
    if "engine-name" in summary:
        return " ".join([summary["engine-name"], summary.get("engine-version", "")]).strip()
    if change.source == "duckdb":
        return "DuckDB"
    return client.get("engine") or (change.agent or "").partition(" ")[0] or None


def _parse_kind(text: str) -> ChangeKind:
    try:
        return ChangeKind(text)
    except ValueError:
        raise InvalidRequestError(f"{text!r} is no kind of change: there are {', '.join(KINDS)}") from None


def _is_known(cursor: Transaction, wanted: WantedChanges) -> bool:
    return bool(read_latest(cursor, END_POSITION, 1, wanted))
