"""PURE. Which tables a write was made from, guessed from what its application read before: no engine has to tell.

What tells one application from another, as of 2026: reports of scans and commits by Iceberg's Java library (Spark)
name it in their metadata (`app-id`, `engine-name`), and so do summaries of snapshots (`app-id`; `spark.app.id` of older
ones; `flink.job-id`; `trino_query_id`). Requests themselves don't. PyIceberg and DuckDB's iceberg extension report
nothing: they are told by their session, and what they load is all that is known. DuckDB commits on a connection of its
own, so without a login nothing is guessed about it; nor about Trino, which names the query in its commits alone, and
loads for all users' queries in one session.

A guess can be wrong, but only among reads of the same principal and the same application, before the write, within a
time, and never about the table that was written: an engine loads and scans it to change it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Protocol

WINDOW: Final = timedelta(minutes=15)
LIVES: Final = 24
"""For so many windows an application that has an id is thought to go on with what it began."""
MOST_INPUTS: Final = 100

_IDS: Final = (("app-id", None), ("spark.app.id", "spark"), ("trino_query_id", "trino"), ("flink.job-id", "flink"))
"""Where summaries and reports name an application, and the engine that does so."""
_LONGEST: Final = 200
_REWRITES: Final = "replace"
"""The operation of Iceberg's snapshots that have the same rows as before."""

_EARLIER: Final = 0.5
"""What is left of a guess if the written table was looked up after the read: another statement may have made that."""
_BEFORE_PREVIOUS: Final = 0.3
"""And if the application has written since."""


class Kind(StrEnum):
    """How a read came to be known, or a write.

    `LOOKUP`: a load that says which snapshots it wants, as Iceberg's Java library does but when it refreshes a table.
    `REPORT`: of a commit, which tells that the application reports what it does.
    """

    LOAD = "load"
    LOOKUP = "lookup"
    SCAN = "scan"
    REPORT = "report"
    WRITE = "write"


class Method(StrEnum):
    """Why a read is thought to belong to a write, with how sure that is."""

    SCAN_OF_APPLICATION = "scan-report of the application"
    SCAN_IN_SESSION = "scan-report in the session"
    LOAD_IN_SESSION = "load in the session"
    LOAD_ON_CONNECTION = "load on the connection"


_CONFIDENCE: Final = {
    Method.SCAN_OF_APPLICATION: 0.9,
    Method.SCAN_IN_SESSION: 0.7,
    Method.LOAD_IN_SESSION: 0.4,
    Method.LOAD_ON_CONNECTION: 0.3,
}


