"""What the shell adds to the core: a command."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature("shell", needs=("query",), commands="duckicelake.shell.commands:app")
