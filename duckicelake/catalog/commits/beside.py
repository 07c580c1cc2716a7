"""What goes on beside a transaction, and must be over before its COMMIT: others aren't kept waiting for it for long."""

from collections.abc import Callable, Sequence
from typing import Final

Ready = Callable[[float | None], object]
"""Waits for it; TimeoutError if it isn't over after so many seconds."""
_PATIENCE_SECONDS: Final = 0.1


class Late(Exception):  # noqa: N818 - says what happened: the transaction is to be given up, and run again after `wait`
    """It takes too long."""

    def __init__(self, ready: Sequence[Ready]) -> None:
        super().__init__()
        self._ready = ready

    def wait(self) -> None:
        """Wait for all of it, however long that takes."""
        for each in self._ready:
            each(None)


def wait_briefly(ready: Sequence[Ready]) -> None:
    """Wait while a transaction is open; Late."""
    try:
        for each in ready:
            each(_PATIENCE_SECONDS)
    except TimeoutError as error:
        raise Late(ready) from error
