"""Patch attributes of classes and modules."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Patch:
    owner: Any
    name: str
    replace: Callable[[Any], Any]

    def apply(self) -> Undo:
        """Replace the attribute; return a function that restores it."""
        was = vars(self.owner)[self.name]
        setattr(self.owner, self.name, self.replace(was))
        return lambda: setattr(self.owner, self.name, was)


def patch(owner: Any, name: str) -> Callable[[Callable[[Any], Any]], Patch]:
    """Make a Patch of the decorated function. Its docstring says what PyIceberg lacks."""
    return lambda replace: Patch(owner, name, replace)
