"""End a process when this one ends, however it ends: killed, or by a signal that Python doesn't handle."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

_SCRIPT = """\
read line && exit
kill -QUIT "$1" 2>/dev/null
turns=0
while kill -0 "$1" 2>/dev/null; do
  turns=$((turns + 1))
  [ "$turns" -ne 100 ] || kill -KILL "$1"
  sleep 0.1
done
rm -rf "$2"
"""
"""SIGQUIT ends Postgres at once. Shells start what they run in the background with SIGQUIT ignored."""


@contextmanager
def ending_with_this_process(pid: int, folder: Path) -> Iterator[None]:
    """Have a shell wait for the end of this process in the block; it then ends the other, and removes its folder."""
    with subprocess.Popen(
        ["/bin/sh", "-c", _SCRIPT, "sh", str(pid), folder], stdin=subprocess.PIPE, start_new_session=True
    ) as shell:
        assert shell.stdin is not None
        try:
            yield
        finally:
            shell.stdin.write(b"over\n")


@pytest.fixture(scope="session")
def end_with_this_process() -> Callable[[int, Path], AbstractContextManager[None]]:
    return ending_with_this_process
