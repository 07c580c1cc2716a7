"""PURE. The files of a `_delta_log` by what they are, told from their names (protocol, "Delta Log Entries").

Nothing relies on `_last_checkpoint`, which may be absent, stale or wrong: it only spares a listing, and is a hint.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from duckicelake.delta.store import LogFile

FOLDER: Final = "_delta_log"

_VERSION: Final = r"(00[0-9]{18})"
"""As a name has it; higher ones, which aren't numbers to every reader, no table gets to."""
_COMMIT: Final = re.compile(rf"{_VERSION}\.json")
_COMPACTED: Final = re.compile(rf"{_VERSION}\.{_VERSION}\.compacted\.json")
_CLASSIC: Final = re.compile(rf"{_VERSION}\.checkpoint\.parquet")
_PART: Final = re.compile(rf"{_VERSION}\.checkpoint\.([0-9]{{10}})\.([0-9]{{10}})\.parquet")
_UUID_NAMED: Final = re.compile(rf"{_VERSION}\.checkpoint\.[0-9A-Fa-f-]{{36}}\.(?:json|parquet)")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The table's whole state at a version: one file, or all parts of a multi-part one in order."""

    version: int
    files: tuple[LogFile, ...]


class Compaction(NamedTuple):
    """What the commits `first` … `last` come to, as one file."""

    first: int
    last: int
    file: LogFile


@dataclass(frozen=True)
class Listing:
    """A log as it was listed; checkpoints with missing parts aren't among its checkpoints, but in `torn`."""

    root: str
    commits: Mapping[int, LogFile] = field(default_factory=dict)
    checkpoints: Mapping[int, tuple[Checkpoint, ...]] = field(default_factory=dict)
    compactions: tuple[Compaction, ...] = ()
    torn: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def newest(self) -> int | None:
        """The newest version; None if there is none at all."""
        return max((*self.commits, *self.checkpoints), default=None)

    def commit_name(self, version: int) -> str:
        """Where the log file of a version is, or should be."""
        return f"{self.root.rstrip('/')}/{FOLDER}/{version:020}.json"


def has_hole(listing: Listing) -> bool:
    """Whether commits are missing between those that are there."""
    return bool(listing.commits) and max(listing.commits) - min(listing.commits) >= len(listing.commits)


def listing_of(root: str, files: Iterable[LogFile]) -> Listing:
    """What a table's log holds; `files` are all below its `_delta_log`, others are passed over."""
    commits: dict[int, LogFile] = {}
    whole: dict[int, list[Checkpoint]] = {}
    parts: dict[tuple[int, int], dict[int, LogFile]] = {}
    compactions: list[Compaction] = []
    for file in files:
        name = file.location.rpartition(f"/{FOLDER}/")[2]
        if match := _COMMIT.fullmatch(name):
            commits[int(match[1])] = file
        elif match := _UUID_NAMED.fullmatch(name) or _CLASSIC.fullmatch(name):
            version = int(match[1])
            whole.setdefault(version, []).append(Checkpoint(version, (file,)))
        elif match := _PART.fullmatch(name):
            parts.setdefault((int(match[1]), int(match[3])), {})[int(match[2])] = file
        elif match := _COMPACTED.fullmatch(name):
            compactions.append(Compaction(int(match[1]), int(match[2]), file))
    torn = _join_parts(parts, whole)
    checkpoints = {version: tuple(sorted(found, key=_name, reverse=True)) for version, found in whole.items()}
    return Listing(root, commits, checkpoints, tuple(compactions), torn)


def _name(checkpoint: Checkpoint) -> tuple[int, str]:
    return -len(checkpoint.files), checkpoint.files[0].location


def _join_parts(
    parts: Mapping[tuple[int, int], Mapping[int, LogFile]], whole: dict[int, list[Checkpoint]]
) -> dict[int, str]:
    """Put together what is complete; give what the others lack, by version."""
    torn: dict[int, str] = {}
    for (version, count), found in parts.items():
        missing = next((part for part in range(1, count + 1) if part not in found), None)
        if missing is not None:
            torn[version] = f"{version:020}.checkpoint.{missing:010}.{count:010}.parquet"
        else:
            files = tuple(found[part] for part in range(1, count + 1))
            whole.setdefault(version, []).append(Checkpoint(version, files))
    return torn
