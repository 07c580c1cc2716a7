"""SIGTERM and Ctrl-C as an orderly end: every `with` block is left, and the exit code is 0."""

import signal
from types import FrameType
from typing import NoReturn

_ENDING = (signal.SIGTERM, signal.SIGINT)


def end_on_signals() -> None:
    """Turn the first SIGTERM or SIGINT into SystemExit(0); further ones can't interrupt the cleaning up."""
    for number in _ENDING:
        signal.signal(number, _end)


def ignore_signals() -> None:
    """Let the cleaning up finish."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def _end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    ignore_signals()
    raise SystemExit(0)
