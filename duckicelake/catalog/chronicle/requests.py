"""Who asked for what DuckLake snapshots did: the entries of the audit trail that belong to each."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from duckicelake.catalog.chronicle.things import Thing
from duckicelake.lake.chronicle.followed import Heard, Snapshot

PIPELINE: Final = "duckicelake-pipeline"
"""How the pipeline's user agents and engines begin."""


class Requests:
    """Entries by the snapshot that they are about.

    A request that makes several snapshots of a table has an entry for the last one; all of a transaction have one time.
    """

    def __init__(self, snapshots: Sequence[Snapshot]) -> None:
        self._by_time: defaultdict[tuple[datetime, str], list[Heard]] = defaultdict(list)
        for snapshot in snapshots:
            for entry in snapshot.entries:
                self._by_time[snapshot.at, entry.resource].append(entry)

    def of(self, snapshot: Snapshot, thing: Thing) -> Sequence[Heard]:
        """Those about the thing: of the snapshot, or of its transaction; none of what DuckDB did.

        If none names it, which isn't so of what requests of a group do, it came with what all of the snapshot did.
        """
        found = snapshot.entries
        names = {thing.resource, thing.previous} - {None}
        named = [entry for entry in found if entry.resource in names or (entry.detail or {}).get("to") in names]
        return named or self._by_time.get((snapshot.at, thing.resource)) or found


def source_of(entries: Sequence[Heard]) -> str:
    """Rest, pipeline or duckdb."""
    if not entries:
        return "duckdb"
    client = entries[0].client or {}
    said = (client.get("user-agent", ""), client.get("engine", ""))
    return "pipeline" if any(each.startswith(PIPELINE) for each in said) else "rest"


def asker_of(entries: Sequence[Heard]) -> dict[str, Any]:
    """Who asked, by what program, for which operation: of several the first."""
    if not entries:
        return {}
    entry = entries[0]
    return {
        "principal": entry.principal,
        "agent": (entry.client or {}).get("user-agent"),
        "request_id": entry.request_id,
        "operation": entry.operation,
    }


def facts_of(entries: Sequence[Heard]) -> dict[str, Any]:
    """What the entries say of their requests, beyond who asked."""
    if not entries:
        return {}
    detail = dict(entries[0].detail or {})
    facts: dict[str, Any] = {"updates": detail.pop("updates")} if "updates" in detail else {}
    if len(entries) > 1:
        facts["requests"] = [_request(entry) for entry in entries]
    elif detail:
        facts["parameters"] = detail
    if entries[0].client:
        facts["client"] = entries[0].client
    return facts


def rows_of(entries: Sequence[Heard]) -> int | None:
    """The rows that the requests added, if all of them say so."""
    counts = [(entry.detail or {}).get("rows") for entry in entries if entry.operation == "append_rows"]
    known = [count for count in counts if isinstance(count, int)]
    return sum(known) if known and len(known) == len(counts) else None


def _request(entry: Heard) -> Mapping[str, Any]:
    said = {"principal": entry.principal, "request-id": entry.request_id, "operation": entry.operation}
    return said | {"parameters": entry.detail} | ({"client": entry.client} if entry.client else {})
