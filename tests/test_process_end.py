"""A Postgres of the tests ends with them, even if they are killed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """\
import subprocess, sys, time
from pathlib import Path
from tests.support.process_end import ending_with_this_process
other = subprocess.Popen(["sleep", "600"], start_new_session=True)
with ending_with_this_process(other.pid, Path(sys.argv[1])):
    print(other.pid, flush=True)
    time.sleep(float(sys.argv[2]))
other.kill()
"""


@pytest.mark.parametrize(
    "sent",
    [
        *(pytest.param(one, marks=pytest.mark.crash) for one in (signal.SIGKILL, signal.SIGHUP)),
        pytest.param(signal.SIGTERM, marks=pytest.mark.commands),
    ],
)
def test_what_a_killed_process_started_ends_and_its_folder_goes(tmp_path: Path, sent: int) -> None:
    folder = tmp_path / "data"
    (folder / "postgres").mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", PROGRAM, folder, "600"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = process.stdout.readline().strip()
        process.send_signal(sent)
    deadline = time.monotonic() + 60
    while folder.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert is_ended(pid)


def test_a_process_that_ends_by_itself_leaves_the_folder_to_its_caller(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, tmp_path, "0"], stdout=subprocess.DEVNULL, check=True)
    assert tmp_path.exists()


def is_ended(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
