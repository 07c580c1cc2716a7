"""`duckicelake delta`: Delta tables whose files are tables of the lake."""

import typer

from duckicelake.cli.delta.export import EXPORT_EXAMPLES, export_table
from duckicelake.cli.delta.following import (
    ADOPT_EXAMPLES,
    STATUS_EXAMPLES,
    SYNC_EXAMPLES,
    adopt_table,
    show_status,
    sync_tables,
)
from duckicelake.cli.delta.importing import EXAMPLES, import_delta

app = typer.Typer(
    name="delta",
    help="Delta tables whose files are tables of the lake: import them, follow them, take them over; and the way back.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _epilog(examples: tuple[str, ...]) -> str:
    return "Examples:\n\n" + "\n\n".join(f"`{each}`" for each in examples)


app.command(name="import", epilog=_epilog(EXAMPLES))(import_delta)
app.command(name="sync", epilog=_epilog(SYNC_EXAMPLES))(sync_tables)
app.command(name="status", epilog=_epilog(STATUS_EXAMPLES))(show_status)
app.command(name="adopt", epilog=_epilog(ADOPT_EXAMPLES))(adopt_table)
app.command(name="export", epilog=_epilog(EXPORT_EXAMPLES))(export_table)
