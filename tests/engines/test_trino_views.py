"""Views that DuckDB and Trino make for one another, over values at the edges: the same rows, or a message why not."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import duckdb
import pytest

from scripts.demo_job.connect import duckdb_lake
from scripts.demo_job.server import running_lake
from scripts.engines_job.trino import Trino, running_trino
from tests.engines.conftest import new_folder
from tests.engines.engines import Row
from tests.engines.test_view_crossing import CLEAR, check, rows
from tests.support.view_queries import (
    AT_RUN_TIME,
    BOTH,
    DUCKDB,
    NO_TRINO,
    OTHER_SQL,
    REFUSED_BY_BOTH,
    REFUSED_IN_TRINO,
    TABLES,
    TRINO,
)

pytestmark = [pytest.mark.more_engines, pytest.mark.spark, pytest.mark.timeout(1800)]
NAMES: Final = {"t": "lake.ns.t", "u": "lake.ns.u"}
UNREADABLE: Final = ("SELECT min(st) AS a FROM {t}",)
"""Trino makes no text of a row, and so fails before the view can say why."""


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[Trino, duckdb.DuckDBPyConnection]]:
    settings = {"DUCKICELAKE_TRINO_CATALOG": "lake"}
    with new_folder() as folder, running_lake(folder / "lake", folder / "log", settings) as lake:
        catalog = f"connector.name=iceberg\niceberg.catalog.type=rest\niceberg.rest-catalog.uri={lake.uri}\n"
        with (
            duckdb_lake(lake) as duck,
            new_folder() as home,
            running_trino(home, f"{catalog}fs.local.enabled=true\nlocal.location=/\n") as trino,
        ):
            duck.execute("CREATE SCHEMA lake.ns")
            for statement in TABLES:
                duck.execute(statement.format(**NAMES))
            yield trino, duck


@pytest.fixture(scope="module")
def trino(engines: tuple[Trino, duckdb.DuckDBPyConnection]) -> Trino:
    return engines[0]


@pytest.fixture(scope="module")
def duck(engines: tuple[Trino, duckdb.DuckDBPyConnection]) -> duckdb.DuckDBPyConnection:
    return engines[1]


def read_trino(trino: Trino, view: str) -> list[Row]:
    """Read a view's rows, with Python's types in place of JSON's."""
    kinds = [str(kind) for _, kind, *_ in trino.rows(f"DESCRIBE lake.ns.{view}")]
    found = trino.rows(f"SELECT * FROM lake.ns.{view}")
    return [tuple(_parse(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in found]


def read_duckdb(duck: duckdb.DuckDBPyConnection, view: str) -> list[Row]:
    found = duck.sql(f"FROM lake.ns.{view}").fetchall()
    return [tuple(str(value) if _is_time(value) else value for value in row) for row in found]


def _is_time(value: Any) -> bool:
    return type(value).__module__ == "datetime"


def _parse(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "double":
        return float(value)
    if kind.startswith("decimal"):
        return Decimal(value)
    return str(value).removesuffix(".000000") if kind.startswith("timestamp") else value


def list_queries(*groups: Sequence[str], without: Sequence[str]) -> list[str]:
    return [query.format(**NAMES) for group in groups for query in group if query not in without]


def test_views_of_duckdbs_are_read_in_trino(trino: Trino, duck: duckdb.DuckDBPyConnection) -> None:
    check(
        lambda view: duck.execute(f"CREATE VIEW lake.ns.{view}"),
        lambda view: read_duckdb(duck, view),
        lambda view: read_trino(trino, view),
        list_queries(BOTH, DUCKDB, without=list(NO_TRINO)),
        list_queries(AT_RUN_TIME, tuple(REFUSED_BY_BOTH)[:4], without=UNREADABLE),
    )


def test_views_of_trinos_are_read_in_duckdb(trino: Trino, duck: duckdb.DuckDBPyConnection) -> None:
    check(
        lambda view: trino.rows(f"CREATE VIEW lake.ns.by_trino_{view}"),
        lambda view: read_trino(trino, f"by_trino_{view}"),
        lambda view: read_duckdb(duck, f"by_trino_{view}"),
        list_queries(BOTH, TRINO, without=[*OTHER_SQL, *REFUSED_IN_TRINO]),
        [],
    )


@pytest.mark.parametrize(("query", "obstacle"), NO_TRINO.items())
def test_what_trino_would_answer_otherwise_is_named(
    trino: Trino, duck: duckdb.DuckDBPyConnection, query: str, obstacle: str
) -> None:
    duck.execute(f"CREATE OR REPLACE VIEW lake.ns.v AS {query.format(**NAMES)}")
    with pytest.raises(Exception, match=CLEAR) as failure:
        trino.rows("SELECT * FROM lake.ns.v")
    assert obstacle in str(failure.value)


@pytest.mark.parametrize(("query", "obstacle"), REFUSED_IN_TRINO.items())
def test_what_duckdb_would_answer_otherwise_is_named(
    trino: Trino, duck: duckdb.DuckDBPyConnection, query: str, obstacle: str
) -> None:
    trino.rows(f"CREATE OR REPLACE VIEW lake.ns.w AS {query.format(**NAMES)}")
    with pytest.raises(duckdb.Error, match=CLEAR) as failure:
        duck.sql("FROM lake.ns.w").fetchall()
    assert any(part in str(failure.value) for part in obstacle.split("|"))


def test_trino_finds_tables_without_a_catalog_and_a_view_that_duckdb_has_replaced(
    trino: Trino, duck: duckdb.DuckDBPyConnection
) -> None:
    trino.rows("CREATE VIEW lake.ns.short AS SELECT id FROM ns.u")
    assert rows(read_duckdb(duck, "short")) == rows(duck.sql("SELECT id FROM lake.ns.u").fetchall())
    duck.execute("CREATE OR REPLACE VIEW lake.ns.short AS SELECT max(id) AS id FROM lake.ns.u")
    assert trino.rows("SELECT id FROM lake.ns.short") == [[99]]
