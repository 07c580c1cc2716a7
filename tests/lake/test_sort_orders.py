"""Sort orders on both sides: DuckLake keeps columns as SQL, with quotes where a name needs them."""

import pytest

from tests.support.lakes import Lake, assert_same_rows

FLUSH = "CALL ducklake_flush_inlined_data('lake')"
NAMES = ("id", "name", "order", "my col", 'a "q" b', "ÜmÄ", "Upper")


def sql(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def report(lake: Lake) -> list[tuple[int, str, str]]:
    """The current sort order as Iceberg clients see it."""
    metadata = lake.metadata()
    (order,) = [order for order in metadata.sort_orders if order.order_id == metadata.default_sort_order_id]
    return [(field.source_id, field.direction, field.null_order) for field in order.fields]


@pytest.mark.parametrize("name", NAMES)
def test_order_that_duckdb_sets_is_reported(lake: Lake, name: str) -> None:
    lake.run(f"CREATE TABLE t ({sql(name)} BIGINT, other VARCHAR)")
    lake.run(f"ALTER TABLE t SET SORTED BY ({sql(name)} DESC NULLS FIRST, other ASC)")
    assert report(lake) == [(1, "desc", "nulls-first"), (2, "asc", "nulls-last")]
    lake.run("ALTER TABLE t RESET SORTED BY")
    assert report(lake) == []


def test_name_in_another_case_is_the_column(lake: Lake) -> None:
    lake.run("CREATE TABLE t (Mixed BIGINT)", "ALTER TABLE t SET SORTED BY (mIXED ASC)")
    assert report(lake) == [(1, "asc", "nulls-last")]


def test_order_by_an_expression_is_none(lake: Lake) -> None:
    lake.run("CREATE TABLE t (id BIGINT)", "ALTER TABLE t SET SORTED BY (id + 1 ASC)")
    assert report(lake) == []


@pytest.mark.parametrize("name", NAMES)
def test_duckdb_writes_by_the_order_that_a_client_sets(lake: Lake, name: str) -> None:
    lake.run(f"CREATE TABLE t ({sql(name)} BIGINT)")
    field = {"transform": "identity", "source-id": 1, "direction": "desc", "null-order": "nulls-last"}
    lake.commit(
        {"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": [field]}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    )
    lake.run("INSERT INTO t VALUES (2), (NULL), (3)", FLUSH, "INSERT INTO t SELECT i FROM range(20) r(i)")
    assert report(lake) == [(1, "desc", "nulls-last")]
    assert_same_rows(lake)
    assert lake.duck.sql("FROM t").fetchmany(3) == [(3,), (2,), (None,)]
