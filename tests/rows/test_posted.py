"""Batches of every type posted to tables: DuckDB reads what it would have stored itself, and PyIceberg agrees."""

from typing import Any

import orjson
import pytest

from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from tests.rows.layouts import JSON
from tests.rows.test_inlined_values import FLAT, NESTED
from tests.support.lakes import Lake, assert_same_rows


def in_python(value: tuple[str, Any]) -> bool:
    """Whether Python, with which rows are compared, has the year."""
    return "(BC)" not in value[0] and "12345-" not in value[0]


COLUMNS: list[tuple[str, list[tuple[str, Any]]]] = [
    *((kind, [*filter(in_python, values), ("NULL", None)]) for kind, values in FLAT if kind != "TIMESTAMP_NS"),
    *(
        (kind, [(f"({literal})[{index}]", value) for index, value in enumerate(json, start=1)])
        for kind, literal, json in NESTED
    ),
]


@pytest.mark.parametrize("limit", [100, 0], ids=["inlined", "file"])
def test_posted_rows_read_as_inserted_ones(services, ducklake, limit: int) -> None:
    lake = Lake(services, ducklake)
    names = [f"c{index}" for index in range(len(COLUMNS))]
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in zip(names, COLUMNS, strict=True))
    lake.run(
        "SET TimeZone = 'UTC'",
        f"CALL lake.set_option('data_inlining_row_limit', {limit})",
        f"CREATE TABLE t ({columns})",
        f"CREATE TEMP TABLE wanted ({columns})",
    )
    rows = [[values[number % len(values)] for _, values in COLUMNS] for number in range(6)]
    for row in rows:
        lake.run(f"INSERT INTO temp.wanted VALUES ({', '.join(text for text, _ in row)})")
    body = [{name: json_of(value) for name, (_, value) in zip(names, row, strict=True)} for row in rows]
    append_rows(services, PostedRows(("main",), "t", orjson.dumps(body), JSON))
    assert repr(lake.duck.execute("FROM lake.t").fetchall()) == repr(lake.duck.execute("FROM temp.wanted").fetchall())
    assert lake.one("SELECT count(*) FROM ducklake_list_files('lake', 't')") == (1 if limit == 0 else 0,)
    assert_same_rows(lake)


def json_of(value: Any) -> Any:
    return value.strip("'") if type(value) is str else value
