"""Whatever DuckDB calls, partitions and sorts columns by: Spark loads the table, its metadata tables and deletes."""

from collections.abc import Sequence

import pytest
from pyspark.sql import Row

from tests.engines.engines import Engines
from tests.engines.test_native import assert_served, run

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

ROWS = "INSERT INTO {t} SELECT range, 'n' || range % 3 FROM range(20)"
MERGE_ON_READ = "('write.delete.mode' = 'merge-on-read')"
CREATE = "CREATE TABLE {t} (id bigint, name varchar)"
TABLES = {
    "column_named_as_a_partition_field": (
        CREATE,
        "ALTER TABLE {t} SET PARTITIONED BY (name)",
        ROWS,
        "ALTER TABLE {t} RENAME COLUMN name TO label",
        "ALTER TABLE {t} ADD COLUMN name varchar",
        "ALTER TABLE {t} SET PARTITIONED BY (name)",
        "INSERT INTO {t} SELECT range, 'l', 'x' FROM range(20)",
    ),
    "buckets_of_two_widths": (
        CREATE,
        "ALTER TABLE {t} SET PARTITIONED BY (bucket(4, id))",
        ROWS,
        "ALTER TABLE {t} SET PARTITIONED BY (bucket(8, id))",
        ROWS,
        "ALTER TABLE {t} ADD COLUMN id_bucket int",
    ),
    "dots_and_orders": (
        "CREATE TABLE {t} (id bigint, st STRUCT(a int), l int[])",
        'ALTER TABLE {t} ADD COLUMN "st.a" int',
        "INSERT INTO {t} SELECT range, {'a': 1}, [2], range FROM range(20)",
        'ALTER TABLE {t} RENAME COLUMN "st.a" TO sta',
        "ALTER TABLE {t} SET SORTED BY (l, st)",
    ),
    "types_that_went": (
        "CREATE TABLE {t} AS SELECT range AS id, INTERVAL 1 DAY AS i, range::int AS x, 1::hugeint AS h FROM range(20)",
        "ALTER TABLE {t} DROP COLUMN i",
        "ALTER TABLE {t} ALTER x TYPE DOUBLE",
        "ALTER TABLE {t} DROP COLUMN h",
    ),
}


@pytest.mark.parametrize("statements", TABLES.values(), ids=TABLES)
def test_spark_reads_and_deletes_whatever_duckdb_defined(
    engines: Engines, namespace: str, statements: Sequence[str]
) -> None:
    for statement in statements:
        run(engines, namespace, "t", statement)
    assert_maintained(engines, f"{namespace}.t")


def test_version_1_that_duckdb_repartitions(engines: Engines, namespace: str) -> None:
    engines.spark.sql(
        f"CREATE TABLE lake.{namespace}.t (id bigint, name string) PARTITIONED BY (name) "
        "TBLPROPERTIES ('format-version' = '1')"
    )
    for statement in (ROWS, "ALTER TABLE {t} SET PARTITIONED BY (bucket(4, id))", ROWS):
        run(engines, namespace, "t", statement)
    engines.spark.sql(f"ALTER TABLE lake.{namespace}.t ADD PARTITION FIELD truncate(2, name)")
    run(engines, namespace, "t", "ALTER TABLE {t} SET PARTITIONED BY (name)")
    run(engines, namespace, "t", ROWS)
    assert_maintained(engines, f"{namespace}.t")


def assert_maintained(engines: Engines, name: str) -> None:
    """Rows, files and partitions are read; a delete by positions and an append are seen by all engines."""
    table, spark = f"lake.{name}", engines.spark
    assert_served(engines, name)
    rows = spark.table(table).count()
    assert spark.sql(f"SELECT sum(record_count) AS n FROM {table}.files").collect() == [Row(n=rows)]
    assert spark.sql(f"SELECT sum(record_count) AS n FROM {table}.partitions").collect() == [Row(n=rows)]
    assert spark.table(f"{table}.all_data_files").count()
    if engines.catalog.load_table(name).format_version > 1:
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES {MERGE_ON_READ}")
    spark.sql(f"DELETE FROM {table} WHERE id = 7")
    assert_served(engines, name)
    loaded = engines.catalog.load_table(name)
    if loaded.spec().is_unpartitioned():  # PyIceberg makes no buckets without a further package
        loaded.append(loaded.scan(limit=1).to_arrow())
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE id = 8")
    assert_served(engines, name)
