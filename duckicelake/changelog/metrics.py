"""Count rows, files and bytes that snapshots added to tables and removed, from DuckLake's rows."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final

from duckicelake.changelog import source
from duckicelake.changelog.changed_objects import ADDS, MOVES, REMOVES, ChangedObject
from duckicelake.changelog.entries import ChangeKind
from duckicelake.changelog.source import (
    CountedDeletes,
    CountedFile,
    EndedFile,
    InlinedChange,
    LakeSnapshot,
    read_inlined_changes,
)
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
    """Return what an Iceberg snapshot says of itself: all of it, or only what there was afterwards."""
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
    """Read metrics by (snapshot, table). before: id and file counter of the one before. rows: added, where known."""
    ids = [before[0], *(snapshot.snapshot_id for snapshot in snapshots)]
    bounds = list(accumulate([before[1], *(snapshot.next_file_id for snapshot in snapshots)], max))
    numbered = dict(enumerate(ids))
    follows = {at: at - last == 1 for last, at in pairwise(ids)}
    added: defaultdict[MetricsKey, list[CountedFile]] = defaultdict(list)
    new_files = source.read_new_files(cursor, bounds)
    for number, files in new_files.added:
        if follows[numbered[number]] or files.begin == numbered[number]:
            added[numbered[number], files.table_id].append(files)
    removing = [place for place, thing in things.items() if thing.words & (REMOVES | MOVES)]
    unknown = [place for place, thing in things.items() if "inlined_insert" in thing.words and place not in rows]
    inlined = read_inlined_changes(cursor, {*unknown, *(place for place in removing if things[place].words & REMOVES)})
    removed = _sum_removed(
        cursor, new_files.deleted, numbered, things, source.read_ended_files(cursor, removing), inlined
    )
    new_rows: Counter[MetricsKey] = Counter()
    for change in inlined:
        new_rows[change.at, change.table_id] += change.added
    return {
        place: _sum_added(thing, added.get(place, ()), rows.get(place), new_rows[place]) | removed.get(place, {})
        for place, thing in things.items()
        if thing.words & (ADDS | REMOVES | MOVES)
    }


def _sum_added(thing: ChangedObject, files: Sequence[CountedFile], rows: int | None, inlined: int) -> dict[str, int]:
    found = Counter[str]()
    for file in files:
        found += Counter({"added-data-files": file.files, "added-files-size": file.bytes})
    if not thing.words & ADDS:
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
    """Of each (snapshot, table) what it took away. Remembers deleted rows of files for the snapshots to come."""
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
    """Return (rows that delete files deleted, places where that is unknown). known: deleted rows by file, updated."""
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
    """Count deleted rows; a compaction deletes none, whatever it does to files."""
    is_delete = bool(thing.words & REMOVES) and ChangeKind.REPLACE not in thing.kinds
    return {"deleted-records": rows} if is_delete and is_counted else {}
