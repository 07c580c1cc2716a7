"""`duckicelake import-lake`: a lake in a file and its import hold the same rows, in every version."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import duckdb
import psycopg
import pytest
from duckdb_extensions import import_extension

from duckicelake.errors import (
    AlreadyExistsError,
    CatalogError,
    ConflictError,
    InvalidRequestError,
    UnsupportedCatalogError,
)
from duckicelake.file_lake import importer
from duckicelake.file_lake.catalog_file import open_catalog_file
from duckicelake.file_lake.importer import import_catalog, plan_import
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.format import DUCKLAKE_TABLES, prepare_catalog
from duckicelake.postgres.database import Database
from tests.conftest import Attach, new_duckdb, services_of
from tests.support.commands import invoke
from tests.support.killed_process import Work, mortal
from tests.support.lakes import Lake as ServedLake
from tests.support.lakes import iceberg_rows, sorted_rows

HISTORY = (
    """CREATE TABLE lake.t (
        a INTEGER, s VARCHAR, st STRUCT(x INTEGER, y VARCHAR, z STRUCT(q VARCHAR[], "odd name" BLOB)), d DATE,
        ts TIMESTAMPTZ, b BLOB, li VARCHAR[], m MAP(VARCHAR, INTEGER), dec DECIMAL(10, 2), u UUID, f DOUBLE, bo BOOLEAN,
        ti TIME, j JSON, ul UBIGINT, ns TIMESTAMP_NS)""",
    r"""INSERT INTO lake.t VALUES (
        1, 'it''s', {'x': 1, 'y': 'it''s \ "d" {a=b}, c', 'z': {'q': ['a''', 'NULL', NULL, ''], 'odd name': NULL}},
        DATE '2020-01-01', TIMESTAMPTZ '2020-01-01 00:00:00.5+00', '\x00\xABb'::BLOB, ['a', 'b''c', NULL, 'NULL', ''],
        MAP {'k=''1': 1, '': NULL}, 1.5, '00000000-0000-0000-0000-000000000001', 'nan', true, TIME '01:02:03',
        '{"a": [1]}', 18446744073709551615, TIMESTAMP_NS '2020-01-01 00:00:00.123456789')""",
    "INSERT INTO lake.t (a, li, m) VALUES (2, [], MAP {})",
    "UPDATE lake.t SET a = 3 WHERE a = 2",
    "ALTER TABLE lake.t ADD COLUMN e INTEGER DEFAULT 5",
    "INSERT INTO lake.t (a) VALUES (9)",
    "DELETE FROM lake.t WHERE a = 9",
    "CREATE SCHEMA lake.other",
    "CREATE TABLE lake.other.big AS SELECT range AS i, 'x' || range AS s FROM range(1000)",
    "DELETE FROM lake.other.big WHERE i < 5",
    "DELETE FROM lake.other.big WHERE i > 500",
    "ALTER TABLE lake.other.big RENAME TO large",
    "CREATE VIEW lake.v AS SELECT a, s FROM lake.t",
    "CREATE MACRO lake.f(x) AS x + 1",
    "COMMENT ON TABLE lake.t IS 'a table'",
    "CALL lake.set_option('target_file_size', '1MB')",
    "CALL lake.set_option('parquet_compression', 'gzip', table_name => 't')",
)
TABLES = ("t", "other.large", "other.big", "v")


@pytest.fixture(params=["duckdb", "sqlite"])
def file(request: pytest.FixtureRequest, tmp_path: Path, extensions: None) -> Path:
    """A lake in a file of this kind, with history. DuckDB itself can't read such names and BLOBs from SQLite."""
    path = tmp_path / f"lake.{request.param}"
    with closing(attach_file(path)) as duck:
        for statement in HISTORY:
            duck.execute(statement if request.param == "sqlite" else make_odd(statement))
    return path


@pytest.fixture
def history_file(tmp_path: Path, extensions: None) -> Path:
    """A lake in DuckDB's own file, with history."""
    path = tmp_path / "lake.duckdb"
    with closing(attach_file(path)) as duck:
        for statement in HISTORY:
            duck.execute(make_odd(statement))
    return path


def make_odd(statement: str) -> str:
    """Give a struct's field a quote in its name, and a value."""
    return statement.replace('"odd name"', '"odd \' name"').replace("'odd name': NULL", r"'odd '' name': '\x00a'")


