"""What requests touch, as the audit trail names it: a namespace, or a table or view in one."""

from collections.abc import Iterable, Sequence
from typing import Any

from duckicelake.catalog.principal import Caller
from duckicelake.iceberg.names import Namespace, schema_name
from duckicelake.lake.audit import Entry, Origin, Touched

__all__ = ["Entry", "Touched", "actions", "origin", "touched", "unheard"]

Detail = dict[str, Any]


def touched(namespace: Namespace, name: str | None = None, detail: Detail | None = None) -> Touched:
    """The namespace, or what has the name in it; dots inside names are written %2E."""
    return Touched(schema_name(namespace if name is None else (*namespace, name)), detail=detail)


def actions(updates: Iterable[Any]) -> Detail:
    """The detail of a commit: what kinds of updates it made, each once and in order."""
    return {"updates": list(dict.fromkeys(update.action for update in updates))}


def origin(caller: Caller) -> Origin:
    return Origin(caller.principal.name, caller.address, caller.request_id, caller.operation)


def unheard(entries: Sequence[Entry]) -> None:
    """The journal of a catalog that nobody listens to."""
