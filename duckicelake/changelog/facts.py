"""Find the facts of changes: the request behind a change, and its metrics."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any, Final

from duckicelake.changelog import object_names, source
from duckicelake.changelog.changed_objects import ChangedObject
from duckicelake.changelog.entries import ChangeKind, LoggedChange, LogPosition
from duckicelake.changelog.object_names import ObjectName
from duckicelake.changelog.source import (
    AuditedRequest,
    CountedDeletes,
    CountedFile,
    EndedFile,
    InlinedChange,
    LakeSnapshot,
    read_inlined_changes,
)
from duckicelake.iceberg.identifiers import parse_schema_name
from duckicelake.lake.model import ADDITION_KINDS, MOVE_KINDS, REMOVAL_KINDS
from duckicelake.postgres.queries import Transaction

MetricsKey = tuple[int, int]
"""(Snapshot, table)"""
Metrics = Mapping[str, int]
_NUMBER: Final = re.compile("[0-9]{1,18}")
SUMMARY_METRICS: Final = ("total-records", "total-data-files", "total-files-size")
_SUMMARY_KEYS: Final = (
    *("added-records", "deleted-records", "added-data-files", "deleted-data-files", "added-files-size"),
    *("removed-files-size", *SUMMARY_METRICS),
)


def read_summary_metrics(summary: Mapping[str, str], *, whole: bool) -> dict[str, int]:
    """Read metrics of an Iceberg snapshot's summary: all, or only totals after it."""
    names = _SUMMARY_KEYS if whole else SUMMARY_METRICS
    said = {name: summary.get(name, "") for name in names}
    return {name: int(value) for name, value in said.items() if _NUMBER.fullmatch(value)}


def read_metrics(
    cursor: Transaction,
    snapshots: Sequence[LakeSnapshot],
    before: tuple[int, int],
    things: Mapping[MetricsKey, ChangedObject],
    rows: Mapping[MetricsKey, int],
) -> dict[MetricsKey, Metrics]:
    """Read metrics by (snapshot, table).

    before: id and file counter of the snapshot before. rows: added rows, if known.
    """
    ids = [before[0], *(snapshot.snapshot_id for snapshot in snapshots)]
    bounds = list(accumulate([before[1], *(snapshot.next_file_id for snapshot in snapshots)], max))
    numbered = dict(enumerate(ids))
    follows = {at: at - last == 1 for last, at in pairwise(ids)}
    added: defaultdict[MetricsKey, list[CountedFile]] = defaultdict(list)
    new_files = source.read_new_files(cursor, bounds)
    for number, files in new_files.added:
        if follows[numbered[number]] or files.begin == numbered[number]:
            added[numbered[number], files.table_id].append(files)
    removing = [place for place, thing in things.items() if thing.words & (REMOVAL_KINDS | MOVE_KINDS)]
    unknown = [place for place, thing in things.items() if "inlined_insert" in thing.words and place not in rows]
    inlined = read_inlined_changes(
        cursor, {*unknown, *(place for place in removing if things[place].words & REMOVAL_KINDS)}
    )
    removed = _sum_removed(
        cursor, new_files.deleted, numbered, things, source.read_ended_files(cursor, removing), inlined
    )
    new_rows: Counter[MetricsKey] = Counter()
    for change in inlined:
        new_rows[change.at, change.table_id] += change.added
    return {
        place: _sum_added(thing, added.get(place, ()), rows.get(place), new_rows[place]) | removed.get(place, {})
        for place, thing in things.items()
        if thing.words & (ADDITION_KINDS | REMOVAL_KINDS | MOVE_KINDS)
    }


def _sum_added(thing: ChangedObject, files: Sequence[CountedFile], rows: int | None, inlined: int) -> dict[str, int]:
    found = Counter[str]()
    for file in files:
        found += Counter({"added-data-files": file.files, "added-files-size": file.bytes})
    if not thing.words & ADDITION_KINDS:
        return dict(found)
    if rows is not None:
        return {**found, "added-records": rows}
    is_counted = (files or "inserted_into_table" not in thing.words) and (
        inlined > 0 or "inlined_insert" not in thing.words
    )
    records = inlined + sum(file.records for file in files)
    return {**found, "added-records": records} if is_counted else dict(found)


def _sum_removed(
    cursor: Transaction,
    delete_files: Sequence[tuple[int, CountedDeletes]],
    numbered: Mapping[int, int],
    things: Mapping[MetricsKey, ChangedObject],
    ended: Sequence[EndedFile],
    inlined: Sequence[InlinedChange],
) -> dict[MetricsKey, dict[str, int]]:
    """Sum the removed rows and files of each (snapshot, table). Stores deleted rows of files for later snapshots."""
    known = source.read_deleted_rows(
        cursor, {*(deleted.data_file_id for _, deleted in delete_files), *(gone.data_file_id for gone in ended)}
    )
    old = dict(known)
    gone_rows, uncounted = _sum_deleted_in_files(delete_files, numbered, known)
    in_postgres: defaultdict[int, list[InlinedChange]] = defaultdict(list)
    for change in inlined:
        gone_rows[change.at, change.table_id] += change.removed
        if change.data_file_id is not None:
            in_postgres[change.data_file_id].append(change)
    files: defaultdict[MetricsKey, Counter[str]] = defaultdict(Counter)
    for file in ended:
        place = file.at, file.table_id
        files[place] += Counter({"deleted-data-files": 1, "removed-files-size": file.bytes})
        earlier = sum(inlined.removed for inlined in in_postgres[file.data_file_id] if inlined.at < file.at)
        gone_rows[place] += file.records - known.get(file.data_file_id, 0) - earlier
    gone = {file.data_file_id for file in ended}
    changed = {id_: count for id_, count in known.items() if old.get(id_) != count and id_ not in gone}
    source.record_deleted_rows(cursor, changed, gone)
    return {
        place: dict(files[place]) | _count_deleted_records(thing, gone_rows[place], is_counted=place not in uncounted)
        for place, thing in things.items()
    }


