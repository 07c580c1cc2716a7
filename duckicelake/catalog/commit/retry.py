"""Retry a commit on conflict; the last attempt holds the commit queue exclusively."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from time import monotonic
from typing import Final, TypeVar

from duckicelake.catalog.context.services import Services
from duckicelake.errors import UnavailableError
from duckicelake.lake.conflicts import StaleBaseError, WriteConflictError
from duckicelake.lake.ducklake.snapshots import RETRY_SECONDS

MAX_ATTEMPTS: Final = 50
MAX_SHARED_ATTEMPTS: Final = 3
"""Conflicts after which an attempt holds the commit queue exclusively."""

T = TypeVar("T")


class OutdatedPlanError(WriteConflictError):
    """A table changed after a plan was computed for it."""


def retry_on_conflict(
    services: Services,
    tables: str,
    attempt: Callable[[bool], T],
    *,
    is_alone: bool = False,
    overtaken: tuple[type[Exception], ...] = (StaleBaseError, OutdatedPlanError),
) -> T:
    """Return the result of the first attempt without a conflict; UnavailableError after RETRY_SECONDS.

    Args:
        services: the queue of commits, and the meter that counts retries.
        tables: names for the error text.
        attempt: called with whether it holds the commit queue exclusively; raises one of `overtaken` on conflict.
        is_alone: the caller holds the queue already.
        overtaken: exceptions that mean a conflict.

    """
    until = monotonic() + RETRY_SECONDS
    for number in range(MAX_ATTEMPTS):
        is_last = number > 0 and monotonic() > until
        alone = is_alone or is_last or number >= MAX_SHARED_ATTEMPTS
        waiting = services.commits.alone(services.database) if alone and not is_alone else nullcontext()
        with suppress(*overtaken), waiting:
            return attempt(alone)
        services.meter.retried("stale_base")
        if is_last:
            break
    raise UnavailableError(f"Other writers changed {tables} {number + 1} times in a row; try again")
