"""How far those are who follow the lake: the chronicle, the events of lineage, and who these are delivered to."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from duckicelake.lake.chronicle import left_out
from duckicelake.lake.chronicle.followed import FOLLOWER_KEY
from duckicelake.lake.doctor.findings import Finding, finding
from duckicelake.lake.lineage import deliveries
from duckicelake.lake.lineage.deliveries import Standing
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.queries import queries

_SQL = queries("doctor")
_LATE: Final = 60.0
"""Seconds after which something should have been told."""
_AWAY: Final = 600.0
"""Seconds after which a receiver should have taken an event."""
_SEE_LOG: Final = "see what the servers' logs say of it; what fails again and again is left out after a few minutes"
_FORGET: Final = (
    "read the tables themselves for what is missing, and report what the servers' logs say of it; once that is done: "
    "`duckicelake doctor --forget-left-out`"
)


def followers(cursor: Transaction, *, with_lineage: bool) -> Iterator[Finding]:
    """One finding for each; where no server runs, it is no fault that something waits for one."""
    is_free, waiting, seconds = cursor.execute(_SQL.chronicle_lag, {"key": FOLLOWER_KEY}).fetchall()[0]
    detail = f"{waiting} snapshots wait to be told" + (", and no server follows the lake" if is_free else "")
    yield _finding(cursor, "chronicle", detail, _is_late(seconds) and not is_free)
    waiting, seconds = cursor.execute(_SQL.lineage_lag).fetchall()[0]
    is_late = with_lineage and _is_late(seconds) and not is_free
    yield _finding(cursor, "lineage", f"{waiting} changes wait for their events", is_late)
    yield _deliveries(deliveries.standings(cursor), is_served=not is_free)


def _is_late(seconds: float | None) -> bool:
    return seconds is not None and seconds > _LATE


def _finding(cursor: Transaction, name: left_out.Name, detail: str, is_late: bool) -> Finding:
    missing = left_out.newest(cursor, name)
    if missing is None:
        return finding(name, not is_late, detail + (f", for more than {_LATE:.0f} s" if is_late else ""), _SEE_LOG)
    what, reason, times = missing
    detail = f"{what}: left out ({reason}), as was something {times} times"
    return Finding(name, ok=False, detail=detail, advice=_FORGET)


def _deliveries(standings: list[Standing], *, is_served: bool) -> Finding:
    told = [line for each in standings for line in _faults(each, is_served=is_served)]
    detail = "; ".join(told) or f"{len(standings)} receivers of events of lineage"
    advice = (
        "`duckicelake lineage deliveries --dead` says what was refused and why, `--retry-dead` has it tried again; "
        "`--forget` ends a receiver that isn't there any more"
    )
    return finding("deliveries", not told, detail, advice)


def _faults(standing: Standing, *, is_served: bool) -> Iterator[str]:
    if standing.dead:
        yield f"{standing.transport} has refused {standing.dead} events"
    oldest = standing.oldest
    if is_served and oldest is not None and (datetime.now(UTC) - oldest).total_seconds() > _AWAY:
        yield f"{standing.waiting} events wait for {standing.transport}, the oldest since {oldest:%Y-%m-%dT%H:%M:%SZ}"
