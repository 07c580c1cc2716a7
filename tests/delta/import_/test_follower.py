"""Delta tables that are followed: each version that delta-rs writes is a commit here, once, whatever happens."""

import itertools
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import duckdb
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.tables import drop_table
from duckicelake.delta.import_ import sources
from duckicelake.delta.import_.sync import adopt_table, read_statuses, sync, sync_in_parts
from duckicelake.delta.log.reader import DeltaLog
from duckicelake.errors import CatalogError, ExpiredError, InvalidRequestError
from duckicelake.lake.ducklake.database import build_duckdb_attach, open_lake_database
from duckicelake.postgres.embedded import EmbeddedPostgres
from tests.conftest import new_duckdb, new_lake, services_of
from tests.support.followed_table import Following, batch
from tests.support.killed_process import Work, mortal
from tests.support.seams import fresh

Make = Callable[..., Following]


@pytest.fixture(scope="module")
def make(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory, extensions: None) -> Iterator[Make]:
    """Make a Delta table of one version, and a table here of it; all of a module are in one lake."""
    warehouse = tmp_path_factory.mktemp("delta") / "warehouse"
    with new_lake(postgres, warehouse) as url:
        database, duck = open_lake_database(url, 8), new_duckdb()
        duck.execute(build_duckdb_attach(url))
        duck.execute("USE lake")
        services = services_of(database, warehouse)

        def made(name: str, *, follow: bool = True, **options: object) -> Following:
            following = Following(services, duck, name)
            following.append(**options)
            following.begin(follow=follow)
            return following

        yield made
        duck.close()
        database.close()


def test_files_of_one_definition_share_what_they_call_the_columns(make: Make) -> None:
    table = make("mapped")
    table.append(batch(10, 5))
    table.append(batch(20, 5))
    assert table.sync() == 2
    table.append(batch(30, 5))
    assert table.sync() == 3
    with table.services.database.reading() as cursor:
        rows = cursor.execute(
            "SELECT count(DISTINCT d.mapping_id), count(*), "
            "(SELECT count(*) FROM ducklake_column_mapping m WHERE m.table_id = t.table_id) "
            "FROM ducklake_data_file d JOIN ducklake_table t USING (table_id) "
            "WHERE t.table_name = 'mapped' GROUP BY t.table_id"
        ).fetchall()
    assert rows == [(1, 4, 1)]
    table.assert_alike()


def test_each_version_is_a_commit_of_its_own(make: Make) -> None:
    table = make("appended")
    for number in range(1, 4):
        table.append(batch(10 * number, 5))
    assert table.sync() == 3
    assert table.versions() == [0, 1, 2, 3]
    table.assert_alike()
    assert table.sync() == 3
    assert table.versions() == [0, 1, 2, 3]


def test_all_that_delta_rs_does_to_a_table_is_followed(make: Make) -> None:
    table = make("busy")
    for change in (
        lambda delta: delta.delete("id = 1"),
        lambda delta: delta.update({"name": "'y'"}, predicate="id = 2"),
        lambda _: table.append(pa.table({"id": [7], "more": [1.5]}), schema_mode="merge"),
        lambda delta: merge(delta, pa.table({"id": [2, 9], "name": ["m", "n"], "more": [0.5, None]})),
        lambda delta: delta.optimize.compact(),
        lambda delta: delta.optimize.z_order(["id"]),
        lambda delta: delta.alter.set_table_properties({"delta.appendOnly": "false"}),
        lambda delta: delta.alter.add_constraint({"positive": "id >= 0"}),
        lambda _: write_deltalake(str(table.root), batch(50, 4), mode="overwrite", schema_mode="overwrite"),
        lambda delta: delta.restore(2),
        lambda delta: delta.create_checkpoint(),
    ):
        change(table.delta())
        assert table.sync() == table.delta().version()
        table.assert_alike(since=table.delta().version())
    assert table.versions() == list(range(table.delta().version() + 1))
    table.assert_alike()


def test_options_of_ducklake_stay_when_the_definition_changes(make: Make) -> None:
    table = make("optioned")

    def read_options() -> tuple[str | None, ...]:
        names = ("ducklake.auto-compact", "write.target-file-size-bytes")
        properties = load_current_table(table.services, ("main",), "optioned").metadata.properties
        return tuple(properties.get(name) for name in names)

    assert read_options() == ("false", None)
    table.duck.execute("CALL lake.set_option('target_file_size', '1MB', table_name => 'optioned')")
    assert read_options() == ("false", "1000000")
    table.delta().alter.set_table_properties({"delta.appendOnly": "false"})
    assert table.sync() == 1
    assert read_options() == ("false", "1000000")
    adopt_table(table.services, "main.optioned")
    assert read_options() == (None, "1000000")


def merge(delta: DeltaTable, rows: pa.Table) -> None:
    merging = delta.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


def test_vacuum_takes_nothing_that_is_still_there(make: Make) -> None:
    table = make("vacuumed")
    table.delta().delete("id = 1")
    table.sync()
    table.delta().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert table.sync() == table.delta().version()
    table.append()
    table.sync()
    table.assert_alike(since=1)


def test_application_transactions_are_kept(make: Make) -> None:
    table = make("streamed")
    table.append(commit_properties=CommitProperties(app_transactions=[Transaction("stream", 7)]))
    table.sync()
    assert table.static().current_snapshot().summary["delta.txn.stream"] == "7"  # type: ignore[union-attr, index]


