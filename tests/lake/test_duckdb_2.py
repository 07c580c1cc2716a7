"""The next DuckDB, in a process of its own: it reads our files; what it does to lakes is asked once it can attach them.

`scripts/engines fetch` fetches it. No registry has its ducklake extension yet, so what can't be known without it (facts
§9.3) is skipped here with that reason.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import psycopg
import pyarrow as pa
import pytest

from duckicelake.catalog.flush import flush_rows
from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from duckicelake.lake.ducklake.database import build_attach_source
from duckicelake.lake.formats import FORMAT_1_1, OPTIONAL_COLUMNS
from scripts.engines_job.packages import find_duckdb_2, has_ducklake
from tests.support.client import local
from tests.support.lakes import Lake, sorted_rows

pytestmark = [pytest.mark.more_engines, pytest.mark.engine]
PROGRAM = """
import json, sys, duckdb, pyarrow as pa
asked = json.load(sys.stdin)
connection = duckdb.connect(config={"threads": 2, "allow_unsigned_extensions": True})
for name in asked["extensions"]:
    from duckdb_extensions import import_extension
    import_extension(name)
    connection.execute(f"LOAD {name}")
for statement in asked["statements"]:
    result = connection.execute(statement)
table = result.to_arrow_table()
with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
    stream.write_table(table)
"""
NO_EXTENSION = "no wheel has DuckDB 2's ducklake extension yet: name it in scripts/engines_job/duckdb-2.lock"


@dataclass(frozen=True, slots=True)
class NextDuckDB:
    """DuckDB 2; source: of the lake, which it attaches as its current one; None: it attaches none."""

    home: Path
    source: str | None = None
    options: str = ""

    def run(self, *statements: str) -> pa.Table:
        """The answer to the last of the statements, which a new process runs."""
        attach = [f"ATTACH '{self.source}' AS lake{self.options}", "USE lake"] if self.source else []
        asked = {
            "extensions": ["ducklake", "postgres_scanner"] if self.source else [],
            "statements": [*attach, *statements],
        }
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=orjson.dumps(asked),
            capture_output=True,
            env=os.environ | {"PYTHONPATH": str(self.home)},
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return pa.ipc.open_stream(done.stdout).read_all()


@pytest.fixture
def duckdb_2() -> NextDuckDB:
    home = find_duckdb_2()
    if home is None:
        pytest.skip("DuckDB 2 isn't here: scripts/engines fetch")
    return NextDuckDB(home)


@pytest.fixture
def attached(duckdb_2: NextDuckDB, database_url: str) -> NextDuckDB:
    """DuckDB 2 on the test's lake."""
    if not has_ducklake(duckdb_2.home):
        pytest.skip(NO_EXTENSION)
    return NextDuckDB(duckdb_2.home, build_attach_source(database_url).replace("'", "''"))


def test_it_is_the_next_major_version(duckdb_2: NextDuckDB) -> None:
    (version,) = duckdb_2.run("SELECT version()").column(0).to_pylist()

    assert version.startswith("v2.")


# Our files

TYPES = {
    "b": ("BOOLEAN", "true"),
    "t": ("TINYINT", "-128"),
    "u": ("USMALLINT", "65535"),
    "i": ("INTEGER", "-2147483648"),
    "l": ("BIGINT", "9223372036854775807"),
    "f": ("FLOAT", "'nan'"),
    "d": ("DOUBLE", "'-inf'"),
    "p": ("DECIMAL(9,2)", "-1234567.89"),
    "q": ("DECIMAL(38,10)", "9999999999999999999999999999.0123456789"),
    "dt": ("DATE", "'1815-12-10'"),
    "tm": ("TIME", "'23:59:59.999999'"),
    "ts": ("TIMESTAMP", "'1969-12-31 23:59:59.999999'"),
    "tz": ("TIMESTAMPTZ", "'2024-03-05 07:08:09.123456+00'"),
    "s": ("VARCHAR", "'ünï🦆'"),
    "x": ("BLOB", "'\\x00\\xFF'::BLOB"),
    "id": ("UUID", "'00000000-0000-0000-0000-0000000000ff'"),
    "st": ("STRUCT(a INTEGER, b STRUCT(c VARCHAR[]))", "{'a': 1, 'b': {'c': ['x', NULL]}}"),
    "li": ("BIGINT[]", "[1, NULL, 3]"),
    "m": ("MAP(VARCHAR, DOUBLE)", "MAP {'k': 1.5}"),
}


