"""The `duckicelake` command, and its subcommands by name, each imported when it is called."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import typer

from duckicelake.cli.console.command import CommandGroup, add_command
from duckicelake.features.registry import list_commands

COMMANDS: Final[Mapping[str, str]] = {
    "serve": "duckicelake.cli.commands.serve.serve",
    "init": "duckicelake.cli.commands.init.init",
    "info": "duckicelake.cli.commands.info.info",
    "doctor": "duckicelake.cli.commands.doctor.doctor",
    "history": "duckicelake.cli.commands.history.history",
    "audit": "duckicelake.cli.commands.audit.audit",
    "adopt": "duckicelake.cli.commands.adopt.adopt",
    "gc": "duckicelake.cli.commands.gc.gc",
    "flush": "duckicelake.cli.commands.flush.flush",
    "restore": "duckicelake.cli.commands.restore.restore",
    "clone": "duckicelake.cli.commands.clone.clone",
    "expire": "duckicelake.cli.commands.expire.expire",
    "ingest-rows": "duckicelake.cli.commands.ingest_rows.ingest_rows",
    "pipeline": "duckicelake.cli.pipeline.main.app",
    "grants": "duckicelake.cli.commands.grants.grants",
    "hash-secret": "duckicelake.cli.commands.hash_secret.hash_client_secret",
    "version": "duckicelake.cli.commands.version.version",
    **{name: place.replace(":", ".") for name, place in list_commands().items()},
}
"""Full name of a function, with EXAMPLES beside it, or of an app of several commands."""


class RootGroup(CommandGroup):
    """A group whose commands are those of `COMMANDS`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        names: Any = dict.fromkeys(COMMANDS)
        self.commands = names  # by these Typer says which one somebody may have meant

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        place = COMMANDS.get(cmd_name)
        return None if place is None else _load_command(cmd_name, place)


def _load_command(name: str, place: str) -> Any:
    module, _, attribute = place.rpartition(".")
    home = import_module(module)
    found = getattr(home, attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    add_command(alone, found, *home.EXAMPLES, name=name)
    return typer.main.get_command(alone)


app = typer.Typer(
    name="duckicelake",
    cls=RootGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@app.callback()
def duckicelake() -> None:
    """An Iceberg REST catalog whose truth is a DuckLake catalog in Postgres."""


if __name__ == "__main__":
    app()
