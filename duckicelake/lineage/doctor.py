"""Check how far events of lineage and their deliveries are behind the lake."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from duckicelake.changelog.doctor import build_lag_finding
from duckicelake.changelog.source import is_follower_free
from duckicelake.errors import format_count
from duckicelake.lake.doctor.findings import DoctorCheck, Finding, make_finding
from duckicelake.lineage.delivery import outbox
from duckicelake.lineage.delivery.outbox import ReceiverStanding
from duckicelake.lineage.events.progress import read_lag
from duckicelake.postgres.queries import Transaction

_AWAY_SECONDS: Final = 600.0
"""Seconds after which a receiver should have taken an event."""
_ADVICE: Final = (
    "`duckicelake lineage deliveries --dead` says what was refused and why, `--retry-dead` has it tried again; "
    "`--forget` ends a receiver that isn't there any more"
)


def _check_lineage(cursor: Transaction, *, with_lineage: bool) -> Iterator[Finding]:
    """Yield findings about late events. Without a running server, waiting changes and events are no fault."""
    is_served = not is_follower_free(cursor)
    waiting, seconds = read_lag(cursor)
    detail = f"{format_count(waiting, 'change')} without events yet"
    yield build_lag_finding(cursor, "lineage", detail, seconds if is_served and with_lineage else None)
    yield _check_deliveries(outbox.read_standings(cursor), is_served=is_served)


def _check_deliveries(standings: list[ReceiverStanding], *, is_served: bool) -> Finding:
    faults = [fault for standing in standings for fault in _find_faults(standing, is_served=is_served)]
    detail = "; ".join(faults) or f"{format_count(len(standings), 'receiver')} of events of lineage"
    return make_finding("deliveries", not faults, detail, _ADVICE)


def _find_faults(standing: ReceiverStanding, *, is_served: bool) -> Iterator[str]:
    if standing.dead:
        yield f"{standing.transport} has refused {format_count(standing.dead, 'event')}"
    oldest = standing.oldest
    if is_served and oldest is not None and (datetime.now(UTC) - oldest).total_seconds() > _AWAY_SECONDS:
        waiting = format_count(standing.waiting, "event")
        yield f"{standing.transport} has not received {waiting}, the oldest of {oldest:%Y-%m-%dT%H:%M:%SZ}"


DOCTOR_CHECK: Final = DoctorCheck(_check_lineage)
