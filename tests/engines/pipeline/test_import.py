"""Tables of other catalogs come into the lake: a Hadoop catalog's, a Hive metastore's, another duckicelake's."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from duckicelake.cli.main import app
from duckicelake.errors import JobConflictError, LeaseLostError
from duckicelake.pipeline.destination import CATALOG_NAME
from duckicelake.pipeline.foreign_catalog import ForeignCatalog, attach_source
from duckicelake.pipeline.importer import (
    ORIGIN_PROPERTY,
    ImportedTable,
    ImportRequest,
    ImportResult,
    import_tables,
    register_table,
)
from duckicelake.pipeline.job import run_job
from duckicelake.pipeline.progress import SILENT
from duckicelake.pipeline.verification import Comparison, compare_tables
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from scripts.demo_job.connect import duckdb_lake
from scripts.demo_job.server import RunningLake, running_lake

pytestmark = [
    pytest.mark.more_engines,
    pytest.mark.engine,
    pytest.mark.spark,
    pytest.mark.usefixtures("lake_in_a_folder"),
]

BIRDS = "id bigint NOT NULL COMMENT 'key', name string, seen timestamp, weight double, tags array<string>"
ROWS = "(1, 'a', TIMESTAMP '2024-01-01', double('NaN'), array('x', NULL)), (2, 'b', NULL, -0.0D, NULL)"


class Other:
    """A catalog in Spark whose tables lie in a folder that the lake may read."""

    def __init__(self, spark: SparkSession, lake: RunningLake, namespace: str, properties: dict[str, str]) -> None:
        self.spark, self.namespace, self.properties = spark, namespace, properties
        self.client = CatalogClient(Connection(lake.uri))
        self.name = attach_source(spark, properties)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """With {t} and {n}: a table's and a namespace's name in front."""
        placed = statement.format(n=f"{self.name}.{self.namespace}")
        return [tuple(row) for row in self.spark.sql(placed).collect()]

    def create(self, table: str, *properties: str) -> None:
        """A table with two snapshots of rows, one of a delete, and a tag."""
        set_ = ", ".join(("'owner.team' = 'zoo'", *properties))
        self.sql(
            f"CREATE TABLE {{n}}.{table} ({BIRDS}) USING iceberg PARTITIONED BY (bucket(2, id)) TBLPROPERTIES ({set_})"
        )
        self.sql(f"ALTER TABLE {{n}}.{table} WRITE ORDERED BY name")
        self.sql(f"INSERT INTO {{n}}.{table} VALUES {ROWS}")
        self.sql(f"ALTER TABLE {{n}}.{table} CREATE TAG first")
        self.sql(f"INSERT INTO {{n}}.{table} VALUES (3, 'c', TIMESTAMP '2024-01-03', 1.5D, array())")
        self.sql(f"DELETE FROM {{n}}.{table} WHERE id = 2")

    def bring(self, *tables: str, copy: bool = False, leave_source: bool = False) -> ImportResult:
        """Import these, or all of the namespace."""
        request = ImportRequest(
            self.properties,
            [((self.namespace,), table) for table in tables],
            [(self.namespace,)],
            copy=copy,
            leave_source=leave_source,
        )
        return import_tables(self.spark, self.client, request, SILENT)

    def same(self, table: str, attach: str | None = None) -> bool:
        """Whether the lake's table, as Spark or DuckDB reads it, has the other catalog's rows."""
        ours = f"{'' if attach is None else 'duckdb:'}{self.namespace}.{table}"
        theirs = f"source:{self.namespace}.{table}"
        return compare_tables(self.spark, Comparison(theirs, ours, source=self.properties, attach=attach), SILENT).equal

    def ours(self, table: str) -> dict[str, str]:
        """Properties of the lake's table."""
        found: dict[str, str] = self.client.load_table((self.namespace,), table)["metadata"]["properties"]
        return found


def place(lake: RunningLake, name: str) -> Path:
    """A folder that the lake may read, and nothing of it writes to by itself."""
    return lake.folder / "warehouse" / "data" / "elsewhere" / name


