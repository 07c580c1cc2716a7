"""`duckicelake shell`: a SQL shell for lakes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.catalog.connection import add_connected_command
from duckicelake.cli.console.command import DATA

if TYPE_CHECKING:
    from duckicelake.shell.interpreter import Interpreter

EXAMPLES: Final = (
    "duckicelake shell",
    "duckicelake shell work",
    "duckicelake shell -c '\\dt+ sales' -c 'FROM sales.orders LIMIT 3' --format markdown",
    "duckicelake shell ducklake:metadata.ducklake -f report.sql -v ON_ERROR_STOP=1 > report.csv",
)
app: Final = typer.Typer()


def shell(
    options: Mapping[str, str | None],
    target: Annotated[
        str | None, typer.Argument(help="A profile, or a URI: http://…, ducklake:… or postgres:… (default: ./lake).")
    ] = None,
    command: Annotated[
        list[str] | None, typer.Option("--command", "-c", help="Run this and leave; may be repeated.")
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", help="Run a file and leave; - is standard input; may be repeated."),
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="box, markdown, csv, json, ndjson or arrow.")] = "box",
    on_error_stop: Annotated[bool, typer.Option("--on-error-stop", help="Leave out what follows an error.")] = False,
    variable: Annotated[
        list[str] | None, typer.Option("--variable", "-v", help="ON_ERROR_STOP=1 is the same; may be repeated.")
    ] = None,
) -> None:
    r"""Open a SQL shell on a lake, or run statements of -c, -f or standard input.

    In the shell, \? lists its commands, Tab completes, Ctrl-C cancels what runs, and Ctrl-D leaves.
    """
    from duckicelake.shell.formats import parse_format
    from duckicelake.shell.interpreter import Interpreter
    from duckicelake.shell.output import Output
    from duckicelake.shell.session import open_session

    is_interactive = not command and not file and sys.stdin.isatty()
    output = Output(parse_format(format_), has_pager=is_interactive)
    stops = on_error_stop or _parse_variables(variable or [])
    interpreter = Interpreter(open_session(target, options), output, options)
    interpreter.stops_on_error = stops
    try:
        if is_interactive:
            from duckicelake.shell.prompt import run_prompt

            run_prompt(interpreter)
            return
        _run_given(interpreter, command or [], file or ([] if command else ["-"]))
    finally:
        output.redirect(None)
        interpreter.session.close()
    if interpreter.exit_code:
        raise typer.Exit(interpreter.exit_code)


def _run_given(interpreter: Interpreter, commands: list[str], files: list[str]) -> None:
    """Run -c, then -f, until an error where that stops."""
    for number, text in enumerate([*commands, *files]):
        is_clean = interpreter.run_text(text) if number < len(commands) else interpreter.run_file(text)
        if interpreter.is_ended or (interpreter.stops_on_error and not is_clean):
            break


def _parse_variables(variables: list[str]) -> bool:
    """Return whether the variables say that an error stops. Raises BadInputError for other ones."""
    from duckicelake.errors import BadInputError

    stops = False
    for variable in variables:
        name, _, value = variable.partition("=")
        if name != "ON_ERROR_STOP" or value not in {"", "0", "1", "on", "off"}:
            raise BadInputError(f"Invalid variable {variable!r}: expected ON_ERROR_STOP=1")
        stops = value in {"", "1", "on"}
    return stops


add_connected_command(app, shell, *EXAMPLES, panel=DATA)
