"""PURE. When manifests are packed, and how large they become: Iceberg's table properties `commit.manifest.*`.

Values that Iceberg's libraries wouldn't understand count as not set: they were never checked.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

PACK: Final = 10
"""Manifests of a kind that are packed together, where `commit.manifest.min-count-to-merge` says nothing else."""
LARGEST: Final = 10_000
"""Files that a manifest is made of at most, and from which on it isn't packed any more."""
_FULL: Final = 0.75
"""Of the target size. Ten manifests that are smaller become eight at most, so that none is packed again and again."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How a table packs its manifests: `min_count` of a kind, into ones of `target_bytes` at most."""

    is_enabled: bool = True
    min_count: int = PACK
    target_bytes: int | None = None

    def is_full(self, files: int, length: int | None) -> bool:
        """Whether a manifest stays as it is. length: in bytes, if it is known."""
        if files >= LARGEST:
            return True
        return self.target_bytes is not None and length is not None and length >= _FULL * self.target_bytes

    def most_files(self, manifests: Iterable[tuple[int, int | None]]) -> int:
        """How many files of these manifests one should hold, each of which is its number of files and its length."""
        known = [(files, length) for files, length in manifests if length is not None]
        size, count = sum(length for _, length in known), sum(files for files, _ in known)
        if self.target_bytes is None or not size:
            return LARGEST
        return max(1, min(LARGEST, self.target_bytes * count // size))


DEFAULT: Final = Packing()


def portions(files: Sequence[T], most: int | None = None) -> Iterator[Sequence[T]]:
    """Divide files into those of one manifest after the other. most: of one, if not `LARGEST`."""
    step = most or LARGEST
    return (files[start : start + step] for start in range(0, len(files), step))


def packing_of(properties: Mapping[str, str]) -> Packing:
    """How a table with these properties packs its manifests."""
    enabled = properties.get("commit.manifest-merge.enabled", "true").strip().lower() != "false"
    count = _number(properties.get("commit.manifest.min-count-to-merge"))
    target = _number(properties.get("commit.manifest.target-size-bytes"))
    if enabled and count is None and target is None:
        return DEFAULT
    return Packing(enabled, PACK if count is None else max(2, count), target or None)


def _number(text: str | None) -> int | None:
    """A number that Java reads as an int or a long."""
    text = (text or "").strip()
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else None
