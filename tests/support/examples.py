"""How many examples Hypothesis makes: all in the suite `model`, a quarter in every other run."""

import os

from hypothesis import settings

EVERYTHING = bool(os.environ.get("DUCKICELAKE_TEST_EVERYTHING"))
_SHARE = 4


def count_examples(everything: int) -> int:
    """The examples of a test in this run. everything: in the suite `model`."""
    return everything if EVERYTHING else max(10, everything // _SHARE)


def pytest_configure() -> None:
    """Make fewer examples in tests that don't say how many."""
    name = "everything" if EVERYTHING else "share"
    settings.register_profile(name, max_examples=count_examples(100))
    settings.load_profile(name)
