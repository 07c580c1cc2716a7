"""A stock ClickHouse in one process, that runs SQL."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.engines_job.packages import HERE, EngineError, clickhouse_home

STOP_SECONDS = 30


class ClickHouse:
    """Not for several threads."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def rows(self, statement: str) -> list[list[Any]]:
        """Run a statement, or several with semicolons; the last one's rows as JSON. EngineError says why it failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(statement)}\n")
        self._process.stdin.flush()
        answered = self._process.stdout.readline()
        if not answered:
            raise EngineError(f"ClickHouse ended: {self._log.read_text(errors='replace')[-2000:]}")
        answer = json.loads(answered)
        if "error" in answer:
            raise EngineError(f"{statement}: {answer['error']}")
        rows: list[list[Any]] = answer["rows"]
        return rows


@contextmanager
def running_clickhouse(folder: Path) -> Iterator[ClickHouse]:
    """Start it; its data and what it says, `clickhouse.log`, go to the folder."""
    log = folder / "clickhouse.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "statements.py"), str(folder / "data")],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(clickhouse_home())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
    with process:
        try:
            yield ClickHouse(process, log)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
