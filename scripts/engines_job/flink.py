"""A stock Flink in one process, that runs SQL."""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.engines_job.java import JavaEngine, running_java
from scripts.engines_job.packages import flink_jars

_NAMES = ("util", "lang", "net", "nio", "time", "text", "lang.reflect", "util.concurrent")
_OPENED = tuple(f"java.{name}" for name in _NAMES)
"""Packages of Java's that Flink and Hadoop look into."""


class Flink:
    """Not for several threads."""

    def __init__(self, engine: JavaEngine) -> None:
        self._engine = engine

    def rows(self, statement: str, *, mode: str = "batch") -> list[str]:
        """Run a statement to its end; its rows as Flink prints them, as `+I[1, one]`. EngineError says why it failed.

        mode: batch, or streaming with a checkpoint, and so a commit, each second. A catalog is known in one mode only.
        """
        return self._engine.ask(f"{mode} {b64encode(statement.encode()).decode()}", statement)


@contextmanager
def running_flink(folder: Path) -> Iterator[Flink]:
    """Start it with the Java on the PATH; what it says goes to the folder."""
    with running_java("Statements.java", flink_jars(), folder, _OPENED) as engine:
        yield Flink(engine)
