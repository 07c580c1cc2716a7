"""`duckicelake migrate-catalog`, `register` and `unregister`: come from another catalog, and go to one."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.catalog.connection import add_catalog_command
from duckicelake.cli.catalog.description import TableArgument
from duckicelake.cli.console.command import CHANGE, DATA, JsonOption
from duckicelake.cli.console.terminal import open_progress, print_json, print_rows
from duckicelake.errors import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.progress import Progress

    from duckicelake.client.lake import Lake
    from duckicelake.other_catalogs.comparison import Outcome
    from duckicelake.other_catalogs.source import CopyProgress

app: Final = typer.Typer()
_MIGRATE_EXAMPLES: Final = (
    "duckicelake migrate-catalog --from lakekeeper --option uri=https://lakes --option warehouse=prod --dry-run",
    "duckicelake migrate-catalog --from jdbc --option uri=postgresql://me@db/iceberg --option catalog=prod",
    "duckicelake migrate-catalog --from hadoop --option warehouse=s3://lake/warehouse --namespace sales",
)
_REGISTER_EXAMPLES: Final = (
    "duckicelake register sales.orders s3://lake/old/orders/metadata/00042.metadata.json",
    "duckicelake register sales.orders s3://hive/orders/metadata/00042.metadata.json --rewrite --option s3.region=eu-1",
)
_UNREGISTER_EXAMPLES: Final = (
    "duckicelake unregister sales.orders",
    "duckicelake unregister --namespace sales --json > sales.jsonl",
    "duckicelake unregister --all --dry-run",
    "duckicelake unregister --all --given-up --json > all.jsonl",
)


def migrate_catalog(
    lake: Lake,
    kind: Annotated[
        str,
        typer.Option(
            "--from",
            help="Kind of the other catalog: rest, polaris, lakekeeper, nessie, unity, glue, hive, jdbc, pyiceberg, "
            "hadoop.",
        ),
    ],
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="<key>=<value>, in PyIceberg's names, as uri=… or s3.endpoint=…; @<file> reads the value from a file; "
            "may be repeated."
        ),
    ] = None,
    namespace: Annotated[str, typer.Option(help="Only this namespace and those below it.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read all of it, and change nothing.")] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Bring what the source has changed since, of tables that are here already.")
    ] = False,
    count_rows: Annotated[
        bool, typer.Option("--count-rows", help="Also count each table's rows on both sides, by PyIceberg.")
    ] = False,
    rewrite: Annotated[
        bool,
        typer.Option(
            "--rewrite",
            help="Copy the rows of tables in ORC or Avro to Parquet, deletes applied, without history. The source's "
            "files must lie in the server's allowed locations.",
        ),
    ] = False,
    threads: Annotated[int, typer.Option(min=1, max=32, help="Tables at a time.")] = 4,
    as_json: JsonOption = False,
) -> None:
    """Bring namespaces, tables and views of another catalog here. Their files stay where they are.

    Tables keep their UUID, snapshots, branches and tags, and each is compared after it was registered. Run it again
    after an interruption: what is here already is left alone. Stop writing through the other catalog before the last
    run, and never expire or purge there afterwards. Exits with 1 unless all of it is here.
    """
    from duckicelake.errors import BadInputError
    from duckicelake.other_catalogs.comparison import count_beside
    from duckicelake.other_catalogs.source import open_source, parse_options
    from duckicelake.other_catalogs.transfer import MigrationPlan, migrate
    from duckicelake.rest.names import parse_name

    options = parse_options(option or [])
    plan = MigrationPlan(parse_name(namespace) if namespace else (), dry_run, update, threads, rewrite)
    with closing(open_source(kind, options)) as source, open_progress() as progress:
        if not lake.client.is_duckicelake():
            raise BadInputError(f"{lake.client.connection.uri} is no duckicelake server: a migration leads to one")
        task = progress.add_task("migrate", total=None)
        watch = partial(_watch_copy, progress)
        outcomes = migrate(source, lake, plan, lambda count: progress.update(task, total=count), watch)
        if count_rows and not dry_run:
            outcomes = count_beside(outcomes, source, lake, options)
        is_good = _report(_follow(outcomes, lambda: progress.advance(task)), as_json=as_json)
    if not is_good:
        raise typer.Exit(1)


def register(
    lake: Lake,
    name: TableArgument,
    metadata_location: Annotated[str, typer.Argument(help="Where its metadata.json is.")],
    rewrite: Annotated[
        bool,
        typer.Option("--rewrite", help="Copy its rows from ORC or Avro to Parquet, deletes applied, without history."),
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(help="With --rewrite, <key>=<value> of its store, in PyIceberg's names; may be repeated."),
    ] = None,
) -> None:
    """Register a table that lies in the lake's store, by its metadata.json; with --rewrite, one that lies anywhere."""
    from duckicelake.errors import BadInputError
    from duckicelake.other_catalogs.source import parse_options
    from duckicelake.other_catalogs.transfer import register_copy, register_named
    from duckicelake.rest.names import parse_table

    if not rewrite:
        if option:
            raise BadInputError("--option is for --rewrite: else the server reads the table, by its own keys")
        register_named(lake, name, metadata_location)
        typer.echo(f"registered {name}")
        return
    options = parse_options(option or [])
    with open_progress() as progress:
        copied = register_copy(lake, parse_table(name), metadata_location, options, _watch_copy(progress, name))
    typer.echo(
        f"registered {name}: a copy of {format_count(copied.rows, 'row')} in {format_count(copied.files, 'file')}"
    )


