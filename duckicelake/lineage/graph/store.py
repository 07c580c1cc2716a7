"""Store events with the graph that they give, find owners of names, and delete old runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

import orjson

from duckicelake.lineage.graph import run_rows as lineage_runs
from duckicelake.lineage.graph.datasets import RECEIVED, DatasetDirectory, DatasetEntry
from duckicelake.lineage.graph.parsed_event import (
    EventColumn,
    EventName,
    Json,
    LakeTable,
    ParsedEvent,
    hash_json,
    parse_event,
)
from duckicelake.lineage.graph.run_rows import EdgeRows, EventSide, RunState
from duckicelake.postgres.database import Database
from duckicelake.postgres.pipeline import json_param
from duckicelake.postgres.queries import Transaction, load_queries

MAX_EVENT_EDGES: Final = 250_000
"""Edges between all inputs and outputs of a run: more are meaningless, and would fill the database."""
LOCK_KEY: Final = 0x6C696E656167  # "lineag"
_SQL: Final = load_queries("lineage.graph", "store")
_NO_TABLES: Final[Mapping[EventName, LakeTable]] = {}
_OWNERS_SQL: Final = load_queries("lineage.graph", "owners")
_RETENTION_SQL: Final = load_queries("lineage.graph", "retention")
BATCH: Final = 5_000


class _KeptEvent(NamedTuple):
    """A new event with its id."""

    id: int
    event: ParsedEvent


def record_events(
    cursor: Transaction,
    events: Sequence[Json],
    *,
    origin: str,
    principal: str | None = None,
    tables: Mapping[EventName, LakeTable] = _NO_TABLES,
) -> int:
    """Store new OpenLineage events (run, job and dataset events); return their number.

    They may come in any order. origin: catalog, sql or received; what is received changes no run or job that the
    catalog has recorded itself, nor the names of its datasets. tables: which tables have which names, as the lake
    itself knows; asked for what is received. Recorders queue on a lock, so that ids of events are in the order of
    commits.
    """
    if not events:
        return 0
    cursor.execute(_SQL.lock, {"key": LOCK_KEY})
    kept = _keep(cursor, events, origin, principal)
    known = lineage_runs.read_known_runs(cursor, (kept_event.event for kept_event in kept))
    if origin == RECEIVED:
        own_jobs = lineage_runs.find_own_jobs(cursor, (kept_event.event for kept_event in kept))
        kept = [
            kept_event
            for kept_event in kept
            if not _is_taken(known, kept_event.event) and kept_event.event.job not in own_jobs
        ]
        known = {run_id: run for run_id, run in known.items() if run.origin == RECEIVED}
    if kept:
        _fold(cursor, sorted(kept, key=lambda kept_event: kept_event.event.at), known, origin, tables)
    return len(kept)


def is_over(cursor: Transaction, principal: str, most: int) -> bool:
    """Return whether the principal sent at least `most` events within the last hour."""
    return cursor.execute(_SQL.is_over, {"principal": principal, "most": most - 1}).fetchone() == (True,)


def _is_taken(known: Mapping[UUID, RunState], event: ParsedEvent) -> bool:
    run = None if event.run is None else known.get(event.run)
    return run is not None and run.origin != RECEIVED


def _keep(cursor: Transaction, events: Sequence[Json], origin: str, principal: str | None) -> list[_KeptEvent]:
    read_ones = {hash_json(event): (event, parse_event(event)) for event in events}
    rows = [
        {
            "at": parsed.at,
            "run_id": parsed.run,
            "job_namespace": parsed.job.namespace if parsed.job else None,
            "job_name": parsed.job.name if parsed.job else None,
            "event_type": parsed.type,
            "digest": key,
            "body": orjson.Fragment(orjson.dumps(event)),
        }
        for key, (event, parsed) in read_ones.items()
    ]
    added = cursor.execute(_SQL.add_events, {"origin": origin, "principal": principal, "rows": json_param(rows)})
    return [_KeptEvent(number, read_ones[key][1]) for number, key in added.fetchall()]


def _fold(
    cursor: Transaction,
    kept: Sequence[_KeptEvent],
    known: dict[UUID, RunState],
    origin: str,
    tables: Mapping[EventName, LakeTable],
) -> None:
    """Add events to the graph. They are in the order of their times."""
    had_flown = {run_id for run_id, run in known.items() if run.has_flown}
    events = [kept_event.event for kept_event in kept]
    job_ids = lineage_runs.record_jobs(cursor, events, origin)
    lineage_runs.record_runs(cursor, known, events, job_ids, origin)
    flown = {run_id for run_id, run in known.items() if run.has_flown}
    earlier = _read_earlier(cursor, flown - had_flown, {kept_event.id for kept_event in kept})
    datasets = (dataset for recorded in (*earlier, *kept) for dataset in recorded.event.datasets())
    directory = DatasetDirectory(cursor, datasets, tables)
    sides = [side for kept_event in kept for side in _iterate_sides(kept_event, directory, origin)]
    outputs = [side for side in sides if side.is_output] + [
        EventSide(
            recorded.id,
            recorded.event,
            dataset,
            directory.find_by_name(dataset.name, recorded.event.at, origin),
            is_output=True,
        )
        for recorded in earlier
        for dataset in recorded.event.outputs
    ]
    flowing = [side for side in outputs if side.event.run is None or side.event.run in flown]
    made_of = [
        (side, column, directory.find_by_name(column.source, side.event.at, origin))
        for side in flowing
        for column in side.dataset.columns
    ]
    directory.save()
    _save(cursor, EdgeRows(directory.id_of, job_ids, known), sides, flowing, made_of, flown)


def _iterate_sides(kept: _KeptEvent, directory: DatasetDirectory, origin: str) -> Iterator[EventSide]:
    event = kept.event
    for is_output, datasets in ((False, event.inputs), (True, event.outputs)):
        for dataset in datasets:
            yield EventSide(
                kept.id, event, dataset, directory.find(dataset, event.at, origin, is_output=is_output), is_output
            )


def _save(
    cursor: Transaction,
    rows: EdgeRows,
    sides: Sequence[EventSide],
    flowing: Sequence[EventSide],
    made_of: Sequence[tuple[EventSide, EventColumn, DatasetEntry]],
    flown: set[UUID],
) -> None:
    cursor.execute(_SQL.save_io, {"rows": json_param(rows.io(sides))})
    cursor.execute(_SQL.save_job_io, {"rows": json_param(rows.job_io(sides))})
    columns = rows.columns(made_of, sides)
    if columns:
        cursor.execute(_SQL.save_columns, {"rows": json_param(columns)})
    edges = {"runs": list(flown), "rows": json_param(rows.edges(columns, sides)), "most": MAX_EVENT_EDGES}
    cursor.execute(_SQL.save_edges, edges)
    definitions = rows.definitions(flowing)
    if definitions:
        cursor.execute(_SQL.end_columns, {"rows": json_param(definitions)})
        cursor.execute(_SQL.end_edges, {"rows": json_param(definitions)})


def _read_earlier(cursor: Transaction, run_ids: set[UUID], new: set[int]) -> list[_KeptEvent]:
    """Read START events of runs, which came before an edge was known."""
    if not run_ids:
        return []
    rows = cursor.execute(_SQL.beginnings, {"run_ids": list(run_ids), "new": list(new)}).fetchall()
    return [_KeptEvent(number, parse_event(body)) for number, body in rows]


def find_known_owners(cursor: Transaction, names: Iterable[EventName]) -> dict[EventName, LakeTable]:
    """Find the names' tables, as far as the catalog has recorded them."""
    rows = cursor.execute(_OWNERS_SQL.known, {"keys": [name.key for name in names]}).fetchall()
    return {EventName(namespace, name): LakeTable(*table) for namespace, name, *table in rows}


