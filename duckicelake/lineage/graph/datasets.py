"""SQL of datasets and their names: by the name of a place or of a table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from duckicelake.lineage.graph.parsed_event import INFERRED, EventDataset, EventName, LakeTable
from duckicelake.postgres.pipeline import json_param
from duckicelake.postgres.queries import Transaction, load_queries

RECEIVED: Final = "received"
"""The origin of events from other tools."""
_SQL: Final = load_queries("lineage.graph", "store")
_NOT_KEPT: Final = frozenset({"symlinks", "columnLineage", "lifecycleStateChange", INFERRED})
"""Facets that the graph itself contains."""
_MERGE: Final = (
    _SQL.merge_io,
    _SQL.merge_job_io,
    _SQL.merge_edges,
    _SQL.merge_columns,
    _SQL.merge_names,
    _SQL.merge_dataset,
)


@dataclass(slots=True, eq=False)
class DatasetEntry:
    """A row of `duckicelake_lineage_dataset`.

    id: 0 until it is written. facet_times: the time of each facet's event.
    """

    id: int
    namespace: str
    name: str
    is_located: bool
    schema_name: str | None
    table_name: str | None
    kind: str
    origin: str
    first_seen: datetime
    last_seen: datetime
    lifecycle: str | None
    lifecycle_at: datetime | None
    facets: dict[str, Any]
    facet_times: dict[str, str]


@dataclass(frozen=True, slots=True)
class HeldEntry:
    """A name that a dataset has now."""

    entry: DatasetEntry
    is_table: bool
    since: datetime


def may_rename(entry: DatasetEntry, origin: str) -> bool:
    """Return whether an event of this origin may change the dataset's names."""
    return origin != RECEIVED or entry.origin == RECEIVED


def merge_seen(entry: DatasetEntry, at: datetime) -> DatasetEntry:
    """Return the entry with the time added to the times at which it was seen."""
    entry.first_seen, entry.last_seen = min(entry.first_seen, at), max(entry.last_seen, at)
    return entry


def is_over(entry: DatasetEntry, at: datetime) -> bool:
    """Return whether the dataset was dropped before the time."""
    return entry.lifecycle == "DROP" and entry.lifecycle_at is not None and entry.lifecycle_at < at


def find_table(entry: DatasetEntry, dataset: EventDataset) -> LakeTable | None:
    """Find the table that the dataset is declared to be; None: unchanged."""
    if dataset.table is not None or not dataset.tables:
        return dataset.table
    meant = LakeTable.cut(dataset.tables[0].name)
    known = LakeTable(entry.schema_name or "", entry.table_name or "")
    return None if meant is None or meant.dotted == known.dotted else meant


