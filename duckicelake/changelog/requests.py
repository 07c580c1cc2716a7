"""Match requests of the audit trail to snapshots, and place changes that made no snapshot."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from duckicelake.changelog import object_names as followed_names
from duckicelake.changelog.changed_objects import ChangedObject
from duckicelake.changelog.entries import ChangeKind, LoggedChange, LogPosition
from duckicelake.changelog.object_names import ObjectName
from duckicelake.changelog.source import AuditedRequest, LakeSnapshot
from duckicelake.iceberg.identifiers import parse_schema_name
from duckicelake.postgres.queries import Transaction

PIPELINE: Final = "duckicelake-pipeline"
"""How the pipeline's user agents and engines begin."""
_WITHOUT_SNAPSHOT: Final = {
    "commit_table": ChangeKind.UPDATE_TABLE,
    "commit": ChangeKind.UPDATE_TABLE,
    "commit_view": ChangeKind.ALTER_VIEW,
    "update_properties": ChangeKind.UPDATE_NAMESPACE,
}
"""What operations change that make no snapshot; those of others change nothing that anybody sees."""


class SnapshotRequests:
    """Entries by the snapshot that they are about.

    A request that makes several snapshots of a table has an entry for the last one; all of a transaction have one time.
    """

    def __init__(self, snapshots: Sequence[LakeSnapshot]) -> None:
        self._by_time: defaultdict[tuple[datetime, str], list[AuditedRequest]] = defaultdict(list)
        for snapshot in snapshots:
            for entry in snapshot.entries:
                self._by_time[snapshot.at, entry.resource].append(entry)

    def of(self, snapshot: LakeSnapshot, thing: ChangedObject) -> Sequence[AuditedRequest]:
        """Return those about the thing: of the snapshot, or of its transaction; none of what DuckDB did.

        If none names it, which isn't so of what requests of a group do, it came with what all of the snapshot did.
        """
        found = snapshot.entries
        names = {thing.resource, thing.previous} - {None}
        named = [entry for entry in found if entry.resource in names or (entry.detail or {}).get("to") in names]
        return named or self._by_time.get((snapshot.at, thing.resource)) or found


def find_source(entries: Sequence[AuditedRequest]) -> str:
    """Return rest, pipeline or duckdb."""
    if not entries:
        return "duckdb"
    client = entries[0].client or {}
    said = (client.get("user-agent", ""), client.get("engine", ""))
    return "pipeline" if any(agent.startswith(PIPELINE) for agent in said) else "rest"


def find_asker(entries: Sequence[AuditedRequest]) -> dict[str, Any]:
    """Return who asked, by what program, for which operation: of several the first."""
    if not entries:
        return {}
    entry = entries[0]
    return {
        "principal": entry.principal,
        "agent": (entry.client or {}).get("user-agent"),
        "request_id": entry.request_id,
        "operation": entry.operation,
    }


def collect_facts(entries: Sequence[AuditedRequest]) -> dict[str, Any]:
    """Return what the entries say of their requests, beyond who asked."""
    if not entries:
        return {}
    detail = dict(entries[0].detail or {})
    facts: dict[str, Any] = {"updates": detail.pop("updates")} if "updates" in detail else {}
    if len(entries) > 1:
        facts["requests"] = [_build_request(entry) for entry in entries]
    elif detail:
        facts["parameters"] = detail
    if entries[0].client:
        facts["client"] = entries[0].client
    return facts


def sum_rows(entries: Sequence[AuditedRequest]) -> int | None:
    """Return the rows that the requests added, if all of them say so."""
    counts = [(entry.detail or {}).get("rows") for entry in entries if entry.operation == "append_rows"]
    known = [count for count in counts if isinstance(count, int)]
    return sum(known) if known and len(known) == len(counts) else None


def _build_request(entry: AuditedRequest) -> Mapping[str, Any]:
    said = {"principal": entry.principal, "request-id": entry.request_id, "operation": entry.operation}
    return said | {"parameters": entry.detail} | ({"client": entry.client} if entry.client else {})


def read_unplaced_changes(
    cursor: Transaction, entries: Sequence[tuple[datetime, AuditedRequest]]
) -> list[LoggedChange]:
    """Return what changed by requests that made no snapshot, in the order in which they were done."""
    known = [
        (at, entry, kind, *_split_resource(entry.resource, kind))
        for at, entry in entries
        if (kind := _WITHOUT_SNAPSHOT.get(entry.operation))
    ]
    if not known:
        return []
    names = [(namespace, name) for *_, namespace, name in known]
    ids = (
        followed_names.find_live_schemas(cursor, [named for named in names if named[1] is None])
        | followed_names.find_live_tables(cursor, [named for named in names if named[1] is not None])
        | followed_names.find_live_views(cursor, [named for named in names if named[1] is not None])
    )
    return [
        _build_unplaced_change(at, entry, kind, (namespace, name), ids.get((namespace, name)))
        for at, entry, kind, namespace, name in known
    ]


def _build_unplaced_change(
    at: datetime, entry: AuditedRequest, kind: ChangeKind, named: ObjectName, object_id: int | None
) -> LoggedChange:
    return LoggedChange(
        snapshot_id=0,
        ordinal=0,
        at=at,
        kind=kind,
        namespace=named[0],
        name=named[1],
        object_id=object_id,
        source=find_source([entry]),
        facts=collect_facts([entry]),
        **find_asker([entry]),
    )


def _split_resource(resource: str, kind: ChangeKind) -> tuple[str, str | None]:
    if kind == ChangeKind.UPDATE_NAMESPACE:
        return resource, None
    namespace, _, name = resource.rpartition(".")
    return namespace, parse_schema_name(name)[0]


def place_changes(
    changes: Sequence[LoggedChange],
    others: Sequence[LoggedChange],
    snapshots: Sequence[LakeSnapshot],
    last: LogPosition,
) -> tuple[list[LoggedChange], LogPosition]:
    """Return all of them with their positions, and the last one.

    `others` follow the last snapshot that was made before them.

    A position is taken by each snapshot, if only so that a change which comes later gets another.
    """
    by_snapshot: defaultdict[int, list[LoggedChange]] = defaultdict(list)
    for change in changes:
        by_snapshot[change.snapshot_id].append(change)
    for change in others:
        before = [snapshot.snapshot_id for snapshot in snapshots if snapshot.at <= change.at]
        by_snapshot[before[-1] if before else last.snapshot_id].append(change)
    found = []
    for snapshot_id in sorted(by_snapshot):
        first = last.ordinal + 1 if snapshot_id == last.snapshot_id else 0
        for ordinal, change in enumerate(by_snapshot[snapshot_id], first):
            found.append(replace(change, snapshot_id=snapshot_id, ordinal=ordinal))
    newest = snapshots[-1].snapshot_id if snapshots else last.snapshot_id
    ordinals = [change.ordinal for change in found if change.snapshot_id == newest]
    taken = last.ordinal if newest == last.snapshot_id else 0
    return found, LogPosition(newest, max(ordinals, default=taken))
