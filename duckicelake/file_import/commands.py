"""`duckicelake load`, `watch` and `loaded-files`: files into tables, without Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duckicelake.cli.catalog.connection import add_catalog_command, complete_names
from duckicelake.cli.console.command import DATA, JsonOption, is_interrupted
from duckicelake.cli.console.terminal import open_progress, print_json, print_rows
from duckicelake.errors import BadColumnError, BadInputError, MissingRequirementError, format_count

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake
    from duckicelake.file_import.load_request import FileLoad, LoadPlan, LoadProgress, LoadSummary, LoadWatcher
    from duckicelake.file_import.watch import WatchEvent

app: Final = typer.Typer()
TableOption = Annotated[str, typer.Option(help="The table for the rows, as ns.t; created if missing.")]
FormatOption = Annotated[
    str | None, typer.Option("--format", help="csv, json, parquet, arrow or avro (default: by the suffix).")
]
SchemaOption = Annotated[
    str | None, typer.Option(help="Columns and types, as 'id long, name string' (default: inferred).")
]
ReaderOption = Annotated[
    list[str] | None,
    typer.Option(help="<name>=<value>: sep, header, quote, escape, nullValue, encoding, multiLine; may be repeated."),
]
PartitionOption = Annotated[
    str | None, typer.Option(help="Partitions of a new table, as 'month(time), bucket(8, id)'.")
]
SortOption = Annotated[str | None, typer.Option(help="Sort order of a new table, as 'time desc, id'.")]
EvolveOption = Annotated[str, typer.Option(help="add: add new columns and widen types; strict: refuse them.")]
QuarantineOption = Annotated[
    str | None, typer.Option(help="Table for bad rows (default: the table's name with _quarantine).")
]
MemoryOption = Annotated[str, typer.Option(help="Memory of DuckDB.")]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="Threads of DuckDB (default: all cores).")]
RootsOption = Annotated[
    str | None,
    typer.Option(
        help="Folders and prefixes, joined by commas, below which the files must lie (default: anywhere).",
        envvar="DUCKICELAKE_CLIENT_ROOTS",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before a table is created or changed.")]
_EVOLVE: Final = ("add", "strict")
_LOAD_EXAMPLES: Final = (
    "duckicelake load flights.csv --table air.flights --partition-by 'month(time_hour)'",
    "duckicelake load 's3://bucket/day=*/*.parquet' --table air.flights --run-id flights-2026-11 --yes",
    "duckicelake load customers.csv --table shop.customers --mode merge --key id",
    "duckicelake load orders/ --table shop.orders --dry-run",
)
_WATCH_EXAMPLES: Final = (
    "duckicelake watch incoming/ --table shop.orders --schema 'id long, day date' --yes --archive loaded/",
    "duckicelake watch s3://bucket/in/ --table shop.orders --until-idle",
)
_LIST_EXAMPLES: Final = ("duckicelake loaded-files shop.orders --state failed",)


def load(
    lake: Lake,
    files: Annotated[list[str], typer.Argument(help="Files, folders, patterns, or URLs: s3://, gs://, az://.")],
    table: TableOption,
    format_: FormatOption = None,
    schema: SchemaOption = None,
    option: ReaderOption = None,
    mode: Annotated[str, typer.Option(help="append, overwrite, overwrite-partitions or merge.")] = "append",
    key: Annotated[str | None, typer.Option(help="Columns by which --mode merge finds a row, as 'id,day'.")] = None,
    partition_by: PartitionOption = None,
    sort_by: SortOption = None,
    evolve: EvolveOption = "add",
    quarantine: QuarantineOption = None,
    bad_rows: Annotated[
        str, typer.Option(help="table: bad rows go to the quarantine; fail: load nothing; or a file that gets them.")
    ] = "table",
    max_bad: Annotated[int | None, typer.Option(min=0, help="Load nothing if more rows are bad.")] = None,
    run_id: Annotated[
        str | None, typer.Option(help="Id of the run: repeated runs with one id load once (default: a new id).")
    ] = None,
    memory: MemoryOption = "700MB",
    threads: ThreadsOption = None,
    roots: RootsOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check every row, print the plan, write nothing.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Load files into a table, exactly once; bad rows go to quarantine with file, line and reason.

    DuckDB reads the files and writes Parquet on this machine; the catalog gives the place and the keys. Types are those
    that all rows have. The exit codes are those of `duckicelake pipeline`.
    """
    from uuid import uuid4

    module = _import_extra_module("duckicelake.file_import.load")
    request = _build_request(
        files,
        table,
        mode=mode,
        keys=tuple(name.strip() for name in key.split(",")) if key else (),
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
        roots=roots,
    )
    with (
        _name_run(None if dry_run else request.run_id),
        _open_watcher(request, as_json=as_json, agrees=yes) as watcher,
    ):
        done = module.plan_load(lake, request, watcher) if dry_run else module.load_files(lake, request, watcher)
    if as_json:
        print_json(done)
    else:
        _print_plan(done) if dry_run else _print_summary(done)


