"""A table that follows a Delta table: DuckDB's writers are refused, whatever they do, until it is adopted."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

from duckicelake.delta.import_ import sources
from duckicelake.delta.import_.sources import DeltaPosition, DeltaSource
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake.database import build_duckdb_attach, open_lake_database
from duckicelake.postgres.database import Database
from duckicelake.postgres.embedded import EmbeddedPostgres
from tests.conftest import new_duckdb, new_lake

WRITES = (
    "INSERT INTO followed VALUES (4, 'd')",
    "INSERT INTO followed SELECT range, 'many' FROM range(100)",
    "DELETE FROM followed WHERE id = 1",
    "DELETE FROM followed WHERE id < 50",
    "UPDATE followed SET name = 'x' WHERE id = 2",
    "MERGE INTO followed USING (SELECT 1 AS id) AS new ON followed.id = new.id WHEN MATCHED THEN DELETE",
    "TRUNCATE followed",
    "ALTER TABLE followed ADD COLUMN more INTEGER",
    "ALTER TABLE followed DROP COLUMN name",
    "ALTER TABLE followed RENAME COLUMN name TO said",
    "ALTER TABLE followed ALTER id SET DATA TYPE HUGEINT",
    "ALTER TABLE followed ALTER name SET DEFAULT 'x'",
    "ALTER TABLE followed SET PARTITIONED BY (id)",
    "ALTER TABLE followed SET SORTED BY (id)",
    "COMMENT ON TABLE followed IS 'said'",
    "COMMENT ON COLUMN followed.id IS 'said'",
    "CALL ducklake_merge_adjacent_files('lake', 'followed')",
    "CALL ducklake_rewrite_data_files('lake', 'followed', delete_threshold => 0)",
    "CALL ducklake_flush_inlined_data('lake', table_name => 'followed')",
)
"""Each would change what the table is, its rows or its files."""
REFUSAL = r"main\.followed follows the Delta table /delta/t .*duckicelake delta adopt main\.followed"


@dataclass(frozen=True, slots=True)
class Opened:
    """A lake whose table `followed` is followed."""

    url: str
    database: Database
    duck: duckdb.DuckDBPyConnection

    def attach(self) -> duckdb.DuckDBPyConnection:
        another = new_duckdb()
        another.execute(build_duckdb_attach(self.url))
        return another.execute("USE lake")

    def source(self, name: str = "main.followed") -> DeltaSource:
        with self.database.reading() as cursor:
            (found,) = sources.read_sources(cursor, name)
        return found

    def table_id(self, name: str) -> int:
        ((found,),) = self.sql(
            "SELECT table_id FROM ducklake_table WHERE table_name = %s AND end_snapshot IS NULL", name
        )
        return int(found)

    def sql(self, query: str, *parameters: object) -> list[tuple[object, ...]]:
        with self.database.transaction() as cursor:
            return cursor.execute(query, parameters).fetchall()

    def follow(self, name: str, root: str = "/delta/t") -> int:
        """Have an ordinary table be one that follows a Delta table; its id."""
        table_id = self.table_id(name)
        with self.database.transaction() as cursor:
            sources.record_source(cursor, table_id, root, DeltaPosition("an id", 0), following=True)
        return table_id


def make(duck: duckdb.DuckDBPyConnection, name: str) -> None:
    """A table with something for each of DuckDB's kinds of upkeep to do."""
    duck.execute(f"CREATE TABLE {name} (id BIGINT, name VARCHAR)")
    duck.execute(f"INSERT INTO {name} SELECT range, 'first' FROM range(100)")
    duck.execute(f"INSERT INTO {name} SELECT range + 100, 'second' FROM range(100)")
    duck.execute(f"INSERT INTO {name} SELECT range + 200, 'third' FROM range(100)")
    duck.execute(f"DELETE FROM {name} WHERE id BETWEEN 120 AND 160")
    duck.execute(f"INSERT INTO {name} VALUES (1000, 'inlined')")


@pytest.fixture(scope="module")
def lake(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory, extensions: None) -> Iterator[Opened]:
    with new_lake(postgres, tmp_path_factory.mktemp("followed")) as url:
        database, duck = open_lake_database(url), new_duckdb()
        opened = Opened(url, database, duck)
        duck.execute(build_duckdb_attach(url))
        duck.execute("USE lake")
        make(duck, "followed")
        opened.follow("followed")
        yield opened
        duck.close()
        database.close()


def rows(duck: duckdb.DuckDBPyConnection, name: str = "followed") -> list[tuple[object, ...]]:
    return duck.execute(f"FROM {name} ORDER BY ALL").fetchall()


@pytest.mark.parametrize("statement", WRITES)
def test_duckdb_is_refused_with_where_to_write(lake: Opened, statement: str) -> None:
    before = rows(lake.duck), lake.sql("SELECT max(snapshot_id) FROM ducklake_snapshot")
    with pytest.raises(duckdb.Error, match=REFUSAL):
        lake.duck.execute(statement).fetchall()
    assert (rows(lake.duck), lake.sql("SELECT max(snapshot_id) FROM ducklake_snapshot")) == before


def test_transaction_with_other_tables_is_refused_as_a_whole(lake: Opened) -> None:
    lake.duck.execute("CREATE TABLE beside (id BIGINT)")
    lake.duck.execute("BEGIN")
    lake.duck.execute("INSERT INTO beside VALUES (1)")
    lake.duck.execute("INSERT INTO followed VALUES (4, 'd')")
    with pytest.raises(duckdb.Error, match="can't be written here"):
        lake.duck.execute("COMMIT")
    assert rows(lake.duck, "beside") == []


