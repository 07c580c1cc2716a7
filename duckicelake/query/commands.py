"""`duckicelake sql`, `head`, `queries` and `cancel`: run queries in the server, list and cancel them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import uuid4

import typer

from duckicelake.cli.catalog.connection import add_catalog_command, complete_names
from duckicelake.cli.console.command import DATA, JsonOption
from duckicelake.cli.console.terminal import print_json, print_rows
from duckicelake.errors import format_count

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake
    from duckicelake.client.query_result import PlanInfo, QueryInfo, QueryResult

_POLL_SECONDS: Final = 1.0
_STATEMENT_COLUMNS: Final = 60
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
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the plan and how many files of each table it reads; run nothing.")
    ] = False,
    save_as: Annotated[
        str, typer.Option("--save-as", help="Make a table of the whole result, as sales.summary; print no rows.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --save-as: print the table's columns and sources; make nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a query in the server, over tables that you may read; print its rows, or make a table of them."""
    from duckicelake.errors import BadInputError

    text = sys.stdin.read() if statement == "-" else statement
    if not text.strip():
        raise BadInputError("The statement is empty: expected a SELECT, as 'FROM sales.orders'")
    if (explain and save_as) or (dry_run and not save_as):
        raise BadInputError("--explain has no --save-as, and --dry-run needs it")
    if save_as:
        _save(lake, text, save_as, namespace=namespace, at=at, is_dry_run=dry_run, as_json=as_json)
        return
    if explain:
        _print_plan(lake.explain_sql(text, namespace=namespace, at=at), as_json=as_json)
        return
    query_id = str(uuid4())
    with _show_progress(lake, query_id):
        result = lake.sql(text, namespace=namespace, at=at, limit=limit, query_id=query_id)
    _print(result, as_json=as_json)


def _save(lake: Lake, text: str, name: str, *, namespace: str, at: str | None, is_dry_run: bool, as_json: bool) -> None:
    query_id = str(uuid4())
    with _show_progress(lake, query_id):
        saved = lake.save_sql(text, name, namespace=namespace, at=at, query_id=query_id, is_dry_run=is_dry_run)
    if as_json:
        print_json(saved)
        return
    columns = ", ".join(f"{column.name} {column.type}" for column in saved.columns)
    read = f"from {', '.join(saved.sources) or 'no table'}, at DuckLake's snapshot {saved.ducklake_snapshot_id}"
    if saved.rows is None:
        typer.echo(f"would make {name} ({columns}) {read}")
    else:
        typer.echo(
            f"made {name} ({columns}) of {format_count(saved.rows, 'row')} in {saved.seconds or 0:.1f} s, {read}"
        )


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


def list_queries(lake: Lake, as_json: JsonOption = False) -> None:
    """List your queries that run or ended within the last minutes; everyone's for an administrator."""
    found = lake.queries()
    if as_json:
        print_json(*found)
        return
    headings = ("query", "principal", "state", "done", "rows", "seconds", "statement")
    print_rows(headings, map(_describe, found), right=(3, 4, 5))


def cancel(
    lake: Lake, query_id: Annotated[str, typer.Argument(help="The query's id, as `duckicelake queries` lists it.")]
) -> None:
    """Cancel a query, whichever process of the server runs it."""
    from uuid import UUID

    from duckicelake.errors import BadInputError

    try:
        UUID(query_id)
    except ValueError as error:
        raise BadInputError(f"Invalid query id {query_id!r}: expected one that duckicelake queries lists") from error
    lake.cancel_query(query_id)
    typer.echo(f"cancelled {query_id}")


def _describe(query: QueryInfo) -> tuple[str, ...]:
    done = "" if query.progress is None else f"{query.progress:.0%}"
    seconds, statement = f"{query.seconds:.1f}", " ".join(query.statement.split())[:_STATEMENT_COLUMNS]
    return query.query_id, query.principal, query.state, done, f"{query.rows:,}", seconds, statement


@contextmanager
def _show_progress(lake: Lake, query_id: str) -> Iterator[None]:
    """Show on a terminal how far the query is, from its second second on; Ctrl-C cancels the query."""
    end = Event()
    thread = Thread(target=_poll, args=(lake, query_id, end), daemon=True)
    if sys.stderr.isatty():
        thread.start()
    try:
        yield
    except KeyboardInterrupt:
        lake.cancel_query(query_id)
        raise
    finally:
        end.set()
        if thread.is_alive():
            thread.join()


def _poll(lake: Lake, query_id: str, end: Event) -> None:
    from rich.console import Console
    from rich.progress import Progress

    from duckicelake.errors import PipelineError

    if end.wait(_POLL_SECONDS):
        return
    with Progress(console=Console(stderr=True), transient=True) as bar, suppress(PipelineError):
        task = bar.add_task("query", total=None)
        while not end.wait(_POLL_SECONDS):
            query = lake.query(query_id)
            total, done = (None, 0.0) if query.progress is None else (1.0, query.progress)
            bar.update(task, total=total, completed=done, description=format_count(query.rows, "row"))


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


def _print_plan(plan: PlanInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(plan)
    else:
        typer.echo("\n".join(plan.lines()))


def _format_row(row: Sequence[Any]) -> tuple[str, ...]:
    return tuple("NULL" if value is None else str(value) for value in row)


SQL_EXAMPLES: Final = (
    "duckicelake sql 'SELECT region, count(*) FROM sales.orders GROUP BY ALL'",
    "duckicelake sql 'FROM orders WHERE id = 7' --namespace sales --at 2026-11-01 --json",
    "duckicelake sql 'FROM sales.orders WHERE id = 7' --explain",
    "duckicelake sql 'SELECT region, count(*) AS n FROM sales.orders GROUP BY ALL' --save-as sales.by_region --dry-run",
    "duckicelake sql 'SELECT region, count(*) AS n FROM sales.orders GROUP BY ALL' --save-as sales.by_region",
)
HEAD_EXAMPLES: Final = ("duckicelake head sales.orders", "duckicelake head sales.orders -n 3 --json")
add_catalog_command(app, run_sql, *SQL_EXAMPLES, name="sql", panel=DATA)
add_catalog_command(app, print_head, *HEAD_EXAMPLES, name="head", panel=DATA)
add_catalog_command(app, list_queries, "duckicelake queries", "duckicelake queries --json", name="queries", panel=DATA)
add_catalog_command(app, cancel, "duckicelake cancel 7d9c1f0e-5b1a-4a53-9a55-5f3a3f0a4c11", name="cancel", panel=DATA)
