"""The `duckicelake` command: parse, call, print."""

import typer

from duckicelake.cli.by_name import Commands

app = typer.Typer(
    name="duckicelake",
    cls=Commands,
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
