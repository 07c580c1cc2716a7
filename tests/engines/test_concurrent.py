"""Writers at the same time: nothing is lost, nothing is written twice."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog
from scripts.demo_job.server import RunningLake
from tests.engines.engines import Engines, Row, arrow, sorted_rows
from tests.engines.sequences import COLUMNS

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

COMMITS = 8


def test_pyiceberg_spark_and_duckdb_append_at_once(lake: RunningLake, engines: Engines, namespace: str) -> None:
    name = f"{namespace}.t"
    engines.catalog.create_table(name, COLUMNS, properties={"commit.retry.num-retries": "50"})
    with ThreadPoolExecutor() as pool:
        writers = [
            pool.submit(append_by_pyiceberg, lake, name, 1000),
            pool.submit(append_by_pyiceberg, lake, name, 2000),
            pool.submit(insert_by_duckdb, lake, name, 3000),
            pool.submit(insert_by_spark, engines, name, 4000),
        ]
    for writer in writers:
        writer.result()
    expected = [(start + number, None, number) for start in (1000, 2000, 3000, 4000) for number in range(COMMITS)]
    got = engines.read(name)
    assert {engine: sorted_rows(table) for engine, table in got.items()} == dict.fromkeys(got, expected)


def append_by_pyiceberg(lake: RunningLake, name: str, start: int) -> None:
    with pyiceberg_catalog(lake) as catalog:
        for number in range(COMMITS):
            while not appended(catalog.load_table(name), (start + number, None, number)):
                pass


def appended(table: Table, row: Row) -> bool:
    try:
        table.append(arrow(table, [row]))
    except CommitFailedException:
        return False
    return True


def insert_by_duckdb(lake: RunningLake, name: str, start: int) -> None:
    with duckdb_lake(lake) as connection:
        for number in range(COMMITS):
            connection.execute(f"INSERT INTO lake.{name} VALUES ({start + number}, NULL, {number})")


def insert_by_spark(engines: Engines, name: str, start: int) -> None:
    for number in range(COMMITS):
        engines.spark.sql(f"INSERT INTO lake.{name} VALUES ({start + number}, NULL, {number})")
