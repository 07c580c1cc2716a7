"""A patch: an attribute of a class or module, and a function that replaces its value."""

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
        """Replace the attribute; what is returned puts back exactly what was there."""
        was = vars(self.owner)[self.name]
        setattr(self.owner, self.name, self.replace(was))
        return lambda: setattr(self.owner, self.name, was)


def patch(owner: Any, name: str) -> Callable[[Callable[[Any], Any]], Patch]:
    """Make a Patch of the decorated function, whose docstring says what PyIceberg lacks there."""
    return lambda replace: Patch(owner, name, replace)