class DatasetDirectory:
    """The datasets of events, with the events' changes, which `save` writes.

    tables: finds the lake's own table of a name, if an event can't be trusted.
    """

    def __init__(
        self, cursor: Transaction, event_datasets: Iterable[EventDataset], tables: Mapping[EventName, LakeTable]
    ) -> None:
        self._cursor, self._tables = cursor, tables
        datasets = list(event_datasets)
        keys = list({name.key for dataset in datasets for name in dataset.names()})
        said = {dataset.table for dataset in datasets} | set(tables.values())
        dotted = list({table.dotted for table in said if table is not None})
        rows = cursor.execute(_SQL.names, {"keys": keys, "dotted": dotted}).fetchall()
        entries = {row[4]: DatasetEntry(*row[4:]) for row in rows}
        self._held = {EventName(row[0], row[1]): HeldEntry(entries[row[4]], row[2], row[3]) for row in rows}
        self._before = dict(self._held)
        self._names: dict[int, set[EventName]] = {}
        for name, held in self._held.items():
            self._names.setdefault(id(held.entry), set()).add(name)
        self._ended: list[tuple[EventName, HeldEntry, datetime]] = []
        self._merged: list[tuple[DatasetEntry, DatasetEntry]] = []
        self._touched: dict[int, DatasetEntry] = {}

    def find(self, dataset: EventDataset, at: datetime, origin: str, *, is_output: bool) -> DatasetEntry:
        """Find the entry of an event's dataset, with what the event adds to it.

        Events of others add to the lake's own datasets only as outputs: a reader describes nothing.
        """
        entry = self._owner(dataset, at, origin)
        self._touched[id(entry)] = entry
        may_change = origin != RECEIVED or entry.origin == RECEIVED
        if may_change:
            self._name(entry, dataset, at, origin)
            self._describe(entry, dataset, at, origin)
        time = at.isoformat(timespec="microseconds")
        for name, facet in dataset.facets.items():
            before = entry.facet_times.get(name, "")
            if name not in _NOT_KEPT and (time >= before if may_change else is_output and not before):
                entry.facets[name], entry.facet_times[name] = facet, time
        return merge_seen(entry, at)

    def find_by_name(self, name: EventName, at: datetime, origin: str) -> DatasetEntry:
        """Find the dataset of a name, without other facts."""
        held = self._held.get(name)
        entry = held.entry if held else self._meant([name]) or self._new(name, at, origin, is_located=False)
        self._touched[id(entry)] = entry
        return merge_seen(entry, at)

    def id_of(self, entry: DatasetEntry) -> int:
        """Return the id of the saved dataset, or of the one into which it was merged."""
        for lost, kept in self._merged:
            entry = kept if entry is lost else entry
        return entry.id

    def _owner(self, dataset: EventDataset, at: datetime, origin: str) -> DatasetEntry:
        """Find the dataset with one of the names. Several of unknown location are merged with it."""
        is_new = dataset.lifecycle == "CREATE"
        held = self._held.get(dataset.name)
        if held and is_new and is_over(held.entry, at) and may_rename(held.entry, origin):
            self._end(dataset.name, held, at)
            held = None
        others = [self._held[name].entry for name in dataset.tables if name in self._held]
        others += self._namesakes(dataset, origin)
        others = [other for other in others if not (is_new and is_over(other, at))]
        loose = [other for other in others if not other.is_located and may_rename(other, origin)]
        if held is None and loose:
            entry = loose[0]
            entry.namespace, entry.name, entry.is_located = *dataset.name, dataset.is_located
            self._hold(dataset.name, entry, at, is_table=False)
        elif held is None and dataset.previous in self._held and not dataset.tables:
            entry = self._held[dataset.previous].entry
        elif held is None:
            meant = self._meant([dataset.name, *dataset.tables]) if origin == RECEIVED else None
            entry = meant or self._new(dataset.name, at, origin, is_located=dataset.is_located)
        else:
            entry = held.entry
        for other in loose:
            if other is not entry and may_rename(entry, origin):
                self._merge(other, entry)
        return entry

    def _namesakes(self, dataset: EventDataset, origin: str) -> Iterator[DatasetEntry]:
        """Yield datasets with the table's name in a catalog of another URI: it is this catalog under a former URI."""
        if origin != RECEIVED and dataset.table is not None:
            yield from (
                held.entry for name, held in self._held.items() if name.name == dataset.table.dotted and held.is_table
            )

    def _meant(self, names: Sequence[EventName]) -> DatasetEntry | None:
        """Find the lake's table that one of the names means, even if the catalog names it differently."""
        tables = {self._tables[name] for name in names if name in self._tables}
        if not tables:
            return None
        known = (held.entry for held in self._held.values() if held.is_table)
        return next((entry for entry in known if (entry.schema_name, entry.table_name) in tables), None)

    def _new(self, name: EventName, at: datetime, origin: str, *, is_located: bool) -> DatasetEntry:
        kind = "DATASET"
        entry = DatasetEntry(0, *name, is_located, None, None, kind, origin, at, at, None, None, {}, {})
        self._hold(name, entry, at, is_table=False)
        return entry

    def _name(self, entry: DatasetEntry, dataset: EventDataset, at: datetime, origin: str) -> None:
        """Give the entry the names of the event's dataset, unless the event is older than its names."""
        spaces = {name.namespace for name in dataset.tables}
        if dataset.previous is not None:
            spaces.add(dataset.previous.namespace)
        now = {dataset.name, *dataset.tables}
        others = (name for name in self._names.get(id(entry), ()) if name.namespace in spaces)
        former = [(name, self._held[name]) for name in others if name not in now]
        if any(held.since > at for _, held in former):
            return
        entry.is_located = entry.is_located or dataset.is_located
        table = find_table(entry, dataset) if origin != RECEIVED else self._tables.get(dataset.name)
        if table is not None:
            entry.schema_name, entry.table_name = table
        for name, held in former:
            self._end(name, held, at)
        for name in now:
            is_table = name in dataset.tables or (dataset.table is not None and not dataset.tables)
            self._claim(name, entry, at, origin, is_table=is_table)

    def _claim(self, name: EventName, entry: DatasetEntry, at: datetime, origin: str, *, is_table: bool) -> None:
        held = self._held.get(name)
        is_trusted = is_table and (origin != RECEIVED or entry.schema_name is not None)
        if held is None:
            self._hold(name, entry, at, is_table=is_trusted)
        elif held.entry is entry:
            self._held[name] = replace(held, is_table=held.is_table or is_trusted, since=min(held.since, at))
        elif at >= held.since and may_rename(held.entry, origin):
            self._end(name, held, at)
            self._hold(name, entry, at, is_table=is_trusted)

    def _describe(self, entry: DatasetEntry, dataset: EventDataset, at: datetime, origin: str) -> None:
        if origin != RECEIVED:
            entry.origin = origin
        if dataset.kind != "DATASET":
            entry.kind = dataset.kind
        if dataset.lifecycle is not None and (entry.lifecycle_at is None or at >= entry.lifecycle_at):
            entry.lifecycle, entry.lifecycle_at = dataset.lifecycle, at

    def _hold(self, name: EventName, entry: DatasetEntry, at: datetime, *, is_table: bool) -> None:
        self._held[name] = HeldEntry(entry, is_table, at)
        self._names.setdefault(id(entry), set()).add(name)

    def _end(self, name: EventName, held: HeldEntry, at: datetime) -> None:
        self._ended.append((name, held, at))
        del self._held[name]
        self._names[id(held.entry)].discard(name)

    def _merge(self, lost: DatasetEntry, kept: DatasetEntry) -> None:
        self._merged.append((lost, kept))
        kept.facets, kept.facet_times = lost.facets | kept.facets, lost.facet_times | kept.facet_times
        merge_seen(merge_seen(kept, lost.first_seen), lost.last_seen)
        names = self._names.pop(id(lost), set())
        for name in names:
            self._held[name] = replace(self._held[name], entry=kept)
        self._names.setdefault(id(kept), set()).update(names)
        self._touched.pop(id(lost), None)

    def save(self) -> None:
        """Write changed entries; new ones get their ids."""
        entries = list(self._touched.values())
        new = [entry for entry in entries if not entry.id]
        if new:
            ids = self._cursor.execute(_SQL.dataset_ids, {"count": len(new)}).fetchall()
            for entry, (number,) in zip(new, ids, strict=True):
                entry.id = number
        if entries:
            self._cursor.execute(_SQL.save_datasets, {"rows": json_param(entries)})
        self._save_names()
        for lost, kept in self._merged:
            if lost.id:
                for statement in _MERGE:
                    self._cursor.execute(statement, {"lost": lost.id, "kept": kept.id})

    def _save_names(self) -> None:
        ended = [_build_name_row(name, held, at) for name, held, at in self._ended]
        now = [_build_name_row(name, held, None) for name, held in self._held.items() if self._before.get(name) != held]
        if ended or now:
            self._cursor.execute(_SQL.end_names, {"rows": json_param(ended)})
            self._cursor.execute(_SQL.save_names, {"rows": json_param(now)})


def _build_name_row(name: EventName, held: HeldEntry, until: datetime | None) -> dict[str, Any]:
    return {
        "key": name.key,
        "namespace": name.namespace,
        "name": name.name,
        "dataset_id": held.entry.id,
        "is_table": held.is_table,
        "since": held.since,
        "until": until,
    }
