"""A note in the lake's folder that says where its server answers, for commands that run beside it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NOTE = ".server.json"


@contextmanager
def noted(lake: Path, uri: str) -> Iterator[None]:
    """Leave the note while the block runs. Only who holds the lake may: there is one note in a folder."""
    note = lake / _NOTE
    note.write_text(json.dumps({"pid": os.getpid(), "uri": uri}))
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def noted_uri(lake: Path) -> str | None:
    """Where the lake's server answers; None if none runs (the note of one that was killed doesn't count)."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        note = json.loads((lake / _NOTE).read_text())
        os.kill(int(note["pid"]), 0)
        return str(note["uri"])
    return None
