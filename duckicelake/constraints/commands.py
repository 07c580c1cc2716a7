"""`duckicelake constraints` and `constraint`: list, verify, add and drop a table's CHECK constraints."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.catalog.connection import add_catalog_command, complete_names
from duckicelake.cli.console.command import (
    CHANGE,
    LOOK,
    LakeOption,
    add_command,
    add_group,
    make_group,
    one_line_errors,
)

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake

TableArgument = Annotated[str, typer.Argument(help="The table, as sales.orders.", autocompletion=complete_names)]

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


def add_constraint(
    lake: "Lake",
    name: TableArgument,
    constraint: Annotated[str, typer.Argument(help="Name of the constraint.")],
    condition: Annotated[str, typer.Argument(help="What must be TRUE for every row, as `amount > 0`.")],
) -> None:
    """Add a CHECK constraint, or replace the one of this name.

    It is refused where statistics show that rows violate it.
    """
    lake.table(name).add_constraint(constraint, condition)
    typer.echo(f"added the constraint {constraint} to {name}")


def drop_constraint(
    lake: "Lake", name: TableArgument, constraint: Annotated[str, typer.Argument(help="Name of the constraint.")]
) -> None:
    """Drop a CHECK constraint."""
    lake.table(name).drop_constraint(constraint)
    typer.echo(f"dropped the constraint {constraint} of {name}")


app = typer.Typer()
add_command(app, constraints, *_EXAMPLES, panel=LOOK)
constraint_app = make_group("constraint", "Add and drop CHECK constraints of a table.", panel=CHANGE)
add_catalog_command(
    constraint_app, add_constraint, "duckicelake constraint add sales.orders positive 'amount > 0'", name="add"
)
add_catalog_command(constraint_app, drop_constraint, "duckicelake constraint drop sales.orders positive", name="drop")
add_group(app, constraint_app)
