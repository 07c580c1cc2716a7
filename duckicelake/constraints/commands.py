"""`duckicelake constraints`: list a table's CHECK constraints and verify that rows satisfy them."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, done_by, one_line_errors

EXAMPLES: Final = (
    "duckicelake constraints sales.orders",
    "duckicelake constraints sales.orders --verify",
)


@one_line_errors()
@done_by("duckicelake.constraints.verification.constraints")
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
