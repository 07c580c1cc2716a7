"""How often Postgres is waited for."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duckicelake.postgres.pipeline import DeferredConnection


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
