"""An engine that is a library of Python's, in a process of its own with packages of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.engines_job.packages import HERE, EngineError

STOP_SECONDS = 30


class PythonProcess:
    """Not for several threads."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def rows(self, statement: str) -> list[list[Any]]:
        """Run a statement, SQL or code as the program understands it; its rows as JSON has them.

        Raises:
            EngineError: saying why it failed.

        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(statement)}\n")
        self._process.stdin.flush()
        answered = self._process.stdout.readline()
        if not answered:
            raise EngineError(f"the engine ended: {self._log.read_text(errors='replace')[-2000:]}")
        answer = json.loads(answered)
        if "error" in answer:
            raise EngineError(f"{statement}: {answer['error']}")
        rows: list[list[Any]] = answer["rows"]
        return rows


@contextmanager
def running_python(program: str, folder: Path, *homes: Path) -> Iterator[PythonProcess]:
    """Start a program of this folder; its data and what it says go to `folder`. homes: folders on Python's path."""
    log = folder / f"{Path(program).stem}.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, str(HERE / program), str(folder / "data")],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, homes))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
    with process:
        try:
            yield PythonProcess(process, log)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
