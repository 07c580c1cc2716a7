"""Spark reads the same through a catalog that plans its scans as through one of which Spark plans them itself."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from random import Random
from typing import Any

import duckdb
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from scripts.demo_job.server import RunningLake
from tests.engines.engines import Engines
from tests.engines.row_groups import CHANGES, COUNTED, create_with_many_row_groups, make_change
from tests.support.scan_cases import (
    SPECS,
    RowFilter,
    columns_sql,
    has_floats,
    has_long_texts,
    make_filters,
    make_rows,
    make_test,
    values_sql,
)

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark, pytest.mark.timeout(900)]

MERGE_ON_READ = {f"write.{act}.mode": "merge-on-read" for act in ("delete", "update", "merge")}
FILTERS = 14


@pytest.fixture(scope="module")
def planned(spark: SparkSession, lake: RunningLake) -> str:
    """A second catalog of the lake, `planned`, whose scans the server plans."""
    settings = {"type": "rest", "uri": lake.uri, "cache-enabled": "false", "scan-planning-mode": "server"}
    spark.conf.set("spark.sql.catalog.planned", "org.apache.iceberg.spark.SparkCatalog")
    for name, value in {**settings, **lake.backend.catalog}.items():
        spark.conf.set(f"spark.sql.catalog.planned.{name}", value)
    return "planned"


@dataclass(slots=True)
class Tables:
    """A table in both catalogs. who_plans: sets who plans, where the format says that it is the client."""

    engines: Engines
    name: str
    is_v3: bool

    def spark(self, sql: str) -> None:
        self.engines.spark.sql(sql.replace("{t}", f"lake.{self.name}"))

    def duck(self, sql: str) -> None:
        self.engines.duck.execute(sql.replace("{t}", f"lake.{self.name}"))

    def in_mode(self, mode: str) -> str:
        """Return the table's name in the catalog of a mode."""
        if self.is_v3:
            self.spark(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('ducklake.scan-planning' = '{mode}')")
        return f"{'planned' if mode == 'server' else 'lake'}.{self.name}"

    def load(self, mode: str) -> Any:
        """Load Java's table, and check that it plans as it is said to."""
        name = self.in_mode(mode)
        session = self.engines.spark
        table = jvm(session).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, name)
        planner = table.getClass().getSimpleName()
        assert (planner == "RESTTable") == (mode == "server"), (mode, planner)
        return table


def jvm(session: SparkSession) -> Any:
    assert session._jvm is not None
    return session._jvm


def create(engines: Engines, namespace: str, spec: Sequence[str], version: int) -> Tables:
    properties = {"format-version": str(version), **MERGE_ON_READ}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    partitioned = f"PARTITIONED BY ({', '.join(spec)})" if spec else ""
    tables = Tables(engines, f"{namespace}.t", version == 3)
    tables.spark(f"CREATE TABLE {{t}} ({columns_sql('spark')}) USING iceberg {partitioned} TBLPROPERTIES ({listed})")
    return tables


def fill(tables: Tables, random: Random, other_spec: Sequence[str]) -> dict[str, str]:
    """Give the table a history; return its refs, each with the suffix of the table's name in Spark."""
    tables.spark(f"INSERT INTO {{t}} VALUES {values_sql(make_rows(random, 0, 8), 'spark')}")
    tables.duck(f"INSERT INTO {{t}} VALUES {values_sql(make_rows(random, 10, 4), 'duckdb')}")  # which inlines them
    tables.duck(f"INSERT INTO {{t}} VALUES {values_sql(make_rows(random, 20, 12), 'duckdb')}")
    tables.spark("DELETE FROM {t} WHERE k IN (1, 12, 22)")
    tables.spark("ALTER TABLE {t} CREATE TAG first")
    tables.spark("ALTER TABLE {t} CREATE BRANCH side")
    tables.spark(f"INSERT INTO {{t}}.branch_side VALUES {values_sql(make_rows(random, 40, 4), 'spark')}")
    tables.spark("DELETE FROM {t}.branch_side WHERE k IN (2, 40)")
    for field in other_spec:
        tables.spark(f"ALTER TABLE {{t}} ADD PARTITION FIELD {field}")
    tables.duck(f"INSERT INTO {{t}} VALUES {values_sql(make_rows(random, 50, 12), 'duckdb')}")
    tables.spark(f"INSERT INTO {{t}} VALUES {values_sql(make_rows(random, 70, 6), 'spark')}")
    tables.duck("DELETE FROM {t} WHERE k IN (3, 51)")
    tables.duck(f"INSERT INTO {{t}} VALUES {values_sql(make_rows(random, 80, 3), 'duckdb')}")
    return {"main": "", "first": " VERSION AS OF 'first'", "side": ".branch_side"}


