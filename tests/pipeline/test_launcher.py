import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LAUNCH = "from duckicelake.pipeline.launcher import launch_spark\nwith launch_spark({}): pass"
SPARK_SUBMIT = """#!/bin/sh
echo $$ >"$STARTED.part" && mv "$STARTED.part" "$STARTED"
exec sleep 600
"""
"""Starts as long as Maven's downloads may take."""

SECONDS = 120


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_interruption_while_spark_starts_leaves_no_process_behind(tmp_path: Path) -> None:
    submit, started = tmp_path / "bin" / "spark-submit", tmp_path / "started"
    submit.parent.mkdir()
    submit.write_text(SPARK_SUBMIT)
    submit.chmod(0o755)
    environment = {**os.environ, "SPARK_HOME": str(tmp_path), "STARTED": str(started), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", LAUNCH], env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + SECONDS
    while not started.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, report = process.communicate(timeout=SECONDS)
    assert report.endswith("KeyboardInterrupt\n")
    assert not is_there(int(started.read_text()))
    assert not list(tmp_path.glob("duckicelake-spark-*"))
