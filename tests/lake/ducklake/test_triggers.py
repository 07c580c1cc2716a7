"""Our triggers and indexes beside the real extension: it works as before, and deletes only files that no one names."""

from pathlib import Path

import pytest

from duckicelake.lake.side_tables.writer import cancel_deletion
from duckicelake.storage.policy import canonicalize

EXPIRE = "CALL ducklake_expire_snapshots('lake', older_than => now())"
CLEANUP = "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)"


@pytest.fixture
def lake(ducklake):
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    return ducklake


def parquet_files(warehouse):
    return set(warehouse.glob("ducklake/**/*.parquet"))


def scheduled(database):
    with database.reading() as cursor:
        return [path for (path,) in cursor.execute("SELECT path FROM ducklake_files_scheduled_for_deletion")]


def hold(database, path):
    with database.transaction() as cursor:
        cursor.execute("INSERT INTO duckicelake_file_ref VALUES (%s, 1, 'test')", [canonicalize(str(path))])


def register(database, path, size, *, relative=False, snapshot="max(snapshot_id)"):
    """Name a path in a new data file row of table 1, as a rollback that brings a file back would."""
    with database.transaction() as cursor:
        cursor.execute(
            f"""INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative,
                    file_format, record_count, file_size_bytes, row_id_start)
                SELECT 1000, 1, {snapshot}, %s, %s, 'parquet', 100, %s, 0 FROM ducklake_snapshot""",
            [str(path), relative, size],
        )


def test_duckdb_creates_writes_expires_and_cleans_up_as_before(lake, warehouse, database):
    lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(1000)")
    lake.execute("DELETE FROM t WHERE i < 10")
    lake.execute("DELETE FROM t WHERE i < 20")
    lake.execute("UPDATE t SET i = i + 1 WHERE i = 500")
    lake.execute("INSERT INTO t SELECT range FROM range(100)")
    lake.execute("ALTER TABLE t ADD COLUMN j INTEGER")
    lake.execute("CREATE TABLE gone AS SELECT 1 AS a")
    lake.execute("DROP TABLE gone")
    before = parquet_files(warehouse)

    lake.execute(EXPIRE)
    lake.execute(CLEANUP)

    assert lake.execute("SELECT count(*), sum(i) FROM t").fetchall() == [(1080, 499500 - 190 + 1 + 4950)]
    assert len(parquet_files(warehouse)) < len(before)
    assert scheduled(database) == []


def test_checkpoint_works_and_keeps_the_rows(lake, warehouse):
    lake.execute("CALL lake.set_option('expire_older_than', '0 seconds')")
    lake.execute("CALL lake.set_option('delete_older_than', '0 seconds')")
    lake.execute("CREATE TABLE t (i BIGINT)")
    for _ in range(4):
        lake.execute("INSERT INTO t SELECT range FROM range(100)")

    lake.execute("CHECKPOINT lake")

    assert lake.execute("SELECT count(*), sum(i) FROM t").fetchall() == [(400, 4 * sum(range(100)))]
    assert len(parquet_files(warehouse)) == 1


def test_expiry_of_a_file_that_a_file_ref_names_keeps_the_file(lake, warehouse, database):
    lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(100)")
    (held,) = parquet_files(warehouse)
    hold(database, held)
    lake.execute("DROP TABLE t")
    lake.execute("CREATE TABLE other AS SELECT range AS i FROM range(100)")
    lake.execute("DROP TABLE other")

    lake.execute(EXPIRE)
    lake.execute(CLEANUP)

    assert parquet_files(warehouse) == {held}


@pytest.mark.parametrize(
    "spelling",
    ["{path}", "file:{path}", "file://{path}", "file://{folder}//./{name}", "file://{folder}/x/../{name}", "{name}"],
)
def test_expiry_of_a_file_that_another_row_names_keeps_the_file(lake, warehouse, database, spelling):
    lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(100)")
    (live,) = parquet_files(warehouse)
    lake.execute("DELETE FROM t")
    path = spelling.format(path=live, folder=live.parent, name=live.name)
    register(database, path, live.stat().st_size, relative=spelling == "{name}")

    lake.execute(EXPIRE)
    lake.execute(CLEANUP)

    assert live.exists()
    if "/./" not in path and "/.." not in path:
        assert lake.execute("SELECT count(*) FROM t").fetchall() == [(100,)]


def test_expiry_schedules_a_file_once_its_last_name_goes_in_the_same_transaction(lake, warehouse, database):
    lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(100)")
    (shared,) = parquet_files(warehouse)
    register(database, shared, shared.stat().st_size, snapshot="min(snapshot_id) + 1")
    lake.execute("DROP TABLE t")

    lake.execute(EXPIRE)

    assert {Path(path).name for path in scheduled(database)} == {shared.name}
    lake.execute(CLEANUP)
    assert parquet_files(warehouse) == set()


def test_a_file_of_another_folder_with_the_same_name_protects_nothing(lake, warehouse, database):
    lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(100)")
    (file,) = parquet_files(warehouse)
    hold(database, f"/elsewhere/{file.name}")
    register(database, f"/elsewhere/{file.name}", 1)
    lake.execute("DROP TABLE t")

    with database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO ducklake_files_scheduled_for_deletion VALUES (7, %s, true, now())", [f"x/{file.name}"]
        )

    assert scheduled(database) == [f"x/{file.name}"]


