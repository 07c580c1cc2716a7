"""Runs of `duckicelake changes` with a sink, and what kills them."""

import base64
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from duckicelake.cli.main import app
from duckicelake.row_changes.webhook import MAX_MESSAGE_ROWS
from tests.row_changes.conftest import Changes

SECRET = b"0123456789abcdef01234567"
KEY = "whsec_" + base64.b64encode(SECRET).decode()
VARIABLE = "DUCKICELAKE_CLIENT_WEBHOOK_SECRET"


def make_history(changes: Changes) -> Changes:
    """Make snapshots of 3 rows, of more than one message has, of an update, of a deletion."""
    for statement in (
        "CREATE TABLE t (id BIGINT, name VARCHAR)",
        "INSERT INTO t SELECT i, 'n' || i FROM range(3) r(i)",
        f"INSERT INTO t SELECT i, 'n' || i FROM range(100, {100 + MAX_MESSAGE_ROWS + 20}) r(i)",
        "UPDATE t SET name = 'x' WHERE id < 2",
        "DELETE FROM t WHERE id = 2",
    ):
        changes.duck.execute(statement).fetchall()
    return changes


def list_arguments(changes: Changes, sink: str, state: Path | None, *more: str) -> list[str]:
    kept = [] if state is None else ["--state", str(state)]
    where = ["--uri", str(changes.http.base_url), "--sink", sink, "--allow-address", "127.0.0.1"]
    return ["changes", "main.t", *where, *kept, *more]


def deliver(changes: Changes, sink: str, state: Path | None, *more: str) -> Any:
    return CliRunner().invoke(app, list_arguments(changes, sink, state, *more), env={VARIABLE: KEY})


def start(arguments: list[str], killed_at: str | None = None, output: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a run. killed_at: a step of `tests.row_changes.killed_follower`. output: to what its lines are added."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DUCKICELAKE_")}
    program = ["duckicelake.cli.main"] if killed_at is None else ["tests.row_changes.killed_follower", killed_at]
    with nullcontext() if output is None else output.open("ab") as lines:
        command = [sys.executable, "-m", *program, *arguments]
        return subprocess.Popen(command, env=kept | {VARIABLE: KEY}, stdout=lines)


@contextmanager
def following(arguments: list[str], killed_at: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Have a run that follows, which doesn't outlive the block."""
    with start([*arguments, "--follow"], killed_at) as process:
        try:
            yield process
        finally:
            process.kill()


def follow_and_kill(arguments: list[str], history: Changes, has_some: Any, chance: random.Random) -> None:
    """Follow a table that grows, and kill the follower after it has delivered something."""
    for number in range(4):
        with following(arguments) as process:
            before = has_some()
            history.duck.execute(f"INSERT INTO t SELECT i, 'k{number}' FROM range({chance.randrange(1, 1500)}) r(i)")
            deadline = time.monotonic() + 120
            while has_some() == before and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(chance.random() / 10)
            process.send_signal(signal.SIGKILL)
