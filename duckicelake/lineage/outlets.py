"""What delivers one event, and what may come of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an event wasn't taken. kind: it never will be (refused), may be later, or nothing is taken now (away).

    reason: without anything secret. status: HTTP's. wait: seconds that the receiver asks for.
    """

    kind: Literal["refused", "later", "away"]
    reason: str
    status: int | None = None
    wait: float | None = None


class Outlet(Protocol):
    """A way to a receiver, for one thread. It tries once, and takes neither longer than a few seconds nor its time."""

    name: str

    def send(self, event: Event) -> Failure | None:
        """Deliver the event; None if the receiver has it."""

    def settle(self) -> None:
        """Make sure that what was taken outlasts a crash; raises OSError."""

    def close(self) -> None: ...
