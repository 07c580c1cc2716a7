"""Deletes by key ask a data file's Bloom filters before they read it, and find the same rows with and without them."""

import random
from pathlib import Path

import duckdb
import pytest

from duckicelake.errors import InvalidRequestError
from duckicelake.parquet.equality import DataRows, DeleteRows, KeyColumn, find_deleted

NUMBER, TEXT = KeyColumn(1, (), "BIGINT"), KeyColumn(2, (), "VARCHAR")
ROWS = 20_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Even numbers in no order, so that bounds rule nothing out; DuckDB filters columns that have dictionaries."""
    path = tmp_path / "data.parquet"
    values = f"SELECT (range * 7919 % {ROWS}) * 2 AS n, 't' || (range * 7919 % {ROWS} * 2) AS t FROM range({ROWS})"
    write(f"{values} UNION ALL SELECT NULL, NULL", path)
    return path


def write(query: str, path: Path) -> None:
    options = f"FORMAT parquet, FIELD_IDS {{n: 1, t: 2}}, DICTIONARY_SIZE_LIMIT {2 * ROWS}, ROW_GROUP_SIZE 8192"
    duckdb.sql(f"COPY ({query}) TO '{path}' ({options})")


def found(data: Path, keys: tuple[KeyColumn, ...], *rows: str) -> list[int]:
    """The positions that these keys delete, each as SQL."""
    path = data.with_name("deletes.parquet")
    write(f"SELECT * FROM (VALUES {', '.join(rows)}) AS r(n, t)", path)
    deletes = DeleteRows(7, str(path), path, keys)
    file = DataRows(8, str(data), data, frozenset({7}), {}, {})
    return sorted(find_deleted([deletes], [file])[7].get(8, ()))


def unreadable(data: Path) -> None:
    """Overwrite all pages of the file, whose footer and filters stay."""
    query = f"SELECT max(total_compressed_size + data_page_offset) FROM parquet_metadata('{data}')"
    ((end,),) = duckdb.sql(query).fetchall()
    ((filters,),) = duckdb.sql(f"SELECT min(bloom_filter_offset) FROM parquet_metadata('{data}')").fetchall()
    content = data.read_bytes()
    stop = min(end, filters)
    data.write_bytes(content[:4] + b"\xff" * (stop - 4) + content[stop:])


def test_file_whose_filters_know_none_of_the_keys_is_not_read(data: Path) -> None:
    unreadable(data)
    assert found(data, (NUMBER,), "(7::BIGINT, '')", "(9, '')") == []
    assert found(data, (TEXT,), "(1::BIGINT, 't33')") == []
    assert found(data, (NUMBER, TEXT), "(8::BIGINT, 't9')", "(9, 't8')") == []
    with pytest.raises(InvalidRequestError, match=r"data\.parquet can't be read as Parquet"):
        found(data, (NUMBER,), "(7::BIGINT, '')", "(8, '')")


def test_null_is_looked_for_whatever_filters_say(data: Path) -> None:
    assert found(data, (NUMBER,), "(NULL::BIGINT, '')", "(7, '')") == [ROWS]
    assert found(data, (NUMBER, TEXT), "(NULL::BIGINT, NULL::VARCHAR)", "(NULL, 't8')", "(8, NULL)") == [ROWS]


@pytest.mark.parametrize("count", [1, 20, 64, 65, 500])
def test_same_rows_are_found_as_by_reading_all(data: Path, count: int) -> None:
    numbers = random.Random(count).sample(range(2 * ROWS), count)
    positions = {number * 2: place for place, number in enumerate(place * 7919 % ROWS for place in range(ROWS))}
    wanted = sorted(positions[number] for number in numbers if number in positions)
    assert found(data, (NUMBER,), *(f"({number}::BIGINT, '')" for number in numbers)) == wanted
    assert found(data, (TEXT,), *(f"(0::BIGINT, 't{number}')" for number in numbers)) == wanted
    assert found(data, (NUMBER, TEXT), *(f"({n}::BIGINT, 't{n}')" for n in numbers)) == wanted
    assert found(data, (NUMBER, TEXT), *(f"({n}::BIGINT, 't{n + 2}')" for n in numbers)) == []
