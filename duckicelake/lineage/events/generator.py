"""Generate OpenLineage events from the lake's changes, in a background thread."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from duckicelake.catalog.context.background_threads import run_in_thread
from duckicelake.catalog.context.caller import SESSION
from duckicelake.catalog.context.services import Services
from duckicelake.changelog.entries import LoggedChange, SkippedError, is_caused_by_change, read_changes, record_skipped
from duckicelake.errors import format_count
from duckicelake.lake.ducklake.native import read_newest_snapshot
from duckicelake.lake.side_tables import jobs
from duckicelake.lineage.events import progress as lineage_progress
from duckicelake.lineage.events import read_rows
from duckicelake.lineage.events.inference import (
    MAX_INPUTS,
    ApplicationWrite,
    InferredInput,
    build_input_facets,
    build_output_facets,
    name_application,
)
from duckicelake.lineage.events.progress import LineageProgress, RefusalRow
from duckicelake.lineage.events.reads import find_inputs, find_reader, get_window
from duckicelake.lineage.events.relations import KnownTables, build_definitions
from duckicelake.lineage.graph import store as lineage_store
from duckicelake.lineage.openlineage.changes import CatalogChange, Json
from duckicelake.lineage.openlineage.facets import DATA, build_symlink
from duckicelake.lineage.openlineage.names import DatasetName, NamedLake, hide_credentials, name_location
from duckicelake.lineage.openlineage.run_kinds import (
    PACE,
    RefusedRequest,
    StreamGroups,
    StreamPace,
    build_failed_runs,
    is_failure,
    is_of_stream,
)
from duckicelake.lineage.openlineage.runs import (
    RunChanges,
    describe_run,
    find_transaction_key,
    format_job_name,
    group_runs,
    whole,
)
from duckicelake.lineage.sql.functions import name_file_dataset
from duckicelake.postgres.queries import Transaction
from duckicelake.properties import JOB_KEY, QUERY_SOURCES, REFRESH_STATE

LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at the changelog."""
MIN_AGE: Final = timedelta(seconds=2)
"""Age of a change before its event is made: by then, all workers have recorded the reads before it."""
BATCH_CHANGES: Final = 500
MAX_TRIES: Final = 8
"""Tries after which a change that fails is skipped: some minutes."""
_MAX_PAUSE_SECONDS: Final = 60.0
"""The longest pause, in seconds, after repeated failures."""
_ENTRIES: Final = 5000
"""Entries of the audit trail that are read at a time."""
_REFUSAL_AGE: Final = timedelta(seconds=5)
"""Age at which a refusal is surely in the table: its ids are in the order of inserts, not of commits."""
_ORIGIN: Final = "catalog"


class RunInputs:
    """Finds the inputs of runs, once for each, in order. window: see `ReadLog`."""

    def __init__(self, cursor: Transaction, runs: Sequence[RunChanges], window: timedelta) -> None:
        self._cursor = cursor
        self._window = window
        writes = [write for run in runs if (write := _build_write(run)) is not None]
        self._readers = read_rows.find_readers(cursor, [find_reader(write) for write in writes if write.is_known])

    def add(self, run: RunChanges, body: Json, lake: NamedLake) -> Json:
        """Add inputs to a run's body: files that its job read, or tables that a refresh or a saved query did.

        If there are none, add inferred inputs, and their column lineage.
        """
        named = self._files(run) or self._sources(run, lake)
        return {**body, "inputs": named} if named else self._with_inferred(run, body, lake)

    def _files(self, run: RunChanges) -> list[Json]:
        """Return the files that the pipeline's job names, if the changes are those of a job of the same principal."""
        first = run[0]
        job = first.summary.get(JOB_KEY)
        if job is None:
            return []
        found = jobs.read_job_inputs(self._cursor, str(job), first.change.principal)
        places = dict.fromkeys(place for change in found if (place := name_file_dataset(change)) is not None)
        return [{"namespace": place.namespace, "name": place.name, "facets": {}} for place in places]

    def _sources(self, run: RunChanges, lake: NamedLake) -> list[Json]:
        """Return the tables that a snapshot names as read, one of a materialized view or of a saved result."""
        found = lineage_progress.read_sources(self._cursor, parse_source_uuids(run[0].summary))
        places = [(resource, name_location(location)) for resource, location in found]
        return [
            {"namespace": place.namespace, "name": place.name, "facets": build_symlink(resource, "TABLE", lake)}
            for resource, place in places
        ]

    def _with_inferred(self, run: RunChanges, body: Json, lake: NamedLake) -> Json:
        write = _build_write(run)
        if write is None or not write.is_known or not self._readers.have(find_reader(write)):
            return body
        found = find_inputs(self._cursor, write, self._window)
        if not found:
            return body
        places = lineage_progress.read_places(self._cursor, [inferred.table_id for inferred in found])
        inputs = [
            (inferred, name_location(places[inferred.table_id])) for inferred in found if inferred.table_id in places
        ]
        catalog_change = [_build_input(inferred, name, lake) for inferred, name in inputs]
        outputs = [_find_output(output, inputs, lake) for output in body["outputs"]]
        name = format_job_name(run, lake, [inferred.table.rpartition(".")[0] for inferred, _ in inputs])
        return {**body, "job": {**body["job"], "name": name}, "inputs": catalog_change, "outputs": outputs}


