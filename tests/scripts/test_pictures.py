"""The pictures of terminals in docs/ are what sessions print today."""

import pytest

from scripts.pictures import DOCS, SESSIONS, build_picture, mask, record
from tests.support.documents import PAGES


@pytest.mark.commands
@pytest.mark.parametrize("name", SESSIONS)
def test_picture_is_what_a_session_prints(name: str) -> None:
    """Times, sizes and ids differ: `python -m scripts.pictures` writes it again after a change."""
    session = SESSIONS[name]
    assert mask(build_picture(session, record(session))) == mask((DOCS / f"{name}.svg").read_text())


def test_each_picture_is_on_a_page() -> None:
    pictures = {path.name for path in DOCS.glob("*.svg")}
    assert pictures == {f"{name}.svg" for name in SESSIONS}
    assert [name for name in pictures if not any(f"]({name})" in text for text in PAGES.values())] == []
