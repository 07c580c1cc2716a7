"""Many files at once: results in order, the first failure raised, and no waiting for threads that others keep busy."""

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
