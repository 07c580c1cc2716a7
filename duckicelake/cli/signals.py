"""SIGTERM, Ctrl-C and a terminal that closes as an orderly end: every `with` block is left, and the exit code is 0."""

import os
import signal
from contextlib import suppress
from types import FrameType
from typing import Final, NoReturn

ENDING: Final = (signal.SIGTERM, signal.SIGINT)
_STANDARD_STREAMS: Final = (1, 2)


def end_on_signals() -> None:
    """Turn the first SIGTERM or SIGINT into SystemExit(0); further ones can't interrupt the cleaning up."""
    for number in ENDING:
        signal.signal(number, _end)
    end_on_hangup()


def end_on_hangup() -> None:
    """Let SIGHUP be SIGTERM, whatever that does by then. Where SIGHUP is ignored, as under `nohup`, it stays so."""
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _hang_up)


def ignore_signals() -> None:
    """Let the cleaning up finish."""
    for number in (*ENDING, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def leave_terminal() -> None:
    """Write no more to a terminal that has gone, which would be an error each time."""
    for stream in _STANDARD_STREAMS:
        with suppress(OSError):
            if os.isatty(stream) or _has_gone(stream):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream)
                os.close(null)


def _has_gone(stream: int) -> bool:
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
