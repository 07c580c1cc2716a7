"""Lakes of DuckLake 1.1: what DuckDB 2.0 and Iceberg clients write is read by both, whatever columns are called."""

import re
from collections.abc import Iterator

import orjson
import psycopg
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import RESTError
from pyiceberg.types import StringType

from duckicelake.catalog.doctor import examine_tables
from duckicelake.catalog.flush import flush_rows
from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from duckicelake.catalog.table.load import load_current_table
from duckicelake.changelog.doctor import diagnose
from duckicelake.errors import DamagedTableError, UnsupportedCatalogError, UnsupportedError
from duckicelake.lake.formats import FORMAT_1_1
from duckicelake.lake.setup.format import prepare_catalog
from tests.support.commands import invoke
from tests.support.ducklake_11 import (
    NEW_NAMES,
    OLD_NAMES,
    add_exactness_columns,
    add_snapshot,
    as_1_0,
    delete_whole_file,
    encode_container,
    migrate,
    registered_tables,
    replace_by_container,
    respell,
)
from tests.support.lakes import Lake, Row, iceberg_rows

ROWS = pa.table({"i": pa.array([7, 8], pa.int64()), "s": pa.array(["seven", "eight"])})


@pytest.fixture
def migrated(lake: Lake, database_url: str) -> Lake:
    """A lake that DuckDB 2.0 has migrated, with inlined rows in `t` and rows in files in `filed`."""
    lake.run(
        "CREATE TABLE t (i BIGINT, s VARCHAR)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        "CREATE TABLE filed (i BIGINT, s VARCHAR)",
        "INSERT INTO filed SELECT range, 'x' || range FROM range(100)",
    )
    migrate(database_url, is_guarded=False)
    return lake


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as opened:
        yield opened


def compare(lake: Lake, url: str, table: str = "t") -> list[Row]:
    """The rows that PyIceberg reads, which DuckDB reads, too."""
    found = iceberg_rows(lake.static(table))
    with as_1_0(url):
        assert lake.duck_rows(f"main.{table}") == found
    return found


def stats(connection: psycopg.Connection, table_id: int) -> list[Row]:
    query = "SELECT column_id, contains_null, min_value, max_value FROM ducklake_table_column_stats WHERE table_id = %s"
    return sorted(connection.execute(query, [table_id]).fetchall())


def table_id(connection: psycopg.Connection, name: str) -> int:
    ((found,),) = connection.execute(
        "SELECT table_id FROM ducklake_table WHERE table_name = %s AND end_snapshot IS NULL", [name]
    ).fetchall()
    return int(found)


def assert_healthy(lake: Lake) -> None:
    assert [finding for finding in diagnose(lake.services.database) if not finding.ok] == []
    assert examine_tables(lake.services.database)[0] == []


def test_commands_say_the_format_that_the_lake_has(migrated, database_url, warehouse):
    settings = {"DUCKICELAKE_DATABASE_URL": database_url, "DUCKICELAKE_WAREHOUSE": str(warehouse)}

    outputs = {command: invoke(command, **settings) for command in ("init", "info", "doctor")}

    assert {command: output.exit_code for command, output in outputs.items()} == dict.fromkeys(outputs, 0)
    assert outputs["init"].output.startswith("DuckLake 1.1 catalog is ready")
    assert re.search(r"^format +1\.1$", outputs["info"].output, re.MULTILINE)
    assert "format 1.1" in outputs["doctor"].output


def test_a_half_migrated_lake_is_refused_by_name(migrated, connection, database_url):
    connection.execute("DROP TABLE ducklake_view_column_tag")

    with pytest.raises(UnsupportedCatalogError, match=r"format 1.1, but lacks ducklake_view_column_tag.begin_snapshot"):
        prepare_catalog(migrated.services.database, "/ignored/")


# Inlined rows by their places


def test_rows_of_both_sides_are_read_written_ended_and_flushed(migrated, catalog: Catalog, database_url):
    lake = migrated
    table = catalog.load_table("main.t")
    table.append(ROWS)
    assert len(compare(lake, database_url)) == 5
    table.refresh().delete("i = 2")  # an inlined row
    with as_1_0(database_url):
        lake.run("INSERT INTO t VALUES (4, 'd')", "DELETE FROM t WHERE i = 1", "UPDATE t SET s = 'C' WHERE i = 3")
    assert [row[0] for row in compare(lake, database_url)] == [3, 4, 7, 8]
    flushed = flush_rows(lake.services, ("main",), "t")
    assert flushed.rows

    assert compare(lake, database_url) == [(3, "C"), (4, "d"), (7, "seven"), (8, "eight")]
    assert_healthy(lake)


