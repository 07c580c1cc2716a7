"""Spark 3.5 reads and changes tables whose scans the server plans, as Spark 4 does."""

from collections.abc import Iterator

import duckdb
import pytest
from pyiceberg.catalog import Catalog

from scripts.demo_job.server import RunningLake
from scripts.engines_job.spark import SparkProcess, running_spark
from tests.engines.conftest import new_folder
from tests.engines.plans import count_plans
from tests.engines.row_groups import CHANGES, COUNTED, create_with_many_row_groups, make_change

pytestmark = [
    pytest.mark.more_engines,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("lake_in_a_folder"),
]


@pytest.fixture(scope="module")
def spark_3(lake: RunningLake) -> Iterator[SparkProcess]:
    """With the lake as `lake`, of which Spark plans scans, and as `planned`."""
    settings = {"type": "rest", "uri": lake.uri, "cache-enabled": "false"}
    catalogs = {"lake": settings, "planned": settings | {"scan-planning-mode": "server"}}
    with new_folder() as folder, running_spark("3.5", folder, catalogs) as engine:
        yield engine


@pytest.fixture
def birds(duck: duckdb.DuckDBPyConnection, namespace: str) -> str:
    """Make a table with files, inlined rows, deletes, two specs and a renamed column; `k` numbers its rows."""
    name, table = f"{namespace}.birds", f"lake.{namespace}.birds"
    duck.execute(f"CREATE TABLE {table} (k bigint, day date, kind varchar, legs int)")
    rows = "SELECT range, DATE '2024-01-01' + (range // 10)::int, 'kind ' || range % 3, range % 5 FROM range({}, {})"
    duck.execute(f"INSERT INTO {table} {rows.format(0, 40)}")
    duck.execute(f"ALTER TABLE {table} SET PARTITIONED BY (day)")
    duck.execute(f"INSERT INTO {table} {rows.format(40, 80)}")
    duck.execute(f"ALTER TABLE {table} RENAME COLUMN legs TO feet")
    duck.execute(f"DELETE FROM {table} WHERE k IN (3, 41)")
    duck.execute(f"INSERT INTO {table} {rows.format(80, 83)}")
    return name


FILTERS = (
    "true",
    "k = 42",
    "k IN (3, 5, 81)",
    "day = DATE '2024-01-05'",
    "day > DATE '2024-01-06' AND kind <> 'kind 1'",
    "NOT (kind = 'kind 0' OR feet < 3)",
    "kind LIKE 'kind 2%' AND day IS NOT NULL",
    "feet IS NULL",
)


@pytest.mark.parametrize("where", FILTERS)
def test_rows_are_the_same_whoever_plans(
    spark_3: SparkProcess, duck: duckdb.DuckDBPyConnection, lake: RunningLake, birds: str, where: str
) -> None:
    query = "SELECT k, CAST(day AS {text}) AS d, kind, feet FROM {table} WHERE {where} ORDER BY k"
    truth = duck.execute(query.format(text="varchar", table=f"lake.{birds}", where=where)).fetchall()
    local = spark_3.rows(query.format(text="string", table=f"lake.{birds}", where=where))
    before = count_plans(lake)
    assert spark_3.rows(query.format(text="string", table=f"planned.{birds}", where=where)) == truth
    assert count_plans(lake) > before
    assert local == truth
    counted = f"SELECT count(*), min(feet), max(feet) FROM {{}}.{birds} WHERE {where}"
    assert spark_3.rows(counted.format("planned")) == spark_3.rows(counted.format("lake"))


def test_older_states_branches_and_metadata_columns_are_read(
    spark_3: SparkProcess, catalog: Catalog, namespace: str
) -> None:
    name = f"{namespace}.t"
    spark_3.rows(f"CREATE TABLE planned.{name} (k bigint, p int) USING iceberg PARTITIONED BY (p)")
    spark_3.rows(f"INSERT INTO planned.{name} VALUES (1, 0), (2, 1)")
    spark_3.rows(f"ALTER TABLE planned.{name} CREATE BRANCH side")
    spark_3.rows(f"ALTER TABLE planned.{name} CREATE TAG first")
    spark_3.rows(f"INSERT INTO planned.{name}.branch_side VALUES (3, 1)")
    spark_3.rows(f"INSERT INTO planned.{name} VALUES (4, 1)")
    snapshot = catalog.load_table(name).metadata.snapshots[0].snapshot_id
    read = f"SELECT k, _spec_id, _pos, _partition.p AS part FROM planned.{name}{{}} WHERE p = 1 ORDER BY k"
    found = {at: spark_3.rows(read.format(at)) for at in ("", ".branch_side", " VERSION AS OF 'first'")}
    assert {at: [row[0] for row in rows] for at, rows in found.items()} == {
        "": [2, 4],
        ".branch_side": [2, 3],
        " VERSION AS OF 'first'": [2],
    }
    assert spark_3.rows(read.format(f" VERSION AS OF {snapshot}")) == [(2, 0, 0, 1)]


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_through_a_planned_catalog_lose_no_row(
    spark_3: SparkProcess, duck: duckdb.DuckDBPyConnection, namespace: str, change: str, mode: str
) -> None:
    name = f"{namespace}.t"
    create_with_many_row_groups(spark_3.rows, duck, name, mode)
    counts = make_change(spark_3.rows, name, change)
    for table in (f"planned.{name}", f"lake.{name}"):
        assert spark_3.rows(COUNTED.format(table)) == [counts]
    assert duck.execute(COUNTED.format(f"lake.{name}")).fetchall() == [counts]


def test_tables_of_version_3_are_planned_by_the_client_unless_the_property_says_otherwise(
    spark_3: SparkProcess, lake: RunningLake, namespace: str
) -> None:
    name = f"planned.{namespace}.t"
    spark_3.rows(f"CREATE TABLE {name} (k bigint) USING iceberg TBLPROPERTIES ('format-version' = '3')")
    spark_3.rows(f"INSERT INTO {name} VALUES (1), (2)")
    before = count_plans(lake)
    assert spark_3.rows(f"SELECT k FROM {name} WHERE k > 1") == [(2,)]
    assert count_plans(lake) == before
    spark_3.rows(f"ALTER TABLE {name} SET TBLPROPERTIES ('ducklake.scan-planning' = 'server')")
    assert spark_3.rows(f"SELECT k FROM {name} WHERE k > 1") == [(2,)]
    assert count_plans(lake) > before
