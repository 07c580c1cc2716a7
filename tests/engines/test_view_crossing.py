"""Views that one engine makes and the other reads, over values at the edges: the same rows, or a message why not."""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import pytest

from tests.engines.engines import Engines, Row
from tests.support.view_queries import AT_RUN_TIME, BOTH, DUCKDB, REFUSED_BY_BOTH, SPARK, TABLES

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark, pytest.mark.timeout(900)]
CLEAR = "can not be carried over|is not carried over|whose case (Spark|DuckDB) sees otherwise"
REFUSED = tuple(REFUSED_BY_BOTH)[:4]

Reader = Callable[[str], Iterable[Sequence[Any]]]


@pytest.fixture
def names(engines: Engines, namespace: str) -> dict[str, str]:
    """What the two tables are called, by both engines."""
    found = {key: f"lake.{namespace}.{key}" for key in "tu"}
    for statement in TABLES:
        engines.duck.execute(statement.format(**found))
    return found


def plain(value: Any) -> str:
    """A value without its Python type: sums are int in the one and Decimal in the other, -0.0 is 0.0."""
    match value:
        case bool() | None:
            return str(value)
        case int() | Decimal():
            return format(Decimal(value).normalize(), "f")
        case float():
            return f"{value + 0.0!r} as float"
    return repr(value)


def rows(found: Iterable[Sequence[Any]]) -> list[Row]:
    return sorted(tuple(map(plain, row)) for row in found)


def check(
    make: Callable[[str], object], own: Reader, other: Reader, queries: Sequence[str], failing: Sequence[str]
) -> None:
    """Make a view of each query in an engine and read it in both."""
    wrong = []
    for number, query in enumerate(queries):
        make(f"v{number} AS {query}")
        expected, got = rows(own(f"v{number}")), rows(other(f"v{number}"))
        if expected != got:
            wrong.append((query, expected, got))
    assert wrong == []
    for number, query in enumerate(failing):
        make(f"failing{number} AS {query}")
        with pytest.raises(Exception, match=CLEAR):
            list(other(f"failing{number}"))


def test_views_of_duckdbs_are_read_in_spark(engines: Engines, namespace: str, names: dict[str, str]) -> None:
    check(
        lambda view: engines.duck.execute(f"CREATE VIEW lake.{namespace}.{view}"),
        lambda view: engines.duck.sql(f"FROM lake.{namespace}.{view}").fetchall(),
        lambda view: engines.spark.table(f"lake.{namespace}.{view}").collect(),
        [each.format(**names) for each in (*BOTH, *DUCKDB)],
        [each.format(**names) for each in (*AT_RUN_TIME, *REFUSED)],
    )


def test_views_of_sparks_are_read_in_duckdb(engines: Engines, namespace: str, names: dict[str, str]) -> None:
    check(
        lambda view: engines.spark.sql(f"CREATE VIEW lake.{namespace}.{view}"),
        lambda view: engines.spark.table(f"lake.{namespace}.{view}").collect(),
        lambda view: engines.duck.sql(f"FROM lake.{namespace}.{view}").fetchall(),
        [each.format(**names) for each in (*BOTH, *SPARK)],
        [each.format(**names) for each in (*AT_RUN_TIME, *REFUSED)],
    )
