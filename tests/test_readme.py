"""README names every setting with its default, and every command."""

import re
from pathlib import Path

from duckicelake.cli.by_name import COMMANDS
from duckicelake.settings import PREFIX, Settings

README = (Path(__file__).parents[1] / "README.md").read_text()
ROWS = dict(re.findall(rf"^\| `({PREFIX}\w+)` \| (.+?) \|", README, re.MULTILINE))


def test_every_setting_has_a_row_and_every_row_is_a_setting() -> None:
    assert set(ROWS) == {PREFIX + name.upper() for name in Settings.model_fields}


def test_numbers_in_rows_are_the_defaults() -> None:
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert ROWS[PREFIX + name.upper()] == f"`{field.default}`", name


def test_every_command_is_named() -> None:
    assert {name for name in COMMANDS if f"`duckicelake {name}`" not in README} == set()
