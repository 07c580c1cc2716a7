"""The prompt: lines are edited, completed, coloured and remembered, until a statement is complete."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from duckicelake.errors import MissingRequirementError
from duckicelake.rest.profiles import list_profiles
from duckicelake.shell.completion import KnownNames, complete
from duckicelake.shell.interpreter import Interpreter
from duckicelake.shell.statements import is_complete

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import FormattedText
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.lexers import PygmentsLexer
    from prompt_toolkit.output.color_depth import ColorDepth
    from prompt_toolkit.styles import Style
    from pygments.lexers.sql import SqlLexer
except ModuleNotFoundError as error:
    raise MissingRequirementError(
        f"The shell needs the library {error.name}: pip install 'duckicelake[shell]'; -c, -f and pipes work without it"
    ) from error

COLORS: Final = {
    "pygments.keyword": "#3974d3",
    "pygments.literal.string": "#2f8630",
    "pygments.literal.number": "#af5696",
    "pygments.comment": "#767676",
    "prompt": "#3974d3",
}
"""Each can be read on white and on black: the contrast to both is at least 4.5."""


class LakeCompleter(Completer):
    """Completes from the names of the lake that the shell is connected to."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        self._names = KnownNames(interpreter.session.lake)

    def get_completions(self, document: Document, _event: CompleteEvent) -> Iterable[Completion]:
        """Yield the completions of the text before the cursor."""
        lake = self._interpreter.session.lake
        if self._names.lake is not lake:
            self._names = KnownNames(lake)
        profiles = [name for name, _ in list_profiles()]
        for one in complete(document.text_before_cursor, self._names, profiles):
            yield Completion(one.text, -one.length, display_meta=one.meta)


def run_prompt(interpreter: Interpreter) -> None:
    r"""Read and run statements until Ctrl-D or `\q`."""
    session: PromptSession[str] = PromptSession(
        history=FileHistory(prepare_history()),
        lexer=PygmentsLexer(SqlLexer),
        completer=ThreadedCompleter(LakeCompleter(interpreter)),
        complete_while_typing=False,
        multiline=True,
        key_bindings=_bind_keys(),
        style=Style.from_dict(COLORS),
        color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None,
        prompt_continuation=lambda width, _line, _wraps: "> ".rjust(width),
    )
    print(f"Connected to {interpreter.session.name}. \\? lists commands, Ctrl-D leaves.")
    while not interpreter.is_ended:
        try:
            text = session.prompt(lambda: FormattedText([("class:prompt", _build_prompt(interpreter))]))
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
        interpreter.run_text(text)


def prepare_history() -> str:
    """Return the path of the file of what was typed, which only its owner may read: queries may name secrets."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "duckicelake")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "history"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    path.chmod(0o600)
    return str(path)


def _build_prompt(interpreter: Interpreter) -> str:
    at = "" if interpreter.at is None else f"@{interpreter.at}"
    return f"{interpreter.session.name}{at}> "


def _bind_keys() -> Any:
    """Make Enter run what is complete, and begin a new line else."""
    keys = KeyBindings()

    @keys.add("enter")
    def _run_or_continue(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        state = buffer.complete_state
        if state is not None and state.current_completion is not None:
            buffer.apply_completion(state.current_completion)
        elif is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys
