"""`duckicelake publish`: a catalog file holds the rows of a snapshot, whatever happens to the lake afterwards."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from duckicelake.errors import AlreadyExistsError, DamagedTableError, NotFoundError, UnsupportedError
from duckicelake.file_lake.publisher import end_publication, list_publications, publish_snapshot
from tests.conftest import new_duckdb
from tests.support.commands import invoke
from tests.support.lakes import Lake, sorted_rows

TABLES = ("t", "other.big", "v", "parts")


@pytest.fixture
def filled(lake: Lake) -> Lake:
    lake.run(
        """CREATE TABLE t (
            a INTEGER, s VARCHAR, st STRUCT(x INTEGER, y VARCHAR), d DATE, ts TIMESTAMPTZ, b BLOB, li VARCHAR[],
            m MAP(VARCHAR, INTEGER), dec DECIMAL(10, 2), f DOUBLE, j JSON)""",
        r"""INSERT INTO t VALUES (1, 'it''s', {'x': 1, 'y': 'no quote'}, DATE '2020-01-01',
            TIMESTAMPTZ '2020-01-01 00:00:00.5+00', '\x00\xABb'::BLOB, ['a', 'b''c', NULL], MAP {'k': 1}, 1.5, 'nan',
            '{"a": [1]}'), (2, '', NULL, NULL, NULL, NULL, [], MAP {}, NULL, NULL, NULL)""",
        "ALTER TABLE t ADD COLUMN e INTEGER DEFAULT 5",
        "INSERT INTO t (a) VALUES (9)",
        "DELETE FROM t WHERE a = 2",
        "CREATE SCHEMA other",
        "CREATE TABLE other.big AS SELECT range AS i, 'x' || range AS s FROM range(1000)",
        "DELETE FROM other.big WHERE i < 5",
        "DELETE FROM other.big WHERE i > 500",
        "CREATE TABLE parts (k INTEGER, n INTEGER)",
        "ALTER TABLE parts SET PARTITIONED BY (k)",
        "INSERT INTO parts SELECT range % 3, range FROM range(100)",
        "CREATE VIEW v AS SELECT a, s FROM t",
        "CREATE MACRO f(x) AS x + 1",
        "COMMENT ON TABLE t IS 'a table'",
    )
    return lake


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "frozen.ducklake"


def read_all(duck: duckdb.DuckDBPyConnection, catalog: str, at: int | None = None) -> dict[str, object]:
    version = "" if at is None else f" AT (VERSION => {at})"
    found: dict[str, object] = {"f(1)": duck.sql(f"SELECT {catalog}.f(1)").fetchall()}
    for table in TABLES:
        relation = duck.sql(f"FROM {catalog}.{table}{version if table != 'v' else ''}")
        found[table] = (str(relation.types), sorted_rows(relation.to_arrow_table()))
    return found


@contextmanager
def open_frozen(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(new_duckdb()) as duck:
        yield duck.execute(f"ATTACH 'ducklake:{path}' AS frozen (READ_ONLY)")


def test_file_holds_the_rows_of_the_newest_snapshot(filled: Lake, file: Path) -> None:
    published = publish_snapshot(filled.services.database, file)

    assert (published.snapshot_id, published.tables) == (filled.newest(), 3)
    with open_frozen(file) as duck:
        assert read_all(duck, "frozen") == read_all(filled.duck, "lake")
        bounds = duck.sql("SELECT min(i), max(i), count(*) FROM frozen.other.big WHERE i > 100").fetchall()
        comments = duck.sql("SELECT comment FROM duckdb_tables() WHERE database_name = 'frozen' AND table_name = 't'")
        assert (bounds, comments.fetchall()) == ([(101, 500, 400)], [("a table",)])


@pytest.mark.parametrize("back", [1, 3, 7])
def test_file_holds_the_rows_of_an_earlier_snapshot(filled: Lake, file: Path, back: int) -> None:
    at = filled.newest()
    expected = filled.duck_rows("t", at), filled.duck_rows("other.big", at)
    filled.run(
        "DELETE FROM other.big WHERE i % 2 = 0", "UPDATE t SET s = 'new'", "CALL ducklake_flush_inlined_data('lake')"
    )
    filled.run("INSERT INTO t (a) VALUES (11)", *[f"INSERT INTO other.big VALUES ({i}, 'y')" for i in range(back)])

    publish_snapshot(filled.services.database, file, at)

    with open_frozen(file) as duck:
        rows = tuple(sorted_rows(duck.sql(f"FROM frozen.{table}").to_arrow_table()) for table in ("t", "other.big"))
    assert rows == expected


def test_file_is_read_after_the_lake_dropped_everything(filled: Lake, file: Path) -> None:
    expected = read_all(filled.duck, "lake")
    published = publish_snapshot(filled.services.database, file)
    filled.run(
        "DROP VIEW v",
        "DROP TABLE t",
        "DROP TABLE other.big",
        "DROP TABLE parts",
        "CALL ducklake_expire_snapshots('lake', older_than => now())",
        "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
    )

    with open_frozen(file) as duck:
        assert read_all(duck, "frozen") == expected
    ((identity, name, count),) = list_publications(filled.services.database)
    assert (identity, name) == (published.id, "frozen.ducklake")
    assert end_publication(filled.services.database, identity) == count > 0
    assert list_publications(filled.services.database) == []
    with pytest.raises(NotFoundError, match="lists them"):
        end_publication(filled.services.database, identity)


def test_time_chooses_the_newest_snapshot_until_then(filled: Lake, file: Path) -> None:
    newest = filled.newest()
    assert (
        publish_snapshot(filled.services.database, file, datetime.now(UTC) + timedelta(hours=1)).snapshot_id == newest
    )
    with pytest.raises(NotFoundError, match="no snapshot 2001-01-01"):
        publish_snapshot(filled.services.database, file.with_suffix(".old"), datetime(2001, 1, 1, tzinfo=UTC))
    for number in (99_999, 10**30):
        with pytest.raises(NotFoundError, match=f"no snapshot {number}"):
            publish_snapshot(filled.services.database, file.with_suffix(".new"), number)
    assert len(list_publications(filled.services.database)) == 1


def test_file_that_is_there_stays(filled: Lake, file: Path) -> None:
    file.write_text("mine")
    with pytest.raises(AlreadyExistsError, match="name another file"):
        publish_snapshot(filled.services.database, file)
    assert file.read_text() == "mine"
    assert list_publications(filled.services.database) == []


def test_failure_leaves_neither_a_file_nor_held_files(filled: Lake, file: Path) -> None:
    filled.run("CREATE TABLE h (x HUGEINT)", "INSERT INTO h VALUES (1)")
    with pytest.raises(UnsupportedError):
        publish_snapshot(filled.services.database, file)
    assert list(file.parent.glob("*frozen*")) == []
    assert list_publications(filled.services.database) == []


def test_name_of_an_inlined_table_runs_no_sql(filled: Lake, file: Path) -> None:
    """Whoever may write DuckLake's tables chooses it; the operator's DuckDB must not run it."""
    name = f"x\" AS SELECT 1; COPY (SELECT 1) TO '{file.parent}/stolen'; --"
    with filled.services.database.transaction() as cursor:
        cursor.execute("UPDATE ducklake_inlined_data_tables SET table_name = %s", [name])

    with pytest.raises(DamagedTableError, match="is registered for inlined rows: expected ducklake_inlined_data_"):
        publish_snapshot(filled.services.database, file)

    assert list(file.parent.glob("*stolen*")) == []
    assert list_publications(filled.services.database) == []


def test_file_is_read_only(filled: Lake, file: Path) -> None:
    publish_snapshot(filled.services.database, file)
    assert file.stat().st_mode & 0o222 == 0
    with closing(duckdb.connect(str(file), read_only=True)) as duck:
        ((folder,),) = duck.sql("SELECT value FROM ducklake_metadata WHERE key = 'data_path'").fetchall()
    assert folder == f"{file}.files/"


def test_commands_publish_list_and_end(filled: Lake, file: Path, database_url: str, warehouse: Path) -> None:
    settings = {"DUCKICELAKE_DATABASE_URL": database_url, "DUCKICELAKE_WAREHOUSE": str(warehouse)}

    done = invoke("publish", str(file), "--json", **settings)

    assert done.exit_code == 0, done.output
    published = json.loads(done.stdout)
    assert published["snapshot"] == filled.newest()
    assert f"{published['id']}  frozen.ducklake  keeps" in invoke("unpublish", **settings).output
    assert "has ended" in invoke("unpublish", published["id"], **settings).output
    assert invoke("publish", str(file), **settings).exit_code == 2