@pytest.fixture
def hadoop(spark: SparkSession, lake: RunningLake, namespace: str) -> Other:
    secrets = {"uri": "https://me:secret@other/x?token=secret", "header.Authorization": "secret"}
    warehouse = f"file://{place(lake, namespace)}"
    other = Other(spark, lake, namespace, {"type": "hadoop", "warehouse": warehouse, **secrets})
    other.sql("CREATE NAMESPACE {n}")
    return other


def test_registered_table_has_history_and_files_of_the_other_catalog_and_neither_may_delete_any(
    hadoop: Other, lake: RunningLake
) -> None:
    hadoop.create("birds")
    hadoop.sql("CREATE TABLE {n}.empty (id bigint) USING iceberg")
    files = hadoop.sql("SELECT file_path FROM {n}.birds.all_files ORDER BY 1")
    result = hadoop.bring()
    assert result.tables == (
        ImportedTable(f"{hadoop.namespace}.birds", "registered", 3),
        ImportedTable(f"{hadoop.namespace}.empty", "registered"),
    )
    lakes = f"{CATALOG_NAME}.{hadoop.namespace}.birds"
    assert [
        tuple(row) for row in hadoop.spark.sql(f"SELECT file_path FROM {lakes}.all_files ORDER BY 1").collect()
    ] == files
    assert hadoop.spark.sql(f"SELECT count(*) FROM {lakes} VERSION AS OF 'first'").collect()[0][0] == 2
    assert hadoop.same("birds")
    assert hadoop.same("birds", lake.ducklake_attach)
    assert dict(hadoop.sql("SHOW TBLPROPERTIES {n}.birds"))["gc.enabled"] == "false"
    assert hadoop.ours("birds").items() >= {"gc.enabled": "false", "owner.team": "zoo"}.items()
    (job,) = hadoop.client.jobs(namespace=hadoop.namespace, table="birds")
    assert (job["kind"], job["result"], job["counts"]) == ("import", "done", {"snapshots": 3})
    warehouse = hadoop.properties["warehouse"]
    assert job["parameters"]["from"] == {"type": "hadoop", "warehouse": warehouse, "uri": "https://other/x"}


def test_import_that_is_repeated_brings_what_is_missing_and_says_what_has_changed(hadoop: Other) -> None:
    hadoop.create("birds")
    hadoop.sql("CREATE TABLE {n}.taken (id bigint) USING iceberg")
    hadoop.spark.sql(f"CREATE TABLE {CATALOG_NAME}.{hadoop.namespace}.taken (x string)")
    assert [table.result for table in hadoop.bring().tables] == ["registered", "failed"]
    hadoop.sql("CREATE TABLE {n}.late (id bigint) USING iceberg")
    birds, late, taken = hadoop.bring().tables
    assert (birds.result, birds.message, late.result) == ("there", None, "registered")
    assert taken.message == "the lake has another table of this name: rename one of them"
    hadoop.sql("INSERT INTO {n}.birds VALUES (4, 'd', NULL, 0D, NULL)")
    (birds,) = hadoop.bring("birds").tables
    assert (birds.result, birds.message is not None and "written to it since" in birds.message) == ("there", True)
    (missing,) = hadoop.bring("nothing").tables
    assert missing.result == "failed"


def test_import_that_is_superseded_leaves_the_source_guarded(hadoop: Other) -> None:
    hadoop.create("birds")
    theirs = ForeignCatalog(hadoop.spark, hadoop.name)
    before = theirs.load((hadoop.namespace,), "birds")
    hadoop.bring("birds")
    parameters = (hadoop.client, "import", before.namespace, before.name)
    with run_job(*parameters) as job:
        with pytest.raises(JobConflictError, match="already exists"):
            register_table(hadoop.client, theirs, before, job, leave_source=False)
        hadoop.client.end_job(before.namespace, before.name, job.id, {"result": "failed"})
        with pytest.raises(LeaseLostError):
            register_table(hadoop.client, theirs, before, job, leave_source=False)
    assert dict(hadoop.sql("SHOW TBLPROPERTIES {n}.birds"))["gc.enabled"] == "false"


