"""Stock Spark procedures: the rows stay the same in every engine, and no cleaner takes what anybody still needs."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog
from scripts.demo_job.server import running_lake
from tests.engines.conftest import new_folder
from tests.engines.engines import Engines
from tests.engines.refs import FORMATS, Refs, created
from tests.engines.sequences import BIG

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark, pytest.mark.timeout(900)]

REWRITE_ALL = "options => map('rewrite-all', 'true')"
REWRITES = (
    f"rewrite_position_delete_files({REWRITE_ALL})",
    f"rewrite_data_files({REWRITE_ALL})",
    f"rewrite_data_files(strategy => 'sort', sort_order => 'name DESC, id', {REWRITE_ALL})",
    f"rewrite_data_files(strategy => 'sort', sort_order => 'zorder(id, amount)', {REWRITE_ALL})",
    "rewrite_manifests(use_caching => false)",
)
HIVE_ROWS = "(VALUES (1::BIGINT, 'a', 1::INT), (2, 'b', 1), (3, 'c', 2), (4, 'd', NULL))"
CLEANERS = (
    "CALL ducklake_expire_snapshots('lake', older_than => now())",
    "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
    "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)",
    "CALL lake.set_option('expire_older_than', '0 seconds')",
    "CALL lake.set_option('delete_older_than', '0 seconds')",
    "CHECKPOINT lake",
)


@pytest.fixture(scope="module")
def imports() -> Iterator[Path]:
    """A folder of others' files, where the lake's tables may lie, too."""
    with new_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def maintained(spark: SparkSession, imports: Path) -> Iterator[Engines]:
    """A lake of its own: DuckDB's cleaners take all tables of a lake."""
    settings = {"DUCKICELAKE_ALLOWED_LOCATIONS": str(imports)}
    with (
        new_folder() as folder,
        running_lake(folder / "lake", folder / "server.log", settings) as lake,
        pyiceberg_catalog(lake) as catalog,
        duckdb_lake(lake) as connection,
    ):
        catalog.create_namespace("ns")
        session = spark.newSession()
        session.conf.set("spark.sql.catalog.lake.uri", lake.uri)
        session.conf.set("spark.sql.catalog.files", "org.apache.iceberg.spark.SparkCatalog")
        session.conf.set("spark.sql.catalog.files.type", "hadoop")
        session.conf.set("spark.sql.catalog.files.warehouse", f"{imports}/hadoop")
        yield Engines(session, catalog, connection)


@pytest.fixture(params=list(FORMATS.items()), ids=list(FORMATS))
def refs(request: pytest.FixtureRequest, maintained: Engines) -> Refs:
    """A partitioned table that both sides wrote to and deleted from, with a branch and a tag."""
    name, properties = request.param
    table = created(maintained, f"ns.t_{name.replace('-', '_')}", properties, "PARTITIONED BY (bucket(2, id))")
    table.same("INSERT INTO {t} VALUES (1, 'a', 1), (2, 'b', 2), (3, NULL, 3)")
    table.same(BIG)
    both(table, "INSERT INTO {t} VALUES (4, 'inlined', 4), (5, 'too', NULL)")
    both(table, BIG.replace("+ 100", "+ 200"))
    table.spark("ALTER TABLE {t} CREATE TAG before")
    table.point("before", "main")
    table.same("DELETE FROM {t} WHERE id % 10 = 3")
    both(table, "DELETE FROM {t} WHERE id IN (2, 4, 105, 206)")
    table.spark("ALTER TABLE {t} CREATE BRANCH audit")
    table.point("audit", "main")
    table.spark("INSERT INTO {t}.branch_audit VALUES (7, 'x', 1)", "INSERT INTO audit VALUES (7, 'x', 1)")
    table.spark("DELETE FROM {t}.branch_audit WHERE id < 110", "DELETE FROM audit WHERE id < 110")
    return table


def both(table: Refs, statement: str) -> None:
    """What DuckDB does on main."""
    table.duck(statement, statement.replace("{t}", "main"))


def test_rewrites_and_cleaners_keep_all_rows(refs: Refs) -> None:
    refs.check()
    for number, procedure in enumerate(REWRITES):
        refs.call(procedure)
        refs.check_main()
        both(refs, f"DELETE FROM {{t}} WHERE id IN ({110 + number}, {210 + number})")
        both(refs, f"UPDATE {{t}} SET name = 'again' WHERE id IN ({120 + number}, {220 + number})")
        refs.check_main()
    refs.check()
    refs.call("compute_table_stats()")
    refs.call("compute_partition_stats()")
    assert refs.call("ancestors_of()")[0][0] == refs.head()
    refs.check()
    clean_with_spark(refs)
    refs.check()
    for cleaner in CLEANERS:
        refs.duck(cleaner)
        refs.check_main()
    refs.check()
    refs.same("DELETE FROM {t} WHERE id < 130")
    refs.call(f"set_current_snapshot(snapshot_id => {refs.head('audit')})")
    refs.point("main", "audit")
    refs.check()
    clean_with_spark(refs)
    for cleaner in CLEANERS:
        refs.duck(cleaner)
    refs.check()


