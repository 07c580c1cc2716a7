"""What the audit trail notes of a request: who did what to which resource."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from duckicelake.catalog.context.caller import Caller
from duckicelake.iceberg.identifiers import Namespace, to_schema_name
from duckicelake.lake.side_tables.audit import AuditedResource, AuditEntry, RequestOrigin, record_signed_entries
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction

Detail = dict[str, Any]
"""What an entry of the audit trail says besides."""
PublishEntries = Callable[[Sequence[AuditEntry]], None]


def build_touched(namespace: Namespace, name: str | None = None, detail: Detail | None = None) -> AuditedResource:
    """Return the namespace, or what has the name in it; dots inside names are written %2E."""
    return AuditedResource(to_schema_name(namespace if name is None else (*namespace, name)), detail=detail)


def list_actions(updates: Iterable[Any]) -> Detail:
    """Return the detail of a commit: what kinds of updates it made, each once and in order."""
    return {"updates": list(dict.fromkeys(update.action for update in updates))}


@dataclass(frozen=True, slots=True)
class AuditNote:
    """An entry to be. publish: called with the entry after the commit."""

    origin: RequestOrigin
    touched: AuditedResource
    publish: PublishEntries


def note_all(database: Database, cursor: Transaction, noted: Sequence[AuditNote]) -> None:
    """Note what several requests did, as the last step of a transaction whose snapshots are signed and theirs."""
    entries = record_signed_entries(cursor, [note.origin for note in noted], [note.touched for note in noted])

    def publish() -> None:
        for note, entry in zip(noted, entries(), strict=True):
            note.publish([entry])

    database.after_commit(cursor, publish)


def build_origin(caller: Caller) -> RequestOrigin:
    """Build who asked, as the audit trail has it."""
    return RequestOrigin(caller.principal.name, caller.address, caller.request_id, caller.operation, caller.client)


def ignore_entry(entries: Sequence[AuditEntry]) -> None:
    """Ignore the entries, as a catalog without a log does."""
