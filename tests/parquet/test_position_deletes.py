"""Position delete files as other readers see them: PyArrow, DuckDB, and the server itself."""

import random
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import BufferReader

from duckicelake.errors import InvalidRequestError
from duckicelake.parquet.inlined_rows import read_position_deletes
from duckicelake.parquet.position_deletes import write_position_deletes

CASES = {
    "one": [("/a", 0)],
    "unsorted": [("/b", 7), ("/a", 2**40), ("/b", 1), ("/ä/日本", 5)],
    "two pages": [(f"/data/{number % 3}.parquet", number) for number in range(40_001)],
    "a large file": [("file:///lake/data/" + "x" * 150 + ".parquet", number) for number in range(300_000)],
    "at random": [(f"/{random.Random(number).randint(0, 99)}", number) for number in range(5_000)],
}


@pytest.mark.parametrize("positions", CASES.values(), ids=CASES)
def test_everyone_reads_the_positions_in_order(positions: list[tuple[str, int]], tmp_path: Path) -> None:
    data, expected = write_position_deletes(positions), sorted(positions, key=lambda row: (row[0].encode(), row[1]))
    read = pq.read_table(BufferReader(data))
    assert list(zip(read["file_path"].to_pylist(), read["pos"].to_pylist(), strict=True)) == expected
    path = tmp_path / "deletes.parquet"
    path.write_bytes(data)
    assert duckdb.sql(f"SELECT file_path, pos FROM '{path}'").fetchall() == expected
    by_file = defaultdict(list)
    for file, position in expected:
        by_file[file].append(position)
    assert read_position_deletes(data, "x") == by_file


def test_columns_are_required_with_icebergs_field_ids_and_bounds() -> None:
    file = pq.ParquetFile(BufferReader(write_position_deletes([("/b", 7), ("/a", 9), ("/b", 1)])))
    assert [(field.name, str(field.type), field.nullable) for field in file.schema_arrow] == [
        ("file_path", "string", False),
        ("pos", "int64", False),
    ]
    ids = [field.metadata[b"PARQUET:field_id"] for field in file.schema_arrow]
    assert ids == [b"2147483546", b"2147483545"]
    columns = [file.metadata.row_group(0).column(index) for index in range(2)]
    bounds = [(each.statistics.min, each.statistics.max, each.statistics.null_count) for each in columns]
    assert bounds == [("/a", "/b", 0), (1, 9, 0)]


def test_pages_have_the_sizes_that_duckdb_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "deletes.parquet"
    path.write_bytes(write_position_deletes(CASES["two pages"]))
    report = "num_values, compression, encodings, stats_null_count"
    rows = duckdb.sql(f"SELECT {report} FROM parquet_metadata('{path}') ORDER BY column_id").fetchall()
    assert rows == [(40_001, "GZIP", "PLAIN, RLE", 0)] * 2


def test_many_positions_of_one_file_take_little_room() -> None:
    assert len(write_position_deletes(CASES["a large file"])) < 3 * 300_000


def test_files_are_read_after_one_that_is_none_and_by_several_threads(tmp_path: Path) -> None:
    def read(number: int) -> object:
        path = tmp_path / f"{number}.parquet"
        if number % 3 == 0:
            pq.write_table(pa.table({"x": [1]}), path)
            with pytest.raises(InvalidRequestError, match="isn't a Parquet file of position deletes"):
                read_position_deletes(path.read_bytes(), "other")
        pq.write_table(pa.table({"file_path": ["x"] * 2, "pos": [number, 1_000]}), path)
        return read_position_deletes(path.read_bytes(), "whole")

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, range(24))) == [{"x": [number, 1_000]} for number in range(24)]
