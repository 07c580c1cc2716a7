"""Exit codes of the pipeline's commands, and their one-line errors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import typer

from duckicelake import errors
from duckicelake.pipeline.failures import explain_failure

DIFFERENT_EXIT_CODE: Final = 9
"""The compared tables differ."""
INTERRUPTED_EXIT_CODE: Final = 130

EXIT_CODES: Final[Mapping[type[errors.PipelineError], int]] = {
    errors.PipelineError: 1,
    errors.BadInputError: 2,
    errors.MissingRequirementError: 3,
    errors.CatalogUnreachableError: 4,
    errors.BadCredentialsError: 5,
    errors.NotAllowedError: 5,
    errors.JobConflictError: 6,
    errors.OutOfMemoryError: 7,
}
"""Exit codes by class, for its subclasses, too. docs/pipeline.md has the table for users."""


def find_exit_code(error: errors.PipelineError) -> int:
    return next(EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Print an error as one line on stderr and exit with its code; only bugs show a traceback."""
    try:
        yield
    except KeyboardInterrupt as interrupted:
        typer.echo("duckicelake: interrupted; what was committed stays, and nothing is half-committed", err=True)
        raise typer.Exit(INTERRUPTED_EXIT_CODE) from interrupted
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception as error:
        failure = explain_failure(error)
        if failure is None:
            raise
        lines = (str(failure), *getattr(failure, "__notes__", ()))
        typer.echo(f"duckicelake: {' '.join('; '.join(lines).split())}", err=True)
        raise typer.Exit(find_exit_code(failure)) from error
