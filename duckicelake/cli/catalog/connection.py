"""Declare commands that talk to a catalog over REST: options of the connection, errors, output."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duckicelake.cli.console.command import (
    LakeOption,
    add_command,
    choose_warehouse,
    find_chosen_warehouse,
    one_line_errors,
)
from duckicelake.cli.pipeline.app import one_line_errors as one_line_failures

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake
    from duckicelake.client.models import LakeReader

_PANEL_TITLE: Final = "Connection"
_LAKE_VARIABLES: Final = frozenset({"DUCKICELAKE_LAKE", "DUCKICELAKE_DATABASE_URL", "DUCKICELAKE_DATABASE_URL_FILE"})


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
        str | None,
        _build_option(
            "Warehouse of a server with several.", "DUCKICELAKE_CLIENT_WAREHOUSE", "DUCKICELAKE_PIPELINE_WAREHOUSE"
        ),
    ],
}


def add_catalog_command(
    app: typer.Typer,
    function: Callable[..., None],
    *examples: str,
    name: str | None = None,
    panel: str | None = None,
) -> None:
    """Add a command. The function's first parameter is the Lake; options of the connection are added to the others."""
    run = partial(_run_with_lake, function)
    add_command(app, _add_connection_options(function, run), *examples, name=name, panel=panel)


def add_connected_command(
    app: typer.Typer,
    function: Callable[..., None],
    *examples: str,
    name: str | None = None,
    panel: str | None = None,
) -> None:
    """Add a command that connects by itself: its first parameter is the options of the connection by their names."""

    def run(options: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        function(options, **given)

    add_command(app, _add_connection_options(function, run), *examples, name=name, panel=panel)


def add_lake_command(
    app: typer.Typer,
    function: Callable[..., None],
    over_rest: Callable[..., None],
    *examples: str,
    name: str | None = None,
    panel: str | None = None,
) -> None:
    """Add a command that works over REST where --uri or --profile is given, and otherwise opens the lake itself.

    Options decide before variables, and the variables of a lake before those of a catalog's URI or profile.

    function: opens the lake of its option --lake. over_rest: gets a Lake and the same arguments without --lake.
    """
    add_command(app, _choose_way(function, over_rest), *examples, name=name, panel=panel, has_warehouse_option=False)


def add_administration_command(
    app: typer.Typer,
    function: Callable[..., None],
    *examples: str,
    name: str | None = None,
    panel: str | None = None,
    has_warehouse_option: bool = False,
) -> None:
    """Add a command that administers a server: over REST, or on its lake, as `add_lake_command` decides.

    function: its first parameter is what administers. has_warehouse_option: it is about one warehouse, whose name it
    gets as `warehouse`.
    """

    def on_the_lake(lake: Any, **given: Any) -> None:
        from duckicelake.cli.wiring.administration import LakeAdministration
        from duckicelake.client.administration import FIRST
        from duckicelake.settings.sources import read_settings

        if has_warehouse_option:
            given["warehouse"] = find_chosen_warehouse() or FIRST
        with choose_warehouse(None):  # the first warehouse's schema has the registry of all
            function(LakeAdministration(read_settings({"lake": lake}), find_document_name(given)), **given)

    def over_rest(lake: Lake, **given: Any) -> None:
        from duckicelake.client.administration import FIRST, Administrator

        if has_warehouse_option:
            given["warehouse"] = lake.client.connection.warehouse or FIRST
        function(Administrator(lake.client), **given)

    _, *own = inspect.signature(function, eval_str=True, locals=_find_first(function)).parameters.values()
    own = [parameter for parameter in own if parameter.name != "warehouse" or not has_warehouse_option]
    option = inspect.Parameter("lake", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=LakeOption)
    on_the_lake.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own), option]
    )
    on_the_lake.__doc__, on_the_lake.__name__ = function.__doc__, function.__name__
    left_out = () if has_warehouse_option else ("warehouse",)
    run = _choose_way(one_line_errors()(on_the_lake), over_rest, left_out)
    add_command(app, run, *examples, name=name, panel=panel, has_warehouse_option=False)


def find_document_name(given: Mapping[str, Any]) -> str:
    """Find what errors call the document that a command was given."""
    return "standard input" if str(given.get("file", "-")) == "-" else str(given["file"])


def _find_first(function: Callable[..., None]) -> dict[str, object]:
    """Find the name of the first parameter's type, which is imported for types alone."""
    first, *_ = inspect.signature(function).parameters.values()
    return {str(first.annotation): object}


def _choose_way(
    function: Callable[..., None], over_rest: Callable[..., None], left_out: Collection[str] = ()
) -> Callable[..., None]:
    """Make a command that goes either way. left_out: options of the connection that it doesn't have."""

    @wraps(function)
    def run_command(context: typer.Context, **given: Any) -> None:
        options = {name: given.pop(name, None) for name in _OPTIONS}
        if not _is_over_rest(context, given["lake"] is not None):
            warehouse = options["warehouse"] if _is_on_command_line(context, "warehouse") else None
            with choose_warehouse(warehouse):
                function(**given)
            return
        del given["lake"]
        with one_line_errors(), one_line_failures():
            _run_with_lake(over_rest, options, given)

    own = inspect.signature(function, eval_str=True).parameters.values()
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return _declare(run_command, [*own, context], left_out)


def _is_over_rest(context: typer.Context, has_lake: bool) -> bool:
    named = [name for name in ("uri", "profile", "credential", "token") if _is_on_command_line(context, name)]
    if named and has_lake:
        raise typer.BadParameter(f"--{named[0]} and --lake both say where the lake is: give one of them")
    if named or has_lake:
        return bool(named)
    is_lake_named = any(name.upper() in _LAKE_VARIABLES for name in os.environ)
    return not is_lake_named and bool(context.params["uri"] or context.params["profile"])


def _is_on_command_line(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _run_with_lake(function: Callable[..., None], options: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    from duckicelake.client.lake import connect

    lake = connect(**options)
    with suggest_names(lake, given.get("name"), given.get("namespace")):
        function(lake, **given)


def _declare(
    run_command: Callable[..., None], own: Iterable[inspect.Parameter], left_out: Collection[str] = ()
) -> Callable[..., None]:
    """Give a function the signature of a command: its own parameters and the options of the connection."""
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _OPTIONS.items()
        if name not in left_out
    ]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + shared
    run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run_command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run_command.__wrapped__  # type: ignore[attr-defined]
    return run_command


def _add_connection_options(
    function: Callable[..., None], run: Callable[[Mapping[str, Any], Mapping[str, Any]], None]
) -> Callable[..., None]:
    """Add the options to those that the function declares behind its first parameter; `run` gets both."""

    @wraps(function)
    def run_command(**given: Any) -> None:
        with one_line_errors(), one_line_failures():
            run({name: given.pop(name) for name in _OPTIONS}, given)

    own = list(inspect.signature(function, eval_str=True, locals=_find_first(function)).parameters.values())[1:]
    return _declare(run_command, own)


@contextmanager
def suggest_names(lake: LakeReader, name: str | None, namespace: str | None = None) -> Iterator[None]:
    """Add names like these to the error that no such table or namespace is there."""
    from duckicelake.errors import MissingNamespaceError, MissingTableError

    try:
        yield
    except MissingNamespaceError as missing:
        hint = "" if not namespace or "did you mean" in str(missing) else lake.suggest(namespace)
        raise MissingNamespaceError(f"{missing}{hint}") from missing
    except MissingTableError as missing:
        hint = "" if not name or "did you mean" in str(missing) else lake.suggest(name)
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
