"""The doctor finds nothing in lakes that DuckDB alone, or an earlier DuckLake, brought to where they are."""

from collections.abc import Callable, Iterable

import duckdb
import psycopg

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.doctor import examine_tables
from duckicelake.catalog.table.load import load_current_table
from duckicelake.changelog.doctor import diagnose
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.format import prepare_catalog
from duckicelake.postgres.database import Database
from tests.support.lakes import Lake, assert_same_rows

LIFE = """
    CREATE TABLE a (i INTEGER, s VARCHAR, l INTEGER[], st STRUCT(q INTEGER), m MAP(VARCHAR, INTEGER));
    INSERT INTO a VALUES (1, 'x', [1], {'q': 1}, MAP {'a': 1});
    INSERT INTO a SELECT range, 'y', [range], {'q': range}, MAP {'k': range} FROM range(100);
    CALL ducklake_flush_inlined_data('lake');
    DELETE FROM a WHERE i < 5;
    UPDATE a SET s = 'z' WHERE i = 20;
    DELETE FROM a WHERE i % 10 = 3;
    CALL ducklake_flush_inlined_data('lake');
    ALTER TABLE a ADD COLUMN n INTEGER DEFAULT 5;
    ALTER TABLE a SET PARTITIONED BY (bucket(4, i));
    INSERT INTO a SELECT range, 'y', [range], {'q': range}, MAP {'k': range}, range FROM range(100, 200);
    ALTER TABLE a RESET PARTITIONED BY;
    CALL ducklake_merge_adjacent_files('lake');
    DELETE FROM a WHERE i BETWEEN 50 AND 150;
    CALL ducklake_rewrite_data_files('lake');
    CALL ducklake_expire_snapshots('lake', versions => [2]);
    CALL ducklake_expire_snapshots('lake', versions => [3, 5]);
    CREATE TABLE b AS SELECT * FROM a;
    ALTER TABLE b RENAME TO c;
    DROP TABLE c;
    CREATE SCHEMA more;
    CREATE TABLE more.x AS SELECT 1 AS i;
    DROP SCHEMA more CASCADE;
    ALTER TABLE a SET SORTED BY (i);
    ALTER TABLE a DROP COLUMN n;
    CALL ducklake_expire_snapshots('lake', versions => [9]);
    CALL ducklake_cleanup_old_files('lake', cleanup_all => true);
    CALL ducklake_delete_orphaned_files('lake', cleanup_all => true);
    CHECKPOINT lake;
    CALL ducklake_expire_snapshots('lake', older_than => now());
    DROP TABLE a;
    CHECKPOINT lake
"""


def statements(text: str) -> Iterable[str]:
    return (statement.strip() for statement in text.split(";"))


def faults(database: Database) -> list[str]:
    damage, _ = examine_tables(database)
    return [f"{each.name}: {each.detail}" for each in (*diagnose(database), *damage) if not each.ok]


def test_lake_is_sound_after_each_procedure_of_ducklake(
    database: Database, ducklake: duckdb.DuckDBPyConnection
) -> None:
    for statement in statements(LIFE):
        ducklake.execute(statement)
        assert faults(database) == [], statement


def test_gaps_of_before_a_lake_was_served_are_sound(
    empty_database_url: str, attach: Callable[..., duckdb.DuckDBPyConnection], tmp_path: object
) -> None:
    lake = attach(url=empty_database_url, data_path=f"{tmp_path}/own/")
    for number in range(4):
        lake.execute(f"CREATE TABLE t{number} (i INTEGER)")
    lake.execute("CALL ducklake_expire_snapshots('lake', versions => [2])")
    database = open_lake_database(empty_database_url, pool_size=1)
    prepare_catalog(database, "/ignored/", creates=False)
    assert faults(database) == []
    database.close()


def test_statistics_without_a_word_on_nulls_are_sound(
    database_url: str, database: Database, ducklake: duckdb.DuckDBPyConnection
) -> None:
    """As DuckLake 0.3 left them for what is in lists and maps; the rows that DuckDB finds are all."""
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute("CREATE TABLE t (l INTEGER[], m MAP(VARCHAR, INTEGER), s STRUCT(b INTEGER)[])")
    ducklake.execute("INSERT INTO t VALUES ([1], MAP {'a': 1}, [{'b': 1}]), ([NULL], MAP {'a': NULL}, [{'b': NULL}])")
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE ducklake_table_column_stats SET contains_null = NULL, contains_nan = NULL")
        connection.execute("UPDATE ducklake_file_column_stats SET value_count = NULL, null_count = NULL")
    assert faults(database) == []
    ducklake.execute("INSERT INTO t VALUES ([7], MAP {'a': 7}, [{'b': 7}])")
    assert faults(database) == []
    found = "SELECT count(*) FILTER (l[1] IS NULL), count(*) FILTER (s[1].b IS NULL), count(l[1]), max(l[1]) FROM t"
    assert ducklake.execute(found).fetchall() == [(1, 1, 2, 7)]


def test_snapshot_behind_an_earlier_one_is_a_fault(database: Database) -> None:
    """A writer that had seen only snapshot 0 took an id that another one's gap left free."""
    with database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_epoch SET epoch = 1")
        cursor.execute("INSERT INTO ducklake_snapshot VALUES (3, now(), 1, 2, 0), (5, now(), 0, 1, 0)")
        cursor.execute("INSERT INTO ducklake_snapshot_changes (snapshot_id) VALUES (3), (5)")
    (finding,) = (each for each in diagnose(database) if not each.ok)
    assert (finding.name, finding.detail) == ("snapshot ids", "newest is 5, 5 is behind the one before it")


def test_flush_and_expiry_of_a_served_table_are_no_damage(
    ducklake: duckdb.DuckDBPyConnection, services: Services, database: Database
) -> None:
    ducklake.execute("CREATE TABLE t AS SELECT range AS i FROM range(5)")  # inlined
    ducklake.execute("CREATE TABLE u AS SELECT range AS i FROM range(50)")
    ducklake.execute("DELETE FROM u WHERE i < 3")  # inlined
    for table in ("t", "u"):
        load_current_table(services, ("main",), table)

    ducklake.execute("CALL ducklake_flush_inlined_data('lake')")
    ducklake.execute("CREATE TABLE other AS SELECT 1 AS i")
    ducklake.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")

    assert examine_tables(database)[0] == []
    for table in ("t", "u"):
        assert_same_rows(Lake(services, ducklake), table)
    assert examine_tables(database)[0] == []
