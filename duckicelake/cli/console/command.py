"""Declare commands: help with examples, the option --lake, one-line errors, bodies imported on call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any, Final, ParamSpec, TypeVar

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup, TyperOption

from duckicelake.errors import CatalogError

Given = ParamSpec("Given")
Done = TypeVar("Done")
LakeOption = Annotated[Path | None, typer.Option("--lake", help="Folder of the embedded lake (default: ./lake).")]
NO_LAKE: Final = "there is no lake in {0}; make one with: duckicelake init --lake {0}"
"""Said where nobody has made one, of the folder."""


def join_lines(error: Exception) -> str:
    """What it says, without line breaks."""
    return " ".join(str(error).split())


@contextmanager
def one_line_errors() -> Iterator[None]:
    """What people can mend is said in one line on stderr, with exit code 2; only bugs show a traceback."""
    try:
        yield
    except CatalogError as error:
        typer.echo(f"duckicelake: {join_lines(error)}", err=True)
        raise typer.Exit(2) from error


def make_group(name: str, text: str) -> typer.Typer:
    """An app of several commands; `add_command` adds them."""
    return typer.Typer(
        name=name,
        help=text,
        cls=CommandGroup,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )


def add_command(app: typer.Typer, function: Callable[..., None], *examples: str, name: str | None = None) -> None:
    """The function's docstring says what it does."""
    told = escape(_join_paragraphs(getdoc(function) or ""))
    app.command(name=name, cls=_ExplainedCommand, help=told, epilog=escape(_build_epilog(examples)))(function)


class _FlagParams:
    """Shows no type for options that take no value: Typer's `--json <bool>` looks as if it wanted one."""

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            if isinstance(each, TyperOption) and each.is_flag:
                each.metavar = ""
        return params


class _ExplainedCommand(_FlagParams, TyperCommand):
    pass


class CommandGroup(_FlagParams, TyperGroup):
    """A group of commands, with flags as they are."""


def _join_paragraphs(text: str) -> str:
    """Text whose lines may be as long as the terminal is wide."""
    return "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))


def _build_epilog(examples: tuple[str, ...]) -> str:
    word = "Example" if len(examples) == 1 else "Examples"
    return f"{word}:\n\n" + "\n".join(f"$ {each}" for each in examples)


def done_by(name: str) -> Callable[[Callable[Given, Done]], Callable[Given, Done]]:
    """Give a command its body: a function by its full name, that takes by name what the command takes.

    The command's own function has none; its parameters and docstring are what `--help` tells. So the modules that say
    which commands there are import none of what does the work, which takes ten times as long.
    """
    module, _, function = name.rpartition(".")

    def with_body(command: Callable[Given, Done]) -> Callable[Given, Done]:
        @wraps(command)
        def run(*args: Given.args, **given: Given.kwargs) -> Done:
            body: Callable[Given, Done] = getattr(import_module(module), function)
            return body(*args, **given)

        return run

    return with_body


def read_own_version() -> str:
    """The installed version, or that there is none."""
    try:
        return installed_version("duckicelake")
    except PackageNotFoundError:
        return "(checkout)"
