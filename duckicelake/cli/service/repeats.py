"""Requests that were answered so that they may be answered again (`server.quick.repeats`), of one process."""

from hashlib import sha256
from typing import Final

from duckicelake.server.quick.repeats import Repeat

Key = tuple[str, bytes]
_REMEMBERED: Final = 4096


class Repeats:
    """By digest, for what is sent holds tokens; those that were learnt first are forgotten first."""

    def __init__(self) -> None:
        self._known: dict[Key, Repeat] = {}

    def find(self, key: Key) -> Repeat | None:
        return self._known.get(key)

    def learn(self, key: Key, repeat: Repeat) -> None:
        self._known.pop(key, None)
        self._known[key] = repeat
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]


def key_of(address: str, request: bytes) -> Key:
    """request: all that was sent of it."""
    return address, sha256(request).digest()
