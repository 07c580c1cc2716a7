"""Many readers of one change feed, in a process of their own, which does nothing but note when each was told what."""

import multiprocessing
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from selectors import EVENT_READ, DefaultSelector
from typing import Final
from urllib.parse import urlsplit

_SNAPSHOT: Final = re.compile(rb'"iceberg-snapshot-id":(\d+)')
_PIECE: Final = 1 << 16
_SECONDS: Final = 0.2

Reported = list[tuple[int, float]]
"""(Iceberg snapshot, when by time.perf_counter) of one reader, in the order in which it was told."""


@dataclass(frozen=True, slots=True)
class Readers:
    """They read on until they are ended."""

    _line: Connection

    def end(self) -> list[Reported]:
        """What each was told."""
        self._line.send("end")
        report: list[Reported] = self._line.recv()
        return report


@contextmanager
def reading(uri: str, headers: Mapping[str, str], count: int) -> Iterator[Readers]:
    """So many streams of what is new, all of them begun."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_read, args=(uri, headers, count, theirs))
    process.start()
    try:
        assert ours.recv() == "begun"
        yield Readers(ours)
    finally:
        process.terminate()
        process.join()


def _read(uri: str, headers: Mapping[str, str], count: int, line: Connection) -> None:
    readers = [_Reader(_begin(uri, headers)) for _ in range(count)]
    with DefaultSelector() as selector:
        for reader in readers:
            selector.register(reader.connection, EVENT_READ, reader)
        line.send("begun")
        while not line.poll():
            for key, _ in selector.select(_SECONDS):
                key.data.receive()
    line.send([reader.report for reader in readers])


def _begin(uri: str, headers: Mapping[str, str]) -> socket.socket:
    address = urlsplit(uri)
    connection = socket.create_connection((address.hostname or "", address.port or 80))
    lines = ["GET /v1/events?from=newest HTTP/1.1", "Host: localhost", "Accept: text/event-stream"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    head = b""
    while b"\r\nretry: " not in head:
        head += connection.recv(_PIECE)
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"a reader was refused: {head!r}")
    return connection


@dataclass(slots=True)
class _Reader:
    """One stream. rest: of a line that hasn't come to its end."""

    connection: socket.socket
    report: Reported = field(default_factory=list)
    rest: bytes = b""

    def receive(self) -> None:
        piece, now = self.connection.recv(_PIECE), time.perf_counter()
        if not piece:
            raise RuntimeError("the server ended a stream")
        lines, end, self.rest = (self.rest + piece).rpartition(b"\n")
        self.report += ((int(found), now) for found in _SNAPSHOT.findall(lines + end))
