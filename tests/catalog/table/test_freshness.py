"""One freshness check for all who ask: who shares it, and what becomes of them when Postgres doesn't answer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import pytest

from duckicelake.catalog.load_response import FreshnessChecks
from duckicelake.errors import UnavailableError
from duckicelake.lake.ducklake.database import open_lake_session
from duckicelake.lake.side_tables.freshness import FreshnessLine, open_freshness_line
from duckicelake.lake.state import Freshness, FreshnessQuery
from duckicelake.postgres.database import Database
from tests.support.client import Client

A = TypeVar("A")
T, U, NONE = FreshnessQuery("ns", "t"), FreshnessQuery("ns", "u"), FreshnessQuery("none", "t")


class HeldLine(FreshnessLine):
    """Postgres has answered, but the answers come only once a test lets them."""

    def __init__(self, url: str) -> None:
        super().__init__(url, {}, open_lake_session())
        self.sent: list[Sequence[FreshnessQuery]] = []
        self.is_held = asyncio.Event()
        self.may_come = asyncio.Event()

    async def freshness(self, asked: Sequence[FreshnessQuery]) -> list[Freshness | None]:
        self.sent.append(asked)
        answers = await super().freshness(asked)
        self.is_held.set()
        await self.may_come.wait()
        return answers


async def reached(line: FreshnessLine) -> None:
    """Returns once the line is there."""
    async with asyncio.timeout(20):
        while await report(line) is None:
            await asyncio.sleep(0.01)


async def report(line: FreshnessLine) -> list[Freshness | None] | None:
    try:
        return await FreshnessLine.freshness(line, [T])
    except UnavailableError:
        return None


async def fresh(checks: FreshnessChecks, asked: FreshnessQuery) -> Freshness | None:
    answer: asyncio.Future[Freshness | None] = asyncio.get_running_loop().create_future()
    checks.ask(asked, lambda report: None if answer.done() else answer.set_result(report))
    return await answer


def over(line: Callable[[], FreshnessLine], act: Callable[[Any], Awaitable[A]]) -> A:
    """What comes of it in an event loop, with a line that is there."""

    async def run() -> A:
        made = line()
        await reached(made)
        try:
            return await act(made)
        finally:
            made.close()

    return asyncio.run(run())


def ids(answers: Sequence[Freshness | None]) -> list[int | None]:
    return [answer and answer.table_id for answer in answers]


def test_who_asks_while_a_check_is_under_way_shares_the_next_and_sees_what_was_there_when_they_asked(
    client: Client, database: Database
) -> None:
    async def ask(line: HeldLine) -> list[Freshness | None]:
        checks = FreshnessChecks(line)
        first = asyncio.create_task(fresh(checks, T))
        await line.is_held.wait()
        client.create("t")
        later = [asyncio.create_task(fresh(checks, each)) for each in (T, T, U, FreshnessQuery("ns", "t", 0))]
        for _ in range(10):
            await asyncio.sleep(0)
        assert line.sent == [[T]], "what was sent before they asked can't tell them how it is now"
        line.may_come.set()
        answers = await asyncio.gather(first, *later)
        assert line.sent == [[T], [T, U, FreshnessQuery("ns", "t", 0)]]
        return answers

    first, *later = ids(over(lambda: HeldLine(database.url), ask))
    assert first is None, "the table came after the check that was asked for before"
    assert later[0] is not None
    assert later == [later[0], later[0], None, later[0]]


def test_who_is_gone_before_the_answer_takes_no_one_along(client: Client, database: Database) -> None:
    client.create("t")

    async def ask(line: HeldLine) -> Freshness | None:
        checks = FreshnessChecks(line)
        gone, stays = (asyncio.create_task(fresh(checks, T)) for _ in range(2))
        await line.is_held.wait()
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        line.may_come.set()
        return await stays

    assert over(lambda: HeldLine(database.url), ask) is not None


class Buggy(HeldLine):
    """Fails in a way that no one has thought of."""

    async def freshness(self, asked: Sequence[FreshnessQuery]) -> list[Freshness | None]:
        (first, *_) = await super().freshness(asked)
        if len(self.sent) == 1:
            raise ZeroDivisionError
        return [first] * (len(asked) + 1)


def test_check_that_dies_of_a_bug_shows_all_who_wait_that_it_knows_nothing(client: Client, database: Database) -> None:
    client.create("t")

    async def ask(line: Buggy) -> list[Freshness | None]:
        checks = FreshnessChecks(line)
        first = asyncio.create_task(fresh(checks, T))
        await line.is_held.wait()
        later = [asyncio.create_task(fresh(checks, each)) for each in (T, U)]
        await asyncio.sleep(0)
        line.may_come.set()
        async with asyncio.timeout(20):
            answers = await asyncio.gather(first, *later)
        assert line.sent == [[T], [T, U]], "the second check came of itself, and answers more than was asked"
        return answers

    assert over(lambda: Buggy(database.url), ask) == [None, None, None]


def test_bug_of_one_who_is_reported_is_not_felt_by_the_others(
    client: Client, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    client.create("t")

    def fail(_: Freshness | None) -> None:
        raise ZeroDivisionError

    async def ask(line: FreshnessLine) -> list[Freshness | None]:
        checks = FreshnessChecks(line)
        checks.ask(T, fail)
        return [await fresh(checks, T), await fresh(checks, T)]

    assert None not in over(partial(open_freshness_line, database), ask)
    assert "A callback failed at the answer to a freshness check" in caplog.text


def test_line_shows_of_several_tables_in_order(client: Client, database: Database) -> None:
    client.create("t")
    client.create("u")
    found = ids(
        over(
            partial(open_freshness_line, database),
            lambda line: line.freshness([U, NONE, FreshnessQuery("ns", "x"), T, U]),
        )
    )
    assert found[1:3] == [None, None]
    assert None not in (found[0], found[3])
    assert found[0] == found[4] != found[3]


def test_question_may_be_longer_than_what_a_socket_takes_at_once(client: Client, database: Database) -> None:
    client.create("t")
    many = [FreshnessQuery("ns", f"{number:0128}") for number in range(10_000)]
    found = ids(over(partial(open_freshness_line, database), lambda line: line.freshness([*many, T])))
    assert found[:-1] == [None] * len(many)
    assert found[-1] is not None


def test_line_that_postgres_has_cut_is_made_anew(client: Client, database: Database) -> None:
    client.create("t")

    async def ask(line: FreshnessLine) -> list[Freshness | None]:
        checks = FreshnessChecks(line)
        assert line._line is not None
        with database.transaction() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [line._line.backend_pid])
        in_vain = await asyncio.gather(fresh(checks, T), fresh(checks, T))
        await reached(line)
        return [*in_vain, await fresh(checks, T)]

    *in_vain, answer = over(partial(open_freshness_line, database), ask)
    assert in_vain == [None, None]
    assert answer is not None


def test_who_asks_when_postgres_cuts_the_line_does_not_wait_for_long(
    client: Client, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create("t")
    monkeypatch.setattr("duckicelake.lake.side_tables.freshness._ANSWER_SECONDS", 600)

    async def ask(line: FreshnessLine) -> list[Freshness | None]:
        checks = FreshnessChecks(line)
        assert line._line is not None
        with database.transaction() as cursor:
            cursor.execute("LOCK TABLE duckicelake_epoch IN ACCESS EXCLUSIVE MODE")
            under_way = asyncio.create_task(fresh(checks, T))
            while line._line._answer is None:
                await asyncio.sleep(0)
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [line._line.backend_pid])
            async with asyncio.timeout(20):
                in_vain = await under_way
        await reached(line)
        return [in_vain, await fresh(checks, T)]

    in_vain, answer = over(partial(open_freshness_line, database), ask)
    assert in_vain is None
    assert answer is not None


def test_line_that_is_cut_while_no_one_asks_is_let_go(client: Client, database: Database) -> None:
    async def cut(line: FreshnessLine) -> bool:
        assert line._line is not None
        with database.transaction() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [line._line.backend_pid])
        async with asyncio.timeout(20):
            while not line._line.is_closed:
                await asyncio.sleep(0.01)
        return await report(line) is None

    client.create("t")
    assert over(partial(open_freshness_line, database), cut)


def test_question_that_postgres_does_not_answer_in_time_is_given_up(
    client: Client, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create("t")
    monkeypatch.setattr("duckicelake.lake.side_tables.freshness._ANSWER_SECONDS", 0.2)

    async def ask(line: FreshnessLine) -> list[Freshness | None]:
        checks = FreshnessChecks(line)
        with database.transaction() as cursor:
            cursor.execute("LOCK TABLE duckicelake_epoch IN ACCESS EXCLUSIVE MODE")
            in_vain = await fresh(checks, T)
        await reached(line)
        return [in_vain, await fresh(checks, T)]

    in_vain, answer = over(partial(open_freshness_line, database), ask)
    assert in_vain is None
    assert answer is not None


def test_without_a_postgres_no_one_waits(client: Client) -> None:
    async def ask() -> list[Freshness | None]:
        checks = FreshnessChecks(FreshnessLine("postgresql://127.0.0.1:1/nothing", {}, open_lake_session()))
        return [await fresh(checks, T) for _ in range(3)]

    assert asyncio.run(ask()) == [None, None, None]