def attach_file(path: Path) -> duckdb.DuckDBPyConnection:
    """DuckDB with the lake in a file as `lake`; its files are in a folder beside it."""
    if path.suffix == ".sqlite":
        import_extension("sqlite_scanner")
    prefix = "sqlite:" if path.suffix == ".sqlite" else ""
    duck = new_duckdb()
    return duck.execute(f"ATTACH 'ducklake:{prefix}{path}' AS lake (DATA_PATH '{path.parent}/files/')")


@pytest.fixture
def empty(empty_database_url: str) -> Iterator[Database]:
    database = open_lake_database(empty_database_url, pool_size=4)
    yield database
    database.close()


def run_import(database: Database, path: Path, notify: Callable[[int], None] = lambda _: None, **options: bool) -> int:
    """Import the file; how many rows an earlier attempt had copied."""
    with closing(open_catalog_file(path)) as source:
        return import_catalog(database, source, plan_import(source), notify, **options).resumed_rows


def read_everything(duck: duckdb.DuckDBPyConnection) -> dict[str, object]:
    """Every row of every table in every version, with the schema; None where there is no such table."""
    found: dict[str, object] = {"f(1)": duck.sql("SELECT lake.f(1)").fetchall()}
    versions = [version for (version,) in duck.sql("SELECT snapshot_id FROM lake.snapshots()").fetchall()]
    for table in TABLES:
        for version in versions if table != "v" else [None]:
            at = "" if version is None else f" AT (VERSION => {version})"
            try:
                relation = duck.sql(f"FROM lake.{table}{at}")
            except duckdb.CatalogException:
                found[f"{table}{at}"] = None
            else:
                found[f"{table}{at}"] = (str(relation.types), sorted_rows(relation.to_arrow_table()))
    return found


def test_import_holds_the_same_rows_in_every_version(
    file: Path, empty: Database, empty_database_url: str, attach: Attach
) -> None:
    assert run_import(empty, file) == 0
    data_path = prepare_catalog(empty, "/unused", creates=False)

    assert data_path == f"{file.parent}/files/"
    with closing(attach_file(file)) as original:
        ours, theirs = read_everything(attach(empty_database_url)), read_everything(original)
    assert ours == theirs
    assert sum(rows is not None for rows in theirs.values()) > 20


def test_import_is_served_to_iceberg_clients_and_goes_on(
    file: Path, empty: Database, empty_database_url: str, attach: Attach, warehouse: Path
) -> None:
    run_import(empty, file)
    prepare_catalog(empty, "/unused", creates=False)
    duck = attach(empty_database_url)
    lake = ServedLake(services_of(empty, warehouse), duck)

    lake.run("INSERT INTO lake.other.large SELECT 1000 + range, 'new' FROM range(20)", "DELETE FROM lake.t WHERE a = 3")

    assert iceberg_rows(lake.static("large", "other")) == lake.duck_rows("other.large")
    assert lake.static().scan(selected_fields=("a",)).to_arrow().to_pylist() == [{"a": 1}]
    assert lake.static().properties["write.parquet.compression-codec"] == "gzip"


