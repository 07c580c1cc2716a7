"""Ctrl-C while Spark works.

Pyspark's own way asks Spark to stop in the midst of another call, on the line that waits for that call's answer, which
then comes to nothing but an error of the line. Here the jobs are cancelled by a thread, which has a line of its own,
and the call that waits for them is let come to its end.
"""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext

_AGAIN_SECONDS: Final = 0.2
_LINE: Final = "py4j."


class Interruption:
    """Whether somebody has pressed Ctrl-C. The second time nothing is waited for."""

    def __init__(self) -> None:
        self.has_come = False
        self._spark: SparkContext | None = None
        self._is_echo = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._press_on, name="interruption", daemon=True)

    def cancels_jobs_of(self, spark: SparkContext) -> None:
        """From now on; pyspark has its own way just before."""
        self._spark = spark
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._come)

    def end(self) -> None:
        """Forget about it."""
        self._over.set()
        if self.has_come:
            self._thread.join()

    def _come(self, _: int, frame: FrameType | None) -> None:
        is_echo, self._is_echo = self._is_echo, False
        is_second = self.has_come and not is_echo
        if not self.has_come:
            self.has_come = True
            self._thread.start()
        if is_second or not _waits_for_java(frame):
            self._over.set()
            raise KeyboardInterrupt

    def _press_on(self) -> None:
        """Cancel what Spark does, and press again until no call to Java is in the way: its jobs may only come yet."""
        self._cancel_jobs()
        while not self._over.wait(_AGAIN_SECONDS):
            self._cancel_jobs()
            self._is_echo = True
            _thread.interrupt_main()

    def _cancel_jobs(self) -> None:
        with suppress(Exception):  # it may be stopping already
            if self._spark is not None:
                self._spark.cancelAllJobs()


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """What happens to Ctrl-C within the block."""
    interruption, before = Interruption(), signal.getsignal(signal.SIGINT)
    try:
        yield interruption
    finally:
        interruption.end()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _waits_for_java(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_LINE):
            return True
        frame = frame.f_back
    return False
