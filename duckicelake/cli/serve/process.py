"""Life of a server process: signals, memory, deadline of its shutdown, renewal after a failover."""

import gc
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from types import FrameType
from typing import Any, Final, NoReturn

from uvicorn import Config, Server

from duckicelake.errors import CatalogError, Unavailable

ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_STANDARD_STREAMS: Final = (1, 2)
_GC_THRESHOLD_OBJECTS: Final = 20_000
"""New containers, less those that are gone, after which the youngest are looked through: requests leave few behind."""
GRACE_SECONDS: Final = 8.0
"""For the rest of the end once nothing is waited for any more; then the process exits as it is."""
FAILOVER_WARNING = "Postgres has failed over: this server starts anew, as it may remember commits that are lost"


def end_on_signals() -> None:
    """Turn the first SIGTERM or SIGINT into SystemExit(0); further ones can't interrupt the cleaning up."""
    for number in ENDING_SIGNALS:
        signal.signal(number, _end)
    end_on_hangup()


def end_on_hangup() -> None:
    """Let SIGHUP be SIGTERM, whatever that does by then. Where SIGHUP is ignored, as under `nohup`, it stays so."""
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _hang_up)


def ignore_signals() -> None:
    """Let the cleaning up finish."""
    for number in (*ENDING_SIGNALS, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def leave_terminal() -> None:
    """Write no more to a terminal that has gone, which would be an error each time."""
    for stream in _STANDARD_STREAMS:
        with suppress(OSError):
            if os.isatty(stream) or _is_hung_up(stream):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream)
                os.close(null)


def _is_hung_up(stream: int) -> bool:
    """Whether it was a terminal: one that has hung up can be asked nothing."""
    try:
        os.fstat(stream)
        os.ttyname(stream)
    except OSError as error:
        return error.errno == 5  # EIO
    return True


def _end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    ignore_signals()
    raise SystemExit(0)


def _hang_up(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    leave_terminal()
    signal.raise_signal(signal.SIGTERM)


def freeze_memory() -> None:
    """What is there once a server has started stays: the collector needn't look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD_OBJECTS)


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
        for number in ENDING_SIGNALS:
            signal.signal(number, _call_both(self.start, signal.getsignal(number)))

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


def _call_both(start: Callable[[], None], handler: Any) -> Callable[[int, FrameType | None], Any]:
    def handle(number: int, frame: FrameType | None) -> Any:
        start()
        return handler(number, frame) if callable(handler) else None

    return handle


def is_transient(error: CatalogError) -> bool:
    """Whether the next start may do: database and store answered before, so they are only away for a while."""
    return isinstance(error, Unavailable) or isinstance(error.__cause__, Unavailable)


class ServerRenewal:
    """Ends one server so that another can begin in the same process."""

    def __init__(self, warn: Callable[[str], object]) -> None:
        self._warn = warn
        self._lock = threading.Lock()
        self._server: Server | None = None
        self.is_due = False

    def ask_for(self) -> None:
        """Have the server answer what is under way, and end."""
        self._warn(FAILOVER_WARNING)
        with self._lock:
            self.is_due = True
            if self._server is not None:
                self._server.should_exit = True

    def watch(self, server: Server) -> None:
        """It is this server that is to end, at once if that was asked for before."""
        with self._lock:
            self._server = server
            server.should_exit = self.is_due
