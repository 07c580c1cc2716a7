"""The end of a server that hangs: whatever doesn't answer, a process that was asked to end does so in time."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from types import FrameType
from typing import Any, Final

from uvicorn import Config, Server

from duckicelake.cli.signals import ENDING

GRACE_SECONDS: Final = 8.0
"""For the rest of the end once nothing is waited for any more; then the process exits as it is."""


class ShutdownDeadline:
    """Begins with the signal; when it is over, what hangs is cut off, and at last the process exits."""

    def __init__(self, seconds: float, grace: float = GRACE_SECONDS) -> None:
        """seconds: that requests may take after the signal. grace: for the rest, before the process exits as it is."""
        self._seconds = seconds
        self.grace = grace
        self._until: float | None = None
        self._lock = threading.Lock()
        self._cuts: list[Callable[[], object]] = []
        self._last: list[Callable[[], object]] = []

    def cut_off_by(self, cut: Callable[[], object]) -> None:
        """Have this called when the deadline is over, by another thread."""
        self._cuts.append(cut)

    def exit_after(self, last: Callable[[], object]) -> None:
        """Have this called before the process exits as it is."""
        self._last.append(last)

    def start(self) -> None:
        """A second call does nothing."""
        with self._lock:
            if self._until is not None:
                return
            self._until = monotonic() + self._seconds
        threading.Thread(target=self._run, name="shutdown-deadline", daemon=True).start()

    def remaining(self) -> float:
        """Seconds until it is over."""
        return self._seconds if self._until is None else max(0.0, self._until - monotonic())

    def start_with_signals(self) -> None:
        """Start with those that end the process, besides what they do now."""
        for number in ENDING:
            signal.signal(number, _both(self.start, signal.getsignal(number)))

    def _run(self) -> None:
        threading.Event().wait(self._seconds)
        self._call(self._cuts)
        threading.Event().wait(self.grace)
        self._call(self._last)
        os._exit(1)

    def _call(self, functions: list[Callable[[], object]]) -> None:
        for function in functions:
            with suppress(Exception):  # the others are to be called, too
                function()


class DeadlineServer(Server):
    """uvicorn's, which starts a deadline with the signal that ends it."""

    def __init__(self, config: Config, deadline: ShutdownDeadline) -> None:
        super().__init__(config)
        self._deadline = deadline

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._deadline.start()
        super().handle_exit(sig, frame)


def _both(start: Callable[[], None], handler: Any) -> Callable[[int, FrameType | None], Any]:
    def handle(number: int, frame: FrameType | None) -> Any:
        start()
        return handler(number, frame) if callable(handler) else None

    return handle
