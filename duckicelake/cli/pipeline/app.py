"""`duckicelake pipeline …`: a command is a function that takes a `Run`, and returns the summary of what it did.

    @command("duckicelake pipeline ingest flights.csv --table ns.flights")
    def ingest(run: Run, sources: Annotated[list[str], typer.Argument(help="…")], table: …) -> Summary:
        '''What --help says.'''
        with run.spark() as spark:
            return asdict(ingest_files(spark, run.client, IngestRequest(…), run.reporter))

Every command has the options that say where the catalog is, how Spark runs and what is printed; errors become one line
on stderr and an exit code. A module's commands are there once `main.py` imports it.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any

import typer

from duckicelake.cli.explaining import add_command, group
from duckicelake.cli.pipeline.exits import one_line_errors
from duckicelake.cli.pipeline.run import Summary, run_of
from duckicelake.pipeline.lineage import Wanted
from duckicelake.rest.connection import DEFAULT_URI

app = group("pipeline", "Move and rewrite data in bulk with Spark, against a catalog that runs anywhere.")

_PANEL = "Catalog, Spark and output"


def _option(text: str, **more: Any) -> Any:
    return typer.Option(help=text, rich_help_panel=_PANEL, **more)


_COMMON: Mapping[str, tuple[Any, Any]] = {
    "uri": (Annotated[str, _option("The catalog.", envvar="DUCKICELAKE_PIPELINE_URI")], DEFAULT_URI),
    "credential": (
        Annotated[
            str | None,
            _option("<id>:<secret> to log in with.", envvar="DUCKICELAKE_PIPELINE_CREDENTIAL", show_default=False),
        ],
        None,
    ),
    "token": (
        Annotated[str | None, _option("A token instead.", envvar="DUCKICELAKE_PIPELINE_TOKEN", show_default=False)],
        None,
    ),
    "oauth2_server_uri": (Annotated[str | None, _option("Where tokens are given out (default: the catalog).")], None),
    "scope": (Annotated[str | None, _option("What to ask for when logging in (default: all there is).")], None),
    "master": (
        Annotated[str | None, _option("Where Spark runs (default: local[*]; spark-submit says it itself).")],
        None,
    ),
    "conf": (Annotated[list[str] | None, _option("<key>=<value> of Spark's settings; may be repeated.")], None),
    "lineage": (
        Annotated[
            Wanted,
            _option(
                "Have OpenLineage's listener in Spark tell the catalog what is read and written (auto: if --conf names "
                "its jar; on: with that from Maven).",
                envvar="DUCKICELAKE_PIPELINE_LINEAGE",
            ),
        ],
        "auto",
    ),
    "as_json": (
        Annotated[bool, typer.Option("--json", help="Only the summary, as JSON.", rich_help_panel=_PANEL)],
        False,
    ),
}


def command(
    *examples: str, name: str | None = None, into: typer.Typer = app
) -> Callable[[Callable[..., Summary]], Callable[..., None]]:
    """Add a command to the sub-app or a group in it; its first parameter is the Run, the others are its own options."""

    def add(function: Callable[..., Summary]) -> Callable[..., None]:
        whole = _with_common_options(function)
        add_command(into, whole, *examples, name=name)
        return whole

    return add


def _with_common_options(function: Callable[..., Summary]) -> Callable[..., None]:
    @wraps(function)
    def wrapped(**given: Any) -> None:
        common = {name: given.pop(name) for name in _COMMON}
        with one_line_errors(), run_of(**common) as run:
            run.tell(function(run, **given))

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _COMMON.items()
    ]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + shared
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del wrapped.__wrapped__
    return wrapped
