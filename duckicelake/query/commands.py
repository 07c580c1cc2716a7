"""`duckicelake sql` and `head`: run a query in the server, and print its rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duckicelake.cli.catalog.connection import add_catalog_command, complete_names
from duckicelake.cli.console.command import JsonOption
from duckicelake.cli.console.terminal import print_json, print_rows

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake
    from duckicelake.client.query_result import QueryResult

_NUMBERS: Final = (int, float)
AtOption = Annotated[
    str | None,
    typer.Option("--at", help="DuckLake's snapshot number, a time in ISO form, a branch or a tag (default: now)."),
]
app: Final = typer.Typer()


def run_sql(
    lake: Lake,
    statement: Annotated[str, typer.Argument(help="A SELECT in DuckDB's SQL; - reads it from standard input.")],
    namespace: Annotated[str, typer.Option(help="Namespace of tables that are named without one.")] = "",
    at: AtOption = None,
    limit: Annotated[int, typer.Option(min=0, help="Max rows to print.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """Run a query in the server, over tables that you may read, and print its rows."""
    text = sys.stdin.read() if statement == "-" else statement
    _print(lake.sql(text, namespace=namespace, at=at, limit=limit), as_json=as_json)


def print_head(
    lake: Lake,
    name: Annotated[str, typer.Argument(help="A table or view, as sales.orders.", autocompletion=complete_names)],
    rows: Annotated[int, typer.Option("--rows", "-n", min=0, help="How many rows.")] = 10,
    at: AtOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print some rows of a table or view."""
    from duckicelake.client.models import quote_sql_name
    from duckicelake.rest.names import parse_table

    _print(lake.sql(f"FROM {quote_sql_name(*parse_table(name))}", at=at, limit=rows), as_json=as_json)


def _print(result: QueryResult, *, as_json: bool) -> None:
    if as_json:
        print_json(*result.rows())
        return
    table = result.to_arrow()
    numbers = [
        number
        for number, column in enumerate(table.columns)
        if any(isinstance(value, _NUMBERS) for value in column.slice(0, 1).to_pylist())
    ]
    columns = [column.to_pylist() for column in table.columns]
    print_rows(table.column_names, (_format_row(row) for row in zip(*columns, strict=True)), right=numbers)


def _format_row(row: Sequence[Any]) -> tuple[str, ...]:
    return tuple("NULL" if value is None else str(value) for value in row)


SQL_EXAMPLES: Final = (
    "duckicelake sql 'SELECT region, count(*) FROM sales.orders GROUP BY ALL'",
    "duckicelake sql 'FROM orders WHERE id = 7' --namespace sales --at 2026-11-01 --json",
)
HEAD_EXAMPLES: Final = ("duckicelake head sales.orders", "duckicelake head sales.orders -n 3 --json")
add_catalog_command(app, run_sql, *SQL_EXAMPLES, name="sql")
add_catalog_command(app, print_head, *HEAD_EXAMPLES, name="head")
