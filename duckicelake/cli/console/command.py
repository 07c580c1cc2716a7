"""Declare commands: help with examples, the option --lake, one-line errors.

A command is a function: its parameters and its docstring are its `--help`. Modules of commands import at the top only
what `--help` needs, and the rest inside the functions, because `--help` imports all of them.
"""

import errno
import inspect
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from copy import copy
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command_name
from typer.models import CommandInfo

from duckicelake.cli.console.terminal import CLOSED_OUTPUT_EXIT_CODE, OutputFile, open_pager, print_json
from duckicelake.errors import CatalogError, restate_rule

LakeOption = Annotated[Path | None, typer.Option("--lake", help="Folder of the embedded lake (default: ./lake).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs: one object per line.")]
WarehouseOption = Annotated[
    str | None, typer.Option("--warehouse", help="Warehouse beside the first to work on, by name (default: the first).")
]
_CHOSEN_WAREHOUSE: Final[ContextVar[str | None]] = ContextVar("chosen_warehouse", default=None)
_USAGE_ERROR: Final[Any] = typer.BadParameter.__mro__[1]
"""UsageError, which is Click's or Typer's own."""
_WANTS_JSON: Final[ContextVar[bool]] = ContextVar("wants_json", default=False)
OUTPUT_EXIT_CODE: Final = 1
NO_LAKE: Final = "there is no lake in {0}; make one with: duckicelake init --lake {0}"
"""The error for a folder without a lake."""


def join_lines(error: Exception) -> str:
    """Return the message of an error without line breaks."""
    return " ".join(str(error).split())


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Print a CatalogError as one line on stderr and exit with 2; only bugs show a traceback.

    Raises KeyboardInterrupt after Ctrl-C, whatever that made fail: the exit code is 130.
    """
    try:
        yield
    except CatalogError as error:
        if is_interrupted(error):
            raise KeyboardInterrupt from error
        print_error(error, join_lines(error), 2)
        raise typer.Exit(2) from error
    except RuntimeError as error:  # DuckDB's own, of a query in which Ctrl-C came
        if is_interrupted(error):
            raise KeyboardInterrupt from error
        raise


def print_error(error: BaseException, message: str, code: int) -> None:
    """Print an error on standard error: as one line, or as one JSON object where the command was given --json."""
    if not _WANTS_JSON.get():
        typer.echo(f"duckicelake: {message}", err=True)
        return
    found = {"type": type(error).__name__, "message": message, "exit-code": code}
    print_json({"error": found}, is_error=True)


@contextmanager
def check_output() -> Iterator[None]:
    """Check that the block can write standard output; else exit with a code of its own, whatever the block made of it.

    Nothing is printed where its reader has left, as `head` does.
    """
    found = OutputFile.open()
    try:
        yield
    finally:
        problem = None if found is None else found.close_output()
        if problem is not None and problem.errno == errno.EPIPE:
            raise SystemExit(CLOSED_OUTPUT_EXIT_CODE)
        if problem is not None:
            print_error(problem, f"standard output can't be written: {problem.strerror}", OUTPUT_EXIT_CODE)
            raise SystemExit(OUTPUT_EXIT_CODE)


def is_interrupted(error: BaseException | None) -> bool:
    """Return whether Ctrl-C was being handled when the error came."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


LOOK: Final = "Look at a lake"
CHANGE: Final = "Change a lake"
DATA: Final = "Read and write data"
SERVE: Final = "Serve a lake"
UPKEEP: Final = "Keep a lake in order"
GOVERN: Final = "Who may do what"
"""Panels of `duckicelake --help`, in which each command has its place."""

_CONTEXT: Final = {"help_option_names": ["-h", "--help"]}


class RootApp(typer.Typer):
    """All commands. A call builds the options of the named command alone.

    Typer builds those of all 130 commands, which took a fifth of the CPU time of `duckicelake ls`.
    """

    def __call__(self, arguments: Sequence[str] | None = None, **options: Any) -> Any:
        """Run a command; help, completion and unknown names see all of them.

        Ctrl-C behind it ends the process: Python would print a traceback of its wait for threads.
        """
        given = sys.argv[1:] if arguments is None else arguments
        name = next((word for word in given if not word.startswith("-")), None)
        try:
            with check_output():
                return typer.main.get_command(self if name is None else self.select(name))(arguments, **options)
        finally:
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, signal.SIG_DFL)

    def select(self, name: str) -> typer.Typer:
        """Return an app with one command or group, or with all if there is none of this name."""
        selected = copy(self)
        for command in _list_commands(self):
            if (command.name or get_command_name(command.callback.__name__)) == name:  # type: ignore[union-attr]
                selected.registered_commands, selected.registered_groups = [command], []
                return selected
        for group in self.registered_groups:
            if group.typer_instance is not None and group.typer_instance.info.name == name:
                selected.registered_commands, selected.registered_groups = [], [group]
                return selected
        return self


