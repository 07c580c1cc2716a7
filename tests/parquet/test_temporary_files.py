"""A full disk under the server's own temporary files is no fault of the request's: it may be sent again."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from duckicelake.errors import UnavailableError
from duckicelake.parquet.inlined_rows import (
    CopiedRows,
    ParquetColumn,
    read_ducklake_deletes,
    read_position_deletes,
    write_rows,
)
from duckicelake.parquet.position_deletes import write_position_deletes


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