def test_names_that_look_like_changes_count_for_nothing(lake: Opened) -> None:
    table_id = lake.source().table_id
    lake.duck.execute(f'CREATE TABLE "x"",altered_table:{table_id}," (id BIGINT)')
    assert rows(lake.duck, f'"x"",altered_table:{table_id},"') == []


def test_upkeep_of_all_tables_leaves_followed_ones_out(lake: Opened) -> None:
    duck = lake.attach()
    make(duck, "kept")
    before = rows(duck), rows(duck, "kept")
    files = lake.sql("SELECT data_file_id FROM ducklake_data_file WHERE table_id = %s", lake.source().table_id)
    for statement in (
        "CALL ducklake_merge_adjacent_files('lake')",
        "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
        "CALL ducklake_expire_snapshots('lake', versions => [1])",
        "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
    ):
        duck.execute(statement).fetchall()
    assert (rows(duck), rows(duck, "kept")) == before
    assert lake.sql("SELECT data_file_id FROM ducklake_data_file WHERE table_id = %s", lake.source().table_id) == files


def test_renamed_table_is_followed_under_its_new_name(lake: Opened) -> None:
    make(lake.duck, "old")
    lake.follow("old")
    lake.duck.execute("ALTER TABLE old RENAME TO new")
    assert lake.source("main.new").following
    with pytest.raises(duckdb.Error, match=r"duckicelake delta adopt main\.new"):
        lake.duck.execute("INSERT INTO new VALUES (1, 'x')")
    lake.duck.execute("BEGIN")
    lake.duck.execute("ALTER TABLE new RENAME TO newer")
    lake.duck.execute("INSERT INTO newer VALUES (1, 'x')")
    with pytest.raises(duckdb.Error, match="can't be written here"):
        lake.duck.execute("COMMIT")


def test_table_of_the_name_of_a_dropped_one_is_anybodys(lake: Opened) -> None:
    make(lake.duck, "dropped")
    lake.follow("dropped")
    lake.duck.execute("CREATE OR REPLACE TABLE dropped AS SELECT 1 AS i")
    lake.duck.execute("INSERT INTO dropped VALUES (2)")
    assert rows(lake.duck, "dropped") == [(1,), (2,)]
    with lake.database.reading() as cursor:
        assert sources.read_sources(cursor, "main.dropped") == []


def test_adopted_table_is_written_by_all(lake: Opened) -> None:
    make(lake.duck, "adopted")
    table_id = lake.follow("adopted")
    with lake.database.transaction() as cursor:
        assert sources.end_following(cursor, table_id)
        assert not sources.end_following(cursor, table_id)
    lake.duck.execute("INSERT INTO adopted VALUES (4, 'd')")
    lake.attach().execute("CALL ducklake_merge_adjacent_files('lake')")
    ((changes,),) = lake.sql("SELECT changes_made FROM ducklake_snapshot_changes ORDER BY snapshot_id DESC LIMIT 1")
    assert f"merge_adjacent:{table_id}" in str(changes).split(",")


def test_version_is_brought_once(lake: Opened) -> None:
    make(lake.duck, "moved")
    lake.follow("moved")
    before = lake.source("main.moved")
    with lake.database.transaction() as cursor:
        sources.move_position(cursor, before, DeltaPosition("an id", 3, "ab", {"columns": 7}))
    assert lake.source("main.moved").position == DeltaPosition("an id", 3, "ab", {"columns": 7})
    with pytest.raises(StaleBaseError), lake.database.transaction() as cursor:
        sources.move_position(cursor, before, DeltaPosition("an id", 1))
    assert lake.source("main.moved").position.version == 3


def test_table_that_was_adopted_meanwhile_gets_no_version(lake: Opened) -> None:
    make(lake.duck, "taken")
    table_id = lake.follow("taken")
    before = lake.source("main.taken")
    with lake.database.transaction() as cursor:
        sources.end_following(cursor, table_id)
    with pytest.raises(StaleBaseError), lake.database.transaction() as cursor:
        sources.move_position(cursor, before, DeltaPosition("an id", 1))
    assert (lake.source("main.taken").position.version, lake.source("main.taken").following) == (0, False)


def test_error_is_kept_until_the_next_version(lake: Opened) -> None:
    make(lake.duck, "failing")
    lake.follow("failing")
    source = lake.source("main.failing")
    with lake.database.transaction() as cursor:
        assert sources.record_failure(cursor, source, "no such feature")
        assert not sources.record_failure(cursor, source, "no such feature")
    failed = lake.source("main.failing")
    assert (failed.error, failed.failed_at is None) == ("no such feature", False)
    with lake.database.transaction() as cursor:
        sources.move_position(cursor, source, DeltaPosition("an id", 1))
        assert not sources.record_failure(cursor, source, "of a version that is there by now")
    assert (lake.source("main.failing").error, lake.source("main.failing").failed_at) == (None, None)


def test_files_of_delta_tables_are_never_deleted(lake: Opened, tmp_path: Path) -> None:
    duck, file = lake.attach(), tmp_path / "delta" / "x=1" / "a.parquet"
    file.parent.mkdir(parents=True)
    duck.execute(f"COPY (SELECT 1::BIGINT AS id) TO '{file}'")
    duck.execute("CREATE TABLE doomed (id BIGINT)")
    duck.execute(f"CALL ducklake_add_data_files('lake', 'doomed', '{file}')")
    lake.follow("doomed", str(tmp_path / "delta"))
    duck.execute("DROP TABLE doomed")
    duck.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    duck.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert file.exists()
    assert lake.sql("SELECT path FROM ducklake_files_scheduled_for_deletion WHERE path LIKE '%%a.parquet'") == []
