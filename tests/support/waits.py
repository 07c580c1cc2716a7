"""Wait until something holds; count how often Postgres is waited for."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duckicelake.postgres.pipeline import DeferredConnection


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> float:
    """Ask until it holds, and return the seconds that this took.

    What a server writes after its answer (log lines, metrics) may come after the client has read the answer.
    """
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, f"still not so after {seconds} s"
        time.sleep(0.01)
    return time.monotonic() - began


@contextmanager
def counted_waits() -> Iterator[list[None]]:
    """Has an element for each answer of Postgres's that was waited for in the block, by whichever thread."""
    waits: list[None] = []
    wait = DeferredConnection.wait

    def noted(connection: DeferredConnection, answers: Generator[Any, Any, Any], *arguments: Any) -> Any:
        def counted() -> Generator[Any, Any, Any]:
            try:
                asked = next(answers)
                waits.append(None)
                while True:
                    asked = answers.send((yield asked))
            except StopIteration as end:
                return end.value

        return wait(connection, counted(), *arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DeferredConnection, "wait", noted)
        yield waits
