"""Files are looked for by their paths, among however many: each such query by an index, with these answers."""

from collections.abc import Mapping
from typing import Any

import pytest

from duckicelake.lake.side_tables.locations import find_file_folders
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import load_queries

FILES = 20_000
TOPICS = ("clones", "garbage", "maintenance", "ownership", "state", "write")
CLONES, GARBAGE, MAINTENANCE, OWNERSHIP, STATE, WRITE = (load_queries("lake", topic) for topic in TOPICS)
PATHS = ["s3://bucket/f7/107.parquet", "s3://bucket/f7/108.parquet", "s3://bucket/nowhere"]
FOLDERS = load_queries("lake", "file_folders").next_place
NAMED = "SELECT duckicelake_is_named(%(path)s)"
LOOKS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "ownership": (OWNERSHIP.files, {"paths": PATHS, "table_id": None}),
    "files below": (OWNERSHIP.files_below, {"folder": "s3://bucket/f7", "table_id": None}),
    "garbage": (GARBAGE.unnamed, {"names": ["107.parquet", "nowhere"]}),
    "data files at paths": (STATE.data_files_at, {"table_id": 1, "paths": PATHS}),
    "who shares files": (STATE.sharing, {"paths": PATHS}),
    "folders": (FOLDERS, {"table_id": 1, "least": "s3://bucket/f70"}),
    "what a clone shares": (CLONES.shares, {"table_id": 2}),
    "what may be purged": (WRITE.purgeable, {"table_id": 2}),
    "rows that hold files": (WRITE.forget_held, {"table_id": 2, "paths": PATHS}),
    "statistics of another table": (
        MAINTENANCE.statistics,
        {"table_ids": [2], "defaults": "{}", "noted_files": [], "noted_deletes": [], "left_out": []},
    ),
    "manifests at paths": (STATE.manifests_at, {"table_id": 1, "paths": PATHS}),
    "metadata that others have": (STATE.outdated_metadata, {"table_id": 1, "version": 9, "kept": 2}),
}


@pytest.fixture
def many(database: Database) -> Database:
    """Table 1 has many files in a hundred folders, table 2 a few elsewhere."""
    with database.transaction() as cursor:
        cursor.execute(
            """INSERT INTO duckicelake_table (table_id, table_uuid, location, version, caught_up_to, epoch,
                   ducklake_id, format_version, last_sequence_number, next_row_id, last_updated_ms, metadata)
               SELECT i, ('00000000-0000-0000-0000-00000000000' || i)::uuid, 's3://bucket/t' || i,
                      0, 0, 0, 0, 2, 0, 0, 0, '{}' FROM generate_series(1, 2) i"""
        )
        cursor.execute(
            """INSERT INTO duckicelake_file (file_id, table_id, content, path, file_format, spec_id, partition,
                   record_count, file_size_in_bytes, added_snapshot_id, sequence_number, file_sequence_number, metrics)
               SELECT i, CASE WHEN i > %s THEN 2 ELSE 1 END, 0, 's3a://bucket/f' || i %% 100 || '/' || i || '.parquet',
                      'PARQUET', 0, '[]', 1, 1, 1, 1, 1, '{}' FROM generate_series(1, %s) i""",
            [FILES - 10, FILES],
        )
        cursor.execute(
            """INSERT INTO duckicelake_artifact (table_id, kind, object_id, path, length, sha256, timestamp_ms)
               SELECT 1, CASE WHEN i > 10 THEN 'manifest' ELSE 'metadata' END, i,
                      's3a://bucket/f' || i %% 100 || '/metadata/' || i || '.avro', 1, '', 0
               FROM generate_series(1, %s) i""",
            [FILES],
        )
        cursor.execute("ANALYZE duckicelake_file, duckicelake_artifact")
    return database


def test_no_query_by_path_reads_all_files(many: Database, subtests: pytest.Subtests) -> None:
    for look, (statement, parameters) in LOOKS.items():
        with subtests.test(look):
            with many.reading() as cursor:
                plan = str(cursor.execute(f"EXPLAIN {statement}", parameters).fetchall())
            assert "Seq Scan on duckicelake_file " not in plan, plan
            assert "Seq Scan on duckicelake_artifact " not in plan, plan
            assert "duckicelake_file_" in plan or "duckicelake_artifact_" in plan


def test_functions_of_triggers_find_a_file_by_an_index(many: Database) -> None:
    look = "SELECT FROM duckicelake_file WHERE duckicelake_name_hash(path) = duckicelake_name_hash('/a/107.parquet')"
    with many.reading() as cursor:
        assert "duckicelake_file_by_hash" in str(cursor.execute(f"EXPLAIN {look}").fetchall())
        assert cursor.execute(NAMED, {"path": "s3://bucket/f7/nowhere"}).fetchone() == (False,)


def test_folders_of_a_table_are_found(many: Database) -> None:
    with many.reading() as cursor:
        found = find_file_folders(cursor, 1, ["s3a://bucket/f1/", "s3a://bucket/f2/"], 1000)
        assert found == sorted(f"s3a://bucket/f{number}/" for number in range(100) if number not in (1, 2))
        assert len(find_file_folders(cursor, 2, [], 1000)) == 10
        assert find_file_folders(cursor, 1, ["s3a://bucket/"], 1000) == []


def test_name_hash_and_folder_of_a_path(database: Database) -> None:
    with database.reading() as cursor:
        row = cursor.execute(
            """SELECT duckicelake_name_hash('s3a://b/x/ä.parquet') = duckicelake_name_hash('/elsewhere/ä.parquet'),
                      duckicelake_folder('s3://b/ü/ä.parquet'), duckicelake_folder('/b/'), duckicelake_folder('b')"""
        ).fetchone()
    assert row == (True, "s3://b/ü/", "/b/", "")


@pytest.mark.parametrize(
    "path", ["file:/a/b/x", "/a/../b/x", "/a//b/x", "s3a://b/x", "s3://b/k/x", "file://localhost/a/x"]
)
def test_place_of_a_path_is_the_canonical_folder(database: Database, path: str) -> None:
    with database.reading() as cursor:
        row = cursor.execute("SELECT duckicelake_place(%s), duckicelake_canonical_path(%s)", [path, path]).fetchone()
    assert row is not None
    place, canonical = row
    assert place == f"{canonical.rpartition('/')[0]}/"


def test_place_holds_as_much_as_an_index_does(database: Database) -> None:
    with database.reading() as cursor:
        row = cursor.execute("SELECT length(duckicelake_place('/' || repeat('ä', 600) || '/x'))").fetchone()
    assert row == (500,)
