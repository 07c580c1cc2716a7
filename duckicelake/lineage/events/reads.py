"""Record what applications read, in memory, write it in the background, and find a write's inputs."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Final

from duckicelake.catalog.context.background_threads import run_in_thread
from duckicelake.catalog.context.caller import SESSION, Caller
from duckicelake.catalog.context.hooks import PlannedRead, ReadObserver, ReadObserverFactory
from duckicelake.iceberg.identifiers import Namespace, to_schema_name
from duckicelake.iceberg.reports import MetricsReport, select_names
from duckicelake.lineage.events import read_rows
from duckicelake.lineage.events.inference import (
    INFERENCE_WINDOW,
    LIVES,
    ApplicationWrite,
    InferredInput,
    ReadKind,
    infer_inputs,
    name_application,
)
from duckicelake.lineage.events.read_rows import NotedRead, ReadingApplication
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction

MAX_WAITING_READS: Final = 10_000
MAX_BATCH_READS: Final = 2_000
"""Rows written together. Five thousand reads a second are enough to infer from."""
REPEAT_SECONDS: Final = 2.0
"""Seconds after which the same read of a session is recorded again, unless it writes before."""
WRITE_SECONDS: Final = 0.2
NEVER_SECONDS: Final = float("-inf")
_PROGRAMS: Final = 16_384
RETRY_SECONDS: Final = 5.0
_PRUNE_SECONDS: Final = 60.0
_SLACK: Final = timedelta(hours=1)
"""Extra age of reads for a generator that is behind."""


class ReadLog(ReadObserver):
    """The reads of one process. They are dropped unless `record_reads_in_background` runs."""

    repeat_seconds = REPEAT_SECONDS

    def __init__(self, window: timedelta = INFERENCE_WINDOW) -> None:
        """window: the longest time between a read and a later write."""
        self.window = window
        self.is_on = False
        self._wrote: dict[str, float] = {}
        self._waiting: list[NotedRead] = []
        self._lately: dict[tuple[object, ...], float] = {}
        self._recorded = 0
        self._dropped = 0

    @property
    def wrote(self) -> Mapping[str, float]:
        """The last writes of programs with reads. Later reads are recorded even if the same was recorded lately."""
        return self._wrote

    def note(self, seen: NotedRead) -> None:
        """Record a read at once, from any thread."""
        if not self.is_on or not self._is_new(seen):
            return
        if len(self._waiting) < MAX_WAITING_READS:
            self._waiting.append(seen)
        else:
            self._dropped += 1

    def note_load(self, caller: Caller, namespace: Namespace, name: str, *, is_lookup: bool) -> None:
        """Record that the caller loaded a table. is_lookup: it asked for some of its snapshots."""
        session = caller.client.get(SESSION)
        if session:
            self.note_load_of(caller.principal.name, session, (to_schema_name(namespace), name), is_lookup=is_lookup)

    def note_load_of(self, principal: str, session: str, named_as: tuple[str, str], *, is_lookup: bool) -> None:
        """Record a load that is answered now. named_as: the table's schema and name."""
        self.note(build_load(principal, session, named_as, is_lookup=is_lookup))

    def note_report(self, caller: Caller, namespace: Namespace, name: str, report: MetricsReport) -> None:
        """Record the caller's report of a scan or commit; ignore other reports."""
        kind, session = _KINDS.get(report.report_type), caller.client.get(SESSION)
        if kind is not None and session:
            self.note(_build_report(kind, caller.principal.name, session, (to_schema_name(namespace), name), report))

    def note_plan(self, caller: Caller, namespace: Namespace, name: str, read: PlannedRead) -> None:
        """Record a scan that was planned for the caller."""
        session = caller.client.get(SESSION)
        if session and self.is_on:
            self.note(_build_plan(caller.principal.name, session, (to_schema_name(namespace), name), read))

    def note_write(self, session: str) -> None:
        """Record a request that will write."""
        program = find_program(session)
        if program in self._wrote:
            self._wrote[program] = time.perf_counter()

    def statistics(self) -> dict[str, int]:
        """Return the numbers of recorded and dropped reads since the start."""
        return {"recorded": self._recorded, "dropped": self._dropped}

    def write(self, database: Database) -> None:
        """Write waiting reads; drop those that can't be written."""
        waiting, self._waiting = self._waiting, []
        now = time.perf_counter()
        self._lately = {what: noted for what, noted in list(self._lately.items()) if noted + REPEAT_SECONDS > now}
        if not waiting:
            return
        taken = waiting[:MAX_BATCH_READS]
        try:
            with database.statement() as cursor:
                self._recorded += read_rows.record_reads(cursor, taken, now)
        except BaseException:
            self._dropped += len(taken)
            raise
        finally:
            self._dropped += len(waiting) - len(taken)

    def _is_new(self, seen: NotedRead) -> bool:
        what, program = _identify(seen), find_program(seen.session)
        if len(self._wrote) > _PROGRAMS:
            self._wrote.clear()
        wrote = self._wrote.setdefault(program, NEVER_SECONDS)
        noted = self._lately.get(what, NEVER_SECONDS)
        if noted + REPEAT_SECONDS > seen.seconds and noted > wrote:
            return False
        self._lately[what] = seen.seconds
        return True