def test_a_new_table_and_new_columns_get_inlined_tables_with_the_names_of_1_1(
    migrated, catalog, connection, database_url
):
    lake = migrated
    table = catalog.create_table("main.made", pa.schema([("i", pa.int64()), ("row_id", pa.string())]))
    table.append(pa.table({"i": [1], "row_id": ["own"]}))
    with table.update_schema() as update:
        update.add_column("end_snapshot", StringType())
    names = [name for name in registered_tables(connection) if f"_{table_id(connection, 'made')}_" in name]

    columns = {
        name: [
            column
            for (column,) in connection.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum", [name]
            )
        ]
        for name in names
    }

    assert [found[:3] for found in columns.values()] == [list(NEW_NAMES)] * 2
    assert [found[3:] for found in columns.values()] == [["i", "row_id"], ["i", "row_id", "end_snapshot"]]
    assert iceberg_rows(lake.static("made")) == [(1, "own", None)]


@pytest.mark.parametrize("name", sorted(FORMAT_1_1.reserved_names))
def test_a_table_with_a_reserved_column_is_not_inlined(migrated, catalog, connection, name):
    table = catalog.create_table("main.made", pa.schema([("i", pa.int64()), (name.upper(), pa.string())]))
    table.append(pa.table({"i": [1], name.upper(): ["own"]}))

    assert not [each for each in registered_tables(connection) if f"_{table_id(connection, 'made')}_" in each]
    assert iceberg_rows(migrated.static("made")) == [(1, "own")]


@pytest.mark.parametrize("names", [OLD_NAMES, NEW_NAMES, (OLD_NAMES[0], *NEW_NAMES[1:])])
def test_both_spellings_in_one_catalog_are_served(migrated, catalog, connection, names):
    lake = migrated
    (name,) = (each for each in registered_tables(connection) if f"_{table_id(connection, 't')}_" in each)
    respell(connection, name, names)
    table = catalog.load_table("main.t")
    table.append(ROWS)
    table.refresh().delete("i = 2")
    rows = [(1, "a"), (3, "c"), (7, "seven"), (8, "eight")]
    assert iceberg_rows(lake.static("t")) == rows

    named = examine_tables(lake.services.database)[0]
    assert len(named) == (names != NEW_NAMES)  # DuckDB 2.0 can't read the others
    for finding in named:
        assert "aren't called as in DuckLake 1.1" in finding.detail
        connection.execute(finding.advice.split(": ", 1)[1])
    flush_rows(lake.services, ("main",), "t")

    assert iceberg_rows(lake.static("t")) == rows
    assert_healthy(lake)


def test_an_inlined_table_without_its_three_columns_is_named_and_nothing_is_written(migrated, catalog, connection):
    lake = migrated
    (name,) = (each for each in registered_tables(connection) if f"_{table_id(connection, 't')}_" in each)
    connection.execute(f'ALTER TABLE "{name}" DROP COLUMN _ducklake_begin_snapshot')
    newest = lake.newest()

    with pytest.raises(DamagedTableError, match=f"{name}, of its inlined rows, doesn't begin with the columns row_id"):
        load_current_table(lake.services, ("main",), "t")

    assert [finding.detail for finding in examine_tables(lake.services.database)[0] if name in finding.detail]
    assert lake.newest() == newest
    assert iceberg_rows(lake.static("filed"))[0] == (0, "x0")


