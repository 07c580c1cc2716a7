"""Whether Python's garbage collector is there again after what it is left out of."""

import gc

import pytest

from duckicelake.catalog.table.catch_up import gc_disabled


def test_collector_is_off_within_the_outermost_block_and_on_after_it() -> None:
    with gc_disabled():
        with gc_disabled():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collector_is_on_after_a_block_that_raises() -> None:
    with pytest.raises(ValueError, match="lost"), gc_disabled():
        raise ValueError("lost")
    assert gc.isenabled()
