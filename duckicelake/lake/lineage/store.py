"""The seam through which events of lineage come to be kept: as they are, and as the graph that they tell of."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import orjson

from duckicelake.lake.lineage import runs as lineage_runs
from duckicelake.lake.lineage.directory import Directory
from duckicelake.lake.lineage.entries import RECEIVED, Entry
from duckicelake.lake.lineage.rows import Rows, Side
from duckicelake.lake.lineage.runs import Run
from duckicelake.lake.lineage.told import Column, Event, Json, LakeTable, Name, digest, read
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.documents import document
from duckicelake.lake.postgres.queries import queries

MOST_EDGES: Final = 250_000
"""Between all inputs and all outputs of one run: more than that say nothing, and would fill the database."""
LOCK_KEY: Final = 0x6C696E656167  # "lineag"
_SQL: Final = queries("lineage_store")
_NOTHING_TOLD: Final[Mapping[Name, LakeTable]] = {}


class _Kept(NamedTuple):
    """An event that wasn't there, with the id it got."""

    id: int
    event: Event


def record(
    cursor: Transaction,
    events: Sequence[Json],
    *,
    origin: str,
    principal: str | None = None,
    tables: Mapping[Name, LakeTable] = _NOTHING_TOLD,
) -> int:
    """Keep OpenLineage events (run, job and dataset events) that aren't there yet; how many weren't.

    They may come in any order. origin: catalog, sql or received; what is received changes no run or job that the
    catalog has recorded itself, nor the names of its datasets. tables: which tables have which names, as the lake
    itself knows; asked for what is received. Recorders queue on a lock, so that ids of events are in the order of
    commits.
    """
    if not events:
        return 0
    cursor.execute(_SQL.lock, {"key": LOCK_KEY})
    kept = _keep(cursor, events, origin, principal)
    known = lineage_runs.known_runs(cursor, (each.event for each in kept))
    if origin == RECEIVED:
        own_jobs = lineage_runs.own_jobs(cursor, (each.event for each in kept))
        kept = [each for each in kept if not _is_taken(known, each.event) and each.event.job not in own_jobs]
        known = {run_id: run for run_id, run in known.items() if run.origin == RECEIVED}
    if kept:
        _fold(cursor, sorted(kept, key=lambda each: each.event.at), known, origin, tables)
    return len(kept)


def is_over(cursor: Transaction, principal: str, most: int) -> bool:
    """Whether so many events, or more, were received from the principal within the last hour."""
    return cursor.execute(_SQL.is_over, {"principal": principal, "most": most - 1}).fetchone() == (True,)


def _is_taken(known: Mapping[UUID, Run], event: Event) -> bool:
    run = None if event.run is None else known.get(event.run)
    return run is not None and run.origin != RECEIVED


def _keep(cursor: Transaction, events: Sequence[Json], origin: str, principal: str | None) -> list[_Kept]:
    read_ones = {digest(event): (event, read(event)) for event in events}
    rows = [
        {
            "at": told.at,
            "run_id": told.run,
            "job_namespace": told.job.namespace if told.job else None,
            "job_name": told.job.name if told.job else None,
            "event_type": told.type,
            "digest": key,
            "body": orjson.Fragment(orjson.dumps(event)),
        }
        for key, (event, told) in read_ones.items()
    ]
    added = cursor.execute(_SQL.add_events, {"origin": origin, "principal": principal, "rows": document(rows)})
    return [_Kept(number, read_ones[key][1]) for number, key in added.fetchall()]


def _fold(
    cursor: Transaction,
    kept: Sequence[_Kept],
    known: dict[UUID, Run],
    origin: str,
    tables: Mapping[Name, LakeTable],
) -> None:
    """Make the graph of what the events tell; they are given in the order of their times."""
    had_flown = {run_id for run_id, run in known.items() if run.has_flown}
    events = [each.event for each in kept]
    job_ids = lineage_runs.jobs(cursor, events, origin)
    lineage_runs.runs(cursor, known, events, job_ids, origin)
    flown = {run_id for run_id, run in known.items() if run.has_flown}
    earlier = _earlier(cursor, flown - had_flown, {each.id for each in kept})
    datasets = (dataset for each in (*earlier, *kept) for dataset in each.event.datasets())
    directory = Directory(cursor, datasets, tables)
    sides = [side for each in kept for side in _sides(each, directory, origin)]
    outputs = [side for side in sides if side.is_output] + [
        Side(each.id, each.event, told, directory.named(told.name, each.event.at, origin), is_output=True)
        for each in earlier
        for told in each.event.outputs
    ]
    flowing = [side for side in outputs if side.event.run is None or side.event.run in flown]
    made_of = [
        (side, column, directory.named(column.source, side.event.at, origin))
        for side in flowing
        for column in side.told.columns
    ]
    directory.save()
    _save(cursor, Rows(directory.id_of, job_ids, known), sides, flowing, made_of, flown)


def _sides(kept: _Kept, directory: Directory, origin: str) -> Iterator[Side]:
    event = kept.event
    for is_output, datasets in ((False, event.inputs), (True, event.outputs)):
        for told in datasets:
            yield Side(kept.id, event, told, directory.find(told, event.at, origin, is_output=is_output), is_output)


def _save(
    cursor: Transaction,
    rows: Rows,
    sides: Sequence[Side],
    flowing: Sequence[Side],
    made_of: Sequence[tuple[Side, Column, Entry]],
    flown: set[UUID],
) -> None:
    cursor.execute(_SQL.save_io, {"rows": document(rows.io(sides))})
    cursor.execute(_SQL.save_job_io, {"rows": document(rows.job_io(sides))})
    columns = rows.columns(made_of, sides)
    if columns:
        cursor.execute(_SQL.save_columns, {"rows": document(columns)})
    edges = {"runs": list(flown), "rows": document(rows.edges(columns, sides)), "most": MOST_EDGES}
    cursor.execute(_SQL.save_edges, edges)
    definitions = rows.definitions(flowing)
    if definitions:
        cursor.execute(_SQL.end_columns, {"rows": document(definitions)})
        cursor.execute(_SQL.end_edges, {"rows": document(definitions)})


def _earlier(cursor: Transaction, run_ids: set[UUID], new: set[int]) -> list[_Kept]:
    """What runs told before it was known that anything flows."""
    if not run_ids:
        return []
    rows = cursor.execute(_SQL.beginnings, {"run_ids": list(run_ids), "new": list(new)}).fetchall()
    return [_Kept(number, read(body)) for number, body in rows]
