"""The shell as people start it: in this process with -c, -f or a pipe, and in a pseudo-terminal."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from duckicelake.cli.main import app
from scripts.terminal import Terminal, start_shell
from tests.cli.test_commands import environment


def run_shell(*arguments: str, typed: str = "", **settings: str) -> Result:
    """Run the shell with arguments in this process; `typed` is its standard input."""
    unset = dict.fromkeys(name for name in os.environ if name.startswith("DUCKICELAKE_"))
    return CliRunner().invoke(app, ["shell", *arguments], input=typed, env={**unset, **settings})


@contextmanager
def open_terminal(
    *arguments: str, settings: Mapping[str, str], width: int = 100, height: int = 30
) -> Iterator[Terminal]:
    """Start the shell in a pseudo-terminal of its own, with these settings and no others."""
    with start_shell(*arguments, environment=environment(**settings), width=width, height=height) as terminal:
        yield terminal


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Settings under which the shell's files lie in a folder of the test's own."""
    return {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "DUCKICELAKE_CLIENT_PROFILES": str(tmp_path / "profiles.toml"),
    }
