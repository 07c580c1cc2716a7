"""`duckicelake constraints`: list a table's CHECK constraints and verify that rows satisfy them."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, add_command, one_line_errors

_EXAMPLES: Final = (
    "duckicelake constraints sales.orders",
    "duckicelake constraints sales.orders --verify",
)


@one_line_errors()
def constraints(
    name: Annotated[str, typer.Argument(help="A table, as sales.orders.")],
    lake: LakeOption = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all rows with DuckDB, and mark the constraints that they satisfy.")
    ] = False,
) -> None:
    """List a table's constraints: name, expression, and whether all rows are known to satisfy it.

    Exits with 1 if a constraint is unverified, violated, or can't be checked.
    """
    from duckicelake.constraints.verification import report_constraints
    from duckicelake.settings.sources import read_settings

    reports = report_constraints(read_settings({"lake": lake}), name, verify=verify)
    for report in reports:
        typer.echo(str(report))
    if not reports:
        typer.echo(f"{name} has no constraints", err=True)
    if not all(report.is_well for report in reports):
        raise typer.Exit(1)


app = typer.Typer()
add_command(app, constraints, *_EXAMPLES)