def unregister(
    lake: Lake,
    names: Annotated[list[str] | None, typer.Argument(help="Tables, as sales.orders.")] = None,
    namespace: Annotated[str, typer.Option(help="All tables of this namespace and those below it.")] = "",
    every: Annotated[bool, typer.Option("--all", help="All tables of the lake.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List them, and give up none.")] = False,
    earlier: Annotated[
        bool, typer.Option("--given-up", help="List those that were given up earlier, and change nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Give tables up to another catalog, and print where the metadata.json of each is, for its `register`.

    All files stay, and nothing here names them any more. Views are only listed. Exits with 1 unless all were given up.
    Run it again after an interruption: --given-up then says where the tables are that went before.
    """
    from duckicelake.errors import BadInputError
    from duckicelake.other_catalogs.transfer import give_up, list_given_up

    if sum([bool(names), bool(namespace), every]) != 1:
        raise BadInputError("give names of tables, or --namespace, or --all")
    if earlier:
        outcomes = list_given_up(lake, names or [], namespace)
    else:
        outcomes = give_up(lake, names or [], namespace, is_dry_run=dry_run)
    if not _report(outcomes, as_json=as_json):
        raise typer.Exit(1)


def _follow(outcomes: Iterable[Outcome], advance: Callable[[], None]) -> Iterator[Outcome]:
    for outcome in outcomes:
        advance()
        yield outcome


def _watch_copy(progress: Progress, name: str) -> CopyProgress:
    """Add a line for a table that is copied, with its files and rows."""
    from duckicelake.cli.console.terminal import replace_controls

    called = replace_controls(name)
    task = progress.add_task(called, total=None)

    def advance(done: int, files: int, rows: int) -> None:
        progress.update(
            task,
            completed=done,
            total=files,
            description=f"{called}: {done}/{format_count(files, 'file')}, {format_count(rows, 'row')}",
        )

    return advance


def _report(outcomes: Iterable[Outcome], *, as_json: bool) -> bool:
    """Print outcomes; return whether all are good. The summary goes to standard error."""
    counts: dict[str, int] = {}
    is_good, rows = True, []
    for outcome in outcomes:
        is_good = is_good and outcome.is_good
        counts[outcome.state] = counts.get(outcome.state, 0) + 1
        if as_json:
            print_json(outcome)
        else:
            rows.append((outcome.kind, outcome.name, outcome.state, outcome.detail))
    if rows:
        print_rows(("kind", "name", "state", "detail"), rows)
    typer.echo(", ".join(f"{count} {state}" for state, count in counts.items()) or "there is nothing", err=True)
    return is_good


add_catalog_command(app, migrate_catalog, *_MIGRATE_EXAMPLES, panel=DATA)
add_catalog_command(app, register, *_REGISTER_EXAMPLES, panel=CHANGE)
add_catalog_command(app, unregister, *_UNREGISTER_EXAMPLES, panel=DATA)