def _sum_deleted_in_files(
    delete_files: Sequence[tuple[int, CountedDeletes]], numbered: Mapping[int, int], known: dict[int, int]
) -> tuple[Counter[MetricsKey], set[MetricsKey]]:
    """Sum the rows that delete files deleted; also the places where that is unknown.

    known: deleted rows by file; updated.
    """
    gone_rows: Counter[MetricsKey] = Counter()
    uncounted: set[MetricsKey] = set()
    for number, deleted in delete_files:
        place = numbered[number], deleted.table_id
        before = known.get(deleted.data_file_id, 0 if deleted.begin == place[0] else None)
        known[deleted.data_file_id] = deleted.rows
        if before is None:
            uncounted.add(place)
        else:
            gone_rows[place] += deleted.rows - before
    return gone_rows, uncounted


def _count_deleted_records(thing: ChangedObject, rows: int, *, is_counted: bool) -> dict[str, int]:
    """Count deleted rows. A compaction deletes none, whatever its files are."""
    is_delete = bool(thing.words & REMOVAL_KINDS) and ChangeKind.REPLACE not in thing.kinds
    return {"deleted-records": rows} if is_delete and is_counted else {}


PIPELINE: Final = "duckicelake-pipeline"
"""The prefix of the pipeline's user agents and engines."""
_WITHOUT_SNAPSHOT: Final = {
    "commit_table": ChangeKind.UPDATE_TABLE,
    "commit": ChangeKind.UPDATE_TABLE,
    "commit_view": ChangeKind.ALTER_VIEW,
    "update_properties": ChangeKind.UPDATE_NAMESPACE,
}
"""Kinds of operations without a snapshot; other operations change nothing visible."""


class SnapshotRequests:
    """Audit entries by their snapshot.

    A request with several snapshots of a table has an entry for the last one. All entries of a transaction have one
    time.
    """

    def __init__(self, snapshots: Sequence[LakeSnapshot]) -> None:
        self._by_time: defaultdict[tuple[datetime, str], list[AuditedRequest]] = defaultdict(list)
        for snapshot in snapshots:
            for entry in snapshot.entries:
                self._by_time[snapshot.at, entry.resource].append(entry)

    def of(self, snapshot: LakeSnapshot, thing: ChangedObject) -> Sequence[AuditedRequest]:
        """Return the entries about an object in a snapshot or its transaction; none for DuckDB's changes.

        If no entry names the object, it changed together with everything in the snapshot. Requests of a group name
        theirs.
        """
        found = snapshot.entries
        names = {thing.resource, thing.previous} - {None}
        named = [entry for entry in found if entry.resource in names or (entry.detail or {}).get("to") in names]
        return named or self._by_time.get((snapshot.at, thing.resource)) or found


def find_source(entries: Sequence[AuditedRequest]) -> str:
    """Return the source: rest, pipeline or duckdb."""
    if not entries:
        return "duckdb"
    client = entries[0].client or {}
    said = (client.get("user-agent", ""), client.get("engine", ""))
    return "pipeline" if any(agent.startswith(PIPELINE) for agent in said) else "rest"


def find_asker(entries: Sequence[AuditedRequest]) -> dict[str, Any]:
    """Return principal, program and operation of the first entry."""
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
    """Collect the facts of the entries' requests, without those of `find_asker`."""
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
    """Sum the rows that the requests added; None unless all of them have the number."""
    counts = [(entry.detail or {}).get("rows") for entry in entries if entry.operation == "append_rows"]
    known = [count for count in counts if isinstance(count, int)]
    return sum(known) if known and len(known) == len(counts) else None


def _build_request(entry: AuditedRequest) -> Mapping[str, Any]:
    said = {"principal": entry.principal, "request-id": entry.request_id, "operation": entry.operation}
    return said | {"parameters": entry.detail} | ({"client": entry.client} if entry.client else {})


def read_unplaced_changes(
    cursor: Transaction, entries: Sequence[tuple[datetime, AuditedRequest]]
) -> list[LoggedChange]:
    """Read changes of requests that made no snapshot, in order."""
    known = [
        (at, entry, kind, *_split_resource(entry.resource, kind))
        for at, entry in entries
        if (kind := _WITHOUT_SNAPSHOT.get(entry.operation))
    ]
    if not known:
        return []
    names = [(namespace, name) for *_, namespace, name in known]
    ids = (
        object_names.find_live_schemas(cursor, [named for named in names if named[1] is None])
        | object_names.find_live_tables(cursor, [named for named in names if named[1] is not None])
        | object_names.find_live_views(cursor, [named for named in names if named[1] is not None])
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
    """Place changes in the changelog: return each with its position, and the last position.

    others: changes without a snapshot; they follow the last snapshot before them.

    Each snapshot takes a position, also one without changes, so that later changes get others.
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
