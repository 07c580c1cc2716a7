"""What every command says by `--help`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import duckicelake
from duckicelake.cli.console.command import CHANGE, DATA, GOVERN, LOOK, SERVE, UPKEEP
from duckicelake.cli.main import app

PACKAGE = Path(duckicelake.__file__).parent
PANELS = {CHANGE, DATA, GOVERN, LOOK, SERVE, UPKEEP}


def commands(group: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """The words of each command that does something, groups walked through."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, *path, name)
        else:
            yield (*path, name)


@pytest.mark.parametrize("words", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_help_ends_with_examples_to_copy_and_gives_flags_no_type(words: tuple[str, ...]) -> None:
    report = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
    assert report.exit_code == 0
    _, examples = report.stdout.split("Example", 1)
    lines = [line.strip() for line in examples.splitlines()[1:] if line.strip()]
    assert lines
    assert all(line.startswith("$ ") and f"duckicelake {' '.join(words)}" in line for line in lines)
    assert "<bool>" not in report.stdout


def test_help_lists_each_command_in_a_panel() -> None:
    root: Any = typer.main.get_command(app)
    panels = {name: root.get_command(None, name).rich_help_panel for name in root.list_commands(None)}
    assert {name for name, panel in panels.items() if panel not in PANELS} == set()


def test_json_is_printed_by_one_function() -> None:
    """So that lists are one object per line everywhere, and no array."""
    commands = [*PACKAGE.glob("cli/**/*.py"), *PACKAGE.glob("*/commands.py")]
    own = {str(path) for path in commands if "echo(json.dumps" in path.read_text() and path.name != "terminal.py"}
    assert own == set()
