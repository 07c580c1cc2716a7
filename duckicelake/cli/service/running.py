"""Notes that say where a lake's server answers, for commands that run beside it.

The note of a lake in a folder is there. For a database of one's own it is in a folder of the user's for temporary
files, by the name of the database: each server on it leaves one.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from duckicelake.lake.postgres.address import database_parts

_NOTE: Final = ".server.json"


@contextmanager
def noted(lake: Path, uri: str) -> Iterator[None]:
    """Leave the note while the block runs. Only who holds the lake may: there is one note in a folder."""
    note = lake / _NOTE
    note.write_text(json.dumps({"pid": os.getpid(), "uri": uri}))
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


@contextmanager
def noted_for_database(url: str, uri: str) -> Iterator[None]:
    """Leave a note while the block runs; none where the folder can't be made, or isn't this user's."""
    folder, pattern = database_notes(url)
    note = folder / pattern.replace("*", str(os.getpid()))
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        if _is_own(folder):
            note.write_text(json.dumps({"pid": os.getpid(), "uri": uri}))
    try:
        yield
    finally:
        with suppress(OSError):
            note.unlink(missing_ok=True)


def database_notes(url: str) -> tuple[Path, str]:
    """(The folder of notes of servers on databases, the pattern of the names of those on this one)."""
    name = sha256(json.dumps(database_parts(url)).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"duckicelake-{os.getuid()}"), f"{name}-*.json"


def noted_uri(folder: Path, pattern: str = _NOTE) -> str | None:
    """Where the lake's server answers; None if none runs (the note of one that was killed doesn't count)."""
    with suppress(OSError):
        if pattern != _NOTE and not _is_own(folder):
            return None
        notes = sorted(folder.glob(pattern), key=lambda note: note.stat().st_mtime, reverse=True)
        return next(filter(None, map(_read, notes)), None)
    return None


def _read(note: Path) -> str | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        fields = json.loads(note.read_text())
        os.kill(int(fields["pid"]), 0)
        return str(fields["uri"])
    return None


def _is_own(folder: Path) -> bool:
    """Whether nobody else may leave notes there."""
    status = folder.lstat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022