def clean_with_spark(refs: Refs) -> None:
    """Expire all but what refs name, and delete every orphan; the action takes any age, unlike its procedure."""
    statistics = statistics_files(refs)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    refs.call(f"expire_snapshots(older_than => TIMESTAMP '{tomorrow:%Y-%m-%d %H:%M:%S}', retain_last => 1)")
    listed = {ref.snapshot_id for ref in refs.engines.catalog.load_table(refs.name).refs().values()}
    assert set(refs.snapshots()) == listed
    session = refs.engines.spark
    jvm: Any = session.sparkContext._jvm
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, f"lake.{refs.name}")
    action = jvm.org.apache.iceberg.spark.actions.SparkActions.get(session._jsparkSession).deleteOrphanFiles(table)
    action.usePrefixListing(table.location().startswith("s3"))  # Hadoop, which lists else, knows local files only
    action.olderThan(jvm.java.lang.System.currentTimeMillis() + 1000).execute()
    kept = statistics_files(refs)
    assert kept <= statistics
    files = refs.engines.catalog.load_table(refs.name).io
    assert all(files.new_input(path).exists() for path in kept)


def statistics_files(refs: Refs) -> set[str]:
    metadata = refs.engines.catalog.load_table(refs.name).metadata
    return {each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics)}


def parquet(path: Path, columns: str) -> None:
    """A file of one row, without field ids."""
    path.parent.mkdir(exist_ok=True)
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT {columns}) TO '{path}'")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.usefixtures("lake_in_a_folder")
def test_added_files_are_read_by_the_names_in_them(maintained: Engines, imports: Path, version: int) -> None:
    folder = imports / f"plain-{version}"
    parquet(folder / "a.parquet", "7::BIGINT id, 'x' AS name, 1::INT amount")
    parquet(folder / "b.parquet", "2::INT amount, 'y' AS name, 8::BIGINT id")
    refs = created(maintained, f"ns.added_{version}", FORMATS[f"v{version}-merge-on-read"])
    refs.same("INSERT INTO {t} VALUES (1, 'a', 1)")
    refs.call(f"add_files(source_table => '`parquet`.`file://{folder}`')")
    refs.mean("INSERT INTO main VALUES (7, 'x', 1), (8, 'y', 2)")
    if version == 2:  # PyIceberg 0.12 writes no format version 3
        parquet(folder / "c.parquet", "'w' AS name, 3::INT amount, 6::BIGINT id")
        maintained.catalog.load_table(refs.name).add_files([f"file://{folder}/c.parquet"])
        refs.mean("INSERT INTO main VALUES (6, 'w', 3)")
    refs.check()
    refs.same("ALTER TABLE {t} RENAME COLUMN name TO label")
    refs.forget()
    both(refs, "INSERT INTO {t} VALUES (9, 'z', 3)")
    both(refs, "UPDATE {t} SET label = 'changed' WHERE id = 7")
    refs.same("DELETE FROM {t} WHERE id = 8")
    refs.check()
    both(refs, "ALTER TABLE {t} RENAME COLUMN amount TO number")
    refs.forget()
    refs.duck("CALL ducklake_flush_inlined_data('lake')")
    refs.duck("CALL ducklake_merge_adjacent_files('lake')")
    refs.check()
    refs.call(f"rewrite_data_files({REWRITE_ALL})")
    refs.check()


@pytest.mark.usefixtures("lake_in_a_folder")
def test_added_hive_partitions_have_the_values_of_their_folders(maintained: Engines, imports: Path) -> None:
    source = imports / "hive"
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (FROM {HIVE_ROWS} AS v(id, name, amount)) TO '{source}' (FORMAT parquet, PARTITION_BY (amount))"
        )
    refs = created(maintained, "ns.hive", FORMATS["v2"], "PARTITIONED BY (amount)")
    refs.call(f"add_files(source_table => '`parquet`.`file://{source}`')")
    refs.mean(f"INSERT INTO main FROM {HIVE_ROWS}")
    refs.check()
    both(refs, "UPDATE {t} SET name = 'x' WHERE amount = 1 AND id = 2")
    both(refs, "DELETE FROM {t} WHERE amount = 2")
    refs.check()


@pytest.mark.usefixtures("lake_in_a_folder")
def test_table_of_a_hadoop_catalog_is_registered(maintained: Engines, imports: Path) -> None:
    for name, properties in FORMATS.items():
        source = f"files.db.{name.replace('-', '_')}"
        session = maintained.spark
        session.sql(f"CREATE TABLE {source} (id bigint, name string, amount int) TBLPROPERTIES ({properties})")
        session.sql(f"INSERT INTO {source} VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
        session.sql(f"ALTER TABLE {source} CREATE BRANCH side")
        session.sql(f"DELETE FROM {source} WHERE id = 2")
        session.sql(f"INSERT INTO {source}.branch_side VALUES (4, 'd', 4)")
        folder = imports / "hadoop" / "db" / name.replace("-", "_") / "metadata"
        newest = max(folder.glob("v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]))
        refs = Refs(maintained, f"ns.registered_{name.replace('-', '_')}")
        refs.mean("CREATE TABLE main (id bigint, name string, amount int)")
        refs.call(f"register_table(metadata_file => 'file://{newest}')")
        refs.mean("INSERT INTO main VALUES (1, 'a', 1), (3, 'c', 3)", "CREATE TABLE side AS FROM main")
        refs.mean("INSERT INTO side VALUES (2, 'b', 2), (4, 'd', 4)")
        refs.check()
        both(refs, "DELETE FROM {t} WHERE id = 1")
        both(refs, "INSERT INTO {t} VALUES (5, 'e', 5)")
        refs.same("UPDATE {t} SET amount = 0 WHERE id = 3")
        refs.check()
        refs.call(f"set_current_snapshot(snapshot_id => {refs.head('side')})")
        refs.point("main", "side")
        refs.check()
        assert json.loads(newest.read_text())["table-uuid"] == str(
            maintained.catalog.load_table(refs.name).metadata.table_uuid
        )
