"""What `duckicelake delta import` does: a Delta table's files and history as a table of the lake."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from duckicelake.catalog.delta.importing import DeltaImport, Imported, import_table
from duckicelake.catalog.delta.importing import Progress as Told
from duckicelake.catalog.uncollected import uncollected
from duckicelake.cli import terminal
from duckicelake.cli.assembly.opened import opened
from duckicelake.cli.counting import counted
from duckicelake.settings import read_settings


def import_delta(
    *, path: str, table: str, lake: Path | None, from_version: int | None, copy_for_duckdb: bool, follow: bool
) -> None:
    """Import it and tell what came. Raises as `import_table`, StartupError where there is no lake."""
    with opened(read_settings({"lake": lake}), "import_delta_table") as services, _bar() as progress:
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
    with terminal.progress(*columns) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, count: bar.update(task, completed=done, total=count)