def watch(
    lake: Lake,
    location: Annotated[str, typer.Argument(help="A folder, a pattern, or a prefix: s3://, gs://, az://.")],
    table: TableOption,
    format_: FormatOption = None,
    schema: SchemaOption = None,
    option: ReaderOption = None,
    partition_by: PartitionOption = None,
    sort_by: SortOption = None,
    evolve: EvolveOption = "add",
    quarantine: QuarantineOption = None,
    bad_rows: Annotated[
        str, typer.Option(help="table: bad rows go to the quarantine; fail: a file with bad rows isn't loaded.")
    ] = "table",
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between listings.")] = 5.0,
    still: Annotated[
        float, typer.Option(min=0, help="Seconds for which a file of this machine must not have changed.")
    ] = 5.0,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End once every file is loaded or failed.")] = False,
    archive: Annotated[str | None, typer.Option(help="Folder or prefix to which loaded files are moved.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Try files that failed before once more.")] = False,
    memory: MemoryOption = "700MB",
    threads: ThreadsOption = None,
    roots: RootsOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Load the files of a folder or prefix as they come, each exactly once.

    The catalog keeps which files a table has, so that a watch can be killed, moved or run twice. Files that can't be
    loaded are kept with their error, and tried again once they have changed: see `duckicelake loaded-files`.
    """
    module = _import_extra_module("duckicelake.file_import.watch")
    from duckicelake.file_import.archive import open_archive

    if bad_rows not in {"table", "fail"}:
        raise BadInputError(f"Invalid --bad-rows {bad_rows!r}: expected table or fail; watch writes no file")
    request = _build_request(
        (location,),
        table,
        mode="append",
        evolve=evolve,
        layout=(partition_by, sort_by),
        quarantine=quarantine,
        format=format_,
        options=option or [],
        schema=schema,
        bad_rows=bad_rows,
        memory=memory,
        threads=threads,
        roots=roots,
    )
    order = module.WatchRequest(
        location,
        request,
        every_seconds=every,
        still_seconds=still,
        until_idle=until_idle,
        archive=None if archive is None else open_archive(location, archive),
        again=again,
    )
    target = request.load.target
    if not yes and not sys.stdin.isatty() and not lake.client.table_exists(target.namespace, target.table):
        raise BadInputError(f"{target} would be created, and there is no terminal to ask: give --yes")
    follower = module.FileWatch(lake, order, _build_follower(request, agrees=yes), partial(_print_event, as_json))
    with suppress(KeyboardInterrupt):
        follower.run()
    if as_json:
        print_json({"event": "end", **asdict(follower.summary)})
        return
    done = follower.summary
    counted = f"{format_count(done.rows, 'row')} of {format_count(done.files, 'file')}"
    bad = f"{format_count(done.quarantined, 'bad row')}, {format_count(done.failed, 'bad file')}"
    typer.echo(f"loaded into {table}: {counted}; {bad}")


def list_loaded_files(
    lake: Lake,
    name: Annotated[str, typer.Argument(help="A table, as sales.orders.", autocompletion=complete_names)],
    state: Annotated[str | None, typer.Option(help="Only these: loaded, loading or failed.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the files that `watch` has loaded into a table or could not load, the last ones first."""
    from duckicelake.rest.names import parse_table

    query = {} if state is None else {"state": state}
    pages = lake.client.pages(lake.client.pipeline(*parse_table(name), "files"), query)
    found = (file for page in pages for file in page["files"])
    if as_json:
        for file in found:
            print_json(file)
        return
    rows = [
        (file["name"], f"{int(file['size']):,}", file["state"], file["noted"][:19].replace("T", " "), _explain(file))
        for file in found
    ]
    print_rows(("file", "bytes", "state", "since", ""), rows, right=(1,))


def _explain(file: dict[str, Any]) -> str:
    return file.get("error") or (f"snapshot {file['snapshot-id']}" if "snapshot-id" in file else "")


@contextmanager
def _name_run(run_id: str | None) -> Iterator[None]:
    """Say after Ctrl-C how to go on: the commit may have been made."""
    try:
        yield
    except BaseException as error:
        if run_id is not None and is_interrupted(error):
            typer.echo(f"interrupted: with --run-id {run_id}, the same files are loaded once; run it again", err=True)
        raise


@contextmanager
def _open_watcher(request: FileLoad, *, as_json: bool, agrees: bool) -> Iterator[LoadWatcher]:
    """Open what shows on standard error how far a load is: a bar on a terminal, or lines of JSON."""
    from rich.progress import BarColumn, TaskID, TextColumn

    from duckicelake.file_import.load_request import LoadWatcher

    class TerminalWatcher(LoadWatcher):
        _shown: tuple[str, TaskID] | None = None

        def say(self, text: str) -> None:
            if not as_json:
                typer.echo(text, err=True)

        def note(self, progress: LoadProgress) -> None:
            if as_json:
                known = {"rows": progress.done_rows, "all_rows": progress.rows} if progress.rows is not None else {}
                counts = {"bytes": progress.done_bytes, "all_bytes": progress.bytes, **known}
                print_json({"event": "progress", "step": progress.step, **counts}, is_error=True)
                return
            if self._shown is None or self._shown[0] != progress.step:
                self._hide()
                self._shown = progress.step, bar.add_task(progress.step, total=1.0, counts="")
            bar.update(self._shown[1], completed=progress.share, counts=_describe_progress(progress))

        def agree(self, plan: LoadPlan) -> None:
            if agrees or not (plan.creates or plan.new or plan.widened):
                return
            self._hide()
            bar.stop()
            what = _describe_creation(plan) if plan.creates else f"columns of {plan.table} would change"
            _ask(plan, what, f"Load into {request.load.target}?")
            bar.start()

        def _hide(self) -> None:
            if self._shown is not None:
                bar.remove_task(self._shown[1])
                self._shown = None

    with open_progress(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[counts]}")) as bar:
        yield TerminalWatcher()


def _describe_progress(progress: LoadProgress) -> str:
    """Describe how far a step is by bytes, and by rows once they are counted."""
    read = f"{progress.done_bytes / 1e6:,.1f} of {progress.bytes / 1e6:,.1f} MB"
    return read if progress.rows is None else f"{progress.done_rows:,} of {format_count(progress.rows, 'row')}, {read}"


def _build_follower(request: FileLoad, *, agrees: bool) -> LoadWatcher:
    from duckicelake.file_import.load_request import LoadWatcher

    class FollowWatcher(LoadWatcher):
        def agree(self, plan: LoadPlan) -> None:
            if agrees:
                return
            if plan.creates:
                _ask(plan, _describe_creation(plan), f"Create {request.load.target}?")
            elif plan.new or plan.widened:
                changed = ", ".join([*plan.new, *plan.widened])
                raise BadColumnError(f"Columns of {plan.table} would change ({changed}): give --yes to allow that")

    return FollowWatcher()


def _describe_creation(plan: LoadPlan) -> str:
    return f"{plan.table}{' and its namespace' if plan.creates_namespace else ''} would be created"


def _ask(plan: LoadPlan, what: str, question: str) -> None:
    """Show a plan on a terminal and ask. Raises BadInputError without a terminal, Exit if the answer is no."""
    if not sys.stdin.isatty():
        raise BadInputError(f"{what}, and there is no terminal to ask: give --yes, or look with --dry-run")
    _print_plan(plan)
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


def _print_plan(plan: LoadPlan) -> None:
    def describe(name: str) -> str:
        if plan.creates or name in plan.new:
            return "new"
        inside = [path for path in plan.new if path.startswith(f"{name}.")]
        if inside:
            return f"new: {', '.join(inside)}"
        return "widened" if any(path == name or path.startswith(f"{name}.") for path in plan.widened) else ""

    print_rows(("column", "type", ""), [(name, type_, describe(name)) for name, type_ in plan.columns.items()])
    made = f" (would be created{', with its namespace' if plan.creates_namespace else ''})" if plan.creates else ""
    read = f"{format_count(plan.files, 'file')}, {format_count(plan.bytes, 'byte')}, {format_count(plan.rows, 'row')}"
    typer.echo(f"{plan.table}{made}: {read}; {format_count(plan.bad, 'bad row')}")


def _print_summary(summary: LoadSummary) -> None:
    if summary.result == "unchanged":
        typer.echo(f"run {summary.run_id} was in {summary.table} already: nothing to do")
        return
    rate = summary.rows / summary.seconds if summary.seconds else 0.0
    typer.echo(
        f"loaded into {summary.table}: {format_count(summary.rows, 'row')} of {format_count(summary.files, 'file')} "
        f"(run id {summary.run_id}; {summary.seconds:.1f} s, {rate:,.0f} rows/s, {summary.bytes / 1e6:,.1f} MB)"
    )
    for namespace in summary.new_namespaces:
        typer.echo(f"created the namespace {namespace}")
    if summary.quarantine is not None:
        typer.echo(f"{format_count(summary.quarantined, 'bad row')} in {summary.quarantine}")


def _print_event(as_json: bool, event: WatchEvent) -> None:
    if as_json:
        batch = {} if event.batch is None else asdict(event.batch)
        print_json({"event": event.kind, "text": event.text, "file": event.file, **batch})
    elif event.batch is not None:
        _print_summary(event.batch)
    else:
        named = "" if event.file is None or event.file in event.text else f"{event.file}: "
        typer.echo(f"{named}{event.text}", err=True)


add_catalog_command(app, load, *_LOAD_EXAMPLES, panel=DATA)
add_catalog_command(app, watch, *_WATCH_EXAMPLES, panel=DATA)
add_catalog_command(app, list_loaded_files, *_LIST_EXAMPLES, name="loaded-files", panel=DATA)


def _import_extra_module(name: str) -> Any:
    """Import what loads files. Raises MissingRequirementError without PyIceberg."""
    try:
        return import_module(name)
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
    keys: tuple[str, ...] = (),
    layout: tuple[str | None, str | None],
    quarantine: str | None,
    options: Sequence[str],
    roots: str | None,
    **given: Any,
) -> FileLoad:
    """Build the request. Raises BadInputError for an option that can't be."""
    from duckicelake.file_import.load_request import FileLoad, check_request
    from duckicelake.file_import.roots import Roots
    from duckicelake.pipeline.destination import Target, build_load_request
    from duckicelake.pipeline.sources import parse_pairs
    from duckicelake.rest.names import parse_table

    if evolve not in _EVOLVE:
        raise BadInputError(f"Invalid --evolve {evolve!r}: expected add or strict")
    load = build_load_request(
        Target(*parse_table(table), *layout),
        mode,
        keys,
        may_change=evolve == "add",
        quarantine=None if quarantine is None else Target(*parse_table(quarantine)),
    )
    pairs = parse_pairs("--option", options, "sep=;")
    request = FileLoad(tuple(files), load, options=pairs, roots=Roots.parse(roots), **given)
    check_request(request)
    return request