def list_files(lake: Lake) -> list[str]:
    files = [task.file.file_path for task in lake.static().scan().plan_files()]
    return [str(local(path)) for path in files]


def test_it_reads_every_type_of_files_that_we_flush_as_the_pinned_one_does(duckdb_2: NextDuckDB, lake: Lake) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
    values = ", ".join(f"CAST({value} AS {kind})" for kind, value in TYPES.values())
    lake.run(f"CREATE TABLE t ({columns})", f"INSERT INTO t SELECT {values}", "INSERT INTO t (i) VALUES (NULL)")
    flush_rows(lake.services, ("main",), "t")
    (path,) = list_files(lake)

    query = f"SELECT * FROM read_parquet('{path}') ORDER BY i NULLS LAST"

    read, expected = duckdb_2.run(query), lake.duck.sql(query).to_arrow_table()
    assert read.schema.names == expected.schema.names
    assert sorted_rows(read) == sorted_rows(expected)
    tests = ", ".join(f"count(*) FILTER ({n} = CAST({value} AS {kind})) AS {n}" for n, (kind, value) in TYPES.items())
    assert duckdb_2.run(f"SELECT {tests} FROM read_parquet('{path}')").to_pylist() == [dict.fromkeys(TYPES, 1)]


def test_it_reads_posted_rows_and_their_statistics(duckdb_2: NextDuckDB, lake: Lake) -> None:
    lake.run("CALL lake.set_option('data_inlining_row_limit', 0)", "CREATE TABLE t (i BIGINT, s VARCHAR, d DATE)")
    rows = [{"i": number, "s": f"s{number}", "d": "2024-02-29"} for number in range(1000)]
    append_rows(lake.services, PostedRows(("main",), "t", orjson.dumps(rows), "application/json"))
    (path,) = list_files(lake)

    query = f"SELECT count(*) AS n, min(i) AS low, max(i) AS high, max(s) AS last FROM '{path}' WHERE i >= 10"

    assert duckdb_2.run(query).to_pylist() == [{"n": 990, "low": 10, "high": 999, "last": "s999"}]


def test_it_reads_our_position_deletes(duckdb_2: NextDuckDB, lake: Lake) -> None:
    lake.run(
        "CALL lake.set_option('data_inlining_row_limit', 0)",
        "CREATE TABLE t AS SELECT range AS i FROM range(1000)",
        "CALL lake.set_option('data_inlining_row_limit', 10)",
        "DELETE FROM t WHERE i % 200 = 7",
    )
    (task,) = lake.static().scan().plan_files()
    (delete,) = task.delete_files

    left = duckdb_2.run(
        f"SELECT i FROM read_parquet('{local(task.file.file_path)}', file_row_number = true) WHERE file_row_number "
        f"NOT IN (SELECT pos FROM '{local(delete.file_path)}' WHERE file_path = '{task.file.file_path}')"
    )

    assert sorted(left.column(0).to_pylist()) == sorted(i for (i,) in lake.duck_rows())
    assert len(left) == 995


# What the released extension does to lakes (facts §9.3)


