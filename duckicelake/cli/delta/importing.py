"""`duckicelake delta import`: a Delta table's files and history as a table of the lake."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from duckicelake.catalog.delta.importing import DeltaImport, Imported, import_table
from duckicelake.catalog.delta.importing import Progress as Told
from duckicelake.cli.assembly.opened import opened
from duckicelake.cli.complaining import one_line_errors
from duckicelake.cli.counting import counted
from duckicelake.cli.lake_option import LakeOption
from duckicelake.cli.memory import uncollected
from duckicelake.settings import read_settings

EXAMPLES: Final = (
    "duckicelake delta import /data/delta/orders --table sales.orders",
    "DUCKICELAKE_ALLOWED_LOCATIONS=s3://raw duckicelake delta import s3://raw/orders --table sales.orders --follow",
    "duckicelake delta import /data/delta/orders --table sales.orders --from-version 120",
)


def import_delta(
    path: Annotated[str, typer.Argument(help="The Delta table's folder: a path or a URI.")],
    table: Annotated[str, typer.Option("--table", help="The table to make, as sales.orders.")],
    lake: LakeOption = None,
    from_version: Annotated[
        int | None, typer.Option(min=0, help="Leave the versions before out of the history.")
    ] = None,
    copy_for_duckdb: Annotated[
        bool, typer.Option("--copy-for-duckdb", help="On S3: copy files whose folders don't say their partition.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Let what comes to the Delta table come here; nobody else writes it.")
    ] = False,
) -> None:
    """Make a table of a Delta table: the same files, and every version that can still be read as a snapshot.

    No data is copied, and Delta's files are never touched. All of it comes, or nothing. The Delta table must lie in
    the warehouse or in one of DUCKICELAKE_ALLOWED_LOCATIONS, but not where the lake keeps tables of its own (the
    warehouse's folders data and ducklake); so must all files that its log names, and what links lead to.
    """
    with one_line_errors(), opened(read_settings({"lake": lake})) as services, _bar() as progress:
        wanted = DeltaImport.of(_absolute(path), table, from_version, copies=copy_for_duckdb, following=follow)
        with uncollected():
            told = import_table(services, wanted, progress)
    sys.stdout.write(f"{table}: {summary(told)}\n")
    for note in told.notes:
        sys.stderr.write(f"{table}: {note}\n")


def summary(told: Imported) -> str:
    """What came, in one line."""
    left = f"; left out: {ranges(told.left_out)}, whose files are gone" if told.left_out else ""
    what = [counted(told.versions, "version"), counted(told.files, "file"), counted(told.rows, "row")]
    return f"{', '.join(what)}, up to version {told.newest}{left}"


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers, those that follow each other drawn together, as 0-3, 7."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ", ".join("-".join(map(str, each)) for each in found)


def _absolute(path: str) -> str:
    return path if ":" in path.partition("/")[0] else str(Path(path).absolute())


@contextmanager
def _bar() -> Iterator[Told]:
    """Where a person looks on, how far it is."""
    columns = (TextColumn("Versions"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, count: bar.update(task, completed=done, total=count)
