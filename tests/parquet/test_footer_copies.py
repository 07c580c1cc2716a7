"""Footers of files that are elsewhere say what the files themselves say."""

from pathlib import Path

import duckdb
import pytest

from duckicelake.errors import FileMissingError
from duckicelake.parquet.local_copies import open_footer_copies
from duckicelake.parquet.schema import read_layout
from duckicelake.storage.memory import MemoryStore


@pytest.mark.parametrize("columns", [1, 3000], ids=["short", "long"])
def test_schema_is_read_without_the_rows(tmp_path: Path, columns: int) -> None:
    file, store = tmp_path / "f.parquet", MemoryStore()
    values = ", ".join(f"range AS column_{number}" for number in range(columns))
    duckdb.sql(f"COPY (SELECT {values} FROM range(20)) TO '{file}'")
    store.write("s3://b/f.parquet", file.read_bytes())
    with open_footer_copies(store, ["s3://b/f.parquet"]) as paths:
        copy = paths["s3://b/f.parquet"]
        assert copy.stat().st_size == file.stat().st_size
        assert read_layout(copy, "f") == read_layout(file, "f")


def test_missing_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(FileMissingError), open_footer_copies(MemoryStore(), ["s3://b/f.parquet"]):
        pass
