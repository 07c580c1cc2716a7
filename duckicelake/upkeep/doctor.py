"""Check whether workers look after what a lake is to do by itself."""

from collections.abc import Iterator
from typing import Final

from duckicelake.changelog.source import is_follower_free
from duckicelake.lake.doctor.findings import DoctorCheck, Finding, make_finding
from duckicelake.postgres.queries import Transaction
from duckicelake.upkeep.sources import WORKER_ADVICE, explain_missing_worker


def _check_workers(cursor: Transaction, *, with_lineage: bool) -> Iterator[Finding]:  # noqa: ARG001
    """Yield whether workers look at the lake, if it needs them. Without a running server, it is no fault."""
    missing = None if is_follower_free(cursor) else explain_missing_worker(cursor)
    detail = missing or "workers look at the lake, or it doesn't need them"
    yield make_finding("upkeep", missing is None, detail, WORKER_ADVICE)


DOCTOR_CHECK: Final = DoctorCheck(_check_workers)
