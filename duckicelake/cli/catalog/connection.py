"""Declare commands that talk to a catalog over REST: options of the connection, errors, output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duckicelake.cli.console.command import add_command
from duckicelake.cli.pipeline.app import one_line_errors

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake

_PANEL_TITLE: Final = "Connection"


def _build_option(text: str, *variables: str, name: str | None = None) -> Any:
    declared = (name,) if name else ()
    return typer.Option(
        *declared, help=text, envvar=list(variables) or None, show_default=False, rich_help_panel=_PANEL_TITLE
    )


_OPTIONS: Final[Mapping[str, Any]] = {
    "uri": Annotated[
        str | None,
        _build_option(
            "URI of the catalog (default: that of the default profile, else http://127.0.0.1:8181).",
            "DUCKICELAKE_CLIENT_URI",
            "DUCKICELAKE_PIPELINE_URI",
        ),
    ],
    "profile": Annotated[
        str | None, _build_option("Profile of profiles.toml that names the catalog.", "DUCKICELAKE_CLIENT_PROFILE")
    ],
    "credential": Annotated[
        str | None,
        _build_option(
            "<id>:<secret> to log in with.", "DUCKICELAKE_CLIENT_CREDENTIAL", "DUCKICELAKE_PIPELINE_CREDENTIAL"
        ),
    ],
    "token": Annotated[
        str | None,
        _build_option(
            "Token to use instead of a credential.", "DUCKICELAKE_CLIENT_TOKEN", "DUCKICELAKE_PIPELINE_TOKEN"
        ),
    ],
    "warehouse": Annotated[
        str | None, _build_option("Warehouse of a server with several.", "DUCKICELAKE_CLIENT_WAREHOUSE")
    ],
}


def add_catalog_command(
    app: typer.Typer, function: Callable[..., None], *examples: str, name: str | None = None
) -> None:
    """Add a command. The function's first parameter is the Lake; options of the connection are added to the others."""
    add_command(app, _add_connection_options(function), *examples, name=name)


def _add_connection_options(function: Callable[..., None]) -> Callable[..., None]:
    @wraps(function)
    def run_command(**given: Any) -> None:
        options = {name: given.pop(name) for name in _OPTIONS}
        with one_line_errors():
            from duckicelake.client.lake import connect

            lake = connect(**options)
            with _suggest_names(lake, given.get("name")):
                function(lake, **given)

    own = list(inspect.signature(function, eval_str=True, locals={"Lake": object}).parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _OPTIONS.items()
    ]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + shared
    run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run_command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run_command.__wrapped__
    return run_command


@contextmanager
def _suggest_names(lake: Lake, name: str | None) -> Iterator[None]:
    """Add names like this one to the error that no such table is there."""
    from duckicelake.errors import MissingTableError

    try:
        yield
    except MissingTableError as missing:
        hint = "" if name is None or "did you mean" in str(missing) else lake.suggest(name)
        raise MissingTableError(f"{missing}{hint}") from missing


def complete_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a namespace, table or view, for the shell; nothing where the catalog doesn't answer."""
    from duckicelake.client.lake import connect
    from duckicelake.errors import PipelineError

    namespace, _, _ = incomplete.rpartition(".")
    options = {name: context.params.get(name) for name in _OPTIONS}
    try:
        found = list(connect(**options).list(namespace))
    except PipelineError:
        return []
    return [one.name for one in found if one.name.startswith(incomplete)]


def format_time(time: Any) -> str:
    """Format a time in UTC, to the second."""
    return f"{time:%Y-%m-%d %H:%M:%S}" if time is not None else ""


def format_partition(partition: Mapping[str, Any]) -> str:
    """Format the values of a partition, as `day=2026-11-01, region=null`."""
    return ", ".join(f"{name}={'null' if value is None else value}" for name, value in partition.items())
