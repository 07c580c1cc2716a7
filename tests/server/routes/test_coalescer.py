"""Requests that wait for a thread are done together, and each hears what came of it."""

import asyncio
from collections.abc import Sequence
from threading import Event

import pytest

from duckicelake.server.routes.dependencies import Coalescer, More


def test_works_asked_for_while_one_is_done_are_done_together() -> None:
    groups, may_go_on = list[list[int]](), Event()

    def act(works: Sequence[int], more: More[int]) -> list[int | Exception]:
        groups.append(list(works))
        assert may_go_on.wait(10)
        return [ValueError(work) if work == 3 else 10 * work for work in works]

    async def ask() -> list[int | BaseException]:
        gathering = Coalescer[int, int](act, "test")
        first = asyncio.create_task(gathering.do(1))
        while not groups:
            await asyncio.sleep(0)
        others = [asyncio.create_task(gathering.do(number)) for number in (2, 3, 4)]
        await asyncio.sleep(0)
        others[-1].cancel()
        may_go_on.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    one, two, three, four = asyncio.run(ask())
    assert groups == [[1], [2, 3, 4]]
    assert (one, two) == (10, 20)
    assert isinstance(three, ValueError)
    assert isinstance(four, asyncio.CancelledError)


def test_what_the_act_raises_is_raised_for_all_and_the_next_are_done() -> None:
    def act(works: Sequence[int], more: More[int]) -> list[int | Exception]:
        if 1 in works:
            raise LookupError
        return list(works)

    async def ask() -> int:
        gathering = Coalescer[int, int](act, "test")
        with pytest.raises(LookupError):
            await gathering.do(1)
        return await gathering.do(2)

    assert asyncio.run(ask()) == 2


def test_works_taken_besides_are_answered_with_those_that_wait() -> None:
    groups, may_go_on = list[list[int]](), Event()

    def act(works: Sequence[int], more: More[int]) -> list[int | Exception]:
        groups.append([])
        assert may_go_on.wait(10)
        groups[-1] = [*works, *more()]
        return [*groups[-1]]

    async def ask() -> list[int]:
        gathering = Coalescer[int, int](act, "test")
        first = asyncio.create_task(gathering.do(1))
        while not groups:
            await asyncio.sleep(0)
        second = asyncio.create_task(gathering.do(2))
        await asyncio.sleep(0)
        may_go_on.set()
        return await asyncio.gather(first, second)

    assert asyncio.run(ask()) == [1, 2]
    assert groups == [[1, 2]]
