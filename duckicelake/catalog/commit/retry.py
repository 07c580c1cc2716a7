"""Retry a commit on conflict; the last attempt holds the commit queue exclusively."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from time import monotonic
from typing import Final, TypeVar

from duckicelake.catalog.context.services import Services
from duckicelake.errors import Unavailable
from duckicelake.lake.ducklake.data_files import StaleBaseError
from duckicelake.lake.ducklake.snapshots import RETRY_SECONDS

MAX_ATTEMPTS: Final = 50
MAX_SHARED_ATTEMPTS: Final = 3
"""After so many attempts that others overtook, one has the queue of commits to itself."""

T = TypeVar("T")


class OutdatedPlanError(Exception):
    """A table changed after something was computed for it."""


def retry_on_conflict(
    services: Services,
    tables: str,
    attempt: Callable[[bool], T],
    *,
    is_alone: bool = False,
    overtaken: tuple[type[Exception], ...] = (StaleBaseError, OutdatedPlanError),
) -> T:
    """The result of the first attempt that no other writer overtook; Unavailable.

    attempt: is told whether all other commits wait for it, and raises one of `overtaken`. is_alone: the caller keeps
    them waiting. After RETRY_SECONDS, which are an attempt's own too, one more begins at most, and has them wait.
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
    raise Unavailable(f"Other writers changed {tables} {number + 1} times in a row; try again")
