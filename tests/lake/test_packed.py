"""Statistics that wait to be written, deflated and not."""

from duckicelake.lake.model import ColumnStats
from duckicelake.lake.state import PackedStats

ROWS = tuple(ColumnStats(column, False, None, str(10**12 + column), "9", 9000, 1000, 0) for column in range(1, 11))


def test_deflated_statistics_are_the_same_as_plain_ones() -> None:
    plain = PackedStats(ROWS)
    small = plain.deflate()
    assert (small.text, small.values(), tuple(small)) == (plain.text, plain.values(), ROWS)
    assert (small, hash(small)) == (plain, hash(plain))


def test_no_statistics_are_deflated_as_well() -> None:
    assert tuple(PackedStats(()).deflate()) == ()