@pytest.fixture
def catalog_of(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def read_columns(connection: psycopg.Connection) -> dict[str, list[str]]:
    """Names of the columns of DuckLake's tables, in their order."""
    rows = connection.execute(
        "SELECT table_name, array_agg(column_name::text ORDER BY ordinal_position) FROM information_schema.columns "
        "WHERE table_schema = 'public' AND table_name LIKE 'ducklake_%' GROUP BY table_name"
    )
    return dict(rows.fetchall())


def test_its_migration_makes_the_columns_that_we_know(started_migration: str, catalog_of: psycopg.Connection) -> None:
    before = read_columns(catalog_of)
    home = find_duckdb_2()
    assert home is not None

    NextDuckDB(home, started_migration, " (AUTOMATIC_MIGRATION TRUE)").run("SELECT 1")

    after = read_columns(catalog_of)
    for table, names in after.items():
        known = {*FORMAT_1_1.extra_columns.get(table, ()), *OPTIONAL_COLUMNS.get(table, ())}
        known |= {name for name, _ in FORMAT_1_1.extra_tables.get(table, ())}
        if not table.startswith("ducklake_inlined_data_"):
            assert set(names) - set(before.get(table, ())) <= known, table
            assert names[: len(before.get(table, ()))] == before.get(table, []), table


@pytest.fixture
def started_migration(attached: NextDuckDB, lake: Lake, database_url: str, catalog_of: psycopg.Connection) -> str:
    """The source of an ATTACH that may migrate the lake: the guard is off for it."""
    assert attached.source is not None
    lake.run("CREATE TABLE t (i BIGINT, s VARCHAR)", "INSERT INTO t VALUES (1, 'a')")
    lake.duck.close()
    catalog_of.execute("ALTER TABLE ducklake_metadata DISABLE TRIGGER USER")
    return attached.source


@pytest.fixture
def on_1_1(started_migration: str, attached: NextDuckDB) -> NextDuckDB:
    """DuckDB 2 on a lake that it has migrated."""
    NextDuckDB(attached.home, started_migration, " (AUTOMATIC_MIGRATION TRUE)").run("SELECT 1")
    return attached


def test_bounds_that_it_cut_are_not_called_exact(on_1_1: NextDuckDB, catalog_of: psycopg.Connection) -> None:
    on_1_1.run("CREATE TABLE long AS SELECT repeat('x', 1000) AS s FROM range(100)", "SELECT 1")
    found = read_columns(catalog_of)["ducklake_table_column_stats"]
    if "max_is_exact" not in found:
        pytest.skip("the extension has no flags of exactness")

    rows = catalog_of.execute("SELECT max_value, max_is_exact FROM ducklake_table_column_stats").fetchall()

    assert all(len(value) == 1000 or not is_exact for value, is_exact in rows)


def test_leftover_old_names_are_renamed_at_the_next_attach(on_1_1: NextDuckDB, catalog_of: psycopg.Connection) -> None:
    migrating = NextDuckDB(on_1_1.home, on_1_1.source, " (AUTOMATIC_MIGRATION TRUE)")
    catalog_of.execute("ALTER TABLE ducklake_inlined_data_1_1 RENAME COLUMN _ducklake_row_id TO row_id")

    migrating.run("SELECT 1")

    assert "row_id" not in read_columns(catalog_of)["ducklake_inlined_data_1_1"]


def test_nested_schemas_say_their_parent(on_1_1: NextDuckDB, catalog_of: psycopg.Connection) -> None:
    on_1_1.run("CREATE SCHEMA lake.a", "CREATE SCHEMA lake.a.europe", "CREATE TABLE lake.a.europe.t (i INT)")

    rows = catalog_of.execute("SELECT schema_name, parent_schema_id, path FROM ducklake_schema ORDER BY schema_id")
    changes = catalog_of.execute("SELECT changes_made FROM ducklake_snapshot_changes ORDER BY snapshot_id")

    found = {name: (parent, path) for name, parent, path in rows.fetchall()}
    assert found["europe"][0] is not None, (found, changes.fetchall())


def test_an_inlined_variant_is_served(on_1_1: NextDuckDB, lake: Lake) -> None:
    on_1_1.run("CREATE TABLE v (v VARIANT)", "INSERT INTO v VALUES (42::VARIANT)", "SELECT 1")

    assert lake.static("v").scan().to_arrow().num_rows == 1


def test_the_second_deletion_with_vectors_on_a_1_0_lake_is_parquet(
    attached: NextDuckDB, catalog_of: psycopg.Connection
) -> None:
    attached.run(
        "CALL lake.set_option('data_inlining_row_limit', 0)",
        "CALL lake.set_option('write_deletion_vectors', true)",
        "CREATE TABLE t AS SELECT range AS i FROM range(1000)",
        "DELETE FROM t WHERE i < 10",
        "DELETE FROM t WHERE i > 990",
    )

    (row,) = catalog_of.execute("SELECT format FROM ducklake_delete_file WHERE end_snapshot IS NULL").fetchall()

    assert row == ("parquet",)


def test_min_and_max_of_statistics_are_those_of_a_scan(attached: NextDuckDB) -> None:
    columns = [name for name, (kind, _) in TYPES.items() if "(" not in kind and "[" not in kind]
    made = ", ".join(f"CAST({TYPES[name][1]} AS {TYPES[name][0]}) AS {name}" for name in columns)
    attached.run(f"CREATE TABLE t AS SELECT {made}", "SELECT 1")

    for name in columns:
        fast = attached.run(f"SELECT min({name}) AS low, max({name}) AS high FROM t")
        scanned = attached.run(f"SELECT min({name}) AS low, max({name}) AS high FROM t WHERE random() < 2")
        assert sorted_rows(fast) == sorted_rows(scanned), name