READ_OBSERVER: Final = ReadObserverFactory(ReadLog)
_KINDS: Final = {"scan-report": ReadKind.SCAN, "commit-report": ReadKind.REPORT}


def get_window(reads: ReadObserver) -> timedelta:
    """Return the window between a read and a later write."""
    return reads.window if isinstance(reads, ReadLog) else INFERENCE_WINDOW


def find_program(session: str) -> str:
    """Return the program of a session, without its connection."""
    return session.partition(":")[0]


def _identify(seen: NotedRead) -> tuple[object, ...]:
    """Return all fields of a read except the time."""
    who = (seen.kind, seen.principal, seen.session, seen.application)
    return (*who, seen.schema_name, seen.table_name, seen.snapshot_id, seen.projected, seen.filtered)


def build_load(principal: str, session: str, named_as: tuple[str, str], *, is_lookup: bool) -> NotedRead:
    """Build a load that is answered now. named_as: the table's schema and name."""
    kind = ReadKind.LOOKUP if is_lookup else ReadKind.LOAD
    return NotedRead(time.perf_counter(), kind, principal, session, *named_as)


def _build_report(
    kind: ReadKind, principal: str, session: str, named_as: tuple[str, str], report: MetricsReport
) -> NotedRead:
    return NotedRead(
        time.perf_counter(),
        kind,
        principal,
        session,
        *named_as,
        name_application(report.metadata),
        report.snapshot_id,
        report.projected,
        report.filtered,
    )


def _build_plan(principal: str, session: str, named_as: tuple[str, str], read: PlannedRead) -> NotedRead:
    return NotedRead(
        time.perf_counter(),
        ReadKind.PLAN,
        principal,
        session,
        *named_as,
        snapshot_id=read.snapshot_id,
        projected=select_names(read.projected),
        filtered=select_names(read.filtered),
    )


def find_inputs(cursor: Transaction, write: ApplicationWrite, window: timedelta) -> list[InferredInput]:
    """Find the inputs of a write, the most confident first. Call it once for each write, in order.

    It also records, in the cursor's transaction, that the reads so far were for this write.
    """
    if not write.is_known:
        return []
    reader = find_reader(write)
    life = window if write.application is None else window * LIVES
    found = read_rows.list_reads(cursor, reader, write.outputs, write.at, life)
    if found:
        read_rows.mark_read(cursor, reader, min(write.outputs), write.at)
    return infer_inputs(write, found, window)


def find_reader(write: ApplicationWrite) -> ReadingApplication:
    """Return the application of a write."""
    assert write.principal is not None
    assert write.session is not None
    return ReadingApplication(write.principal, write.session, write.application)


@contextmanager
def record_reads_in_background(
    log: ReadLog, database: Database, failed: Callable[[Exception], object]
) -> Iterator[None]:
    """Write reads in a thread until the block ends. failed: called with errors."""
    with run_in_thread("reads", partial(_write_reads, log, database, failed)):
        log.is_on = True
        try:
            yield
        finally:
            log.is_on = False


def _write_reads(
    log: ReadLog, database: Database, failed: Callable[[Exception], object], ended: threading.Event
) -> None:
    prune_at = time.monotonic() + _PRUNE_SECONDS
    is_last, pause = False, WRITE_SECONDS
    while not is_last:
        is_last = ended.wait(pause)
        pause = WRITE_SECONDS
        try:
            log.write(database)
            if time.monotonic() >= prune_at:
                prune_at = time.monotonic() + _PRUNE_SECONDS
                _prune_reads(log, database)
        except Exception as error:  # noqa: BLE001 - whatever it was, the next round may find it gone
            failed(error)
            pause = RETRY_SECONDS


def _prune_reads(log: ReadLog, database: Database) -> None:
    with database.statement() as cursor:
        while read_rows.prune_reads(cursor, log.window + _SLACK, log.window * LIVES + _SLACK) == read_rows.PRUNED:
            pass
