"""What was computed of a table's rows is computed again if others were faster, and at last while they all wait."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Final, TypeVar

from duckicelake.catalog.services import Services
from duckicelake.errors import CommitFailed, Unavailable
from duckicelake.lake.files import StaleBase

ATTEMPTS: Final = 50
SHARED_ATTEMPTS: Final = 3
"""After so many attempts that others overtook, one has the queue of commits to itself."""

T = TypeVar("T")


class Outdated(Exception):  # noqa: N818 - says what happened; never leaves the attempt
    """The table changed after the rows were prepared for it."""


def until_written(services: Services, table: str, attempt: Callable[[bool], T]) -> T:
    """The result of the first attempt that no other writer overtook; Unavailable.

    attempt: is told whether all other commits wait for it, and raises CommitFailed, StaleBase or Outdated.
    """
    for number in range(ATTEMPTS):
        alone = number >= SHARED_ATTEMPTS
        with (
            suppress(CommitFailed, StaleBase, Outdated),
            services.commits.alone(services.database) if alone else nullcontext(),
        ):
            return attempt(alone)
        services.meter.retried("stale_base")
    raise Unavailable(f"Other writers changed {table} {ATTEMPTS} times in a row; try again")
