"""Many files at once: results in order, the first failure raised, and no waiting for threads that others keep busy."""

import subprocess
import sys
import time
from threading import Barrier, Lock

import pytest

from duckicelake.storage.threads import MAX_PARALLEL_CALLS, run_in_parallel


def test_results_are_in_the_order_of_the_items_and_made_at_the_same_time() -> None:
    together = Barrier(MAX_PARALLEL_CALLS, timeout=30)

    def act(number: int) -> int:
        together.wait()
        return number * number

    assert run_in_parallel(act, range(2 * MAX_PARALLEL_CALLS)) == [
        number * number for number in range(2 * MAX_PARALLEL_CALLS)
    ]
    assert run_in_parallel(act, []) == []


def test_the_first_of_the_failures_is_raised_and_nothing_more_is_begun() -> None:
    begun: set[int] = set()

    def act(number: int) -> None:
        begun.add(number)
        raise ValueError(f"number {number}")

    with pytest.raises(ValueError, match=r"^number 0$"):
        run_in_parallel(act, range(1000))
    assert len(begun) <= MAX_PARALLEL_CALLS


def test_calls_inside_of_calls_come_to_an_end_with_all_threads_busy() -> None:
    calls, lock = [0], Lock()

    def count(_: int) -> None:
        with lock:
            calls[0] += 1

    def nest(depth: int) -> None:
        run_in_parallel(count if depth == 0 else lambda _: nest(depth - 1), range(6))

    nest(3)
    assert calls == [6**4]


END_BESIDE_A_CALL = """
import time
from functools import partial
from threading import Semaphore
from duckicelake.storage.threads import DaemonCall, run_in_parallel, start_in_thread, start_within

def hang(_=None):
    time.sleep(60)

for begin in (
    partial(run_in_parallel, hang, range(3)),
    partial(run_in_parallel, partial(run_in_parallel, hang), [range(3), range(3)]),
    lambda: start_in_thread(hang)(),
    lambda: start_within(Semaphore(), hang)(),
):
    assert not DaemonCall(begin).wait(0.1)
"""


def test_process_ends_although_threads_of_a_call_hang() -> None:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", END_BESIDE_A_CALL], check=True, timeout=50)
    assert time.monotonic() - began < 30
