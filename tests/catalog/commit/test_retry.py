"""Who is overtaken again and again gives up after a while, and has had all others wait before."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import duckdb
import psycopg
import pytest

from duckicelake.catalog.commit import run
from duckicelake.catalog.commit.run import retry_on_conflict
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.registration import unregister_table
from duckicelake.errors import UnavailableError
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake import snapshots
from duckicelake.lake.ducklake.snapshots import retry_transaction
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction
from tests.support.client import NS, Client
from tests.support.seams import fresh
from tests.support.view_requests import commit, create, load
from tests.support.view_requests import set_properties as set_on_view


@dataclass(frozen=True, slots=True)
class Superseded:
    """A database in which something happens before each transaction."""

    database: Database
    act: Callable[[], object]

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        self.act()
        with self.database.transaction() as cursor:
            yield cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (run, snapshots):
        monkeypatch.setattr(module, "RETRY_SECONDS", 0)


def test_last_attempt_is_made_while_others_wait(services: Services) -> None:
    alone = []

    def lose(is_alone: bool) -> None:
        alone.append(is_alone)
        raise StaleBaseError

    with pytest.raises(UnavailableError, match="2 times in a row"):
        retry_on_conflict(services, "ns.t", lose)
    assert alone == [False, True]


def test_attempts_within_attempts_are_given_up_together(services: Services) -> None:
    tried = []

    def lose() -> None:
        tried.append(1)
        raise psycopg.errors.SerializationFailure if len(tried) % 2 else StaleBaseError

    with pytest.raises(UnavailableError):
        retry_on_conflict(services, "ns.t", lambda _: retry_transaction(lose))
    assert len(tried) == 1


def test_view_that_others_change_all_along_is_left_to_them(services: Services) -> None:
    create(services, "v")
    numbers = count()

    def superseding() -> int:
        commit(services, "v", set_on_view(others=str(next(numbers))))
        return services.clock()

    with pytest.raises(UnavailableError):
        commit(replace(services, clock=superseding), "v", set_on_view(mine="1"))
    assert load(services, "v")["metadata"]["properties"] == {"others": "1"}


def test_table_that_others_change_all_along_is_not_given_up(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    inserted = count(1)

    def insert() -> None:
        ducklake.execute("INSERT INTO lake.ns.t VALUES (?, '')", [next(inserted)])

    database: Any = Superseded(client.services.database, insert)
    with pytest.raises(UnavailableError):
        unregister_table(replace(fresh(client.services), database=database), NS, "t")
    assert ducklake.execute("SELECT count(*) FROM lake.ns.t").fetchall() == [(next(inserted) - 1,)]
