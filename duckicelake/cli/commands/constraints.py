"""`duckicelake constraints`: what a table's CHECK constraints are, and whether its rows keep them."""

from typing import Annotated, Final

import typer

from duckicelake.cli.complaining import one_line_errors
from duckicelake.cli.constraints import told
from duckicelake.cli.lake_option import LakeOption
from duckicelake.settings import read_settings

EXAMPLES: Final = (
    "duckicelake constraints sales.orders",
    "duckicelake constraints sales.orders --verify",
)


def constraints(
    name: Annotated[str, typer.Argument(help="A table, as sales.orders.")],
    lake: LakeOption = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Have DuckDB read all rows, and note the constraints that they keep.")
    ] = False,
) -> None:
    """List a table's constraints: name, expression, and whether all rows are known to keep it.

    Exits with 1 if one is unverified, violated, or can't be checked.
    """
    with one_line_errors():
        found = told(read_settings({"lake": lake}), name, verify=verify)
    for each in found:
        typer.echo(str(each))
    if not found:
        typer.echo(f"{name} has no constraints", err=True)
    if not all(each.is_well for each in found):
        raise typer.Exit(1)
