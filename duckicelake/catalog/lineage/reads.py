"""What applications read: noted where requests are answered, written in the background, joined with what they write.

Nobody who loads a table waits for this. What is noted stays in a list of one process until its thread writes it, a few
times in a second; if more comes than can be kept, some is dropped and counted.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Final

from duckicelake.catalog.access.principal import Caller
from duckicelake.catalog.background import in_thread
from duckicelake.iceberg.names import Namespace, schema_name
from duckicelake.iceberg.reports import MetricsReport
from duckicelake.lake.lineage import reads
from duckicelake.lake.lineage.reads import Reader, Seen
from duckicelake.lake.names import full_name
from duckicelake.lake.postgres.database import Database, Transaction
from duckicelake.lineage.inference import LIVES, WINDOW, InferredInput, Kind, Write, application_of, inferred_inputs

SESSION: Final = "session"
"""Under which name a caller's `client` has it: digests that tell one program's requests from another's."""
MOST_WAITING: Final = 10_000
MOST_AT_A_TIME: Final = 2_000
"""Rows that are written together: five thousand of them in a second are enough to guess from."""
AGAIN: Final = 2.0
"""Seconds after which the same read of a session is noted again, unless it writes before."""
PAUSE: Final = 0.2
NEVER: Final = float("-inf")
_PROGRAMS: Final = 16_384
AFTER_FAILURE: Final = 5.0
_PRUNE_EVERY: Final = 60.0
_SLACK: Final = timedelta(hours=1)
"""For so long what is too old may still be asked for: by who follows the lake and is behind."""


class ReadLog:
    """Of one process. Nothing is kept unless somebody writes it (`recording_in_background`)."""

    def __init__(self, window: timedelta = WINDOW) -> None:
        """window: for how long a read may have been for a write that comes after it."""
        self.window = window
        self.is_on = False
        self.wrote: dict[str, float] = {}
        """When programs that have read wrote last; what they read then is noted though it was lately."""
        self._waiting: list[Seen] = []
        self._lately: dict[tuple[object, ...], float] = {}
        self._recorded = 0
        self._dropped = 0

    def note(self, seen: Seen) -> None:
        """For any thread, and at once."""
        if not self.is_on or not self._is_new(seen):
            return
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(seen)
        else:
            self._dropped += 1

    def note_load(self, caller: Caller, namespace: Namespace, name: str, *, is_lookup: bool) -> None:
        """The caller was given a table; is_lookup: and had said which of its snapshots it wants."""
        session = caller.client.get(SESSION)
        if session:
            self.note(load_of(caller.principal.name, session, (schema_name(namespace), name), is_lookup=is_lookup))

    def note_report(self, caller: Caller, namespace: Namespace, name: str, report: MetricsReport) -> None:
        """The caller says what it scanned or committed; other reports say nothing of reads."""
        kind, session = _KINDS.get(report.report_type), caller.client.get(SESSION)
        if kind is not None and session:
            self.note(_reported(kind, caller.principal.name, session, (schema_name(namespace), name), report))

    def note_write(self, session: str) -> None:
        """A request came that is going to write."""
        program = program_of(session)
        if program in self.wrote:
            self.wrote[program] = time.perf_counter()

    def statistics(self) -> dict[str, int]:
        """Recorded and dropped, since the start."""
        return {"recorded": self._recorded, "dropped": self._dropped}

    def write(self, database: Database) -> None:
        """Write what waits; what can't be written is dropped."""
        waiting, self._waiting = self._waiting, []
        now = time.perf_counter()
        self._lately = {what: noted for what, noted in list(self._lately.items()) if noted + AGAIN > now}
        if not waiting:
            return
        taken = waiting[:MOST_AT_A_TIME]
        try:
            with database.statement() as cursor:
                self._recorded += reads.record(cursor, taken, now)
        except BaseException:
            self._dropped += len(taken)
            raise
        finally:
            self._dropped += len(waiting) - len(taken)

    def _is_new(self, seen: Seen) -> bool:
        what, program = seen.what, program_of(seen.session)
        if len(self.wrote) > _PROGRAMS:
            self.wrote.clear()
        wrote = self.wrote.setdefault(program, NEVER)
        noted = self._lately.get(what, NEVER)
        if noted + AGAIN > seen.seconds and noted > wrote:
            return False
        self._lately[what] = seen.seconds
        return True


_KINDS: Final = {"scan-report": Kind.SCAN, "commit-report": Kind.REPORT}


def program_of(session: str) -> str:
    """Without the connection that a session may name."""
    return session.partition(":")[0]


def load_of(principal: str, session: str, named_as: tuple[str, str], *, is_lookup: bool) -> Seen:
    """A load that is answered now. named_as: the table's schema and name."""
    kind = Kind.LOOKUP if is_lookup else Kind.LOAD
    return Seen(time.perf_counter(), kind, principal, session, *named_as, full_name(*named_as))


def _reported(kind: Kind, principal: str, session: str, named_as: tuple[str, str], report: MetricsReport) -> Seen:
    return Seen(
        time.perf_counter(),
        kind,
        principal,
        session,
        *named_as,
        full_name(*named_as),
        application_of(report.metadata),
        report.snapshot_id,
        report.projected,
        report.filtered,
    )


def inputs_of(cursor: Transaction, write: Write, window: timedelta) -> list[InferredInput]:
    """What the write was made from, the surest first. It is to be asked once for each write, in their order.

    In the cursor's transaction it is noted that what was read so far was for this write.
    """
    if not write.is_known:
        return []
    reader = reader_of(write)
    life = window if write.application is None else window * LIVES
    found = reads.reads_of(cursor, reader, write.outputs, write.at, life)
    if found:
        reads.mark(cursor, reader, min(write.outputs), write.at)
    return inferred_inputs(write, found, window)


def reader_of(write: Write) -> Reader:
    """The application that wrote, of which that is known."""
    assert write.principal is not None
    assert write.session is not None
    return Reader(write.principal, write.session, write.application)


@contextmanager
def recording_in_background(log: ReadLog, database: Database, failed: Callable[[Exception], object]) -> Iterator[None]:
    """Write what is noted for as long as the context lasts; `failed` hears when it can't be."""
    with in_thread("reads", partial(_record, log, database, failed)):
        log.is_on = True
        try:
            yield
        finally:
            log.is_on = False


def _record(log: ReadLog, database: Database, failed: Callable[[Exception], object], ended: threading.Event) -> None:
    prune_at = time.monotonic() + _PRUNE_EVERY
    is_last, pause = False, PAUSE
    while not is_last:
        is_last = ended.wait(pause)
        pause = PAUSE
        try:
            log.write(database)
            if time.monotonic() >= prune_at:
                prune_at = time.monotonic() + _PRUNE_EVERY
                _prune(log, database)
        except Exception as error:  # noqa: BLE001 - whatever it was, the next round may find it gone
            failed(error)
            pause = AFTER_FAILURE


def _prune(log: ReadLog, database: Database) -> None:
    with database.statement() as cursor:
        while reads.prune(cursor, log.window + _SLACK, log.window * LIVES + _SLACK) == reads.PRUNED:
            pass
