"""Whose a place is: found by its beginning, however long it is, and with the files that were left there."""

import secrets

import duckdb
import pytest

from duckicelake.lake.side_tables import locations
from duckicelake.lake.side_tables.locations import find_folder_sharers
from duckicelake.postgres.database import Database

LONG = f"s3://bucket/{secrets.token_urlsafe(3000)}"
PLACES = ("s3a://bucket/a", LONG, f"{LONG}/b", f"{LONG}2")


@pytest.fixture
def settled(database: Database) -> Database:
    """Tables 100 and on live at the places; each has a file there."""
    with database.transaction() as cursor:
        for number, place in enumerate(PLACES, 100):
            cursor.execute(
                """INSERT INTO duckicelake_table (table_id, table_uuid, location, version, caught_up_to, epoch,
                       ducklake_id, format_version, last_sequence_number, next_row_id, last_updated_ms, metadata)
                   VALUES (%s, gen_random_uuid(), %s, 0, 0, 0, 0, 2, 0, 0, 0, '{}')""",
                [number, place],
            )
    return database


def found(database: Database, prefixes: list[str], folders: list[str]) -> set[str]:
    with database.reading() as cursor:
        return {place for place, _ in locations.find_owners_of_folders(cursor, prefixes, folders, None)}


def test_places_are_found_however_long_they_are(settled: Database) -> None:
    assert found(settled, ["s3://bucket/a"], []) == {"s3://bucket/a"}
    assert found(settled, ["s3://bucket", LONG], []) == {LONG}
    assert found(settled, [f"{LONG}3"], []) == set()
    assert found(settled, [], [LONG]) == {f"{LONG}/b"}
    assert found(settled, [], ["s3://bucket"]) == {"s3://bucket/a", LONG, f"{LONG}/b", f"{LONG}2"}
    assert found(settled, [], ["s3://buck", f"{LONG}/b"]) == set()


def test_files_below_a_folder_are_found_by_an_index(database: Database, ducklake: duckdb.DuckDBPyConnection) -> None:
    ducklake.execute("CREATE TABLE lake.main.t (i INTEGER)")
    with database.transaction() as cursor:
        ((table_id,),) = cursor.execute("SELECT table_id FROM ducklake_table WHERE table_name = 't'").fetchall()
        cursor.execute(
            """INSERT INTO ducklake_data_file (data_file_id, table_id, path, path_is_relative)
               SELECT i, %s, 's3a://bucket/f' || i %% 100 || '/' || i || '.parquet', false
               FROM generate_series(1000, 21000) i""",
            [table_id],
        )
        cursor.execute("ANALYZE ducklake_data_file")
        assert locations.find_owners_of_files_below(cursor, "s3://bucket/f7", None) == [["main", "t"]]
        assert locations.find_owners_of_files_below(cursor, "s3://bucket/f7", table_id) == []
        assert locations.find_owners_of_files_below(cursor, "s3://bucket/f", None) == []
        parameters = {"folder": "s3://bucket/f7", "table_id": None}
        plan = cursor.execute(f"EXPLAIN {locations._OWNERSHIP_SQL.files_below}", parameters).fetchall()
    assert "duckicelake_data_file_place" in str(plan)


def test_folder_of_a_dropped_table_is_its_last_schemas(database: Database, ducklake: duckdb.DuckDBPyConnection) -> None:
    ducklake.execute("CREATE TABLE lake.main.t (i INTEGER)")
    with database.reading() as cursor:
        query = "SELECT m.value || s.path || t.path FROM ducklake_table t JOIN ducklake_schema s USING (schema_id), "
        query += "ducklake_metadata m WHERE m.key = 'data_path' AND m.scope IS NULL"
        ((folder,),) = cursor.execute(query).fetchall()
    ducklake.execute("DROP TABLE lake.main.t")
    with database.reading() as cursor:
        assert find_folder_sharers(cursor, None, folder) == [["main", "t"]]
        assert find_folder_sharers(cursor, None, f"{folder}x/") == []