class Read(Protocol):
    """A table that somebody has loaded or scanned, or a report. snapshot_id: Iceberg's.

    session: by the server; what stands before `:` is the program on its machine, what stands after it the connection
    of somebody who hasn't logged in. application: as `application_of` names it. filtered: columns of the filter.
    """

    @property
    def id(self) -> int: ...
    @property
    def at(self) -> datetime: ...
    @property
    def kind(self) -> str: ...
    @property
    def principal(self) -> str: ...
    @property
    def session(self) -> str: ...
    @property
    def application(self) -> str | None: ...
    @property
    def table_id(self) -> int: ...
    @property
    def table(self) -> str: ...
    @property
    def snapshot_id(self) -> int | None: ...
    @property
    def projected(self) -> Sequence[str]: ...
    @property
    def filtered(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class Write:
    """What one transaction did. outputs: ids of all tables in it. operation: Iceberg's, where there is one."""

    at: datetime
    principal: str | None
    session: str | None
    application: str | None
    outputs: frozenset[int]
    operation: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether anything can be said about what it was made from: nothing can of DuckDB's own commits."""
        return self.principal is not None and bool(self.session) and self.operation != _REWRITES


@dataclass(frozen=True, slots=True)
class InferredInput:
    """A table that a write was probably made from. confidence: 0 to 1. evidence: ids of reads."""

    table_id: int
    table: str
    snapshot_id: int | None
    confidence: float
    method: Method
    evidence: tuple[int, ...]
    projected: tuple[str, ...] = ()
    filtered: tuple[str, ...] = ()


def application_of(named: Mapping[str, Any]) -> str | None:
    """How an application is called by the metadata of a report or the summary of a snapshot: `<engine> <its id>`."""
    for key, engine in _IDS:
        value = named.get(key)
        if value and isinstance(value, str):
            return f"{engine or named.get('engine-name') or 'engine'} {value}"[:_LONGEST]
    return None


def inferred_inputs(write: Write, reads: Sequence[Read], window: timedelta = WINDOW) -> list[InferredInput]:
    """What the write was made from, the surest first."""
    if not write.is_known:
        return []
    own = [read for read in reads if _is_own(write, read, window)]
    previous = max((read.at for read in own if read.kind == Kind.WRITE), default=None)
    candidates = [read for read in own if _may_be_input(write, read)]
    if any(read.kind in (Kind.SCAN, Kind.REPORT) for read in own):
        candidates = [read for read in candidates if read.kind == Kind.SCAN]
    since = [read for read in candidates if previous is None or read.at > previous]
    has_scanned = any(read.kind == Kind.SCAN and (previous is None or read.at > previous) for read in own)
    before = [] if since or has_scanned else [read for read in candidates if write.at - read.at <= window]
    found_at = max((read.at for read in reads if _finds_output(write, read)), default=None)
    inputs: dict[int, InferredInput] = {}
    for read in since or before:
        doubt = _doubt(write, read, found_at, window) * (_BEFORE_PREVIOUS if before else 1.0)
        inputs[read.table_id] = _joined(inputs.get(read.table_id), _guess(read, doubt))
    return sorted(inputs.values(), key=lambda each: (-each.confidence, each.table))[:MOST_INPUTS]


def _is_own(write: Write, read: Read, window: timedelta) -> bool:
    """Whether the read was the write's application's, before it and not too long ago."""
    if read.principal != write.principal or read.application != write.application or not read.at < write.at:
        return False
    if read.application is None:
        return read.session == write.session and write.at - read.at <= window
    return _same_place(write, read) and write.at - read.at <= window * LIVES


def _same_place(write: Write, read: Read) -> bool:
    """Whether the read came from where the write did, as far as that must be so: a stranger's word proves little."""
    assert write.session is not None
    if ":" not in read.session and ":" not in write.session:
        return True
    return read.session.partition(":")[0] == write.session.partition(":")[0]


def _may_be_input(write: Write, read: Read) -> bool:
    return read.kind in (Kind.LOAD, Kind.LOOKUP, Kind.SCAN) and read.table_id not in write.outputs


def _finds_output(write: Write, read: Read) -> bool:
    """Whether an engine looked a table up that it was going to write."""
    is_output = read.kind == Kind.LOOKUP and read.table_id in write.outputs
    return is_output and read.principal == write.principal and _same_place(write, read) and read.at < write.at


def _doubt(write: Write, read: Read, found_at: datetime | None, window: timedelta) -> float:
    """What to multiply a confidence by. An engine looks up what it will write before it scans what it will read."""
    is_earlier = read.kind == Kind.SCAN and found_at is not None and read.at < found_at
    return _EARLIER if is_earlier or write.at - read.at > window else 1.0


def _method(read: Read) -> Method:
    if read.kind == Kind.SCAN:
        return Method.SCAN_IN_SESSION if read.application is None else Method.SCAN_OF_APPLICATION
    return Method.LOAD_ON_CONNECTION if ":" in read.session else Method.LOAD_IN_SESSION


def _guess(read: Read, doubt: float) -> InferredInput:
    method = _method(read)
    what = (read.table_id, read.table, read.snapshot_id, round(doubt * _CONFIDENCE[method], 3), method)
    return InferredInput(*what, (read.id,), tuple(read.projected), tuple(read.filtered))


def _joined(known: InferredInput | None, guess: InferredInput) -> InferredInput:
    """The surer of two about one table, with the evidence and columns of both; of equally sure ones the later."""
    if known is None:
        return guess
    better, other = (known, guess) if known.confidence > guess.confidence else (guess, known)
    return InferredInput(
        better.table_id,
        better.table,
        better.snapshot_id,
        better.confidence,
        better.method,
        tuple(sorted({*known.evidence, *guess.evidence})),
        tuple(dict.fromkeys((*better.projected, *other.projected))),
        tuple(dict.fromkeys((*better.filtered, *other.filtered))),
    )
