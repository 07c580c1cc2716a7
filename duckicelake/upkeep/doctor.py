"""Check whether workers look after what a lake is to do by itself."""

from collections.abc import Iterator
from typing import Final

from duckicelake.changelog.source import is_follower_free
from duckicelake.lake.doctor.findings import DoctorCheck, Finding, make_finding
from duckicelake.postgres.queries import Transaction
from duckicelake.upkeep.sources import explain_missing_worker


def _check_workers(cursor: Transaction, *, with_lineage: bool) -> Iterator[Finding]:  # noqa: ARG001
    """Yield whether workers look at the lake, if it needs them. Without a running server, it is no fault."""
    missing = None if is_follower_free(cursor) else explain_missing_worker(cursor)
    detail = "workers look at the lake, or it doesn't need them" if missing is None else missing.detail
    yield make_finding("upkeep", missing is None, detail, "" if missing is None else missing.advice)


DOCTOR_CHECK: Final = DoctorCheck(_check_workers)
