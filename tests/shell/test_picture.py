"""The picture in docs/shell.md is what a session prints today."""

import pytest

from scripts.shell_picture import PICTURE, build_picture, mask, record


@pytest.mark.commands
def test_picture_is_what_a_session_prints() -> None:
    """Times and sizes differ: `python -m scripts.shell_picture` writes it again after a change."""
    assert mask(build_picture(record())) == mask(PICTURE.read_text())
