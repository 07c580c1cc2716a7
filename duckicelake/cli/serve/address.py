"""The socket that a server listens on, and the note in which commands find its URI."""

import errno
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from duckicelake.errors import StartupError
from duckicelake.postgres.embedded import extract_database_parts

_BACKLOG_CONNECTIONS = 2048
_WILDCARD_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
_NOTE_NAME: Final = ".server.json"


def bind(host: str, port: int) -> socket.socket:
    """Bind a TCP socket, to which clients can connect after `listen`; port 0 picks a free port.

    Raises StartupError, which says what to do.
    """
    with _explain_errors(host, port):
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        bound = socket.socket(family)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind((host, port))
        except OSError:
            bound.close()
            raise
    # Connections inherit TCP_NODELAY; asyncio sets it only on sockets that it makes. Without it every response waits
    # 40 ms for the client's delayed acknowledgement of the headers.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def listen(bound: socket.socket) -> None:
    """Let clients connect. Raises as `bind` if another process listens at the address."""
    with _explain_errors(*bound.getsockname()[:2]):
        bound.listen(_BACKLOG_CONNECTIONS)


@contextmanager
def _explain_errors(host: str, port: int) -> Iterator[None]:
    """Turn an OSError into a StartupError, which says what to do."""
    try:
        yield
    except OSError as error:
        raise StartupError(_explain(error, host, port)) from error


def find_uri(listener: socket.socket, *, is_tls: bool = False) -> str:
    """Return the URI for clients on this machine."""
    host, port = listener.getsockname()[:2]
    return build_uri(host, port, is_tls=is_tls)


def build_uri(host: str, port: int, *, is_tls: bool = False) -> str:
    """Build the URI of a server on this machine; the wildcard address becomes loopback."""
    reachable = _WILDCARD_ADDRESSES.get(host, host)
    authority = f"[{reachable}]" if ":" in reachable else reachable
    return f"{'https' if is_tls else 'http'}://{authority}:{port}"


def _explain(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; choose another with --port, or let --port 0 find a free one"
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges that this user lacks; choose one above 1023 with --port"
    return f"can't listen on {host}:{port}: {error.strerror or error}; choose an address of this machine with --host"


@contextmanager
def note_server(lake: Path, uri: str) -> Iterator[None]:
    """Write the note, and remove it after the block. The caller must hold the lake: a folder has one note."""
    note = lake / _NOTE_NAME
    note.write_text(json.dumps({"pid": os.getpid(), "uri": uri}))
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


@contextmanager
def note_database_server(url: str, uri: str) -> Iterator[None]:
    """Write a note, and remove it after the block; no note if the folder can't be created or isn't this user's."""
    folder, pattern = find_database_notes(url)
    note = folder / pattern.replace("*", str(os.getpid()))
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        if _is_private(folder):
            note.write_text(json.dumps({"pid": os.getpid(), "uri": uri}))
    try:
        yield
    finally:
        with suppress(OSError):
            note.unlink(missing_ok=True)


def find_database_notes(url: str) -> tuple[Path, str]:
    """Return the folder of notes of servers on databases, and the name pattern for this database."""
    name = sha256(json.dumps(extract_database_parts(url)).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"duckicelake-{os.getuid()}"), f"{name}-*.json"


def read_noted_uri(folder: Path, pattern: str = _NOTE_NAME) -> str | None:
    """Return the URI of the lake's server; None if none runs (the note of a killed server is ignored)."""
    with suppress(OSError):
        if pattern != _NOTE_NAME and not _is_private(folder):
            return None
        notes = sorted(folder.glob(pattern), key=lambda note: note.stat().st_mtime, reverse=True)
        return next(filter(None, map(_read_note, notes)), None)
    return None


def _read_note(note: Path) -> str | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        fields = json.loads(note.read_text())
        os.kill(int(fields["pid"]), 0)
        return str(fields["uri"])
    return None


def _is_private(folder: Path) -> bool:
    """Return whether no other user may write notes there."""
    status = folder.lstat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022
