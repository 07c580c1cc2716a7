"""Programs in a pseudo-terminal, as `duckicelake shell`, and the screen that a person sees, by a terminal emulator."""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pexpect
import pyte

SECONDS = 60.0
"""What a busy machine may take for anything."""


class Terminal:
    """A program in a pseudo-terminal, and the screen that a person sees. prompt: what its prompts end with."""

    def __init__(self, child: "pexpect.spawn[bytes]", width: int, height: int, prompt: str = ">") -> None:
        self.child = child
        self.prompt = prompt
        self.screen = pyte.Screen(width, height)
        self.raw = b""
        self._stream = pyte.ByteStream(self.screen)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def type(self, text: str) -> None:
        self.child.send(text)

    def pause(self, seconds: float) -> None:
        """Read for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._read(0.1)

    def wait(self, expected: str | Callable[[str], bool]) -> str:
        """Read until the screen has a text; return the screen."""
        is_there = (lambda text: expected in text) if isinstance(expected, str) else expected
        end = time.monotonic() + SECONDS
        while not is_there(self.text):
            assert time.monotonic() < end, f"{expected!r} isn't on the screen:\n{self.text}"
            self._read(0.2)
        return self.text

    def run(self, text: str, expected: str) -> str:
        """Type a line on an empty prompt; wait for what it prints, and for the next prompt."""
        before = self.wait(self._has_empty_prompt)
        self.type(f"{text}\r")
        return self.wait(lambda shown: shown != before and expected in shown and self._has_empty_prompt(shown))

    def leave(self) -> int:
        """Type Ctrl-D on an empty prompt; return what the shell exits with."""
        self.wait(self._has_empty_prompt)
        self.type("\x04")
        return self.wait_for_end()

    def wait_for_end(self) -> int:
        end = time.monotonic() + SECONDS
        while self.child.isalive():
            assert time.monotonic() < end, f"still runs:\n{self.text}"
            self._read(0.2)
        self._read(0.1)
        return int(self.child.exitstatus or 0)

    def _has_empty_prompt(self, shown: str) -> bool:
        return shown.rpartition("\n")[2].rstrip().endswith(self.prompt)

    def _read(self, seconds: float) -> None:
        try:
            read = self.child.read_nonblocking(65_536, seconds)
        except pexpect.TIMEOUT:
            return
        except pexpect.EOF:
            return
        self.raw += read
        self._stream.feed(read)
        if b"\x1b[6n" in read:  # prompt_toolkit asks where the cursor is
            self.child.send(f"\x1b[{self.screen.cursor.y + 1};{self.screen.cursor.x + 1}R")


@contextmanager
def start_shell(
    *arguments: str, environment: Mapping[str, str], width: int = 100, height: int = 30
) -> Iterator[Terminal]:
    """Start the shell in a pseudo-terminal of its own."""
    command = [sys.executable, "-m", "duckicelake.cli.main", "shell", *arguments]
    with start_program(command, environment=environment, width=width, height=height) as terminal:
        yield terminal


@contextmanager
def start_program(
    command: Sequence[str], *, environment: Mapping[str, str], width: int, height: int, prompt: str = ">"
) -> Iterator[Terminal]:
    """Start a program in a pseudo-terminal of its own."""
    given = {
        **environment,
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "PROMPT_TOOLKIT_COLOR_DEPTH": "DEPTH_24_BIT",
    }
    child = pexpect.spawn(command[0], list(command[1:]), env=given, dimensions=(height, width), timeout=SECONDS)
    child.delaybeforesend = None
    try:
        yield Terminal(child, width, height, prompt)
    finally:
        if child.isalive():
            child.kill(signal.SIGKILL)
        child.close(force=True)
