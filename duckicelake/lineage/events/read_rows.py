"""SQL of what applications read and reported lately; rows are deleted soon."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from duckicelake.iceberg.identifiers import format_full_name
from duckicelake.postgres.pipeline import json_param
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("lineage.events", "reads")
MAX_READS: Final = 1000
"""Reads that count for one write: the newest."""
KEEP_READS: Final = 1_000_000
"""The approximate limit of rows."""
_PROGRAM: Final = 16
"""Characters of a session that identify its program."""
PRUNED: Final = 10_000
"""Rows that are deleted at a time."""


@dataclass(frozen=True, slots=True)
class NotedRead:
    """A table that was read or reported just now. seconds: time, by a clock of the caller's.

    Other fields: see `ApplicationRead`.
    """

    seconds: float
    kind: str
    principal: str
    session: str
    schema_name: str
    table_name: str
    application: str | None = None
    snapshot_id: int | None = None
    projected: tuple[str, ...] = ()
    filtered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadRow:
    """A row about a load or a scan (`lineage.inference.ApplicationRead`)."""

    id: int
    at: datetime
    kind: str
    principal: str
    session: str
    application: str | None
    table_id: int
    table: str
    snapshot_id: int | None
    projected: Sequence[str]
    filtered: Sequence[str]


@dataclass(frozen=True, slots=True)
class ReadingApplication:
    """An application, by its name, else by its session."""

    principal: str
    session: str
    application: str | None


@dataclass(frozen=True, slots=True)
class Readers:
    """Programs, and named applications, with known reads."""

    programs: frozenset[str]
    applications: frozenset[str]

    def have(self, reader: ReadingApplication) -> bool:
        """Return whether the reader may have reads."""
        return reader.session[:_PROGRAM] in self.programs or reader.application in self.applications


def find_readers(cursor: Transaction, asked: Collection[ReadingApplication]) -> Readers:
    """Find the applications with recent reads."""
    parameters = {
        "programs": list({reader.session[:_PROGRAM] for reader in asked}),
        "applications": list({reader.application for reader in asked if reader.application is not None}),
    }
    rows = cursor.execute(_SQL.readers, parameters).fetchall() if asked else []
    programs, applications = (frozenset(filter(None, found)) for found in zip(*rows, strict=True)) if rows else ((), ())
    return Readers(frozenset(programs), frozenset(applications))


def record_reads(cursor: Transaction, seen: Collection[NotedRead], now: float) -> int:
    """Write reads before `now`, by the same clock; return the number of their tables that still exist."""
    rows = [
        {
            "ago": max(0.0, now - read.seconds),
            "kind": read.kind,
            "principal": read.principal,
            "session": read.session,
            "application": read.application,
            "schema_name": read.schema_name,
            "table_name": read.table_name,
            "full_name": format_full_name(read.schema_name, read.table_name),
            "snapshot_id": read.snapshot_id,
            "projected": read.projected,
            "filtered": read.filtered,
        }
        for read in seen
    ]
    return cursor.execute(_SQL.record, {"seen": json_param(rows)}).rowcount


def list_reads(
    cursor: Transaction, reader: ReadingApplication, outputs: Collection[int], before: datetime, life: timedelta
) -> list[ReadRow]:
    """List what the application read and reported within the time before, up to a limit, and its last write.

    The newest are first. With them come lookups of the outputs by its program, which don't say for which application
    they are. Loads of the outputs are left out: an application that commits often has one for each commit.
    """
    parameters = {
        "principal": reader.principal,
        "session": reader.session,
        "application": reader.application,
        "outputs": list(outputs),
        "before": before,
        "life": life,
        "most": MAX_READS,
    }
    sql = _SQL.in_session if reader.application is None else _SQL.of_application
    return [ReadRow(*row) for row in cursor.execute(sql, parameters).fetchall()]


def mark_read(cursor: Transaction, reader: ReadingApplication, table_id: int, at: datetime) -> None:
    """Record that the application wrote the table: its earlier reads were for that write."""
    named = {"principal": reader.principal, "session": reader.session, "application": reader.application}
    cursor.execute(_SQL.mark, {**named, "table_id": table_id, "at": at})


def prune_reads(cursor: Transaction, window: timedelta, life: timedelta) -> int:
    """Delete some reads older than the window, or for named applications their life; return their number."""
    bounds = {"window": window, "life": life, "kept": KEEP_READS, "most": PRUNED}
    return cursor.execute(_SQL.prune, bounds).rowcount
