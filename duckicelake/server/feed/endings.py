"""Answers that have no end of their own, and the server that must come to its end: one tells the other.

The server (`cli.service.repeating`) says so in the request's `state` of ASGI, when it begins to shut down: answers
under way that said how they are ended are ended, and those that begin later find it said.
"""

from collections.abc import Callable
from typing import Any, Final

from starlette.types import Scope

_END: Final = "duckicelake.end"
_IS_ENDING: Final = "duckicelake.is-ending"


def end_by(scope: Scope, end: Callable[[], object]) -> None:
    """Have `end` called once the server shuts down: at once, if it does so already."""
    state = scope.setdefault("state", {})
    state[_END] = end
    if _IS_ENDING in state:
        end()


def end_answer(state: dict[str, Any]) -> None:
    """For the server: end the answer to the request with this state, or the one that it may come to."""
    state[_IS_ENDING] = True
    if _END in state:
        state[_END]()