def test_expiry_by_duckdb_raises_the_epoch_and_other_writes_do_not(lake, database):
    def epoch():
        with database.reading() as cursor:
            return cursor.execute("SELECT epoch FROM duckicelake_epoch").fetchall()

    lake.execute("CREATE TABLE t AS SELECT 1 AS i")
    lake.execute("DELETE FROM t")
    assert epoch() == [(0,)]
    lake.execute(EXPIRE)
    assert epoch() == [(1,)]
    lake.execute(EXPIRE)
    assert epoch() == [(1,)]


@pytest.mark.parametrize(
    "location",
    [
        "/a/b.parquet", "file:/a/b.parquet", "file:///a/b.parquet", "FILE:///a/b.parquet", "file://localhost/a/b",
        "s3://bucket/a/b", "s3a://bucket/a/b/", "s3n://bucket/a/b//", "s3://bucket", "s3://bucket/",
        "s3://Bucket/a", "S3A://b/%2e%2e/a", "file:/a/./b/../c/", "/", "file:///", "//a///b", "/a/../../b",
        "gs://bucket/ä ö/%20=&", "abfss://c@account.dfs.core.windows.net/x",
        "/a/..b/.c/...", "/a/b/.", "/a/b/..", "/a/b/../", "/a\u00a0b/c", "s3://bucket/a/.b/", "hdfs://host:8020/a/b",
    ],
)  # fmt: skip
def test_paths_have_the_same_canonical_form_in_sql_and_python(database, location):
    with database.reading() as cursor:
        assert cursor.execute("SELECT duckicelake_canonical_path(%s)", [location]).fetchall() == [
            (canonicalize(location),)
        ]


@pytest.mark.parametrize("path", ["/a/b.parquet", "b", "/a/b/", "", "s3://bucket/a/ä b.c", "//"])
def test_name_of_a_file_is_what_follows_the_last_slash(database, path):
    with database.reading() as cursor:
        assert cursor.execute("SELECT duckicelake_file_name(%s)", [path]).fetchall() == [(path.rpartition("/")[2],)]


def test_file_whose_key_a_store_would_shorten_is_never_scheduled(database):
    with database.transaction() as cursor:
        cursor.execute("INSERT INTO duckicelake_zone VALUES ('s3://bucket')")
        cursor.execute(
            """INSERT INTO ducklake_files_scheduled_for_deletion (data_file_id, path, path_is_relative, schedule_start)
               SELECT 1, path, false, now()
               FROM unnest(ARRAY['s3://bucket//a/x', 's3a://bucket/a//x', 's3://bucket/a/x']) AS p (path)"""
        )
    assert scheduled(database) == ["s3://bucket/a/x"]


def test_looking_for_a_name_among_many_files_uses_the_index(database):
    with database.transaction() as cursor:
        cursor.execute(
            """INSERT INTO ducklake_data_file (data_file_id, table_id, path, path_is_relative)
               SELECT i, 1, 'ducklake-' || i || '.parquet', true FROM generate_series(1, 20000) i"""
        )
        cursor.execute("ANALYZE ducklake_data_file")
        plan = cursor.execute(
            "EXPLAIN SELECT FROM ducklake_data_file WHERE duckicelake_file_name(path) = duckicelake_file_name('/a/b')"
        ).fetchall()

    assert "duckicelake_data_file_name" in str(plan)


def test_plans_made_while_tables_were_empty_do_not_read_all_of_them_once_they_have_grown(database):
    def schedule_and_unschedule(first):
        cursor.execute(
            """INSERT INTO ducklake_files_scheduled_for_deletion (data_file_id, path, path_is_relative, schedule_start)
               SELECT i, 'old-' || i || '.parquet', true, now() FROM generate_series(%s::int, %s) i""",
            [first, first + 9],
        )
        cancel_deletion(cursor, [f"/elsewhere/old-{first}.parquet", "/elsewhere/new.parquet"])
        return cursor.execute("SELECT duckicelake_is_scheduled(%s)", [f"/any/old-{first}.parquet"]).fetchone()

    def rows_read():
        return cursor.execute(
            """SELECT sum(seq_tup_read)::int FROM pg_stat_xact_user_tables WHERE relname IN
               ('ducklake_files_scheduled_for_deletion', 'ducklake_data_file', 'ducklake_delete_file')"""
        ).fetchone()[0]

    with database.transaction() as cursor:
        cursor.execute("ANALYZE ducklake_files_scheduled_for_deletion, ducklake_data_file, ducklake_delete_file")
        for first in range(0, 200, 10):  # enough for a plan to be kept
            schedule_and_unschedule(first)
        before = rows_read()
        for table in ("data", "delete"):
            cursor.execute(
                f"""INSERT INTO ducklake_{table}_file ({table}_file_id, table_id, path, path_is_relative)
                    SELECT i, 1, 'file-' || i || '.parquet', true FROM generate_series(1, 5000) i"""
            )
        assert schedule_and_unschedule(1000) == (True,)
        assert rows_read() == before
