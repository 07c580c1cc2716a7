"""The result of a check, and SQL that repairs damage within DuckLake's commit protocol."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from duckicelake.postgres.queries import Transaction


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check; `advice` says what to do and is empty where nothing is to be done."""

    name: str
    ok: bool
    detail: str
    advice: str


@dataclass(frozen=True, slots=True)
class CheckProgress:
    """How far a check is.

    findings: what it found once it has ended, nothing where all is well; None while it runs. seconds: since it began.
    done, total: of a check that looks for files, how many it has looked for, and how many there are.
    """

    check: str
    findings: tuple[Finding, ...] | None = None
    seconds: float = 0.0
    done: int | None = None
    total: int | None = None


ReportProgress = Callable[[CheckProgress], None]
"""Called in the thread that examines; what it raises ends the examination."""


def report_nothing(progress: CheckProgress) -> None:
    """Ignore how far a check is."""


def run_check(name: str, check: Callable[[], Iterable[Finding]], report: ReportProgress) -> list[Finding]:
    """Run a check, and report its begin and what it found."""
    report(CheckProgress(name))
    begun_at = time.monotonic()
    found = list(check())
    report(CheckProgress(name, tuple(found), time.monotonic() - begun_at))
    return found


class RunCheck(Protocol):
    """Checks of a prepared lake. with_lineage: whether servers make events of lineage."""

    def __call__(self, cursor: Transaction, *, with_lineage: bool) -> Iterator[Finding]: ...


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The checks that a feature adds to `duckicelake doctor`."""

    run: RunCheck


def make_finding(name: str, ok: bool, detail: str, advice: str) -> Finding:
    """Make a finding; the advice is dropped where all is well."""
    return Finding(name, ok, detail, "" if ok else advice)


def wrap_in_snapshot(statement: str, change: str) -> str:
    """Return SQL that makes a change and the DuckLake snapshot which records it, for every client to notice.

    statement: SQL that may name the new snapshot's id as `at`, in `FROM made`; empty if only the snapshot is to be
    made. change: as in `changes_made`.
    """
    return (
        "WITH made AS (INSERT INTO ducklake_snapshot SELECT snapshot_id + 1, now(), schema_version, next_catalog_id, "
        "next_file_id + 1 FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1 RETURNING snapshot_id AS at)"
        f"{statement and f', changed AS ({statement})'} "
        f"INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made) SELECT at, '{change}' FROM made;"
    )


def build_file_end(table_id: int, data_file_id: int) -> str:
    """Return SQL by which a data file leaves its table."""
    end = f"UPDATE ducklake_data_file SET end_snapshot = at FROM made WHERE data_file_id = {data_file_id}"
    return wrap_in_snapshot(end, f"deleted_from_table:{table_id}")