def test_two_who_sync_at_the_same_time_bring_each_version_once(make: Make) -> None:
    table = make("raced")
    for number in range(1, 9):
        table.append(batch(number, 1))
    start, failures = threading.Barrier(3), []

    def race() -> None:
        services = fresh(table.services)
        log = DeltaLog(services.store, table.source().root)
        start.wait()
        try:
            while (source := table.source()).position.version < 8:
                sync(services, source, log)
        except CatalogError as error:
            failures.append(error)

    threads = [threading.Thread(target=race) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert table.versions() == list(range(9))
    table.assert_alike()


@pytest.mark.crash
def test_process_that_is_killed_anywhere_has_brought_a_version_or_not(make: Make) -> None:
    table = make("killed")
    with mortal(table.services) as server:
        for step in range(100):
            version = table.append(batch(step, 2))
            ending = server.serve(Work("sync", steps=step, name=table.name))
            assert table.source().position.version in {version - 1, version}
            assert table.sync() == version
            if ending.answered:
                break
    assert ending.answered
    assert table.versions() == list(range(version + 1))
    table.assert_alike()


def test_versions_that_are_gone_from_the_log_are_an_error_that_says_what_to_do(make: Make) -> None:
    table = make("cleaned")
    for _ in range(3):
        table.append()
    table.delta().create_checkpoint()
    for version in range(3):
        (table.root / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(ExpiredError, match=r"no longer has version 1, the next one for main\.cleaned.*import"):
        table.sync()
    assert table.versions() == [0]


def test_other_table_in_the_place_is_noticed(make: Make) -> None:
    table = make("replaced")
    table.append()
    table.sync()
    table.replace()
    with pytest.raises(InvalidRequestError, match=r"not the Delta table any more whose version 1 main\.replaced has"):
        table.sync()
    for _ in range(3):
        table.append()
    with pytest.raises(InvalidRequestError, match="it was replaced"):
        table.sync()


def test_table_that_is_not_followed_is_synced_until_it_is_written_here(make: Make) -> None:
    table = make("loose", follow=False)
    table.append()
    assert table.sync() == 1
    table.assert_alike()
    table.duck.execute("INSERT INTO loose VALUES (77, 'ours')")
    table.append()
    with pytest.raises(InvalidRequestError, match=r"main\.loose was written here after version 1"):
        table.sync()


def test_table_that_is_not_followed_is_not_synced_once_it_was_altered_here(make: Make) -> None:
    table = make("altered", follow=False)
    table.duck.execute("ALTER TABLE altered ADD COLUMN ours INTEGER")
    table.append()
    with pytest.raises(InvalidRequestError, match=r"main\.altered was written here after version 0"):
        table.sync()


def test_table_that_is_adopted_between_two_transactions_of_a_sync_gets_no_later_version(make: Make) -> None:
    table = make("taken")
    table.append()
    calls = itertools.count()

    def adopt() -> None:
        """Do as others may before the second transaction: bring a version, adopt the table, write the Delta table."""
        if next(calls) == 1:
            table.append()
            assert table.sync() == 2
            adopt_table(table.services, "main.taken")
            table.append()

    assert [source.position.version for source in sync_in_parts(table.services, table.source(), adopt)] == [1]
    assert (table.source().following, table.source().position.version) == (False, 2)


def test_adopted_table_is_written_here_and_left_behind(make: Make) -> None:
    table = make("adopted")
    with pytest.raises(duckdb.Error, match=r"duckicelake delta adopt main\.adopted"):
        table.duck.execute("INSERT INTO adopted VALUES (77, 'ours')")
    adopt_table(table.services, "main.adopted")
    table.duck.execute("INSERT INTO adopted VALUES (77, 'ours')")
    table.append()
    with table.services.database.reading() as cursor:
        assert table.source() not in sources.read_sources(cursor, followed=True)
    (status,) = [each for each in read_statuses(table.services) if each.source.table_name == "adopted"]
    assert (status.source.following, status.behind) == (False, 1)
    with pytest.raises(InvalidRequestError, match="it can be written already"):
        adopt_table(table.services, "main.adopted")


def test_upkeep_of_the_whole_lake_passes_followed_tables_by(make: Make) -> None:
    table = make("kept")
    for number in range(1, 6):
        table.append(batch(number, 2))
    table.sync()
    files = set(table.root.rglob("*.parquet"))
    with closing(new_duckdb()) as duck:
        duck.execute(build_duckdb_attach(table.services.database.url))
        for statement in EXPIRE, CLEAN_UP, "CHECKPOINT lake":
            duck.execute(statement).fetchall()
    with pytest.raises(duckdb.Error, match=r"main\.kept follows .* once you ATTACH the lake anew"):
        table.duck.execute("CALL ducklake_merge_adjacent_files('lake', 'kept')")
    table.append()
    assert table.sync() == 6
    table.assert_alike(since=6)
    assert files < set(table.root.rglob("*.parquet"))


def test_files_of_the_table_that_was_cloned_are_not_deleted(make: Make) -> None:
    source = make("cloned", follow=False)
    (file,) = source.root.glob("*.parquet")
    clone = Following(source.services, source.duck, "clone")
    shutil.copytree(source.root / "_delta_log", clone.root / "_delta_log")
    log = clone.root / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace(f'"path":"{file.name}"', f'"path":"{file.as_uri()}"'))
    clone.begin()
    drop_table(source.services, ("main",), "cloned", purge=False)
    with source.services.database.transaction() as cursor:
        cursor.execute("DELETE FROM duckicelake_delta_source WHERE root LIKE '%/cloned'")  # which never had one
        cursor.execute("UPDATE duckicelake_table SET outlives_drop = false")
    with closing(new_duckdb()) as duck:
        duck.execute(build_duckdb_attach(source.services.database.url))
        for statement in ("DROP TABLE lake.clone", EXPIRE, CLEAN_UP):
            duck.execute(statement).fetchall()
    assert file.exists()


EXPIRE = "CALL ducklake_expire_snapshots('lake', older_than => now())"
CLEAN_UP = "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)"
