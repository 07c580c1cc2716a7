"""The table cache: bounded by how many tables there are and by what they take."""

from dataclasses import replace

import pytest

from duckicelake.catalog.context.cache import LoadedTable, TableCache, TableVersion
from duckicelake.catalog.table.load import load_current_table
from tests.support.client import NS, Client


@pytest.fixture
def table(client: Client) -> TableVersion:
    client.create("t")
    return load_current_table(client.services, NS, "t")


def like(table: TableVersion, table_id: int, body: bytes = b"", version: int = 0) -> TableVersion:
    row = replace(table.row, table_id=table_id, version=version)
    return TableVersion(replace(table.state, row=row), table.metadata, body)


def kept(cache: TableCache, *table_ids: int) -> list[int]:
    return [table_id for table_id in table_ids if cache.get(table_id) is not None]


def test_the_least_recently_used_leave_first(table: TableVersion) -> None:
    cache = TableCache(most=2)
    cache.put(like(table, 1))
    cache.put(like(table, 2))
    assert cache.get(1)
    cache.put(like(table, 3))
    assert kept(cache, 1, 2, 3) == [1, 3]


def test_tables_leave_when_they_take_too_much_together(table: TableVersion) -> None:
    large = like(table, 1, b"x" * 10_000)
    cache = TableCache(most_bytes=large.size * 2)
    for table_id in (1, 2, 3):
        cache.put(like(table, table_id, b"x" * 10_000))
    assert kept(cache, 1, 2, 3) == [2, 3]
    assert cache.statistics()["bytes"] == large.size * 2
    cache.put(like(table, 2, b"x", version=1))
    assert cache.statistics()["bytes"] < large.size * 2
    before = cache.statistics()
    cache.put(like(table, 4, b"x" * 30_000))
    assert kept(cache, 1, 2, 3, 4) == [2, 3]
    assert cache.statistics() == before
    cache.put(like(table, 3, b"x" * 30_000, version=1))
    assert kept(cache, 1, 2, 3, 4) == [2]


def test_answers_count_too_and_leave_with_their_table(table: TableVersion) -> None:
    one, other = like(table, 1), like(table, 2)
    cache = TableCache(most_bytes=one.size + other.size + 30_000)
    cache.put(one)
    cache.put(other)
    cache.keep_metadata(other, "refs", b"x" * 20_000)
    assert kept(cache, 1, 2) == [1, 2]
    cache.keep_response(other, "who", LoadedTable((b"shared" * 10_000, b"x" * 7_000), "tag"))
    assert kept(cache, 1, 2) == [2]


def test_an_older_version_never_takes_the_place_of_a_newer(table: TableVersion) -> None:
    cache = TableCache()
    newer = like(table, 1, version=2)
    cache.put(newer)
    cache.put(like(table, 1, version=1))
    assert cache.get(1) is newer


def test_names_are_as_many_as_tables(table: TableVersion) -> None:
    cache = TableCache(most=2)
    cache.put(like(table, 1))
    for name in ("a", "b", "c"):
        cache.name("ns", name, 1)
    assert [cache.find("ns", name) is not None for name in ("a", "b", "c")] == [False, True, True]


def test_nothing_is_kept_where_nothing_may_be(table: TableVersion) -> None:
    for cache in (TableCache(most=0), TableCache(most_bytes=0)):
        cache.put(like(table, 1))
        assert cache.get(1) is None