def parse_source_uuids(summary: Mapping[str, str]) -> list[str]:
    """Parse the UUIDs of the tables that a refresh or a query has read; none of what has another form."""
    try:
        text = summary.get(REFRESH_STATE) or summary.get(QUERY_SOURCES) or "{}"
        states = json.loads(text).get("source-states", ())
        found = [str(UUID(state["uuid"])) for state in states if state["type"] == "table"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return []
    return found[:MAX_INPUTS]


def _build_write(run: RunChanges) -> ApplicationWrite | None:
    """Build the write of a run; None if it wrote no rows, and could have written none."""
    kinds = [
        str(kind)
        for catalog_change in run
        for kind in catalog_change.facts.get("kinds") or (catalog_change.change.kind,)
    ]
    written = [kind for kind in kinds if kind in DATA]
    outputs = frozenset(
        catalog_change.change.object_id for catalog_change in run if catalog_change.change.object_id is not None
    )
    first = run[0]
    operation = next(iter(written), first.summary.get("operation"))
    if operation is None or not outputs:
        return None
    return ApplicationWrite(
        first.change.at,
        first.change.principal,
        first.client.get(SESSION),
        name_application(first.summary),
        outputs,
        operation,
    )


def _build_input(found: InferredInput, name: DatasetName, lake: NamedLake) -> Json:
    facets = build_symlink(found.table, "TABLE", lake) | build_input_facets(lake, found)
    return {"namespace": name.namespace, "name": name.name, "facets": facets}


def _find_output(output: Json, inputs: Sequence[tuple[InferredInput, DatasetName]], lake: NamedLake) -> Json:
    schema: Mapping[str, Any] = output["facets"].get("schema") or {}
    columns = [field["name"] for field in schema.get("fields", ())]
    return {**output, "facets": {**output["facets"], **build_output_facets(lake, columns, inputs)}}


class EventGenerator:
    """Makes events. uri: the catalog's, for engines. literals: whether events may contain literals of SQL."""

    def __init__(
        self,
        services: Services,
        uri: str,
        *,
        literals: bool = False,
        batch: int = BATCH_CHANGES,
        age: timedelta = MIN_AGE,
        pace: StreamPace = PACE,
    ) -> None:
        self._services = services
        self._uri = hide_credentials(uri)
        self._literals = literals
        self._batch = batch
        self._age = age
        self._pace = pace
        self._tables = KnownTables()

    def advance(self) -> bool:
        """Make events of the next changes in one transaction; return whether more are old enough."""
        return self._advance(self._batch)

    def pass_by(self) -> SkippedError | None:
        """Make events transaction by transaction, up to one that fails; that one gets no event.

        It isn't tried again: call this after repeated failures while Postgres answers.
        """
        while True:
            try:
                if not self._advance(1):
                    return None
            except Exception as error:
                if not is_caused_by_change(error):
                    raise
                return self._skip(error)

    def _skip(self, error: Exception) -> SkippedError | None:
        with self._services.database.transaction() as cursor:
            progress = lineage_progress.take_progress(cursor)
            if progress is None:
                return None
            _, due = self._next(cursor, progress, progress.now - self._age, 1)
            noted = lineage_progress.find_newest_audited(
                cursor, progress.audit_id, progress.now - _REFUSAL_AGE, _ENTRIES
            )
            streams = progress.streams if due or noted != progress.audit_id else ()
            position = due[-1].position if due else progress.position
            lineage_progress.move_progress(cursor, position, noted, streams)
            changes = format_count(len(due), "change")
            what = f"{changes} up to {position}, refusals after entry {progress.audit_id} of the audit trail"
            return record_skipped(cursor, "lineage", what, error)

    def _advance(self, batch: int) -> bool:
        with self._services.database.transaction() as cursor:
            progress = lineage_progress.take_progress(cursor)
            if progress is None:
                return False
            before = progress.now - self._age
            found, due = self._next(cursor, progress, before, batch)
            until = before if len(due) == len(found) else min(before, found[len(due)].at)
            noted = lineage_progress.find_newest_audited(
                cursor, progress.audit_id, progress.now - _REFUSAL_AGE, _ENTRIES
            )
            if due or progress.streams or noted != progress.audit_id:
                self._make(cursor, progress, due, until, noted)
            return len(due) > 0 and len(found) > batch

    def _next(
        self, cursor: Transaction, progress: LineageProgress, before: datetime, most: int
    ) -> tuple[Sequence[LoggedChange], Sequence[LoggedChange]]:
        """Read the next changes, and those that become events: more than `most` only within one transaction."""
        while True:
            found = read_changes(cursor, progress.position, most + 1)
            due = _take_due(found, most, before)
            if due or len(found) <= most or found[0].at > before:
                return found, due
            most *= 2

    def _make(
        self, cursor: Transaction, progress: LineageProgress, due: Sequence[LoggedChange], until: datetime, noted: int
    ) -> None:
        """Record the events of the due changes, and of refusals. until: up to which time streams are advanced."""
        lake = NamedLake(progress.lake_id, self._uri)
        runs = group_runs(self._tables.resolve(cursor, progress.position, due))
        inputs = RunInputs(cursor, runs, get_window(self._services.reads))

        def describe(run: RunChanges) -> Json:
            return inputs.add(run, describe_run(run, lake), lake)

        streams = StreamGroups(progress.streams, describe, self._pace)
        events: list[Json] = []
        for run in runs:
            if is_of_stream(run):
                streams.add(format_job_name(run, lake), run)
            else:
                events += whole(describe(run), run)
                events += build_definitions(cursor, run, lake, self._tables.place, literals=self._literals)
        streams.pass_until(until)
        events += streams.events
        events += build_failed_runs(_list_refused(cursor, progress.audit_id, noted), lake)
        if due or events or noted != progress.audit_id:
            lineage_store.record_events(cursor, events, origin=_ORIGIN)
            position = due[-1].position if due else progress.position
            lineage_progress.move_progress(cursor, position, noted, streams.list_open())


def _take_due(found: Sequence[LoggedChange], most: int, before: datetime) -> Sequence[LoggedChange]:
    """Take the first changes that are old enough, without an incomplete transaction."""
    count = min(most, next((i for i, change in enumerate(found) if change.at > before), len(found)))
    if count == len(found):
        return found
    whole = count
    while whole > 0 and _find_request(found[whole - 1]) == _find_request(found[count]):
        whole -= 1
    return found[:whole]


def _find_request(change: LoggedChange) -> tuple[object, ...]:
    return find_transaction_key(CatalogChange(change))


def _list_refused(cursor: Transaction, after: int, upto: int) -> list[RefusedRequest]:
    if upto == after:
        return []
    failures = [
        refusal for refusal in lineage_progress.read_refusals(cursor, after, upto) if is_failure(refusal.result)
    ]
    found = {failure.resource: _find_skipped(cursor, failure.resource) for failure in failures}
    return [_convert_change(failure, *found[failure.resource]) for failure in failures]


def _find_skipped(cursor: Transaction, resource: str) -> tuple[int | None, str | None]:
    """Find the present id and location of a table."""
    schema_name, _, name = resource.rpartition(".")
    found = lineage_progress.find_named(cursor, schema_name, name, read_newest_snapshot(cursor))
    if found is None or found[1]:
        return None, None
    return found[0], lineage_progress.read_places(cursor, [found[0]]).get(found[0])


def _convert_change(refusal: RefusalRow, object_id: int | None, location: str | None) -> RefusedRequest:
    schema_name, _, name = refusal.resource.rpartition(".")
    return RefusedRequest(
        refusal.id,
        refusal.at,
        refusal.principal,
        refusal.request_id,
        refusal.operation,
        refusal.resource if object_id is None else schema_name,
        None if object_id is None else name,
        refusal.result,
        {"client": refusal.client or {}, "location": location},
        object_id,
    )


def generate_events_in_background(
    maker: EventGenerator, failed: Callable[[Exception], object]
) -> AbstractContextManager[None]:
    """Make events in a thread until the block ends. failed: called with errors."""
    return run_in_thread("lineage", partial(_run_generator, maker, failed))


def _run_generator(maker: EventGenerator, failed: Callable[[Exception], object], ended: threading.Event) -> None:
    """Make events until the server stops. While there is more, pause as long as the work took: requests need the CPU.

    A change that fails repeatedly is skipped, so that later ones have their events.
    """
    pause, failures = LOOK_SECONDS, 0
    while not ended.wait(pause):
        began = time.monotonic()
        try:
            if failures >= MAX_TRIES:
                skipped, failures = maker.pass_by(), 0
                if skipped is not None:
                    failed(skipped)
            pause, failures = time.monotonic() - began if maker.advance() else LOOK_SECONDS, 0
        except Exception as error:  # noqa: BLE001 - whatever it was, the next look may find it gone
            pause = min(2 * max(pause, LOOK_SECONDS), _MAX_PAUSE_SECONDS)
            failures = failures + 1 if is_caused_by_change(error) else 0
            failed(error)