def read_keys(session: SparkSession, name: str, suffix: str, filters: Sequence[RowFilter]) -> dict[int, list[int]]:
    """Return the keys of the rows that pass each filter, by its number: one job for all."""
    queries = [
        f"SELECT {number} AS n, k FROM {name}{suffix} WHERE {row_filter.sql('spark')}"
        for number, row_filter in enumerate(filters)
    ]
    found: dict[int, list[int]] = {number: [] for number in range(len(filters))}
    for number, k in session.sql(" UNION ALL ".join(queries)).collect():
        found[number].append(k)
    return {number: sorted(keys) for number, keys in found.items()}


def plan_files(session: SparkSession, table: Any, ref: str, row_filter: RowFilter) -> dict[str, tuple[Any, ...]]:
    """Return the files that Java's scan reads by path, each with what is said of it and its deletes."""
    parse = jvm(session).org.apache.iceberg.expressions.ExpressionParser.fromJson
    scan = table.newScan().filter(parse(json.dumps(row_filter.json()), table.schema()))
    tasks = (scan if ref == "main" else scan.useRef(ref)).planFiles()
    found = {}
    for task in tasks.iterator():
        file = task.file()
        deletes = sorted((str(delete.location()), delete.recordCount()) for delete in task.deletes())
        partition = task.spec().partitionToPath(file.partition())
        said = (file.specId(), partition, file.recordCount(), file.fileSizeInBytes(), file.firstRowId())
        found[str(file.location())] = (*said, deletes)
    tasks.close()
    return found


def read_truth(session: SparkSession, name: str, suffix: str, filters: Sequence[RowFilter]) -> dict[int, list[int]]:
    """Return the same by DuckDB's evaluation of all rows."""
    rows = session.sql(f"SELECT * FROM {name}{suffix}").toArrow()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", rows)
        connection.execute("CREATE TABLE t AS FROM rows")  # of Arrow's tables, it lets Arrow compare, NaN too
        queries = (f"SELECT k FROM t WHERE {row_filter.sql('duckdb')} ORDER BY k" for row_filter in filters)
        truth = {n: [k for (k,) in connection.sql(query).fetchall()] for n, query in enumerate(queries)}
    assert rows.num_rows > 0
    return truth


def assert_parity(tables: Tables, refs: Mapping[str, str], filters: Sequence[RowFilter]) -> None:
    """Rows are the true ones, and so are the files.

    But for floats: Java leaves out files of only NaN, though NaN is greater than numbers, and row groups by -0.0.
    And for long texts, of which the server compares as many bytes as a key has behind what all bounds begin with.
    """
    session, every = tables.engines.spark, filters
    for suffix in refs.values():
        filters = every[:: 4 if suffix else 1]
        name = tables.in_mode("client")
        truth, local = (read(session, name, suffix, filters) for read in (read_truth, read_keys))
        served = read_keys(session, tables.in_mode("server"), suffix, filters)
        for number, row_filter in enumerate(filters):
            case = suffix, row_filter.sql("spark")
            if has_floats(row_filter):
                assert set(local[number]) <= set(served[number]) <= set(truth[number]), case
            else:
                assert served[number] == local[number] == truth[number], case
    local_table, served_table = (tables.load(mode) for mode in ("client", "server"))
    for ref in refs:
        for row_filter in every:
            local_files, files = (plan_files(session, table, ref, row_filter) for table in (local_table, served_table))
            case = ref, row_filter.sql("spark")
            assert files.keys() <= local_files.keys() or has_floats(row_filter) or has_long_texts(row_filter), case
            for path, said in files.items():
                assert local_files.get(path, said) == said, case


