"""Lakes for runs, with PyIceberg as it is once it writes tables of format version 3."""

from collections.abc import Iterator

import pytest

from duckicelake.pyiceberg_v3.installation import install, uninstall

pytest.register_assert_rewrite("tests.model.checks")


@pytest.fixture(autouse=True)
def pyiceberg_v3() -> Iterator[None]:
    install()
    yield
    uninstall()