def test_inlined_variants_are_refused_by_name_until_they_are_flushed(migrated, connection, database_url):
    lake = migrated
    with as_1_0(database_url):
        lake.run("CREATE TABLE loose (i BIGINT, v VARIANT)", "INSERT INTO loose VALUES (1, 42::VARIANT)")
    own = table_id(connection, "loose")
    name = f"ducklake_inlined_data_{own}_99"
    with connection.transaction():
        at = add_snapshot(connection, f"inlined_insert:{own}")
        version = "SELECT max(schema_version) FROM ducklake_schema_versions WHERE table_id = %s"
        connection.execute(
            f"CREATE TABLE {name} ({', '.join(f'{each} bigint' for each in NEW_NAMES)}, i bigint, v bytea)"
        )
        connection.execute(f"INSERT INTO {name} VALUES (1, {at}, NULL, 2, '\\x0c2a')")
        connection.execute(f"INSERT INTO ducklake_inlined_data_tables SELECT %s, '{name}', ({version})", [own, own])
        connection.execute(
            "UPDATE ducklake_table_stats SET record_count = 2, next_row_id = 2 WHERE table_id = %s", [own]
        )

    for act in (
        lambda: load_current_table(lake.services, ("main",), "loose"),
        lambda: flush_rows(lake.services, ("main",), "loose"),
    ):
        with pytest.raises(
            UnsupportedError, match=f"{name}, a table of inlined rows, holds values of v, of type VARIANT"
        ):
            act()

    assert lake.newest() == at
    connection.execute(f"DELETE FROM {name}")
    assert load_current_table(lake.services, ("main",), "loose")


def test_rows_of_a_table_that_lost_its_columns_since_it_was_loaded_are_not_deleted(migrated, catalog, connection):
    lake = migrated
    table = catalog.load_table("main.t")
    (name,) = (each for each in registered_tables(connection) if f"_{table_id(connection, 't')}_" in each)
    connection.execute(f'ALTER TABLE "{name}" DROP COLUMN _ducklake_end_snapshot')
    newest = lake.newest()

    with pytest.raises(RESTError, match=f"{name}, a table of its inlined rows: .* three columns"):
        table.delete("i = 2")

    assert lake.newest() == newest


# Statistics


def test_new_files_say_how_many_row_groups_they_have_where_the_footer_was_read(migrated, catalog, connection):
    lake = migrated
    flush_rows(lake.services, ("main",), "t")
    body = orjson.dumps([{"i": number, "s": "posted"} for number in range(100)])
    append_rows(lake.services, PostedRows(("main",), "t", body, "application/json"))
    catalog.load_table("main.t").append(pa.table({"i": range(50), "s": ["client's"] * 50}))

    found = connection.execute(
        "SELECT record_count, row_group_count FROM ducklake_data_file WHERE table_id = %s ORDER BY data_file_id",
        [table_id(connection, "t")],
    ).fetchall()

    assert found == [(3, 1), (100, 1), (50, None)]


def test_flags_of_exactness_are_set_by_their_names_where_the_lake_has_them(migrated, catalog, connection):
    add_exactness_columns(connection)
    table = catalog.create_table("main.made", pa.schema([("i", pa.int64()), ("s", pa.string())]))
    table.append(pa.table({"i": range(50), "s": ["long" * 20] * 50}))
    own = table_id(connection, "made")

    of_file = connection.execute(
        "SELECT column_id, min_is_exact, max_is_exact FROM ducklake_file_column_stats WHERE table_id = %s ORDER BY 1",
        [own],
    ).fetchall()
    of_table = connection.execute(
        "SELECT column_id, min_value, min_is_exact, max_is_exact FROM ducklake_table_column_stats WHERE table_id = %s",
        [own],
    ).fetchall()

    assert of_file == [(1, False, False), (2, False, False)]
    assert of_table == [(1, "0", True, True)]  # truncated bounds of a text have no row at all


@pytest.mark.parametrize("is_emptied", [False, True])
def test_statistics_that_duckdb_2_deleted_or_emptied_are_not_begun_anew(
    migrated, catalog, connection, database_url, is_emptied
):
    lake = migrated
    own = table_id(connection, "filed")
    if not is_emptied:
        with as_1_0(database_url):
            lake.run("INSERT INTO filed SELECT range, 'y' FROM range(1000, 1100)")
    ((file_id,),) = connection.execute(
        "SELECT min(data_file_id) FROM ducklake_data_file WHERE table_id = %s", [own]
    ).fetchall()
    with connection.transaction():
        delete_whole_file(connection, own, file_id)
    rest = [] if is_emptied else [(number, "y") for number in range(1000, 1100)]
    assert iceberg_rows(lake.static("filed")) == rest

    table = catalog.load_table("main.filed")
    table.append(pa.table({"i": [5], "s": ["five"]}))
    known = {column: bounds for column, _, *bounds in stats(connection, own)}

    assert all(bounds in ([None, None], ["5", "5"], ["five", "five"]) for bounds in known.values())
    assert is_emptied or not known
    ((records,),) = connection.execute(
        "SELECT record_count FROM ducklake_table_stats WHERE table_id = %s", [own]
    ).fetchall()
    assert records == len(rest) + 1
    assert iceberg_rows(lake.static("filed")) == sorted([*rest, (5, "five")], key=repr)
    table.refresh().append(pa.table({"i": [500], "s": ["more"]}))
    assert not is_emptied or {tuple(bounds) for _, _, *bounds in stats(connection, own)} <= {
        ("5", "500"),
        ("five", "more"),
    }
    assert_healthy(lake)


