"""A full disk under the server's own temporary files is no fault of the request's: it may be sent again."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

import duckicelake
from duckicelake.errors import UnavailableError
from duckicelake.parquet.copy import copy_columns, copy_readable
from duckicelake.parquet.equality import connect_confined
from duckicelake.parquet.inlined_rows import (
    CopiedRows,
    ParquetColumn,
    read_ducklake_deletes,
    read_position_deletes,
    write_rows,
)
from duckicelake.parquet.local_copies import open_footer_copies, open_local_copies, open_temporary_folder
from duckicelake.parquet.position_deletes import write_position_deletes
from duckicelake.storage.local import LocalStore

PARTS_OF_A_SERVER = ("bridge", "catalog", "constraints", "file_lake", "lake", "lineage", "parquet", "rows")


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process grows."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_makes_reading_of_deletes_and_writing_of_rows_unavailable(tmp_path: Path) -> None:
    copy = tmp_path / "rows.csv"
    copy.write_text("0,1,,1\n")
    deletes = write_position_deletes([("/data/a.parquet", 7)])
    with full_disk(), pytest.raises(UnavailableError, match="no room for a temporary file"):
        read_position_deletes(deletes, "/data/deletes.parquet")
    with full_disk(), pytest.raises(UnavailableError, match="no room for a temporary file"):
        read_ducklake_deletes(deletes, "/data/deletes.parquet")
    with full_disk(), pytest.raises(UnavailableError, match="no room for a temporary file"):
        write_rows(CopiedRows(copy, 7, [ParquetColumn("a", "BIGINT", "1")]))
    assert read_position_deletes(deletes, "/data/deletes.parquet") == {"/data/a.parquet": [7]}


def test_full_disk_makes_copies_of_data_files_unavailable(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    duckdb.execute(f"COPY (SELECT range::UTINYINT AS a FROM range(9)) TO '{file}' (FIELD_IDS {{a: 1}})")
    with full_disk(), pytest.raises(UnavailableError, match="no room for a copy of a data file"):
        copy_columns(file, tmp_path / "copy.parquet", [("b", "c0", "2")])
    with full_disk(), pytest.raises(UnavailableError, match="no room for a copy of a data file"):
        copy_readable(file, tmp_path / "copy.parquet")
    copy_columns(file, tmp_path / "copy.parquet", [("b", "c0", "2")])
    assert duckdb.sql(f"FROM '{tmp_path}/copy.parquet'").fetchall() == [(i,) for i in range(9)]


def test_missing_temporary_folder_makes_each_use_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where a worker first looks for the folder while the disk is full, Python finds none."""
    deletes = write_position_deletes([("/data/a.parquet", 7)])
    store = LocalStore(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    for use in (
        lambda: read_position_deletes(deletes, "/data/deletes.parquet"),
        lambda: read_ducklake_deletes(deletes, "/data/deletes.parquet"),
        lambda: open_temporary_folder().__enter__(),
        lambda: open_local_copies(store, []).__enter__(),
        lambda: open_footer_copies(store, []).__enter__(),
        lambda: connect_confined([]).__enter__(),
    ):
        with pytest.raises(UnavailableError, match=r"no room for a temporary file.*No usable temporary directory"):
            use()


def test_parts_of_a_server_have_one_way_to_temporary_files() -> None:
    package = Path(duckicelake.__file__).parent
    users = {
        str(path.relative_to(package))
        for part in PARTS_OF_A_SERVER
        for path in (package / part).rglob("*.py")
        if "tempfile" in path.read_text()
    }
    assert users == {"parquet/local_copies.py"}
