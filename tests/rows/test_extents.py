"""What is known of a table after a small batch: the same by what its values span as by statistics in texts."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings

from duckicelake.bridge.values.statistics import widen_table_stats
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.model import ColumnStats, Extent
from duckicelake.rows.bodies import read_batch
from duckicelake.rows.inlined_values import encode_elements
from duckicelake.rows.row_batch import Batch, build_column_stats, build_extents
from tests.rows.layouts import JSON
from tests.rows.test_arrow_rows import ANY_ROWS, LAYOUT
from tests.support.examples import count_examples

LONG, DOUBLE, STRING = (PrimitiveType(name=name) for name in ("long", "double", "string"))
ALL_LENGTHS = 1 << 30


def batch_of(rows: list[dict[str, Any]]) -> Batch:
    return read_batch(orjson.dumps(rows), JSON, LAYOUT)


@settings(max_examples=count_examples(80), deadline=None)
@given(ANY_ROWS, ANY_ROWS)
def test_extents_widen_as_statistics_do(before: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    leaves = {row.column_id: kind for row, kind in zip(build_extents(batch_of([])), kinds(), strict=True)}
    found = widen_table_stats(None, [build_column_stats(batch_of(before))], leaves, ALL_LENGTHS)
    existing = {column: row for column, row in found.items() if row is not None}
    batch = batch_of(rows)
    stats = build_column_stats(batch)
    by_texts = widen_table_stats(existing, [stats], leaves, ALL_LENGTHS)
    by_values = widen_table_stats(existing, [build_extents(batch)], leaves, ALL_LENGTHS)
    have_texts = {row.column_id for row in stats}
    assert by_values.keys() == by_texts.keys()
    for column, row in by_values.items():
        assert row == (by_texts[column] if column in have_texts else row and existing[column])


def kinds() -> list[PrimitiveType]:
    return [kind for column in LAYOUT.stored for kind in leaf_kinds(column)]


def leaf_kinds(column: Any) -> list[PrimitiveType]:
    return [column.type] if not column.children else [kind for child in column.children for kind in leaf_kinds(child)]


@pytest.mark.parametrize(
    ("row", "extent", "kind", "is_kept"),
    [
        (ColumnStats(1, False, None, "1", "9"), Extent(1, 2, 0, 0, 1, 9), LONG, True),
        (ColumnStats(1, False, None, "1", "9"), Extent(1, 2, 0, 0, 0, 9), LONG, False),
        (ColumnStats(1, False, None, "1", "9"), Extent(1, 2, 0, 0, 1, 10), LONG, False),
        (ColumnStats(1, False, None, "1", "9"), Extent(1, 2, 1, 0, 1, 9), LONG, False),
        (ColumnStats(1, True, None, "1", "9"), Extent(1, 0, 3, 0, None, None), LONG, True),
        (ColumnStats(1, False, False, "1.0", "9.0"), Extent(1, 2, 0, 1, 1.0, 9.0), DOUBLE, False),
        (ColumnStats(1, False, True, "1.0", "9.0"), Extent(1, 2, 0, 2, None, None), DOUBLE, True),
        (ColumnStats(1, False, None, "a", "\U0001f600"), Extent(1, 1, 0, 0, "\uffff", "\uffff"), STRING, True),
    ],
)
def test_row_that_covers_an_extent_stays_the_same(
    row: ColumnStats, extent: Extent, kind: PrimitiveType, *, is_kept: bool
) -> None:
    found = widen_table_stats({1: row}, [[extent]], {1: kind}, ALL_LENGTHS)[1]
    assert (found is row) is is_kept


@settings(max_examples=count_examples(60), deadline=None)
@given(ANY_ROWS)
def test_numbers_in_one_text_are_those_one_by_one(rows: list[dict[str, Any]]) -> None:
    batch = batch_of(rows)
    for index, column in enumerate(LAYOUT.stored):
        in_one = encode_elements(column, batch.column(index))
        if in_one is not None:
            assert orjson.loads(f"[{in_one}]") == [each and orjson.loads(each) for each in batch.encode_column(index)]
        else:
            assert str(column.type) not in {"int", "long"}
