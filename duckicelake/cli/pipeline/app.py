"""Declare commands of the pipeline: the options that they share, exit codes and one-line errors."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any, Final, Literal

import typer

from duckicelake import errors
from duckicelake.cli.console.command import DATA, add_command, make_group, print_error
from duckicelake.cli.pipeline.run import Summary, open_run
from duckicelake.pipeline.failures import explain_failure
from duckicelake.rest.connection import DEFAULT_URI

DIFFERENT_EXIT_CODE: Final = 9
"""The compared tables differ."""
INTERRUPTED_EXIT_CODE: Final = 130

EXIT_CODES: Final[Mapping[type[errors.PipelineError], int]] = {
    errors.PipelineError: 1,
    errors.BadInputError: 2,
    errors.MissingRequirementError: 3,
    errors.CatalogUnreachableError: 4,
    errors.InvalidCatalogUriError: 2,
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
        text = "interrupted; what was committed stays, and nothing is half-committed"
        print_error(interrupted, text, INTERRUPTED_EXIT_CODE)
        raise typer.Exit(INTERRUPTED_EXIT_CODE) from interrupted
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception as error:
        failure = explain_failure(error)
        if failure is None:
            raise
        lines, code = (str(failure), *getattr(failure, "__notes__", ())), find_exit_code(failure)
        print_error(failure, " ".join("; ".join(lines).split()), code)
        raise typer.Exit(code) from error


_SOURCE_HELP: Final = (
    "The other catalog: <key>=<value> of Iceberg's catalog properties, as type=rest and uri=…; may be repeated."
)
SourceOption = Annotated[list[str], typer.Option(help=_SOURCE_HELP)]
OptionalSourceOption = Annotated[list[str] | None, typer.Option(help=_SOURCE_HELP)]
AttachOption = Annotated[
    str | None,
    typer.Option(
        help="The lake for DuckDB: what `duckicelake info` prints for ATTACH.", envvar="DUCKICELAKE_PIPELINE_ATTACH"
    ),
]
app = make_group(
    "pipeline", "Move and rewrite data in bulk with Spark, against a catalog that runs anywhere.", panel=DATA
)
_PANEL_TITLE: Final = "Catalog, Spark and output"


def parse_properties(source: Sequence[str] | None) -> dict[str, str]:
    """Parse the properties of the other catalog; BadInputError."""
    from duckicelake.pipeline.sources import parse_pairs

    return parse_pairs("--source", source, "type=rest --source uri=http://…")


def list_packages(properties: Mapping[str, str]) -> tuple[str, ...]:
    """List the packages that Spark needs for the other catalog: Iceberg's for AWS, for Glue and files in S3."""
    from duckicelake.pipeline.launcher import ICEBERG_AWS_PACKAGE

    is_aws = properties.get("type") == "glue" or any(
        value.startswith(("s3://", "s3a://")) for value in properties.values()
    )
    return (ICEBERG_AWS_PACKAGE,) if is_aws else ()


def _build_option(text: str, **more: Any) -> Any:
    return typer.Option(help=text, rich_help_panel=_PANEL_TITLE, **more)


_COMMON_OPTIONS: Mapping[str, tuple[Any, Any]] = {
    "uri": (Annotated[str, _build_option("URI of the catalog.", envvar="DUCKICELAKE_PIPELINE_URI")], DEFAULT_URI),
    "credential": (
        Annotated[
            str | None,
            _build_option(
                "<id>:<secret> to log in with.", envvar="DUCKICELAKE_PIPELINE_CREDENTIAL", show_default=False
            ),
        ],
        None,
    ),
    "token": (
        Annotated[
            str | None,
            _build_option(
                "Token to use instead of a credential.", envvar="DUCKICELAKE_PIPELINE_TOKEN", show_default=False
            ),
        ],
        None,
    ),
    "oauth2_server_uri": (
        Annotated[str | None, _build_option("URI that hands out tokens (default: the catalog's).")],
        None,
    ),
    "scope": (Annotated[str | None, _build_option("Scope to request when logging in (default: all scopes).")], None),
    "warehouse": (
        Annotated[
            str | None,
            _build_option(
                "Warehouse of a server with several, by name.",
                envvar="DUCKICELAKE_PIPELINE_WAREHOUSE",
                show_default=False,
            ),
        ],
        None,
    ),
    "master": (
        Annotated[str | None, _build_option("Where Spark runs (default: local[*]; spark-submit says it itself).")],
        None,
    ),
    "conf": (Annotated[list[str] | None, _build_option("<key>=<value> of Spark's settings; may be repeated.")], None),
    "lineage": (
        Annotated[
            Literal["auto", "on", "off"],
            _build_option(
                "Send the catalog events of OpenLineage's listener in Spark about what is read and written (auto: if "
                "--conf names its jar; on: with the jar from Maven).",
                envvar="DUCKICELAKE_PIPELINE_LINEAGE",
            ),
        ],
        "auto",
    ),
    "as_json": (
        Annotated[bool, typer.Option("--json", help="Print only the summary, as JSON.", rich_help_panel=_PANEL_TITLE)],
        False,
    ),
}


def command(
    *examples: str, name: str | None = None, into: typer.Typer = app
) -> Callable[[Callable[..., Summary]], Callable[..., None]]:
    """Add a command to the sub-app or a group in it. Its first parameter is the run, the others are its options."""

    def add(function: Callable[..., Summary]) -> Callable[..., None]:
        whole = _add_common_options(function)
        add_command(into, whole, *examples, name=name)
        return whole

    return add


def _add_common_options(function: Callable[..., Summary]) -> Callable[..., None]:
    @wraps(function)
    def run_command(**given: Any) -> None:
        common = {name: given.pop(name) for name in _COMMON_OPTIONS}
        with one_line_errors(), open_run(**common) as run:
            run.print_summary(function(run, **given))

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _COMMON_OPTIONS.items()
    ]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + shared
    run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run_command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run_command.__wrapped__
    return run_command