def find_live_tables(cursor: Transaction, dotted: Iterable[str]) -> dict[LakeTable, str | None]:
    """Find live tables and views by dotted names, with the location if Iceberg clients know it."""
    rows = cursor.execute(_OWNERS_SQL.live, {"names": list(dotted)}).fetchall()
    return {LakeTable(schema_name, name): location for schema_name, name, location in rows}


class ForgottenCount(NamedTuple):
    """The numbers of deleted rows."""

    events: int
    runs: int


def count_kept(database: Database, before: datetime) -> list[tuple[str, int]]:
    """Count older events that stay for receivers, by receiver."""
    with database.reading() as cursor:
        return [
            (transport, count)
            for transport, count in cursor.execute(_RETENTION_SQL.kept, {"before": before}).fetchall()
        ]


def forget_runs(database: Database, before: datetime, batch: int = BATCH) -> ForgottenCount:
    """Delete older runs, `batch` rows in a transaction, so that no other waits for long.

    Datasets, jobs and edges stay, without their runs. Events that receivers still wait for stay, too.
    """
    events, runs = database.prune(_RETENTION_SQL.events, before, batch), 0
    while True:
        with database.transaction() as cursor:
            row = cursor.execute(_RETENTION_SQL.runs, {"before": before, "most": batch}).fetchone()
        assert row is not None
        runs += row[0]
        if row[0] < batch:
            return ForgottenCount(events, runs)
