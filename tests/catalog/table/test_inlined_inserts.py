"""Rows that DuckDB inlined, as files that grow by what is new: with each load, not with each insert (design §6.16)."""

from pathlib import Path
from typing import Any

import pytest

from duckicelake.catalog.flush import flush_rows
from duckicelake.catalog.table.load import read_or_report_damage
from duckicelake.errors import DamagedTableError
from duckicelake.lake.ducklake import inlined_rows
from tests.support.lakes import Lake, assert_same_rows

FLUSH = "CALL ducklake_flush_inlined_data('lake')"


def insert(lake: Lake, first: int, count: int) -> None:
    """As many snapshots as rows."""
    for number in range(first, first + count):
        lake.run(f"INSERT INTO t VALUES ({number}, 'n{number}')")


def virtual_files(lake: Lake) -> list[Path]:
    """The files of inlined rows that were ever written, oldest first."""
    location = lake.services.store.local_path(lake.metadata().location)
    assert location is not None
    return sorted(location.glob("metadata/*-inlined.parquet"), key=lambda path: int(path.name.split("-")[0]))


def records(lake: Lake) -> list[int]:
    """How many rows the files of the current snapshot hold."""
    return sorted(task.file.record_count for task in lake.static().scan().plan_files())


def test_many_inserts_are_one_snapshot_and_one_file_at_the_next_load(lake: Lake) -> None:
    lake.run("CREATE TABLE t (id BIGINT, name VARCHAR)")
    insert(lake, 0, 100)
    assert [snapshot.snapshot_id for snapshot in lake.metadata().snapshots] == [lake.newest()]
    (written,) = virtual_files(lake)
    assert records(lake) == [100]
    assert_same_rows(lake)
    modified = written.stat().st_mtime_ns
    insert(lake, 100, 5)
    assert records(lake) == [5, 100]
    assert len(lake.metadata().snapshots) == 2
    assert virtual_files(lake)[0] == written
    assert written.stat().st_mtime_ns == modified
    assert_same_rows(lake)
    assert len(virtual_files(lake)) == 2


def test_loads_without_new_rows_write_nothing(lake: Lake) -> None:
    lake.run("CREATE TABLE t (id BIGINT, name VARCHAR)", "CREATE TABLE other (id BIGINT)")
    insert(lake, 0, 3)
    version = lake.metadata().last_updated_ms
    files = virtual_files(lake)
    lake.run("INSERT INTO other VALUES (1)")
    assert lake.metadata().last_updated_ms == version
    assert virtual_files(lake) == files


def test_inserts_and_updates_between_loads_have_files_of_their_own(lake: Lake) -> None:
    """Readers that skip snapshots which delete would else miss the inserts."""
    lake.run("CREATE TABLE t (id BIGINT, name VARCHAR)")
    insert(lake, 0, 5)
    lake.run("DELETE FROM t WHERE id < 3", "UPDATE t SET name = 'x' WHERE id = 4")
    assert records(lake) == [1, 5]
    assert_same_rows(lake)


def test_files_of_inlined_rows_leave_the_table_when_duckdb_flushes(lake: Lake) -> None:
    lake.run("CREATE TABLE t (id BIGINT, name VARCHAR)")
    insert(lake, 0, 5)
    lake.metadata()
    lake.run("DELETE FROM t WHERE id = 2")
    assert records(lake) == [5]  # and a delete file
    lake.run(FLUSH)
    paths = [task.file.file_path for task in lake.static().scan().plan_files()]
    assert not any(path.endswith("-inlined.parquet") for path in paths)
    assert len(paths) == 1
    assert_same_rows(lake)


def test_load_looks_again_as_often_as_flushes_take_what_it_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time between its reading of keys and of values, be it DuckDB's flush or the server's."""
    lake.run("CREATE TABLE t (id BIGINT, name VARCHAR)")
    insert(lake, 0, 5)
    copy_rows, flushed = inlined_rows.copy_keyed_rows, list[int]()

    def after_a_flush(*arguments: Any) -> Any:
        if len(flushed) < 4:
            flushed.append(len(flushed))
            if len(flushed) % 2:
                lake.run(FLUSH)
            else:
                assert flush_rows(lake.services, ("main",), "t").snapshot_id is not None
            insert(lake, 5 + len(flushed), 1)
        return copy_rows(*arguments)

    monkeypatch.setattr(inlined_rows, "copy_keyed_rows", after_a_flush)
    assert records(lake) == [1, 1, 1, 1, 5]
    assert_same_rows(lake)


def test_damage_is_named_once_no_flush_explains_it(lake: Lake) -> None:
    lake.run("CREATE TABLE t (id BIGINT, name VARCHAR)")
    insert(lake, 0, 1)
    ((table_id,),) = lake.sql("SELECT table_id FROM ducklake_table")
    looks: list[int] = []

    def look() -> None:
        looks.append(len(looks))
        if len(looks) <= 2:
            lake.run(FLUSH)
        insert(lake, len(looks), 1)  # which takes nothing away
        raise DamagedTableError("it has lost rows")

    with pytest.raises(DamagedTableError, match=r"Table main\.t is damaged: it has lost rows"):
        read_or_report_damage(lake.services, table_id, look)
    assert len(looks) == 3


def test_names_of_columns_may_look_like_places_for_parameters(lake: Lake) -> None:
    lake.run('CREATE TABLE t (id BIGINT, "50%" INTEGER, "%s" VARCHAR, "%(at)s" VARCHAR)')
    lake.run("INSERT INTO t VALUES (1, 2, 'three', 'four'), (2, NULL, NULL, NULL)")
    assert_same_rows(lake)
    assert flush_rows(lake.services, ("main",), "t").rows == 2
    assert_same_rows(lake)
    lake.run("""ALTER TABLE t ADD COLUMN "%%" INTEGER""", "INSERT INTO t VALUES (3, 4, 'five', 'six', 7)")
    assert_same_rows(lake)
