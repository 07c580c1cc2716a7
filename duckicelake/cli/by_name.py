"""Commands by name, each imported when it is called or listed: to import all of them takes longer than most run."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import typer

from duckicelake.cli.explaining import Group, add_command

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("commands.serve", "serve"),
    "init": ("commands.init", "init"),
    "info": ("commands.info", "info"),
    "doctor": ("commands.doctor", "doctor"),
    "history": ("commands.history", "history"),
    "audit": ("commands.audit", "audit"),
    "adopt": ("commands.adopt", "adopt"),
    "gc": ("commands.gc", "gc"),
    "flush": ("commands.flush", "flush"),
    "constraints": ("commands.constraints", "constraints"),
    "restore": ("commands.restore", "restore"),
    "clone": ("commands.clone", "clone"),
    "expire": ("commands.expire", "expire"),
    "delta": ("commands.delta", "app"),
    "ingest-rows": ("commands.ingest_rows", "ingest_rows"),
    "lineage": ("commands.lineage", "app"),
    "pipeline": ("pipeline.main", "app"),
    "grants": ("commands.grants", "grants"),
    "hash-secret": ("commands.hash_secret", "hash_client_secret"),
    "version": ("commands.version", "version"),
}
"""Module of this package and what it has there: a function, with EXAMPLES beside it, or an app of several commands."""


class Commands(Group):
    """A group whose commands are those of `COMMANDS`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        names: Any = dict.fromkeys(COMMANDS)
        self.commands = names  # by these Typer says which one somebody may have meant

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        place = COMMANDS.get(cmd_name)
        return None if place is None else _command(cmd_name, *place)


def _command(name: str, module: str, attribute: str) -> Any:
    home = import_module(f"duckicelake.cli.{module}")
    found = getattr(home, attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    add_command(alone, found, *home.EXAMPLES, name=name)
    return typer.main.get_command(alone)