def _list_commands(app: typer.Typer) -> Iterator[CommandInfo]:
    """Yield the commands of an app, and those of groups without a name."""
    yield from app.registered_commands
    for group in app.registered_groups:
        if group.typer_instance is not None and not isinstance(group.typer_instance.info.name, str):
            yield from group.typer_instance.registered_commands


def make_group(name: str, text: str, *, panel: str | None = None, is_root: bool = False) -> typer.Typer:
    """Make a group of commands; `add_command` adds them.

    panel: where the help of the command above lists it. is_root: it has the options of shell completion.
    """
    kind = RootApp if is_root else typer.Typer
    return kind(
        name=name,
        rich_help_panel=panel,
        help=text,
        cls=CommandGroup,
        context_settings=_CONTEXT,
        no_args_is_help=True,
        add_completion=is_root,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )


def add_group(app: typer.Typer, group: typer.Typer) -> None:
    """Add a group of commands, in the panel that it names; single commands, if the group has no name."""
    app.add_typer(group, rich_help_panel=group.rich_help_panel)


def add_command(
    app: typer.Typer,
    function: Callable[..., None],
    *examples: str,
    name: str | None = None,
    panel: str | None = None,
    has_warehouse_option: bool = True,
) -> None:
    """Add a command. Its help is the function's docstring, followed by the examples. Those that look at a lake page.

    panel: where the help of the command above lists it.
    has_warehouse_option: a command with the option --lake gets --warehouse, too, unless it has one of its own.
    """
    text = escape(_join_paragraphs(inspect.getdoc(function) or ""))
    run = _add_warehouse_option(function) if has_warehouse_option and _has_lake_option(function) else function
    app.command(
        name=name,
        cls=_PagedCommand if panel == LOOK else _ExplainedCommand,
        context_settings=_CONTEXT,
        help=text,
        epilog=escape(_build_epilog(examples)),
        rich_help_panel=panel,
    )(run)


def find_chosen_warehouse() -> str | None:
    """Return the warehouse that the running command's --warehouse names; None: the first."""
    return _CHOSEN_WAREHOUSE.get()


@contextmanager
def choose_warehouse(name: str | None) -> Iterator[None]:
    """Have `find_chosen_warehouse` return a name in the block."""
    token = _CHOSEN_WAREHOUSE.set(name)
    try:
        yield
    finally:
        _CHOSEN_WAREHOUSE.reset(token)


def _has_lake_option(function: Callable[..., None]) -> bool:
    parameters = inspect.signature(function).parameters
    annotations = [parameter.annotation for parameter in parameters.values()]
    return "warehouse" not in parameters and (LakeOption in annotations or "LakeOption" in annotations)


def _add_warehouse_option(function: Callable[..., None]) -> Callable[..., None]:
    @wraps(function)
    def run_command(warehouse: str | None = None, **given: Any) -> None:
        with choose_warehouse(warehouse):
            function(**given)

    own = inspect.signature(function, eval_str=True)
    option = inspect.Parameter("warehouse", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=WarehouseOption)
    run_command.__signature__ = own.replace(parameters=[*own.parameters.values(), option])  # type: ignore[attr-defined]
    return run_command


class _FlagParams:
    """Show no type for options without a value: Typer's `--json <bool>` looks as if a value were needed."""

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if isinstance(param, TyperOption) and param.is_flag:
                param.metavar = ""
        return params


class _ExplainedCommand(_FlagParams, TyperCommand):
    pass


class _PagedCommand(_ExplainedCommand):
    def invoke(self, ctx: Any) -> Any:
        with nullcontext() if ctx.params.get("follow") else open_pager():
            return super().invoke(ctx)


class CommandGroup(_FlagParams, TyperGroup):
    """A group of commands whose flags show no type, and whose errors of usage are one line."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if parent is None:
            _WANTS_JSON.set("--json" in args)
        with _one_line_usage():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _one_line_usage():
            return super().invoke(ctx)


@contextmanager
def _one_line_usage() -> Iterator[None]:
    """Print an error of usage as other errors, and exit with its code; groups without arguments show their help."""
    try:
        yield
    except _USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # another class in each version of Typer
            raise
        text = restate_rule(" ".join(error.format_message().split()).rstrip("."))
        print_error(error, text if error.ctx is None else f"{text} ({error.ctx.command_path} --help)", 2)
        raise typer.Exit(2) from error


def _join_paragraphs(text: str) -> str:
    """Join the lines of each paragraph, so that the terminal wraps them."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _build_epilog(examples: tuple[str, ...]) -> str:
    word = "Example" if len(examples) == 1 else "Examples"
    return f"{word}:\n\n" + "\n".join(f"$ {example}" for example in examples)