def test_source_that_is_left_alone_leaves_only_the_lakes_table_guarded(hadoop: Other) -> None:
    hadoop.create("birds")
    (birds,) = hadoop.bring("birds", leave_source=True).tables
    assert (birds.result, birds.message is not None and "gc.enabled" in birds.message) == ("registered", True)
    assert hadoop.ours("birds")["gc.enabled"] == "false"
    assert "gc.enabled" not in dict(hadoop.sql("SHOW TBLPROPERTIES {n}.birds"))


def test_table_that_lies_elsewhere_is_refused_with_the_setting_that_would_let_it_in(
    spark: SparkSession, lake: RunningLake, namespace: str, folder: Path
) -> None:
    other = Other(spark, lake, namespace, {"type": "hadoop", "warehouse": f"file://{folder}"})
    other.sql("CREATE NAMESPACE {n}")
    other.sql("CREATE TABLE {n}.t (id bigint) USING iceberg")
    (refused,) = other.bring("t").tables
    assert refused.result == "failed"
    assert refused.message is not None
    assert "DUCKICELAKE_ALLOWED_LOCATIONS" in refused.message
    assert not other.client.table_exists((namespace,), "t")


def test_copy_has_schema_partitions_order_and_rows_in_files_of_its_own(hadoop: Other, lake: RunningLake) -> None:
    hadoop.create("birds", "'write.format.default' = 'orc'")
    (refused,) = hadoop.bring("birds").tables
    assert refused.message is not None
    assert refused.message.endswith("or bring its rows with --copy")
    assert "gc.enabled" not in dict(hadoop.sql("SHOW TBLPROPERTIES {n}.birds"))
    (copied,) = hadoop.bring("birds", copy=True).tables
    assert (copied.result, copied.snapshots) == ("copied", 1)
    assert hadoop.same("birds", lake.ducklake_attach)
    made = hadoop.spark.sql(f"SHOW CREATE TABLE {CATALOG_NAME}.{hadoop.namespace}.birds").collect()[0][0]
    assert "id BIGINT NOT NULL COMMENT 'key'" in made
    assert "PARTITIONED BY (bucket(2, id))" in made
    assert "'sort-order' = 'name ASC NULLS FIRST'" in made
    assert hadoop.ours("birds")["owner.team"] == "zoo"
    assert "gc.enabled" not in hadoop.ours("birds")
    hadoop.sql("DROP TABLE {n}.birds PURGE")
    assert hadoop.spark.table(f"{CATALOG_NAME}.{hadoop.namespace}.birds").count() == 2


def test_copy_has_the_columns_of_now_though_nothing_was_written_since_they_changed(hadoop: Other) -> None:
    hadoop.sql("CREATE TABLE {n}.t (a string, b string, gone string) USING iceberg")
    hadoop.sql("INSERT INTO {n}.t VALUES ('A', 'B', 'let go')")
    for change in ("ALTER COLUMN b FIRST", "DROP COLUMN gone", "ADD COLUMN gone string", "RENAME COLUMN a TO c"):
        hadoop.sql(f"ALTER TABLE {{n}}.t {change}")
    (copied,) = hadoop.bring("t", copy=True).tables
    assert (copied.result, copied.snapshots) == ("copied", 1)
    (row,) = hadoop.spark.table(f"{CATALOG_NAME}.{hadoop.namespace}.t").collect()
    assert row.asDict() == {"b": "B", "c": "A", "gone": None}
    assert hadoop.same("t")


