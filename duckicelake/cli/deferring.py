"""What a command does, imported when it runs: what may be asked for is told, and what may not refused, without it."""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Done = TypeVar("Done")


def done_by(place: str) -> Callable[[Callable[Given, Done]], Callable[Given, Done]]:
    """Give a command its body: a function of this package, as `flush:flush`, that takes by name what the command takes.

    The command's own function has none; its parameters and docstring are what `--help` tells. So the modules that say
    which commands there are import none of what does the work, which takes ten times as long.
    """
    module, _, name = place.partition(":")

    def with_body(command: Callable[Given, Done]) -> Callable[Given, Done]:
        @wraps(command)
        def run(*args: Given.args, **given: Given.kwargs) -> Done:
            body: Callable[Given, Done] = getattr(import_module(f"duckicelake.cli.{module}"), name)
            return body(*args, **given)

        return run

    return with_body
