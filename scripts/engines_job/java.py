"""An engine in one process of Java that runs SQL, as Flink and an older Spark do."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.engines_job.packages import HERE, EngineError

STOP_SECONDS = 30
_QUICK = ("-Xmx2g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class JavaEngine:
    """Not for several threads."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def ask(self, line: str, statement: str) -> list[str]:
        """Send a line that has the statement; return its rows as they are printed. EngineError says why it failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        rows: list[str] = []
        for answered in self._process.stdout:
            kind, _, rest = answered.rstrip("\n").partition(" ")
            if kind == "row":
                rows.append(rest)
            elif kind == "done":
                return rows
            else:
                raise EngineError(f"{statement}: {rest}")
        raise EngineError(f"the engine ended: {self._log.read_text(errors='replace')[-2000:]}")


@contextmanager
def running_java(
    program: str, jars: Path, folder: Path, opened: Sequence[str], properties: Mapping[str, str] | None = None
) -> Iterator[JavaEngine]:
    """Start a program of this folder with the Java on the PATH; what it says goes to a log in `folder`.

    opened: packages of java.base that it looks into. properties: Java's system properties.
    """
    java = shutil.which("java")
    if java is None:
        raise EngineError("Java is missing, which runs engines: apt-get install openjdk-17-jdk-headless")
    flags = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in opened]
    flags += [f"-D{name}={value}" for name, value in (properties or {}).items()]
    log = folder / f"{Path(program).stem}.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [java, *_QUICK, *flags, "-cp", f"{jars}/*", str(HERE / program)],
            cwd=folder,
            env={**os.environ, "AWS_REGION": "us-east-1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
    with process:
        try:
            yield JavaEngine(process, log)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
