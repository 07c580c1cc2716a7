"""A shared fixture that failed is set up again for the next test, a few times."""

import subprocess
import sys
from pathlib import Path

from tests.support.renewal import MAX_SETUPS

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest
STARTS = []
@pytest.fixture(scope="session")
def server():
    STARTS.append(1)
    if len(STARTS) <= {failures}:
        raise TimeoutError("the server did not start")
    return "up"
@pytest.mark.parametrize("number", range(6))
def test_it(server, number):
    assert server == "up"
"""


def run(folder: Path, failures: int) -> str:
    test = folder / "test_it.py"
    test.write_text(TESTS.format(failures=failures))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "tests.support.renewal", "--rootdir"]
    done = subprocess.run(
        [*command, str(folder), str(test)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout.splitlines()[-1]


def test_what_failed_once_is_started_again(tmp_path: Path) -> None:
    assert run(tmp_path, 1).startswith("5 passed, 1 error")


def test_what_always_fails_is_not_started_for_each_test(tmp_path: Path) -> None:
    assert run(tmp_path, MAX_SETUPS).startswith("6 errors")
