"""Appends in quick succession: no one asks before each whether the table is as it was left; the writer sees."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, cast

import duckdb
import pytest

from duckicelake.catalog.commit import run
from duckicelake.catalog.context.meter import NO_METER, Meter, Phase, Retry
from duckicelake.catalog.table import load
from duckicelake.catalog.tables import drop_table, rename_table
from duckicelake.errors import CommitFailedError, NoSuchTableError
from duckicelake.iceberg.rest import RenameTableRequest
from tests.support.client import NS, Client, Json, append, assert_whole, duckdb_rows, pyiceberg_rows, set_properties
from tests.support.seams import fresh


@dataclass
class Listener:
    """A meter that remembers how often Postgres was asked whether a table is as it was."""

    asked: int = 0
    again: list[Retry] = field(default_factory=list)

    def count_retry(self, reason: Retry) -> None:
        self.again.append(reason)

    def phase(self, phase: Phase) -> AbstractContextManager[object]:
        self.asked += phase == "freshness"
        return NO_METER.phase(phase)

    def __getattr__(self, name: str) -> Any:
        return getattr(NO_METER, name)


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    monkeypatch.setattr(load, "_RECENT_SECONDS", inf)
    return Listener()


@pytest.fixture
def writer(client: Client, listener: Listener) -> Client:
    """A client that has found its table `t` right, and committed to it."""
    writer = Client(replace(client.services, meter=cast("Meter", listener)))
    writer.create()
    writer.append((1, "a"))
    writer.append((2, "b"))
    return writer


@pytest.fixture
def other(writer: Client) -> Client:
    """The same lake's other server."""
    return Client(fresh(writer.services))


def follow_up(writer: Client, *rows: tuple[int, str]) -> Json:
    """Append to what the writer's last commit made, without a load."""
    cached = writer.services.cache.find("ns", "t")
    assert cached is not None
    return writer.commit(append(cached.metadata.to_json(), *rows))


def rename(client: Client, source: str, to: str) -> None:
    names = {key: {"namespace": NS, "name": name} for key, name in (("source", source), ("destination", to))}
    rename_table(client.services, RenameTableRequest.model_validate(names))


def test_appends_after_the_first_are_not_asked_for(writer: Client, listener: Listener) -> None:
    asked = listener.asked
    for number in range(3, 8):
        answer = follow_up(writer, (number, "x"))
    assert listener.asked == asked
    assert [row[0] for row in pyiceberg_rows(answer)] == [1, 2, 3, 4, 5, 6, 7]
    assert_whole(writer.load())


def test_what_was_found_right_too_long_ago_is_asked_for(
    writer: Client, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = listener.asked
    monkeypatch.setattr(load, "_RECENT_SECONDS", 0)
    follow_up(writer, (3, "x"))
    assert listener.asked == asked + 1


def test_what_is_no_append_is_asked_for(writer: Client, listener: Listener) -> None:
    asked = listener.asked
    writer.commit(set_properties(a="b"))
    assert listener.asked == asked + 1


@pytest.mark.parametrize("meanwhile", ["other server", "DuckDB"])
def test_an_append_to_what_others_have_changed_since_is_refused_like_any(
    writer: Client, other: Client, listener: Listener, ducklake: duckdb.DuckDBPyConnection, meanwhile: str
) -> None:
    known = writer.services.cache.find("ns", "t")
    assert known is not None
    if meanwhile == "DuckDB":
        ducklake.execute("INSERT INTO lake.ns.t VALUES (3, 'duck')")
    else:
        other.append((3, "other"))
    asked = listener.asked
    with pytest.raises(CommitFailedError):
        writer.commit(append(known.metadata.to_json(), (4, "x")))
    assert listener.asked > asked
    writer.append((4, "x"))
    assert [row[0] for row in duckdb_rows(ducklake)] == [1, 2, 3, 4]
    assert_whole(writer.load())


def test_an_append_on_top_of_another_servers_is_taken(writer: Client, other: Client, listener: Listener) -> None:
    newest = other.append((3, "other"))["metadata"]
    asked = listener.asked
    answer = writer.commit(append(newest, (4, "x")))
    assert listener.asked > asked
    assert [row[0] for row in pyiceberg_rows(answer)] == [1, 2, 3, 4]


def _renamed(other: Client) -> None:
    rename(other, "t", "u")


def _dropped(other: Client) -> None:
    drop_table(other.services, NS, "t", purge=False)


@pytest.mark.parametrize("lose", [_renamed, _dropped])
def test_a_name_that_was_lost_meanwhile_is_seen(writer: Client, other: Client, lose: Callable[[Client], None]) -> None:
    lose(other)
    with pytest.raises(NoSuchTableError):
        follow_up(writer, (3, "x"))


def test_a_table_that_got_the_others_name_is_not_taken_for_it(
    writer: Client, other: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    """Loads by the new name look at the same cached table, as DuckDB's commits in between do."""
    ducklake.execute("ALTER TABLE lake.ns.t RENAME TO u")
    ducklake.execute("CREATE TABLE lake.ns.t (id BIGINT, name VARCHAR)")
    writer.load("u")
    with pytest.raises(CommitFailedError, match="UUID"):
        follow_up(writer, (3, "x"))
    assert [row[0] for row in duckdb_rows(ducklake, "u")] == [1, 2]
    assert duckdb_rows(ducklake) == []
    assert other.metadata()["table-uuid"] != other.metadata("u")["table-uuid"]


def test_servers_that_append_in_turns_lose_nothing(
    writer: Client, other: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    writer.commit(set_properties(**{"ducklake.append-rebase": "true"}))
    stale = writer.metadata()
    for number in range(3, 15, 3):
        for client, offset in ((writer, 0), (writer, 1), (other, 2)):
            client.commit(append(stale, (number + offset, "x")))
    assert [row[0] for row in duckdb_rows(ducklake)] == list(range(1, 15))
    assert_whole(writer.load())


@pytest.mark.parametrize("times", [1, 2])
def test_what_fails_unasked_is_counted_and_if_it_fails_again_raised(
    writer: Client, listener: Listener, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    failing, change_over = iter(range(times)), run.change_over

    def fail(*about: Any) -> Any:
        if next(failing, None) is not None:
            raise RuntimeError("a mistake of ours")
        return change_over(*about)

    monkeypatch.setattr(run, "change_over", fail)
    asked = listener.asked
    with pytest.raises(RuntimeError, match="of ours") if times == 2 else nullcontext():
        follow_up(writer, (3, "x"))
    assert listener.again == ["unasked"]
    assert listener.asked > asked
    assert len(pyiceberg_rows(writer.load())) == 4 - times
