"""What a writer makes of rows before it sends them, without a server."""

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from duckicelake.client.batch import (
    ArrowPortion,
    Batching,
    JsonPortion,
    encode_line,
    join_portions,
    split_into_portions,
)
from duckicelake.errors import BadInputError

SMALL = Batching(max_rows=3, max_bytes=40)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (date(2026, 8, 31), '"2026-08-31"'),
        (datetime(2026, 8, 31, 13, 45, 7, 500_000), '"2026-08-31T13:45:07.500000"'),
        (datetime(2026, 8, 31, tzinfo=UTC), '"2026-08-31T00:00:00+00:00"'),
        (time(13, 45), '"13:45:00"'),
        (Decimal("1.10"), '"1.10"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (b"\x00\xff", '"00ff"'),
        (math.nan, '"NaN"'),
        ([math.inf, -math.inf, 1.5], '["Infinity","-Infinity",1.5]'),
        ({"a": [{"b": math.nan}]}, '{"a":[{"b":"NaN"}]}'),
        (np.int16(3), "3"),
        (np.float32("nan"), '"NaN"'),
        (np.array([1, 2]), "[1,2]"),
        ("ö\n", '"ö\\n"'),
    ],
)
def test_values_are_written_as_the_catalog_reads_them(value: Any, text: str) -> None:
    assert encode_line({"x": value}) == f'{{"x":{text}}}'.encode()


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j])
def test_value_that_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(BadInputError, match="is no type of a column's values"):
        encode_line({"x": value})


def test_rows_before_a_bad_one_are_taken() -> None:
    rows = [{"a": n} for n in range(4)]
    taken: list[Any] = []
    with pytest.raises(BadInputError, match=r"^row 4: .*the rows before it were appended"):
        taken.extend(portion.to_rows() for portion in split_into_portions([*rows, {"a": object()}], SMALL))
    assert taken == [rows[:3], rows[3:]]


def test_portions_keep_to_rows_and_bytes() -> None:
    rows = [{"a": "x" * (n % 30)} for n in range(100)]
    made = list(split_into_portions(rows, SMALL))
    assert [row for portion in made for row in portion.to_rows()] == rows
    assert max(portion.count for portion in made) == 3
    assert all(portion.count == 1 or portion.size <= 40 for portion in made)
    assert all(portion.size == len(portion.body()) + 1 for portion in made)


def test_arrow_is_cut_and_joined_without_loss() -> None:
    table = pa.table({"a": list(range(10)), "b": [str(n) for n in range(10)]})
    made = list(split_into_portions(table, Batching(max_rows=4)))
    assert [portion.count for portion in made] == [4, 4, 2]
    assert pa.ipc.open_stream(join_portions(made).body()).read_all() == table
    assert made[0].after(3).to_rows().to_pylist() == [{"a": 3, "b": "3"}]


def test_whatever_arrow_reads_is_taken() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3]})
    given = [frame[frame.a > 1], pa.table({"a": [2, 3]}), pa.record_batch({"a": [2, 3]})]
    for rows in given:
        (portion,) = split_into_portions(rows, Batching())
        assert isinstance(portion, ArrowPortion)
        assert portion.to_rows().to_pydict() == {"a": [2, 3]}


def test_lines_are_passed_on_as_they_are() -> None:
    (portion,) = split_into_portions(b'{"a": 1.10}\r\n\n {"a":2}', Batching())
    assert isinstance(portion, JsonPortion)
    assert (portion.body(), portion.count) == (b'{"a": 1.10}\r\n {"a":2}', 2)


def test_text_is_no_rows() -> None:
    with pytest.raises(
        BadInputError, match="Invalid rows of type str: expected mappings, Arrow, pandas or bytes of JSON lines"
    ):
        list(split_into_portions('{"a": 1}', Batching()))
