"""A DuckDB in a process of its own: DuckDB 1.5 ends its process where Postgres dies under a transaction.

`python -m scripts.history_job.sql_server` takes lines of JSON, each a list of statements, and answers each with
{"rows": those of the last one} or {"error": what DuckDB says}.
"""

import json
import subprocess
import sys
from subprocess import DEVNULL, PIPE
from typing import Any, Final

import duckdb

_COMMAND: Final = [sys.executable, "-m", "scripts.history_job.sql_server"]


class Failed(Exception):  # noqa: N818 - says what happened
    """DuckDB has refused the statements, or ended; what came of them isn't known."""


class SqlProcess:
    """The process, from the outside."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(_COMMAND, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True)

    def execute(self, *statements: str) -> list[list[Any]]:
        """The rows of the last statement. Failed if DuckDB says so or dies."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(statements) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError as error:
            raise Failed(str(error)) from error
        if not line:
            raise Failed("DuckDB has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        rows: list[list[Any]] = answer["rows"]
        return rows

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def main() -> None:
    connection = duckdb.connect(config={"threads": 1})
    for line in sys.stdin:
        rows: list[tuple[Any, ...]] = []
        try:
            for statement in json.loads(line):
                rows = connection.execute(statement).fetchall()
            print(json.dumps({"rows": rows}), flush=True)
        except duckdb.Error as error:
            print(json.dumps({"error": str(error)[:500]}), flush=True)


if __name__ == "__main__":
    main()
