"""Ctrl-C while a command waits for Postgres, or Python for threads at its end: 130 for a shell, and no traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.support.lakes import Lake

WAITING = """\
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'"""
COMMANDS = [
    ("info",),
    ("doctor",),
    ("history",),
    ("audit",),
    ("gc",),
    ("flush",),
    ("dropped",),
    ("migrate",),
    ("migrate", "--check"),
    ("expire", "main.t", "--older-than", "30d"),
    ("clone", "main.t", "main.u"),
    ("restore", "main.t", "--to", "1"),
    ("explain", "main.t"),
    ("list-grants",),
    ("undrop", "main.t"),
    ("history", "--prune-older-than", "90d"),
    ("delta", "status"),
]
REPRESENTATIVE = ("history",)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(one, id=" ".join(one), marks=() if one == REPRESENTATIVE else pytest.mark.commands)
        for one in COMMANDS
    ],
)
def test_ctrl_c_while_postgres_works_ends_a_command_with_130(
    lake: Lake, database_url: str, warehouse: Path, arguments: tuple[str, ...]
) -> None:
    lake.run("CREATE TABLE t (i BIGINT)", "INSERT INTO t VALUES (1)")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DUCKICELAKE_")}
    environment |= {"DUCKICELAKE_DATABASE_URL": database_url, "DUCKICELAKE_WAREHOUSE": str(warehouse)}
    with psycopg.connect(database_url) as holder, psycopg.connect(database_url, autocommit=True) as observer:
        holder.execute("LOCK TABLE ducklake_metadata, ducklake_snapshot, duckicelake_audit IN ACCESS EXCLUSIVE MODE")
        with subprocess.Popen(
            [sys.executable, "-m", "duckicelake.cli.main", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                deadline = time.monotonic() + 60
                while observer.execute(WAITING).fetchall() == [(0,)]:
                    assert process.poll() is None, process.communicate()
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=60)
            finally:
                process.kill()

    assert process.returncode == 130, errors
    assert "Traceback" not in errors


ENDING = """\
import threading, time
from concurrent.futures import ThreadPoolExecutor
from duckicelake.cli.main import app
if {is_pool}:
    ThreadPoolExecutor(1).submit(time.sleep, 60)
else:
    threading.Thread(target=time.sleep, args=(60,)).start()
app(["version"])
"""


@pytest.mark.parametrize("is_pool", [True, False])
def test_ctrl_c_while_python_ends_shows_no_traceback(is_pool: bool) -> None:
    program = [sys.executable, "-c", ENDING.format(is_pool=is_pool)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("duckicelake ")
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT
    assert errors == ""
