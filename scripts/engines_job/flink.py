"""A stock Flink in one process, that runs SQL."""

import os
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.engines_job.packages import HERE, EngineError, flink_jars

STOP_SECONDS = 30
_OPENED = ("util", "lang", "net", "nio", "time", "text", "lang.reflect", "util.concurrent")
"""Packages of Java's that Flink and Hadoop look into."""


class Flink:
    """Not for several threads."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def rows(self, statement: str, *, mode: str = "batch") -> list[str]:
        """Run a statement to its end; its rows as Flink prints them, as `+I[1, one]`. EngineError says why it failed.

        mode: batch, or streaming with a checkpoint, and so a commit, each second. A catalog is known in one mode only.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{mode} {b64encode(statement.encode()).decode()}\n")
        self._process.stdin.flush()
        rows: list[str] = []
        for line in self._process.stdout:
            kind, _, rest = line.rstrip("\n").partition(" ")
            if kind == "row":
                rows.append(rest)
            elif kind == "done":
                return rows
            else:
                raise EngineError(f"{statement}: {rest}")
        raise EngineError(f"Flink ended: {self._log.read_text(errors='replace')[-2000:]}")


@contextmanager
def running_flink(folder: Path) -> Iterator[Flink]:
    """Start it with the Java on the PATH; what it says goes to `flink.log` in the folder."""
    java = shutil.which("java")
    if java is None:
        raise EngineError("Java is missing, which runs Flink: apt-get install openjdk-17-jdk-headless")
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]
    quick = ["-Xmx2g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command = [java, *quick, *opened, "-cp", f"{flink_jars()}/*", str(HERE / "Statements.java")]
    log = folder / "flink.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "AWS_REGION": "us-east-1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
    with process:
        try:
            yield Flink(process, log)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
