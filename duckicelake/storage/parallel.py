"""The same for many files at once, a few at a time: a distant store takes its time for each of them."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")
AT_ONCE: Final = 8


def in_parallel(act: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """What `act` makes of each item, in their order, when all are done. Raises what the first failing one did."""
    given = list(items)
    if len(given) < 2:
        return [act(item) for item in given]
    with ThreadPoolExecutor(min(AT_ONCE, len(given))) as pool:
        return list(pool.map(act, given))
