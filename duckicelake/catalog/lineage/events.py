"""The lake's changes as OpenLineage's events, and a thread that makes them in the background.

It follows the chronicle with a cursor of its own, which moves in the transaction that records the events: each change
becomes events once, whatever is killed when. Workers share the work: who has the cursor's row makes events, and the
others pass by.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from duckicelake.catalog.background import in_thread
from duckicelake.catalog.lineage.inputs import Inputs
from duckicelake.catalog.lineage.tables import Tables
from duckicelake.catalog.lineage.views import definitions
from duckicelake.catalog.services import Services
from duckicelake.lake.chronicle.entries import Change, changes
from duckicelake.lake.chronicle.left_out import LeftOut, is_of_what_is_told, leave_out
from duckicelake.lake.lineage import follower as lineage_follower
from duckicelake.lake.lineage import store as lineage_store
from duckicelake.lake.lineage.follower import Progress, Refusal
from duckicelake.lake.native import newest_snapshot
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lineage.failures import Refused, failed_runs, is_failure
from duckicelake.lineage.jobs import job_name
from duckicelake.lineage.naming import Lake, safe_uri
from duckicelake.lineage.runs import Run, described, key_of, runs_of, whole
from duckicelake.lineage.streams import PACE, Pace, Streams, is_of_stream
from duckicelake.lineage.told import Json, Told

PAUSE: Final = 1.0
"""Seconds between two looks at the chronicle."""
AGE: Final = timedelta(seconds=2)
"""How old a change must be: what was read for it has been recorded by then, by whichever worker."""
BATCH: Final = 500
TRIES: Final = 8
"""After which what fails is left out: some minutes."""
_LONGEST_PAUSE: Final = 60.0
"""Seconds, after one failure after the other."""
_ENTRIES: Final = 5000
"""Of the audit trail, looked at together."""
_REFUSAL_AGE: Final = timedelta(seconds=5)
"""So old a refusal is in the table for sure: its ids come in the order of inserts, not of commits."""
_ORIGIN: Final = "catalog"


class LineageEvents:
    """Makes events. uri: by which engines know the catalog. literals: whether those of SQL may be told."""

    def __init__(
        self,
        services: Services,
        uri: str,
        *,
        literals: bool = False,
        batch: int = BATCH,
        age: timedelta = AGE,
        pace: Pace = PACE,
    ) -> None:
        self._services = services
        self._uri = safe_uri(uri)
        self._literals = literals
        self._batch = batch
        self._age = age
        self._pace = pace
        self._tables = Tables()

    def advance(self) -> bool:
        """Make events of the next changes, all in one transaction; whether there may be more that are old enough."""
        return self._advance(self._batch)

    def pass_by(self) -> LeftOut | None:
        """Go on by one transaction of the lake after the other, up to one of which no events can be made: it gets none.

        It isn't tried again, so this is for what fails again and again though Postgres answers.
        """
        while True:
            try:
                if not self._advance(1):
                    return None
            except Exception as error:
                if not is_of_what_is_told(error):
                    raise
                return self._leave_out(error)

    def _leave_out(self, error: Exception) -> LeftOut | None:
        with self._services.database.transaction() as cursor:
            progress = lineage_follower.take(cursor)
            if progress is None:
                return None
            _, due = self._next(cursor, progress, progress.now - self._age, 1)
            noted = lineage_follower.noted(cursor, progress.audit_id, progress.now - _REFUSAL_AGE, _ENTRIES)
            streams = progress.streams if due or noted != progress.audit_id else ()
            position = due[-1].position if due else progress.position
            lineage_follower.move(cursor, position, noted, streams)
            what = f"{len(due)} changes up to {position}, refusals after entry {progress.audit_id} of the audit trail"
            return leave_out(cursor, "lineage", what, error)

    def _advance(self, batch: int) -> bool:
        with self._services.database.transaction() as cursor:
            progress = lineage_follower.take(cursor)
            if progress is None:
                return False
            before = progress.now - self._age
            found, due = self._next(cursor, progress, before, batch)
            until = before if len(due) == len(found) else min(before, found[len(due)].at)
            noted = lineage_follower.noted(cursor, progress.audit_id, progress.now - _REFUSAL_AGE, _ENTRIES)
            if due or progress.streams or noted != progress.audit_id:
                self._make(cursor, progress, due, until, noted)
            return len(due) > 0 and len(found) > batch

    def _next(
        self, cursor: Transaction, progress: Progress, before: datetime, most: int
    ) -> tuple[Sequence[Change], Sequence[Change]]:
        """The next changes, and those to become events: more than `most` only if they are of one transaction."""
        while True:
            found = changes(cursor, progress.position, most + 1)
            due = _due(found, most, before)
            if due or len(found) <= most or found[0].at > before:
                return found, due
            most *= 2

    def _make(
        self, cursor: Transaction, progress: Progress, due: Sequence[Change], until: datetime, noted: int
    ) -> None:
        """Record what the due changes come to, and what was refused; `until` is how far time has passed for streams."""
        lake = Lake(progress.lake_id, self._uri)
        runs = runs_of(self._tables.tell(cursor, progress.position, due))
        inputs = Inputs(cursor, runs, self._services.reads.window)

        def describe(run: Run) -> Json:
            return inputs.add(run, described(run, lake), lake)

        streams = Streams(progress.streams, describe, self._pace)
        events: list[Json] = []
        for run in runs:
            if is_of_stream(run):
                streams.add(job_name(run, lake), run)
            else:
                events += whole(describe(run), run)
                events += definitions(cursor, run, lake, self._tables.place, literals=self._literals)
        streams.pass_until(until)
        events += streams.events
        events += failed_runs(_refused(cursor, progress.audit_id, noted), lake)
        if due or events or noted != progress.audit_id:
            lineage_store.record(cursor, events, origin=_ORIGIN)
            position = due[-1].position if due else progress.position
            lineage_follower.move(cursor, position, noted, streams.kept())


def _due(found: Sequence[Change], most: int, before: datetime) -> Sequence[Change]:
    """The first that are old enough, without those of a transaction of which not all are among them."""
    count = min(most, next((i for i, change in enumerate(found) if change.at > before), len(found)))
    if count == len(found):
        return found
    whole = count
    while whole > 0 and _request(found[whole - 1]) == _request(found[count]):
        whole -= 1
    return found[:whole]


def _request(change: Change) -> tuple[object, ...]:
    return key_of(Told(change))


def _refused(cursor: Transaction, after: int, upto: int) -> list[Refused]:
    if upto == after:
        return []
    failures = [each for each in lineage_follower.refusals(cursor, after, upto) if is_failure(each.result)]
    found = {each.resource: _find(cursor, each.resource) for each in failures}
    return [_as_change(each, *found[each.resource]) for each in failures]


def _find(cursor: Transaction, resource: str) -> tuple[int | None, str | None]:
    """The id and location of the table of a name, as it is now."""
    schema_name, _, name = resource.rpartition(".")
    found = lineage_follower.named(cursor, schema_name, name, newest_snapshot(cursor))
    if found is None or found[1]:
        return None, None
    return found[0], lineage_follower.places(cursor, [found[0]]).get(found[0])


def _as_change(refusal: Refusal, object_id: int | None, location: str | None) -> Refused:
    schema_name, _, name = refusal.resource.rpartition(".")
    return Refused(
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


def making_events_in_background(
    maker: LineageEvents, failed: Callable[[Exception], object]
) -> AbstractContextManager[None]:
    """Make events for as long as the context lasts; `failed` hears when none can be made."""
    return in_thread("lineage", partial(_run, maker, failed))


def _run(maker: LineageEvents, failed: Callable[[Exception], object], ended: threading.Event) -> None:
    """While there is more, it rests for as long as it works: the process has requests to answer.

    What fails again and again is left out, so that it doesn't keep all that comes after it from being told.
    """
    pause, failures = PAUSE, 0
    while not ended.wait(pause):
        began = time.monotonic()
        try:
            if failures >= TRIES:
                left_out, failures = maker.pass_by(), 0
                if left_out is not None:
                    failed(left_out)
            pause, failures = time.monotonic() - began if maker.advance() else PAUSE, 0
        except Exception as error:  # noqa: BLE001 - whatever it was, the next look may find it gone
            pause = min(2 * max(pause, PAUSE), _LONGEST_PAUSE)
            failures = failures + 1 if is_of_what_is_told(error) else 0
            failed(error)
