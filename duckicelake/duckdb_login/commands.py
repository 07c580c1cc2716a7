"""`duckicelake connect`: get a login for DuckDB, and print what to paste, or start DuckDB."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duckicelake.cli.catalog.connection import add_catalog_command
from duckicelake.cli.console.command import DATA, JsonOption
from duckicelake.cli.console.terminal import print_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duckicelake.client.lake import Lake

app: Final = typer.Typer()


def connect(
    lake: Lake,
    namespaces: Annotated[
        list[str] | None, typer.Argument(help="Namespaces to read, each with all below it (default: all you may read).")
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Start DuckDB with the lake, and end the login with it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Get a short-lived login by which DuckDB reads your tables directly; print the statements to paste.

    The statements have a password in them, and keys. They end by themselves.
    """
    from duckicelake.errors import MissingRequirementError
    from duckicelake.rest.names import parse_name

    program = which("duckdb") if run else None
    if run and program is None:
        raise MissingRequirementError("--run starts the command line of DuckDB, which isn't there: install duckdb-cli")
    body = {"namespaces": [list(parse_name(name)) for name in namespaces or ()]}
    path = lake.client.own("duckdb", "logins")
    made: Any = lake.client.post(path, body)
    if as_json:
        print_json(made)
        return
    _print_uncovered(made)
    if program is None:
        _print(made)
        return
    try:
        _run_duckdb(program, made)
    finally:
        lake.client.change("DELETE", path, query={"login": made["login"]})


def _print(made: Mapping[str, Any]) -> None:
    typer.echo(f"-- {made['login']}, until {made['expires-at']}")
    if made.get("keys-expire-at") is not None:
        typer.echo(f"-- keys for files until {made['keys-expire-at']}")
    for statement in made["statements"]:
        typer.echo(f"{statement};")
    typer.echo("USE lake;")


def _print_uncovered(made: Mapping[str, Any]) -> None:
    for place in made["uncovered"]:
        typer.echo(f"-- no key reaches {place}: name the namespaces that you need", err=True)


def _run_duckdb(program: str, made: Mapping[str, Any]) -> None:
    """Start DuckDB. The statements are in a file that only this user can read: others see a process's arguments."""
    descriptor, name = tempfile.mkstemp(prefix="duckicelake-connect-", suffix=".sql")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("".join(f"{statement};\n" for statement in (*made["statements"], "USE lake")))
        code = subprocess.run([program, "-init", name], check=False).returncode  # noqa: S603
    finally:
        Path(name).unlink()
    if code:
        raise typer.Exit(code)


EXAMPLES: Final = (
    "duckicelake connect",
    "duckicelake connect sales sales.eu --run",
    "duckicelake connect sales | duckdb",
)
add_catalog_command(app, connect, *EXAMPLES, name="connect", panel=DATA)