@pytest.mark.parametrize(("spec", "version"), [*zip(SPECS, cycle([2, 3])), ("none", 3), ("identities", 2)])
def test_the_server_plans_no_file_more_and_no_row_less(
    engines: Engines, planned: str, namespace: str, spec: str, version: int
) -> None:
    random = Random(f"{spec} {version}")
    tables = create(engines, namespace, SPECS[spec], version)
    others = [field for fields in SPECS.values() for field in fields if field not in SPECS[spec]]
    refs = fill(tables, random, random.sample(others, 1))
    partition_columns = [field.rpartition(" ")[2].rpartition("(")[2].rstrip(")") for field in SPECS[spec]]
    filters = make_filters(random, FILTERS) + [make_test(random, name) for name in partition_columns * 3]
    assert_parity(tables, refs, filters)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_through_a_planned_catalog_lose_no_row(
    engines: Engines, planned: str, namespace: str, change: str, mode: str
) -> None:
    name = f"{namespace}.t"
    spark = engines.spark

    def run(sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in spark.sql(sql).collect()]

    create_with_many_row_groups(run, engines.duck, name, mode)
    counts = make_change(run, name, change)
    for table in (f"{planned}.{name}", f"lake.{name}"):
        assert run(COUNTED.format(table)) == [counts]
    assert engines.duck.execute(COUNTED.format(f"lake.{name}")).fetchall() == [counts]


def test_a_delete_of_a_whole_partition_leaves_the_others(engines: Engines, planned: str, namespace: str) -> None:
    name = f"{namespace}.t"
    engines.spark.sql(f"CREATE TABLE {planned}.{name} PARTITIONED BY (p) AS SELECT id, id % 3 AS p FROM range(30)")
    engines.spark.sql(f"DELETE FROM {planned}.{name} WHERE p = 1")
    engines.spark.sql(f"DELETE FROM {planned}.{name} WHERE p IS NULL")
    for table in (f"{planned}.{name}", f"lake.{name}"):
        assert engines.spark.sql(f"SELECT p, count(*) FROM {table} GROUP BY p ORDER BY p").collect() == [
            (0, 10),
            (2, 10),
        ]


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_columns_are_read_of_planned_files(
    engines: Engines, planned: str, namespace: str, version: int
) -> None:
    tables = create(engines, namespace, ("i",), version)
    tables.spark(f"INSERT INTO {{t}} VALUES {values_sql(make_rows(Random(1), 0, 6), 'spark')}")
    tables.spark("DELETE FROM {t} WHERE k = 3")
    row_id = ", _row_id" if version == 3 else ""
    query = f"SELECT k, _file, _pos, _spec_id, _partition{row_id} FROM {{}} WHERE k > 1 ORDER BY k"
    local, served = (engines.spark.sql(query.format(tables.in_mode(mode))).collect() for mode in ("client", "server"))
    assert len(served) == 3
    assert served == local


def test_tables_of_version_3_are_planned_by_the_client_unless_the_property_says_otherwise(
    engines: Engines, planned: str, namespace: str
) -> None:
    tables = create(engines, namespace, (), 3)
    tables.spark(f"INSERT INTO {{t}} VALUES {values_sql(make_rows(Random(1), 0, 6), 'spark')}")
    session = engines.spark
    loaded = jvm(session).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        session._jsparkSession, f"{planned}.{tables.name}"
    )
    assert loaded.getClass().getSimpleName() == "BaseTable"
    sequence = "SELECT _last_updated_sequence_number FROM {}"
    assert None not in {number for (number,) in session.sql(sequence.format(f"{planned}.{tables.name}")).collect()}
    with pytest.raises(Py4JJavaError, match="scan-planning-mode=client"):
        session.sql(sequence.format(tables.in_mode("server"))).collect()
