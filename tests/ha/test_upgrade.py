"""An older version and this one serve a catalog for a while, with traffic; migrations keep no load waiting."""

import subprocess
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.format import build_tables_sql, prepare_catalog
from duckicelake.lake.setup.migrations import is_up_to_date, load_migrations
from duckicelake.postgres.queries import load_queries
from tests.cli.test_commands import ROOT
from tests.ha.pair import pair_of
from tests.ha.traffic import Traffic
from tests.support.replicas import running_cluster

pytestmark = [pytest.mark.ha, pytest.mark.timeout(900)]
OLD = "7b821720"
"""The last commit before warehouses, principals and grants."""
LATER_SETTINGS = ("DUCKICELAKE_DRAIN_SECONDS", "DUCKICELAKE_QUERY_PROCESSES")
MIGRATED = "newer duckicelake has migrated"
"""What an older server says since it may not write any more."""


@pytest.fixture(scope="module")
def old_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it was."""
    archive = subprocess.run(["git", "archive", OLD, "duckicelake"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"commit {OLD} isn't here: fetch the whole history")
    folder = tmp_path_factory.mktemp("old")
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


def test_rolling_upgrade_loses_and_doubles_nothing(old_source, measured):
    with running_cluster() as postgres, pair_of(postgres.url) as pair:
        new_settings = pair.settings
        for server in pair.servers:
            server.source = old_source
            server.settings = {name: value for name, value in new_settings.items() if name not in LATER_SETTINGS}
        pair.start()
        traffic = Traffic(pair.uri, ["a", "b", "c"], retries=True)
        traffic.prepare()
        with traffic.running():
            for server in pair.servers:
                traffic.wait_for_more()
                server.stop()
                server.source, server.settings = ROOT, new_settings
                server.start()
                pair.wait_for(server)
                traffic.wait_for_more()
        refused = [failure for failure in traffic.failures if MIGRATED in failure.said]
        others = [failure for failure in traffic.failures if MIGRATED not in failure.said]
        measured["answered"] = traffic.count()
        measured["refused by the older server"] = len(refused)
        measured["other failures"] = Counter(failure.said[:60] for failure in others)
        measured["seconds without any answer"] = round(traffic.longest_gap(), 1)
        assert all(failure.said.startswith("503 ") for failure in refused)
        assert all(failure.said.startswith(("503 ", "502 ", "RemoteProtocolError")) for failure in others), others[:5]
        traffic.assert_all_is_there(pair.uri)


LAST_OLD_MIGRATION = 48
"""Of `OLD`."""
TABLES, FILES, SNAPSHOTS = 2000, 200_000, 20_000
FILL = f"""
SET session_replication_role = replica;
INSERT INTO ducklake_snapshot SELECT n, now(), 1, n + 10, n + 10 FROM generate_series(1, {SNAPSHOTS}) n;
INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made)
SELECT n, 'inserted_into_table:' || n % {TABLES} FROM generate_series(1, {SNAPSHOTS}) n;
INSERT INTO ducklake_table (table_id, table_uuid, begin_snapshot, schema_id, table_name, path, path_is_relative)
SELECT n, gen_random_uuid(), 1, 0, 't' || n, 't' || n || '/', true FROM generate_series(1, {TABLES}) n;
INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format,
    record_count, file_size_bytes, footer_size, row_id_start)
SELECT n, n % {TABLES}, n % {SNAPSHOTS}, n || '.parquet', true, 'parquet', 9, 999, 99, 0
FROM generate_series(1, {FILES}) n;
INSERT INTO duckicelake_table
SELECT n, gen_random_uuid(), 'l', 1, 1, 0, 1, 2, 1, 0, 1, 1, false, '{{}}' FROM generate_series(1, {TABLES}) n;
INSERT INTO duckicelake_file (file_id, table_id, content, path, file_format, spec_id, partition, record_count,
    file_size_in_bytes, added_snapshot_id, sequence_number, file_sequence_number, metrics, ducklake_id)
SELECT n, n % {TABLES}, 0, n || '.parquet', 'PARQUET', 0, '[]', 9, 999, 1, 1, 1, '{{}}', n
FROM generate_series(1, {FILES}) n;
SET session_replication_role = origin;
ANALYZE;
"""
READ = """
SELECT (SELECT max(snapshot_id) FROM ducklake_snapshot), (SELECT count(*) FROM duckicelake_lake),
       (SELECT version FROM duckicelake_table WHERE table_id = %(id)s),
       (SELECT count(*) FROM duckicelake_file WHERE table_id = %(id)s),
       (SELECT count(*) FROM ducklake_snapshot_changes WHERE snapshot_id = %(id)s)
"""
"""The tables that a load looks into."""


def test_migrations_of_a_large_lake_keep_no_reader_waiting(measured):
    with running_cluster() as postgres, closing(open_lake_database(postgres.url, 4)) as database:
        with database.transaction() as cursor:
            cursor.execute(build_tables_sql())
            cursor.execute(load_queries("lake", "format").insert_initial_rows, {"data_path": "/nowhere/"})
            cursor.execute(load_queries("lake", "migrate").create_table)
            for migration in load_migrations():
                if migration.number <= LAST_OLD_MIGRATION:
                    cursor.execute(migration.sql)
                    row = {"number": migration.number, "name": migration.name}
                    cursor.execute(load_queries("lake", "migrate").record, row)
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(FILL.encode())
        before, during, ended = [], [], threading.Event()

        def read(seconds: list[float]) -> None:
            with psycopg.connect(postgres.url, autocommit=True) as connection:
                while not ended.is_set():
                    began = time.monotonic()
                    connection.execute(READ, {"id": 7})
                    seconds.append(time.monotonic() - began)
                    time.sleep(0.001)

        reader = threading.Thread(target=read, args=(before,))
        reader.start()
        while len(before) < 200:
            time.sleep(0.01)
        ended.set()
        reader.join()
        ended.clear()
        reader = threading.Thread(target=read, args=(during,))
        reader.start()
        began = time.monotonic()
        prepare_catalog(database, "/nowhere/", creates=False)
        took = time.monotonic() - began
        ended.set()
        reader.join()
        with database.reading() as cursor:
            assert is_up_to_date(cursor)
    measured["seconds of the migrations"] = round(took, 3)
    for name, seconds in (("before", before), ("during", during)):
        ordered = sorted(seconds)
        measured[f"reads {name}"] = len(ordered)
        measured[f"p50 {name} ms"] = round(ordered[len(ordered) // 2] * 1000, 1)
        measured[f"p99 {name} ms"] = round(ordered[int(len(ordered) * 0.99)] * 1000, 1)
        measured[f"longest {name} ms"] = round(ordered[-1] * 1000, 1)
    assert max(during) < 10, "a reader waited for a migration"
