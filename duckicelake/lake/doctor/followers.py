"""Check how far the changelog, lineage events and their deliveries are behind the lake."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from duckicelake.changelog import entries
from duckicelake.changelog.source import FOLLOWER_KEY
from duckicelake.lake.doctor.findings import Finding, make_finding
from duckicelake.lineage.delivery import outbox
from duckicelake.lineage.delivery.outbox import ReceiverStanding
from duckicelake.postgres.database import Transaction
from duckicelake.postgres.queries import load_queries

_SQL = load_queries("lake", "doctor")
_LATE_SECONDS: Final = 60.0
"""Seconds after which something should have been told."""
_AWAY_SECONDS: Final = 600.0
"""Seconds after which a receiver should have taken an event."""
_SEE_LOG_ADVICE: Final = (
    "see what the servers' logs say of it; what fails again and again is left out after a few minutes"
)
_FORGET_ADVICE: Final = (
    "read the tables themselves for what is missing, and report what the servers' logs say of it; once that is done: "
    "`duckicelake doctor --forget-left-out`"
)


def check_followers(cursor: Transaction, *, with_lineage: bool) -> Iterator[Finding]:
    """One finding for each; where no server runs, it is no fault that something waits for one."""
    is_free, waiting, seconds = cursor.execute(_SQL.chronicle_lag, {"key": FOLLOWER_KEY}).fetchall()[0]
    detail = f"{waiting} snapshots wait to be told" + (", and no server follows the lake" if is_free else "")
    yield _build_finding(cursor, "chronicle", detail, _is_late(seconds) and not is_free)
    waiting, seconds = cursor.execute(_SQL.lineage_lag).fetchall()[0]
    is_late = with_lineage and _is_late(seconds) and not is_free
    yield _build_finding(cursor, "lineage", f"{waiting} changes wait for their events", is_late)
    yield _check_deliveries(outbox.read_standings(cursor), is_served=not is_free)


def _is_late(seconds: float | None) -> bool:
    return seconds is not None and seconds > _LATE_SECONDS


def _build_finding(cursor: Transaction, name: entries.SkipperName, detail: str, is_late: bool) -> Finding:
    missing = entries.read_newest_skipped(cursor, name)
    if missing is None:
        return make_finding(
            name, not is_late, detail + (f", for more than {_LATE_SECONDS:.0f} s" if is_late else ""), _SEE_LOG_ADVICE
        )
    what, reason, times = missing
    detail = f"{what}: left out ({reason}), as was something {times} times"
    return Finding(name, ok=False, detail=detail, advice=_FORGET_ADVICE)


def _check_deliveries(standings: list[ReceiverStanding], *, is_served: bool) -> Finding:
    told = [line for each in standings for line in _find_faults(each, is_served=is_served)]
    detail = "; ".join(told) or f"{len(standings)} receivers of events of lineage"
    advice = (
        "`duckicelake lineage deliveries --dead` says what was refused and why, `--retry-dead` has it tried again; "
        "`--forget` ends a receiver that isn't there any more"
    )
    return make_finding("deliveries", not told, detail, advice)


def _find_faults(standing: ReceiverStanding, *, is_served: bool) -> Iterator[str]:
    if standing.dead:
        yield f"{standing.transport} has refused {standing.dead} events"
    oldest = standing.oldest
    if is_served and oldest is not None and (datetime.now(UTC) - oldest).total_seconds() > _AWAY_SECONDS:
        yield f"{standing.waiting} events wait for {standing.transport}, the oldest since {oldest:%Y-%m-%dT%H:%M:%SZ}"
