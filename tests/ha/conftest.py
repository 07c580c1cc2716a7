"""What the rehearsals measure."""

from collections.abc import Iterator

import pytest


@pytest.fixture
def measured(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Iterator[dict[str, object]]:
    """Figures by name, which are printed after the test, whether it passed or not."""
    figures: dict[str, object] = {}
    yield figures
    with capsys.disabled():
        print(f"\n{request.node.name}: {figures}", flush=True)
