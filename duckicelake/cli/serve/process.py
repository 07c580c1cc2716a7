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

from duckicelake.errors import CatalogError, UnavailableError
from duckicelake.server.protocol.connections import DRAIN

ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_STANDARD_STREAMS: Final = (1, 2)
_GC_THRESHOLD_OBJECTS: Final = 20_000
"""New containers minus freed ones before a collection of the youngest generation: requests leave few behind."""
GRACE_SECONDS: Final = 8.0
"""For clean-up after the deadline; then the process exits without it."""
FAILOVER_WARNING = "Postgres has failed over: this server restarts, because it may have cached commits that are lost"


def end_on_signals() -> None:
    """Turn the first SIGTERM or SIGINT into SystemExit(0); further signals can't interrupt the clean-up."""
    for number in ENDING_SIGNALS:
        signal.signal(number, _end)
    end_on_hangup()


def end_on_hangup() -> None:
    """Handle SIGHUP as SIGTERM. Where SIGHUP is ignored, as under `nohup`, it stays ignored."""
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _hang_up)


def ignore_signals() -> None:
    """Ignore signals, so that the clean-up finishes."""
    for number in (*ENDING_SIGNALS, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def leave_terminal() -> None:
    """Redirect output away from a closed terminal, where every write would fail."""
    for stream in _STANDARD_STREAMS:
        with suppress(OSError):
            if os.isatty(stream) or _is_hung_up(stream):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream)
                os.close(null)


def _is_hung_up(stream: int) -> bool:
    """Return whether the stream was a terminal that has hung up."""
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
    """Exclude the objects of a started server from garbage collection, because they stay until its end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD_OBJECTS)


class ShutdownDeadline:
    """Starts with the signal. When it is over, hanging calls are cut off, and then the process exits."""

    def __init__(self, seconds: float, grace: float = GRACE_SECONDS) -> None:
        """seconds: for requests under way after the signal. grace: seconds for clean-up before the process exits."""
        self._seconds = seconds
        self.grace = grace
        self._until: float | None = None
        self._lock = threading.Lock()
        self._cuts: list[Callable[[], object]] = []
        self._last: list[Callable[[], object]] = []

    def cut_off_by(self, cut: Callable[[], object]) -> None:
        """Register a function that another thread calls when the deadline is over."""
        self._cuts.append(cut)

    def exit_after(self, last: Callable[[], object]) -> None:
        """Register a function that is called before the process exits without clean-up."""
        self._last.append(last)

    def start(self) -> None:
        """Start the deadline; a second call does nothing."""
        with self._lock:
            if self._until is not None:
                return
            self._until = monotonic() + self._seconds
        threading.Thread(target=self._run, name="shutdown-deadline", daemon=True).start()

    def remaining(self) -> float:
        """Return the seconds until the deadline is over."""
        return self._seconds if self._until is None else max(0.0, self._until - monotonic())

    def start_with_signals(self) -> None:
        """Start the deadline with the signals that end the process, before their present handlers run.

        A process that drains after SIGTERM ends with the next signal.
        """
        for number in ENDING_SIGNALS:
            signal.signal(number, _end_after_drain(self.start, signal.getsignal(number)))

    def _run(self) -> None:
        threading.Event().wait(self._seconds)
        self._call(self._cuts)
        threading.Event().wait(self.grace)
        self._call(self._last)
        os._exit(1)

    def _call(self, functions: list[Callable[[], object]]) -> None:
        for function in functions:
            with suppress(Exception):  # the other functions must be called, too
                function()


class DeadlineServer(Server):
    """A uvicorn server that drains after SIGTERM, and starts the deadline with the signal that ends it."""

    def __init__(self, config: Config, deadline: ShutdownDeadline) -> None:
        super().__init__(config)
        self._deadline = deadline

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGTERM and DRAIN.begin():
            return
        self._deadline.start()
        super().handle_exit(sig, frame)


def _end_after_drain(start: Callable[[], None], handler: Any) -> Callable[[int, FrameType | None], Any]:
    def handle(number: int, frame: FrameType | None) -> Any:
        if number == signal.SIGTERM and DRAIN.begin():
            return None
        start()
        return handler(number, frame) if callable(handler) else None

    return handle


def is_transient(error: CatalogError) -> bool:
    """Return whether the next start may succeed.

    Database and store worked before, so they are unreachable for a while.
    """
    return isinstance(error, UnavailableError) or isinstance(error.__cause__, UnavailableError)


class ServerRenewal:
    """Ends a server, so that another can start in the same process."""

    def __init__(self, warn: Callable[[str], object]) -> None:
        self._warn = warn
        self._lock = threading.Lock()
        self._server: Server | None = None
        self.is_due = False

    def ask_for(self) -> None:
        """Let the server finish requests under way, and end."""
        self._warn(FAILOVER_WARNING)
        with self._lock:
            self.is_due = True
            if self._server is not None:
                self._server.should_exit = True

    def watch(self, server: Server) -> None:
        """Set the server that `ask_for` ends; end it now if `ask_for` was called before."""
        with self._lock:
            self._server = server
            server.should_exit = self.is_due
