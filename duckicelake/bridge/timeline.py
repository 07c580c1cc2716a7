"""PURE. Things by the snapshot at which they come due."""

from collections.abc import Iterable
from operator import itemgetter
from typing import Generic, TypeVar

T = TypeVar("T")


class Timeline(Generic[T]):
    """Hands each thing out once, when its snapshot has come; in order of these."""

    def __init__(self, things: Iterable[tuple[int, T]]) -> None:
        self._things = sorted(things, key=itemgetter(0))
        self._next = 0

    def due(self, at: int) -> list[T]:
        """What came due up to a snapshot and wasn't handed out yet."""
        start = self._next
        while self._next < len(self._things) and self._things[self._next][0] <= at:
            self._next += 1
        return [thing for _, thing in self._things[start : self._next]]