@pytest.mark.parametrize("parts", [2, *(pytest.param(parts, marks=pytest.mark.crash) for parts in (1, 40))])
def test_interrupted_import_goes_on(
    file: Path, empty: Database, empty_database_url: str, attach: Attach, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    monkeypatch.setattr(importer, "PART_ROWS", 5)

    def interrupt(_: int, left: Iterator[int] = iter(range(parts))) -> None:  # noqa: B008
        if next(left, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_import(empty, file, interrupt)
    with pytest.raises(
        UnsupportedCatalogError, match=r"isn't complete: run `duckicelake import-lake` again with its file"
    ):
        prepare_catalog(empty, "/unused")

    resumed = run_import(empty, file)

    assert (resumed > 0) is (parts > 1)
    prepare_catalog(empty, "/unused", creates=False)
    with closing(attach_file(file)) as original:
        assert read_everything(attach(empty_database_url)) == read_everything(original)


MOST_DEATHS = 500


@pytest.mark.crash
def test_import_killed_at_every_step_goes_on_to_the_same_lake(
    history_file: Path, empty: Database, empty_database_url: str, attach: Attach, warehouse: Path
) -> None:
    """Each process goes on where the one before died, and dies one step later."""
    died_at: Counter[str] = Counter()
    with mortal(services_of(empty, warehouse)) as processes:
        for number in range(MOST_DEATHS):
            ending = processes.serve(Work("import a file", steps=number, body={"file": str(history_file)}))
            if ending.answered:
                break
            died_at[ending.log[-1]] += 1
    assert ending.answered, died_at
    assert min(died_at["before COMMIT"], died_at["after COMMIT"]) > len(DUCKLAKE_TABLES)

    with closing(attach_file(history_file)) as original:
        assert read_everything(attach(empty_database_url)) == read_everything(original)
        counts = {
            table: original.sql(f"SELECT count(*) FROM __ducklake_metadata_lake.{table}").fetchall()
            for table in DUCKLAKE_TABLES
        }
    with psycopg.connect(empty_database_url) as connection:
        assert {table: connection.execute(f"SELECT count(*) FROM {table}").fetchall() for table in counts} == counts  # type: ignore[call-overload]
        left = connection.execute("SELECT relname FROM pg_class WHERE relname ~ '^duckicelake_import'").fetchall()
    assert left == []


def test_two_imports_at_once_make_one_lake(
    file: Path, empty: Database, empty_database_url: str, attach: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "PART_ROWS", 5)
    with ThreadPoolExecutor(2) as threads:
        for outcome in [threads.submit(run_import, empty, file) for _ in range(2)]:
            assert outcome.exception() is None or isinstance(outcome.exception(), AlreadyExistsError)

    prepare_catalog(empty, "/unused", creates=False)
    with closing(attach_file(file)) as original:
        assert read_everything(attach(empty_database_url)) == read_everything(original)


def test_file_that_changed_is_imported_anew(file: Path, empty: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "PART_ROWS", 5)
    stopped = pytest.raises(ZeroDivisionError)
    with stopped:
        run_import(empty, file, lambda copied: None if copied < 20 else copied // 0)
    with closing(attach_file(file)) as duck:
        duck.execute("INSERT INTO lake.t (a) VALUES (77)")

    with pytest.raises(ConflictError, match="has changed: begin again with --restart"):
        run_import(empty, file)

    assert run_import(empty, file, restarts=True) == 0
    with empty.reading() as cursor:
        assert cursor.execute("SELECT count(*) FROM ducklake_inlined_data_1_2 WHERE a = 77").fetchall() == [(1,)]


def test_database_with_a_lake_takes_no_import(file: Path, database: Database) -> None:
    with pytest.raises(AlreadyExistsError, match="has a lake: import into another database"):
        run_import(database, file)


def test_schema_of_the_database_stays_as_it_was_after_a_refusal(empty: Database, file: Path) -> None:
    with empty.transaction() as cursor:
        cursor.execute("CREATE TABLE ducklake_tag (x integer)")

    with pytest.raises(UnsupportedCatalogError, match="drop what is left of it"):
        run_import(empty, file)

    with empty.reading() as cursor:
        assert cursor.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ("UPDATE {}ducklake_metadata SET value = '0.3' WHERE key = 'version'", UnsupportedCatalogError, "format '0.3'"),
        (
            "UPDATE {}ducklake_metadata SET value = '1.1' WHERE key = 'version'",
            UnsupportedCatalogError,
            "serves 1.0: DuckLake can't migrate it back; copy its tables in DuckDB into a lake that Postgres has",
        ),
        ("UPDATE {}ducklake_metadata SET value = 'true' WHERE key = 'encrypted'", UnsupportedCatalogError, "encrypted"),
        (
            "UPDATE {}ducklake_metadata SET value = 'x/' WHERE key = 'data_path'",
            InvalidRequestError,
            "pass --data-path",
        ),
        ("DROP TABLE {}ducklake_inlined_data_1_1", InvalidRequestError, "lacks ducklake_inlined_data_1_1"),
        ("DELETE FROM {}ducklake_schema_versions", InvalidRequestError, "CALL ducklake_flush_inlined_data"),
        ("DROP TABLE {}ducklake_metadata", InvalidRequestError, "has no DuckLake catalog"),
    ],
)
def test_catalogs_that_cant_be_imported(file: Path, change: str, kind: type[CatalogError], message: str) -> None:
    if file.suffix == ".sqlite":
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute(change.format(""))
    else:
        with duckdb.connect(str(file)) as duck:
            duck.execute(change.format("main."))
    with pytest.raises(kind, match=message), closing(open_catalog_file(file)) as source:
        plan_import(source)


def test_inlined_variants_must_be_flushed_first(
    tmp_path: Path, extensions: None, empty: Database, empty_database_url: str, attach: Attach
) -> None:
    path = tmp_path / "lake.duckdb"
    with closing(attach_file(path)) as duck:
        duck.execute("CREATE TABLE lake.w (a INTEGER, v VARIANT)")
        duck.execute("INSERT INTO lake.w VALUES (1, {'x': 1}::VARIANT)")

    with pytest.raises(InvalidRequestError, match=r"inlined rows of w can't be kept.*ducklake_flush_inlined_data"):
        run_import(empty, path)
    with closing(attach_file(path)) as duck:
        duck.execute("CALL ducklake_flush_inlined_data('lake')")
    run_import(empty, path)

    prepare_catalog(empty, "/unused", creates=False)
    duck = attach(empty_database_url)
    duck.execute("INSERT INTO lake.w VALUES (2, {'x': 2}::VARIANT)")
    assert duck.execute("SELECT a FROM lake.w ORDER BY a").fetchall() == [(1,), (2,)]


def test_statistics_with_null_characters_are_left_out(
    tmp_path: Path, extensions: None, empty: Database, empty_database_url: str, attach: Attach
) -> None:
    path = tmp_path / "lake.duckdb"
    with closing(attach_file(path)) as duck:
        duck.execute("CREATE TABLE lake.n AS SELECT 'a' || chr(0) || range AS s FROM range(100)")

    run_import(empty, path)

    prepare_catalog(empty, "/unused", creates=False)
    duck = attach(empty_database_url)
    assert duck.execute("SELECT count(*), count(DISTINCT s) FROM lake.n WHERE s > 'a'").fetchall() == [(100, 100)]


def test_tables_that_are_not_ducklakes_stay_behind(file: Path, empty: Database) -> None:
    names = ("ducklake_notes", "ducklake_{braces}", "ducklake_inlined_delete_of_mine")
    statements = [f'CREATE TABLE "{name}" (x INTEGER)' for name in names]
    if file.suffix == ".sqlite":
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)
    else:
        with duckdb.connect(str(file)) as duck:
            for statement in statements:
                duck.execute(statement)

    run_import(empty, file)

    with empty.reading() as cursor:
        query = "SELECT count(*) FROM pg_tables WHERE tablename = ANY (%s)"
        assert cursor.execute(query, [list(names)]).fetchall() == [(0,)]


