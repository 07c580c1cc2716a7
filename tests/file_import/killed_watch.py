"""A watch or a load that ends itself like kill -9: `python -m tests.file_import.killed_watch STEP watch …`."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from duckicelake.cli.main import app
from duckicelake.file_import import archive, load, watch

STEPS: dict[str, tuple[Any, str, bool]] = {
    "before the claim": (watch.FileWatch, "_claim", False),
    "behind the claim": (watch.FileWatch, "_claim", True),
    "behind the files": (load, "write_files", True),
    "before the commit": (load, "stage_snapshot", True),
    "behind the commit": (load._Load, "_write", True),
    "behind the quarantine": (load._Load, "_quarantine", True),
    "behind the load": (watch, "load_files", True),
    "behind the end": (watch.FileWatch, "_end", True),
    "behind a move": (archive.Archive, "keep", True),
}
"""Where each function is, and whether it is done."""
LOAD_STEPS: dict[str, tuple[Any, str, bool]] = {
    "behind the columns": (load, "choose_columns", True),
    "behind the check": (load, "check_rows", True),
    "behind the staged files": (load._Load, "_place", True),
    "before the quarantine": (load._Load, "_quarantine", False),
}
"""Steps of a load alone."""


def die(step: str) -> None:
    """Have the process killed once it comes to a step."""
    home, name, is_done = (STEPS | LOAD_STEPS)[step]
    function: Callable[..., Any] = getattr(home, name)

    def last(*arguments: Any, **options: Any) -> Any:
        if is_done:
            function(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(home, name, last)


if __name__ == "__main__":
    die(sys.argv[1])
    app(sys.argv[2:])
