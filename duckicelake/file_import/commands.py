"""`duckicelake load`: files into tables, without Spark."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duckicelake.cli.catalog.connection import add_catalog_command
from duckicelake.cli.console.command import DATA, JsonOption
from duckicelake.cli.console.terminal import format_count, print_json, print_rows
from duckicelake.errors import BadInputError, MissingRequirementError

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake
    from duckicelake.file_import.load import FileLoad, LoadPlan, LoadSummary, LoadWatcher

app: Final = typer.Typer()
_EVOLVE: Final = ("add", "strict")
_LOAD_EXAMPLES: Final = (
    "duckicelake load flights.csv --table air.flights --partition-by 'month(time_hour)'",
    "duckicelake load 's3://bucket/day=*/*.parquet' --table air.flights --run-id flights-2026-11 --yes",
    "duckicelake load orders/ --table shop.orders --dry-run",
)


def load(
    lake: Lake,
    files: Annotated[list[str], typer.Argument(help="Files, folders, patterns, or URLs: s3://, gs://, az://.")],
    table: Annotated[str, typer.Option(help="The table for the rows, as ns.t; created if missing.")],
    format_: Annotated[
        str | None, typer.Option("--format", help="csv, json, parquet, arrow or avro (default: by the suffix).")
    ] = None,
    schema: Annotated[
        str | None, typer.Option(help="Columns and types, as 'id long, name string' (default: inferred).")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="<name>=<value>: sep, header, quote, escape, nullValue, encoding, multiLine; may be repeated."
        ),
    ] = None,
    mode: Annotated[str, typer.Option(help="append, overwrite or overwrite-partitions.")] = "append",
    partition_by: Annotated[
        str | None, typer.Option(help="Partitions of a new table, as 'month(time), bucket(8, id)'.")
    ] = None,
    sort_by: Annotated[str | None, typer.Option(help="Sort order of a new table, as 'time desc, id'.")] = None,
    evolve: Annotated[str, typer.Option(help="add: add new columns and widen types; strict: refuse them.")] = "add",
    quarantine: Annotated[
        str | None, typer.Option(help="Table for bad rows (default: the table's name with _quarantine).")
    ] = None,
    bad_rows: Annotated[
        str, typer.Option(help="table: bad rows go to the quarantine; fail: load nothing; or a file that gets them.")
    ] = "table",
    max_bad: Annotated[int | None, typer.Option(min=0, help="Load nothing if more rows are bad.")] = None,
    run_id: Annotated[
        str | None, typer.Option(help="Id of the run: repeated runs with one id load once (default: a new id).")
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory of DuckDB.")] = "700MB",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of DuckDB (default: all cores).")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check every row, print the plan, write nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before a table is created or changed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Load files into a table, exactly once; bad rows go to quarantine with file, line and reason.

    DuckDB reads the files and writes Parquet on this machine; the catalog gives the place and the keys. Types are those
    that all rows have. The exit codes are those of `duckicelake pipeline`.
    """
    from uuid import uuid4

    module = _import_load()
    request = _build_request(
        files,
        table,
        mode=mode,
        evolve=evolve,
        layout=(partition_by, sort_by),
        quarantine=quarantine,
        format=format_,
        options=option or [],
        schema=schema,
        run_id=run_id or str(uuid4()),
        bad_rows=bad_rows,
        max_bad=max_bad,
        memory=memory,
        threads=threads,
    )
    watcher = _build_watcher(request, as_json=as_json, agrees=yes)
    if dry_run:
        plan = module.plan_load(lake, request, watcher)
        print_json(plan) if as_json else _print_plan(plan)
        return
    summary = module.load_files(lake, request, watcher)
    print_json(summary) if as_json else _print_summary(summary)


def _build_watcher(request: FileLoad, *, as_json: bool, agrees: bool) -> LoadWatcher:
    from duckicelake.errors import BadInputError
    from duckicelake.file_import.load import LoadWatcher

    class TerminalWatcher(LoadWatcher):
        def say(self, text: str) -> None:
            if not as_json:
                typer.echo(text, err=True)

        def agree(self, plan: LoadPlan) -> None:
            if agrees or not (plan.creates or plan.new or plan.widened):
                return
            if not sys.stdin.isatty():
                what = f"{plan.table} would be created" if plan.creates else f"columns of {plan.table} would change"
                raise BadInputError(f"{what}, and there is no terminal to ask: give --yes, or look with --dry-run")
            _print_plan(plan)
            if not typer.confirm(f"Load into {request.load.target}?", err=True):
                raise typer.Exit(1)

    return TerminalWatcher()


def _print_plan(plan: LoadPlan) -> None:
    def describe(name: str) -> str:
        if plan.creates or name in plan.new:
            return "new"
        return "widened" if name in plan.widened else ""

    print_rows(("column", "type", ""), [(name, type_, describe(name)) for name, type_ in plan.columns.items()])
    made = " (would be created)" if plan.creates else ""
    read = f"{format_count(plan.files, 'file')}, {plan.bytes:,} bytes, {format_count(plan.rows, 'row')}"
    typer.echo(f"{plan.table}{made}: {read}, of which {plan.bad:,} are bad")


def _print_summary(summary: LoadSummary) -> None:
    if summary.result == "unchanged":
        typer.echo(f"run {summary.run_id} was in {summary.table} already: nothing to do")
        return
    rate = summary.rows / summary.seconds if summary.seconds else 0.0
    typer.echo(
        f"{format_count(summary.rows, 'row')} of {format_count(summary.files, 'file')} are in {summary.table} "
        f"(run id {summary.run_id}; {summary.seconds:.1f} s, {rate:,.0f} rows/s, {summary.bytes / 1e6:,.1f} MB)"
    )
    if summary.quarantine is not None:
        typer.echo(f"{format_count(summary.quarantined, 'bad row')} in {summary.quarantine}")


add_catalog_command(app, load, *_LOAD_EXAMPLES, panel=DATA)


def _import_load() -> Any:
    """Import what loads files. Raises MissingRequirementError without PyIceberg."""
    try:
        return import_module("duckicelake.file_import.load")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"pyiceberg", "pyarrow"}:
            raise
        raise MissingRequirementError("Loading files needs PyIceberg: pip install 'duckicelake[pyiceberg]'") from error


def _build_request(
    files: Sequence[str],
    table: str,
    *,
    mode: str,
    evolve: str,
    layout: tuple[str | None, str | None],
    quarantine: str | None,
    options: Sequence[str],
    **given: Any,
) -> FileLoad:
    """Build the request. Raises BadInputError for an option that can't be."""
    from duckicelake.file_import.load import FileLoad
    from duckicelake.pipeline.destination import Target, build_load_request
    from duckicelake.pipeline.sources import parse_pairs
    from duckicelake.rest.names import parse_table

    if evolve not in _EVOLVE:
        raise BadInputError(f"Invalid --evolve {evolve!r}: expected add or strict")
    if mode == "merge":
        raise BadInputError("--mode merge needs Spark: use duckicelake pipeline ingest --mode merge --key …")
    load = build_load_request(
        Target(*parse_table(table), *layout),
        mode,
        may_change=evolve == "add",
        quarantine=None if quarantine is None else Target(*parse_table(quarantine)),
    )
    return FileLoad(tuple(files), load, options=parse_pairs("--option", options, "sep=;"), **given)
