"""What a command of the pipeline exits with, and the one line that it says before."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import typer

from duckicelake import errors
from duckicelake.pipeline.failures import explained

DIFFERENT: Final = 9
"""Two tables that were compared differ."""
INTERRUPTED: Final = 130

EXITS: Final[Mapping[type[errors.PipelineError], int]] = {
    errors.PipelineError: 1,
    errors.BadInput: 2,
    errors.MissingRequirement: 3,
    errors.CatalogUnreachable: 4,
    errors.BadCredentials: 5,
    errors.NotAllowed: 5,
    errors.JobConflict: 6,
    errors.OutOfMemory: 7,
}
"""Of each class and those below it. docs/pipeline.md has the table for people."""


def exit_code(error: errors.PipelineError) -> int:
    return next(EXITS[kind] for kind in type(error).__mro__ if kind in EXITS)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Errors become a line on stderr and an exit code; only bugs show a traceback."""
    try:
        yield
    except KeyboardInterrupt as interrupted:
        typer.echo("duckicelake: interrupted; what was committed stays, and nothing is half-committed", err=True)
        raise typer.Exit(INTERRUPTED) from interrupted
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception as error:
        failure = explained(error)
        if failure is None:
            raise
        told = (str(failure), *getattr(failure, "__notes__", ()))
        typer.echo(f"duckicelake: {' '.join('; '.join(told).split())}", err=True)
        raise typer.Exit(exit_code(failure)) from error
