"""Check a lake, how far its changelog is behind it, and what the installed features add to the checks."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from duckicelake.changelog import entries
from duckicelake.changelog.source import FOLLOWER_KEY
from duckicelake.features.registry import load_hooks
from duckicelake.lake.doctor import checks
from duckicelake.lake.doctor.findings import DoctorCheck, Finding, make_finding
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("changelog", "doctor")
_LATE_SECONDS: Final = 60.0
"""Seconds after which an entry or an event is late."""
_SEE_LOG_ADVICE: Final = (
    "see what the servers' logs say of it; what fails again and again is left out after a few minutes"
)
_FORGET_ADVICE: Final = (
    "read the tables themselves for what is missing, and report what the servers' logs say of it; once that is done: "
    "`duckicelake doctor --forget-left-out`"
)


def diagnose(database: Database, *, with_lineage: bool = True) -> list[Finding]:
    """Run all checks. Without a catalog, those that need one are skipped. UnavailableError: Postgres doesn't answer.

    with_lineage: servers make lineage events of changes.
    """
    found = (_CHANGELOG_CHECK, *load_hooks(DoctorCheck, "doctor_check"))
    return checks.diagnose(database, [partial(check.run, with_lineage=with_lineage) for check in found])


def _check_changelog(cursor: Transaction, *, with_lineage: bool) -> Iterator[Finding]:  # noqa: ARG001
    """Yield findings about a changelog that is behind. Without a running server, waiting snapshots are no fault."""
    is_free, waiting, seconds = cursor.execute(_SQL.lag, {"key": FOLLOWER_KEY}).fetchall()[0]
    detail = f"{waiting} snapshots wait for the changelog" + (", and no server follows the lake" if is_free else "")
    yield build_lag_finding(cursor, "changelog", detail, None if is_free else seconds)


_CHANGELOG_CHECK: Final = DoctorCheck(_check_changelog)


def build_lag_finding(cursor: Transaction, name: entries.SkipperName, detail: str, seconds: float | None) -> Finding:
    """Build the finding of a follower of the lake. seconds: for which work has waited; None: there is no lag."""
    is_late = seconds is not None and seconds > _LATE_SECONDS
    missing = entries.read_newest_skipped(cursor, name)
    if missing is None:
        more = f", for more than {_LATE_SECONDS:.0f} s" if is_late else ""
        return make_finding(name, not is_late, detail + more, _SEE_LOG_ADVICE)
    what, reason, times = missing
    detail = f"{what}: left out ({reason}), as was something {times} times"
    return Finding(name, ok=False, detail=detail, advice=_FORGET_ADVICE)
