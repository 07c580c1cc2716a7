"""A process that was asked to end does so in time, whatever hangs in it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SECONDS, GRACE = 0.5, 0.5
HANGING = f"""
import os, signal, sys, time
from duckicelake.cli.serve.process import ShutdownDeadline

def say(word):
    print(word, round(time.monotonic() - began, 2), flush=True)

def fail():
    raise OSError

began = time.monotonic()
deadline = ShutdownDeadline({SECONDS}, {GRACE})
deadline.cut_off_by(fail)
deadline.cut_off_by(lambda: say("cut"))
deadline.exit_after(fail)
deadline.exit_after(lambda: say("last"))
"""
STARTED = "deadline.start(); deadline.start(); time.sleep(60)"
SIGNALLED = """
signal.signal(signal.SIGTERM, lambda *_: say("handled"))
deadline.start_with_signals()
os.kill(os.getpid(), signal.SIGTERM)
until = time.monotonic() + 60
while time.monotonic() < until: time.sleep(0.1)
"""


def run(program: str) -> tuple[int, dict[str, float]]:
    """(What the process exits with, the seconds after which it said each word.)"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )
    words = [line.split() for line in ran.stdout.splitlines()]
    assert len({word for word, _ in words}) == len(words), f"each once: {ran.stdout}"
    return ran.returncode, {word: float(seconds) for word, seconds in words}


@pytest.mark.parametrize(("started", "first"), [(STARTED, ["cut"]), (SIGNALLED, ["handled", "cut"])])
def test_what_hangs_is_cut_off_then_the_process_exits_though_functions_fail(started: str, first: list[str]) -> None:
    code, seconds = run(HANGING + started)
    assert (code, list(seconds)) == (1, [*first, "last"])
    assert seconds["cut"] >= SECONDS
    assert seconds["last"] >= SECONDS + GRACE


def test_process_that_ends_by_itself_is_left_alone() -> None:
    assert run(HANGING + "deadline.start(); sys.exit(3)") == (3, {})


REMAINING = """
left = ShutdownDeadline(60)  # in a process of its own: once started, it ends the one that it is in
assert left.remaining() == 60
time.sleep(0.01)
assert left.remaining() == 60
left.start()
assert 0 < left.remaining() < 60
deadline.start()
time.sleep(0.7)
assert deadline.remaining() == 0
sys.exit(3)
"""


def test_remaining_is_whole_until_it_starts_and_never_less_than_nothing() -> None:
    assert run(HANGING + REMAINING)[0] == 3


DRAINED = """
from duckicelake.server.protocol.connections import DRAIN
DRAIN.allow(0.3)
signal.signal(signal.SIGTERM, lambda *_: (say("handled"), sys.exit(3)))
deadline.start_with_signals()
os.kill(os.getpid(), signal.SIGTERM)
assert DRAIN.is_running
assert deadline.remaining() == 0.5
until = time.monotonic() + 60
while time.monotonic() < until: time.sleep(0.1)
"""


def test_process_that_drains_goes_on_until_the_next_signal_which_comes_when_its_time_is_up() -> None:
    code, seconds = run(HANGING + DRAINED)
    assert (code, list(seconds)) == (3, ["handled"])
    assert seconds["handled"] >= 0.3
