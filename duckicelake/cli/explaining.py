"""How commands explain themselves by `--help`: what they do, options, and examples to copy."""

from collections.abc import Callable
from inspect import getdoc
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup, TyperOption


def group(name: str, text: str) -> typer.Typer:
    """An app of several commands; `add_command` adds them."""
    return typer.Typer(
        name=name,
        help=text,
        cls=Group,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )


def add_command(app: typer.Typer, function: Callable[..., None], *examples: str, name: str | None = None) -> None:
    """The function's docstring says what it does."""
    told = escape(_paragraphs(getdoc(function) or ""))
    app.command(name=name, cls=_Command, help=told, epilog=escape(_epilog(examples)))(function)


class _Flags:
    """Shows no type for options that take no value: Typer's `--json <bool>` looks as if it wanted one."""

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            if isinstance(each, TyperOption) and each.is_flag:
                each.metavar = ""
        return params


class _Command(_Flags, TyperCommand):
    pass


class Group(_Flags, TyperGroup):
    """A group of commands, with flags as they are."""


def _paragraphs(text: str) -> str:
    """Text whose lines may be as long as the terminal is wide."""
    return "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))


def _epilog(examples: tuple[str, ...]) -> str:
    word = "Example" if len(examples) == 1 else "Examples"
    return f"{word}:\n\n" + "\n".join(f"$ {each}" for each in examples)
