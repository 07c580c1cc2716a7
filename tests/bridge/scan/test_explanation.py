"""What explanations make of bounds: overlaps as one counts them, and keys of texts behind prefixes of their own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckicelake.bridge.scan.column_metrics import build_column_bounds
from duckicelake.bridge.scan.explanation import _align_keys, _measure_overlap
from duckicelake.iceberg.types import PrimitiveType

ENDS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)
RANGES = st.tuples(st.integers(0, 3), ENDS, ENDS).map(lambda made: (made[0], min(made[1:]), max(made[1:])))


@given(st.lists(RANGES, min_size=1, max_size=30))
def test_overlap_is_the_files_around_the_middle_of_each_file(files: list[tuple[int, int, int]]) -> None:
    groups, lows, highs = (np.array(column, np.int64) for column in zip(*files, strict=True))
    counted = [
        sum(other == group and least <= (low + high) // 2 <= most for other, least, most in files)
        for group, low, high in files
    ]
    of_files = [sum(other == group for other, _, _ in files) for group, _, _ in files]
    overlap, width = _measure_overlap(lows, highs, groups)
    assert overlap == pytest.approx(sum(counted) / len(files))
    assert width == pytest.approx(sum(of_files) / len(files))


@given(
    st.lists(st.lists(st.text("abz", max_size=12), min_size=1, max_size=5), min_size=1, max_size=4),
    st.text("ab", max_size=9),
)
def test_aligned_keys_order_as_texts_do(manifests: list[list[str]], shared: str) -> None:
    kind = PrimitiveType.parse("string")
    texts = [[(shared + text).encode() for text in manifest] for manifest in manifests]
    arrays = [
        build_column_bounds(
            kind, 1, [{"lower_bounds": {"1": t.hex()}, "upper_bounds": {"1": t.hex()}} for t in manifest]
        )
        for manifest in texts
    ]
    lows, highs = _align_keys(arrays)
    assert lows.tolist() == highs.tolist()
    known = [text for manifest in texts for text in manifest]
    for key, text in zip(lows.tolist(), known, strict=True):
        for other_key, other in zip(lows.tolist(), known, strict=True):
            assert key <= other_key if text < other else True
