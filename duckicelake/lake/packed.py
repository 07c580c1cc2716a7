"""PURE. JSON kept as text until it is read: parsed values take ten times the memory."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from duckicelake.lake.model import ColumnStats


class Packed(Mapping[str, Any]):
    """A JSON object as text, parsed whenever it is looked into."""

    __slots__ = ("text",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.text = _encode_compact(values)

    def __getitem__(self, key: str) -> Any:
        return self.unpack()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.unpack())

    def __len__(self) -> int:
        return len(self.unpack())

    def unpack(self) -> dict[str, Any]:
        """Parse the text once, and return all of it."""
        values: dict[str, Any] = orjson.loads(self.text)
        return values


class PackedStats(Sequence[ColumnStats]):
    """The statistics of one file's columns, packed likewise."""

    __slots__ = ("_kept",)

    def __init__(self, rows: Sequence[ColumnStats]) -> None:
        self._kept = _encode_compact([tuple(row) for row in rows])

    @classmethod
    def from_values(cls, rows: Sequence[Sequence[object]]) -> "PackedStats":
        """Pack rows that are the fields of ColumnStats, in their order."""
        return cls.from_text(_encode_compact(rows))

    @classmethod
    def from_text(cls, text: bytes) -> "PackedStats":
        """Pack rows of the fields of ColumnStats that are JSON."""
        made = cls.__new__(cls)
        made._kept = text  # noqa: SLF001
        return made

    def deflate(self) -> "PackedStats":
        """Compress to a third of the memory, for rows that wait to be written; reading them takes twice as long."""
        return self.from_text(zlib.compress(self.text, 1))

    @property
    def text(self) -> bytes:
        """All of it as JSON."""
        return self._kept if self._kept.startswith(b"[") else zlib.decompress(self._kept)

    def __getitem__(self, index: Any) -> Any:
        return self.unpack()[index]

    def __iter__(self) -> Iterator[ColumnStats]:
        return iter(self.unpack())

    def __len__(self) -> int:
        return len(self.unpack())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PackedStats) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def unpack(self) -> tuple[ColumnStats, ...]:
        return tuple(ColumnStats(*row) for row in self.values())

    def values(self) -> list[list[Any]]:
        """Return the fields of each row, in their order."""
        rows: list[list[Any]] = orjson.loads(self.text)
        return rows


def _encode_compact(value: object) -> bytes:
    """Encode JSON in bytes of its own length: orjson's result keeps several times as much memory, a copy does not."""
    return bytes(memoryview(orjson.dumps(value)))
