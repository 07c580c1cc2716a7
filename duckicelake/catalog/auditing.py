"""What requests touch, as the audit trail names it: a namespace, or a table or view in one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from duckicelake.catalog.access.principal import Caller
from duckicelake.iceberg.names import Namespace, schema_name
from duckicelake.lake.audit import Entry, Origin, Touched, record_signed
from duckicelake.lake.postgres.database import Database, Transaction

__all__ = ["Entry", "Noted", "Touched", "actions", "note_all", "origin", "touched", "unheard"]

Detail = dict[str, Any]


def touched(namespace: Namespace, name: str | None = None, detail: Detail | None = None) -> Touched:
    """The namespace, or what has the name in it; dots inside names are written %2E."""
    return Touched(schema_name(namespace if name is None else (*namespace, name)), detail=detail)


def actions(updates: Iterable[Any]) -> Detail:
    """The detail of a commit: what kinds of updates it made, each once and in order."""
    return {"updates": list(dict.fromkeys(update.action for update in updates))}


@dataclass(frozen=True, slots=True)
class Noted:
    """An entry to be: who asked, what was touched, and who hears of it once it is there."""

    origin: Origin
    touched: Touched
    journal: Callable[[Sequence[Entry]], None]


def note_all(database: Database, cursor: Transaction, noted: Sequence[Noted]) -> None:
    """Note what several requests did, as the last step of a transaction whose snapshots are signed and theirs."""
    entries = record_signed(cursor, [each.origin for each in noted], [each.touched for each in noted])

    def tell() -> None:
        for each, entry in zip(noted, entries(), strict=True):
            each.journal([entry])

    database.after_commit(cursor, tell)


def origin(caller: Caller) -> Origin:
    return Origin(caller.principal.name, caller.address, caller.request_id, caller.operation, caller.client)


def unheard(entries: Sequence[Entry]) -> None:
    """The journal of a catalog that nobody listens to."""