def test_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" * 10)
    for name, message in ((path, "is neither a DuckDB nor an SQLite database"), (tmp_path / "gone", "No such file")):
        with pytest.raises(InvalidRequestError, match=message):
            open_catalog_file(name)


def test_file_with_several_catalogs_needs_a_schema(tmp_path: Path, extensions: None, empty: Database) -> None:
    path = tmp_path / "lake.duckdb"
    for schema in ("one", "two"):
        with closing(new_duckdb()) as duck:
            options = f"(DATA_PATH '{tmp_path}/{schema}/', METADATA_SCHEMA '{schema}')"
            duck.execute(f"ATTACH 'ducklake:{path}' AS lake {options}")
            duck.execute(f"CREATE TABLE lake.{schema}_t (a INTEGER)")

    with pytest.raises(InvalidRequestError, match="schemas one, two: choose one with --schema"):
        open_catalog_file(path)

    with closing(open_catalog_file(path, "two")) as source:
        import_catalog(empty, source, plan_import(source), lambda _: None)
    with empty.reading() as cursor:
        assert cursor.execute("SELECT table_name FROM ducklake_table").fetchall() == [("two_t",)]


def test_command_imports_and_says_what_not_to_do(file: Path, empty_database_url: str, tmp_path: Path) -> None:
    settings = {"DUCKICELAKE_DATABASE_URL": empty_database_url, "DUCKICELAKE_WAREHOUSE": f"{tmp_path}/warehouse"}

    done = invoke("import-lake", str(file), "--json", **settings)

    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["tables"], facts["data-path"]) == (2, f"{tmp_path}/files/")
    again = invoke("import-lake", str(file), **settings)
    assert again.exit_code == 2
    assert "has a lake" in again.output
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT count(*) FROM duckicelake_migration").fetchall()[0][0] > 0
