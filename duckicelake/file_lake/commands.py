"""`duckicelake import-lake`, `publish` and `unpublish`: lakes whose catalog is a file."""

from __future__ import annotations

from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.console.command import DATA, LakeOption, add_command, one_line_errors
from duckicelake.cli.console.terminal import print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from duckicelake.file_lake.importer import ImportPlan

_IMPORT_EXAMPLES: Final = (
    "duckicelake import-lake metadata.ducklake --lake /data/lake",
    "DUCKICELAKE_DATABASE_URL=postgresql://me@db/lake duckicelake import-lake metadata.ducklake",
    "duckicelake import-lake lake.sqlite --data-path s3://bucket/lake/",
)
_PUBLISH_EXAMPLES: Final = (
    "duckicelake publish prices-2026.ducklake",
    "duckicelake publish year-end.ducklake --at 2026-01-01T00:00",
    "duckicelake publish test.ducklake --at 4711 --json",
)
_UNPUBLISH_EXAMPLES: Final = (
    "duckicelake unpublish",
    "duckicelake unpublish 0b0e5d3c-6a52-4b0e-9d5c-2f4e6a1c9d11",
)
_NOTICE: Final = (
    "Both catalogs now name the same files: don't write to {0} any more, and run no cleanup or CHECKPOINT there, "
    "or each lake deletes files of the other."
)


@one_line_errors()
def import_lake(
    file: Annotated[Path, typer.Argument(help="The file of DuckDB's ATTACH 'ducklake:…', DuckDB's or SQLite's.")],
    lake: LakeOption = None,
    data_path: Annotated[
        str | None, typer.Option(help="Where the lake's files are, if not where its catalog says.")
    ] = None,
    schema: Annotated[str | None, typer.Option(help="The catalog's schema in the file, if it has several.")] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard what an interrupted import copied, and begin again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Copy a lake's catalog from a file into Postgres, so that it can be served. Its files stay where they are.

    The whole history comes along: snapshots, schemas, tables, views, macros, inlined rows, options. The database must
    have no lake yet. If the import is interrupted, run it again: it goes on where it ended.
    """
    from duckicelake.catalog.warehouse import check_data_path, prepare_lake
    from duckicelake.cli.wiring.location import run_postgres
    from duckicelake.cli.wiring.services import open_services
    from duckicelake.errors import UnavailableError, format_count
    from duckicelake.file_lake.catalog_file import open_catalog_file
    from duckicelake.file_lake.importer import import_catalog, plan_import
    from duckicelake.settings.sources import read_settings

    with closing(open_catalog_file(file.absolute(), schema)) as source:
        plan = plan_import(source, data_path)
        with run_postgres(read_settings({"lake": lake})) as settings, open_services(settings) as services:
            check_data_path(services, plan.data_path)
            with _show_progress(plan) as notify:
                report = import_catalog(services.database, source, plan, notify, restarts=restart)
            prepare_lake(services)
            if services.database.gate.reason is not None:
                raise UnavailableError(f"the import is complete; but {services.database.gate.reason}")
    if as_json:
        facts = {"tables": report.lake_tables, "snapshots": report.snapshots, "rows": report.rows}
        print_json({**facts, "resumed-rows": report.resumed_rows, "data-path": plan.data_path})
        return
    tables, snapshots = format_count(report.lake_tables, "table"), format_count(report.snapshots, "snapshot")
    typer.echo(f"The lake of {file} is in Postgres: {tables}, {snapshots}; its files stay in {plan.data_path}")
    typer.echo(_NOTICE.format(file))


@contextmanager
def _show_progress(plan: ImportPlan) -> Iterator[Callable[[int], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    from duckicelake.cli.console.terminal import open_progress

    columns = (TextColumn("rows of the catalog"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with open_progress(*columns) as progress:
        task = progress.add_task("", total=plan.row_count)
        yield lambda copied: progress.update(task, completed=copied)


@one_line_errors()
def publish(
    file: Annotated[Path, typer.Argument(help="The catalog file to write, as lake.ducklake.")],
    at: Annotated[str | None, typer.Option(help="A DuckLake snapshot's number, or a time in ISO form.")] = None,
    lake: LakeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Write a snapshot of the lake as one read-only file, which DuckDB attaches without Postgres and the server.

    The file names the lake's own files, so whoever reads it needs to read those, too. Put it anywhere: on a disk, on
    S3, on a web server. The lake keeps the files until `duckicelake unpublish`, whatever is expired or dropped.
    """
    from duckicelake.cli.console.terminal import parse_time
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.errors import format_count
    from duckicelake.file_lake.publisher import publish_snapshot
    from duckicelake.settings.sources import read_settings

    wanted = None if at is None else int(at) if at.isdecimal() else parse_time(at)
    with open_lake(read_settings({"lake": lake}), "publish") as services:
        done = publish_snapshot(services.database, file, wanted)
    if as_json:
        print_json({"id": done.id, "snapshot": done.snapshot_id, "tables": done.tables, "file": str(file)})
        return
    typer.echo(f"{file}: snapshot {done.snapshot_id} with {format_count(done.tables, 'table')}, publication {done.id}")
    typer.echo(f"in DuckDB: ATTACH 'ducklake:{file}' AS frozen (READ_ONLY)")


@one_line_errors()
def unpublish(
    publication: Annotated[str | None, typer.Argument(help="Id of a publication; none lists them.")] = None,
    lake: LakeOption = None,
) -> None:
    """End a publication: the lake keeps its files no longer than others, and its catalog file stops working one day."""
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.errors import format_count
    from duckicelake.file_lake.publisher import end_publication, list_publications
    from duckicelake.settings.sources import read_settings

    with open_lake(read_settings({"lake": lake}), "unpublish") as services:
        if publication is None:
            for identity, name, count in list_publications(services.database):
                typer.echo(f"{identity}  {name}  keeps {format_count(count, 'file')}")
            return
        count = end_publication(services.database, publication)
    typer.echo(f"{publication} has ended; it kept {format_count(count, 'file')}")


app = typer.Typer()
add_command(app, import_lake, *_IMPORT_EXAMPLES, name="import-lake", has_warehouse_option=False, panel=DATA)
add_command(app, publish, *_PUBLISH_EXAMPLES, panel=DATA)
add_command(app, unpublish, *_UNPUBLISH_EXAMPLES, panel=DATA)