def test_a_missing_row_of_table_statistics_is_named_before_rows_come(migrated, catalog, connection):
    connection.execute("DELETE FROM ducklake_table_stats WHERE table_id = %s", [table_id(connection, "filed")])

    with pytest.raises(Exception, match="ducklake_table_stats"):
        catalog.load_table("main.filed").append(ROWS)

    found = examine_tables(migrated.services.database)[0]
    assert [finding for finding in found if "no row in ducklake_table_stats" in finding.detail]


def test_doctor_names_a_count_below_that_of_the_live_rows(migrated, connection):
    """DuckDB 2.0 takes such a table for empty once it deletes a whole file."""
    own = table_id(connection, "filed")
    connection.execute("UPDATE ducklake_table_stats SET record_count = 99 WHERE table_id = %s", [own])

    (finding,) = examine_tables(migrated.services.database)[0]
    assert finding.detail == "main.filed: ducklake_table_stats counts 99 rows, but it has at least 100"
    connection.execute(finding.advice.split(": ", 1)[1])
    assert examine_tables(migrated.services.database)[0] == []


# Deletes


def test_a_container_of_three_vectors_is_read_at_every_version(migrated, connection, database_url):
    lake = migrated
    with as_1_0(database_url):
        for first in (10, 20, 30):
            lake.run(f"DELETE FROM filed WHERE i >= {first} AND i < {first + 5}")
        lake.run("CALL ducklake_flush_inlined_data('lake')")
    versions = [lake.newest() - 3 + number for number in range(3)]
    vectors = {
        version: [place for first in (10, 20, 30)[: number + 1] for place in range(first, first + 5)]
        for number, version in enumerate(versions)
    }
    path = f"{lake.services.policy.data_path}/container-delete.puffin"
    data, footer_size = encode_container(vectors, "filed")
    lake.services.store.write(path, data)
    ((file_id,),) = connection.execute(
        "SELECT data_file_id FROM ducklake_delete_file WHERE end_snapshot IS NULL"
    ).fetchall()
    with connection.transaction():
        replace_by_container(connection, file_id, path, vectors, (len(data), footer_size))

    static = lake.static("filed")

    assert [row[0] for row in sorted(iceberg_rows(static))] == sorted(set(range(100)) - set(vectors[versions[-1]]))
    for snapshot in static.snapshots():
        version = int(snapshot.summary["ducklake.snapshot-id"])
        gone = next((set(vectors[at]) for at in sorted(vectors, reverse=True) if at <= version), set())
        assert [row[0] for row in sorted(iceberg_rows(static, snapshot.snapshot_id))] == sorted(set(range(100)) - gone)
    assert_healthy(lake)


def test_no_puffin_file_of_ours_is_shared_with_duckdb(migrated, connection, database_url):
    """DuckDB 2.0 would apply all vectors of a file to each data file that names it."""
    lake = migrated
    lake.commit({"action": "upgrade-format-version", "format-version": 3}, table="filed")
    with as_1_0(database_url):
        lake.run("INSERT INTO filed SELECT range, 'y' FROM range(1000, 1100)", "DELETE FROM filed WHERE i % 10 = 3")
    assert len(iceberg_rows(lake.static("filed"))) == 180

    served = connection.execute(
        "SELECT DISTINCT path FROM duckicelake_file WHERE lower(file_format) = 'puffin'"
    ).fetchall()
    known = connection.execute("SELECT path, format FROM ducklake_delete_file").fetchall()

    assert served
    assert not {path for (path,) in served} & {path for path, _ in known}
    assert "puffin" not in {kind for _, kind in known}