def test_copy_that_was_interrupted_gets_its_rows_once(hadoop: Other) -> None:
    hadoop.create("birds")
    theirs = ForeignCatalog(hadoop.spark, hadoop.name)
    birds = theirs.load((hadoop.namespace,), "birds")
    model = theirs.java_table((hadoop.namespace,), "birds")
    ForeignCatalog(hadoop.spark, CATALOG_NAME).create_like(
        (hadoop.namespace,), "birds", model, 2, {ORIGIN_PROPERTY: birds.uuid}
    )
    results = [hadoop.bring("birds", copy=True).tables[0].result for _ in range(2)]
    assert results == ["copied", "there"]
    assert hadoop.same("birds")


def test_tables_of_a_hive_metastore_are_registered(spark: SparkSession, lake: RunningLake, namespace: str) -> None:
    folder = place(lake, namespace)
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", "/dev/null")  # type: ignore[union-attr]
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:memory:{namespace};create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "iceberg.engine.hive.lock-enabled": "false",
    }
    hadoop = {f"hadoop.{key}": value for key, value in settings.items()}
    other = Other(spark, lake, namespace, {"type": "hive", "warehouse": f"file://{folder}", **hadoop})
    other.sql("CREATE NAMESPACE {n} WITH PROPERTIES ('team' = 'zoo')")
    other.create("birds")
    assert [table.result for table in other.bring().tables] == ["registered"]
    assert other.same("birds", lake.ducklake_attach)


@contextmanager
def second_lake(lake: RunningLake, name: str) -> Iterator[RunningLake]:
    """Another catalog of ours, with its folder where the first may read."""
    folder = place(lake, name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with running_lake(folder, lake.folder / f"{name}.log") as running:
        yield running


def test_import_command_brings_all_that_another_duckicelake_has_even_what_duckdb_inlined_there(
    spark: SparkSession, lake: RunningLake, namespace: str
) -> None:
    with second_lake(lake, namespace) as second:
        other = Other(spark, lake, f"{namespace}_other", {"type": "rest", "uri": second.uri})
        other.sql("CREATE NAMESPACE {n} WITH PROPERTIES ('team' = 'zoo')")
        other.create("birds", "'format-version' = '3'")
        other.sql("CREATE VIEW {n}.names AS SELECT name FROM {n}.birds")
        with duckdb_lake(second) as native:
            native.execute(f"INSERT INTO lake.{other.namespace}.birds VALUES (7, 'inlined', NULL, 'inf', ['y'])")
            native.execute(f"DELETE FROM lake.{other.namespace}.birds WHERE id = 1")
        source = [f"--source={key}={value}" for key, value in other.properties.items()]
        ran = CliRunner().invoke(app, ["pipeline", "import", "--uri", lake.uri, "--json", *source])
        assert ran.exit_code == 0, ran.output
        told = json.loads(ran.stdout)
        assert (told["failed"], told["views"]) == (0, [f"{other.namespace}.names"])
        assert [table["result"] for table in told["tables"]] == ["registered"]
        assert other.same("birds", lake.ducklake_attach)
        namespaces = other.client.get(other.client.iceberg("namespaces", other.namespace))
        assert namespaces["properties"]["team"] == "zoo"
        other.spark.sql(f"DELETE FROM {CATALOG_NAME}.{other.namespace}.birds WHERE id = 7")
        assert other.spark.table(f"{CATALOG_NAME}.{other.namespace}.birds").count() == 1
        assert other.sql("SELECT count(*) FROM {n}.birds") == [(2,)]


def test_import_from_a_catalog_that_is_not_there_says_so(lake: RunningLake, spark: SparkSession) -> None:
    source = ["--source", "type=rest", "--source", "uri=http://127.0.0.1:1"]
    ran = CliRunner().invoke(app, ["pipeline", "import", "--uri", lake.uri, "--json", *source])
    assert ran.exit_code == 4, ran.output
    assert ran.stderr.count("\n") == 1
    ran = CliRunner().invoke(app, ["pipeline", "import", "--uri", lake.uri, "--source", "uri=x"])
    assert (ran.exit_code, "type (rest, hive, hadoop, glue, jdbc) is missing" in ran.stderr) == (2, True)
