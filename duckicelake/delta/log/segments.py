"""PURE. Files of a `_delta_log` by name, and the fewest that give a version (protocol, "Delta Log Entries")."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from duckicelake.errors import DamagedLogError, ExpiredError, InvalidRequestError

FOLDER: Final = "_delta_log"
_VERSION: Final = r"(00[0-9]{18})"
"""A version in a file name. Higher ones, which not all readers take for numbers, don't occur."""
_COMMIT: Final = re.compile(rf"{_VERSION}\.json")
_COMPACTED: Final = re.compile(rf"{_VERSION}\.{_VERSION}\.compacted\.json")
_CLASSIC: Final = re.compile(rf"{_VERSION}\.checkpoint\.parquet")
_PART: Final = re.compile(rf"{_VERSION}\.checkpoint\.([0-9]{{10}})\.([0-9]{{10}})\.parquet")
_UUID_NAMED: Final = re.compile(rf"{_VERSION}\.checkpoint\.[0-9A-Fa-f-]{{36}}\.(?:json|parquet)")


class LogFile(Protocol):
    """A file in a listing: canonical location, bytes, and time of the write by the store's clock."""

    @property
    def location(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def modified_ms(self) -> int: ...


class LogStore(Protocol):
    """Files by location, in any spelling.

    Raises FileMissingError if there is none, UnavailableError if the store doesn't answer.

    Threads read from it at once if it is no file system.
    """

    def read(self, location: str, at_most: int | None = None) -> bytes:
        """Read the whole file; InvalidRequestError: it has more bytes than `at_most`."""

    def files_below(self, folder: str) -> Iterator[LogFile]:
        """Yield all files below a folder, in no order; none if it doesn't exist."""

    def size(self, location: str) -> int:
        """Return the file's length in bytes."""

    def local_path(self, location: str) -> Path | None:
        """Return the file's path on this machine, or None if the store isn't a file system."""


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The table's whole state at a version: one file, or all parts of a multi-part one in order."""

    version: int
    files: tuple[LogFile, ...]


class LogCompaction(NamedTuple):
    """The commits `first` … `last` combined into one file."""

    first: int
    last: int
    file: LogFile


@dataclass(frozen=True)
class LogListing:
    """A listing of a log. Checkpoints with missing parts are in `torn`."""

    root: str
    commits: Mapping[int, LogFile] = field(default_factory=dict)
    checkpoints: Mapping[int, tuple[CheckpointFiles, ...]] = field(default_factory=dict)
    compactions: tuple[LogCompaction, ...] = ()
    torn: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def newest(self) -> int | None:
        """The newest version; None if there is none at all."""
        return max((*self.commits, *self.checkpoints), default=None)

    def commit_name(self, version: int) -> str:
        """Return the location of a version's log file, whether it exists or not."""
        return f"{self.root.rstrip('/')}/{FOLDER}/{version:020}.json"


def has_hole(listing: LogListing) -> bool:
    """Return whether a commit is missing between others."""
    return bool(listing.commits) and max(listing.commits) - min(listing.commits) >= len(listing.commits)


def parse_listing(root: str, files: Iterable[LogFile]) -> LogListing:
    """Parse the listing of a table's log. files: all below its `_delta_log`; others are ignored."""
    commits: dict[int, LogFile] = {}
    whole: dict[int, list[CheckpointFiles]] = {}
    parts: dict[tuple[int, int], dict[int, LogFile]] = {}
    compactions: list[LogCompaction] = []
    for file in files:
        name = file.location.rpartition(f"/{FOLDER}/")[2]
        if match := _COMMIT.fullmatch(name):
            commits[int(match[1])] = file
        elif match := _UUID_NAMED.fullmatch(name) or _CLASSIC.fullmatch(name):
            version = int(match[1])
            whole.setdefault(version, []).append(CheckpointFiles(version, (file,)))
        elif match := _PART.fullmatch(name):
            parts.setdefault((int(match[1]), int(match[3])), {})[int(match[2])] = file
        elif match := _COMPACTED.fullmatch(name):
            compactions.append(LogCompaction(int(match[1]), int(match[2]), file))
    torn = _join_parts(parts, whole)
    checkpoints = {version: tuple(sorted(found, key=_parse_name, reverse=True)) for version, found in whole.items()}
    return LogListing(root, commits, checkpoints, tuple(compactions), torn)


def _parse_name(checkpoint: CheckpointFiles) -> tuple[int, str]:
    return -len(checkpoint.files), checkpoint.files[0].location


def _join_parts(
    parts: Mapping[tuple[int, int], Mapping[int, LogFile]], whole: dict[int, list[CheckpointFiles]]
) -> dict[int, str]:
    """Join complete checkpoints; return by version the missing parts of others."""
    torn: dict[int, str] = {}
    for (version, count), found in parts.items():
        missing = next((part for part in range(1, count + 1) if part not in found), None)
        if missing is not None:
            torn[version] = f"{version:020}.checkpoint.{missing:010}.{count:010}.parquet"
        else:
            files = tuple(found[part] for part in range(1, count + 1))
            whole.setdefault(version, []).append(CheckpointFiles(version, files))
    return torn


@dataclass(frozen=True, slots=True)
class LogSegment:
    """Files that make a version. tail: commits in order, and compactions for several."""

    checkpoint: CheckpointFiles | None
    tail: tuple[LogFile, ...]


def find_newest_version(listing: LogListing) -> int:
    """Find the newest version of a log that isn't empty.

    DamagedLogError: it has only checkpoints with missing parts.
    """
    if listing.newest is None:
        name = next(iter(listing.torn.values()), f"{0:020}.json")
        raise DamagedLogError(f"the log of {listing.root} can't be read from: {name} is missing")
    return listing.newest


def find_oldest_version(listing: LogListing) -> int:
    """Find the oldest version from which on all are readable.

    DamagedLogError names the gap: the newest can't be read.
    """
    first = find_newest_version(listing)
    while first - 1 in listing.commits and first in listing.commits:
        first -= 1
    if first in listing.commits and first == 0:
        return 0
    base = first - 1 if first in listing.commits else first
    found = min((version for version in listing.checkpoints if version >= base), default=None)
    if found is None:
        raise _build_gap_error(listing, base)
    return found


def check_version(listing: LogListing, version: int) -> None:
    """Raise InvalidRequestError for a version that never existed, ExpiredError for one that is gone."""
    last = find_newest_version(listing)
    if not 0 <= version <= last:
        raise InvalidRequestError(f"{listing.root} has no version {version}: its newest is {last}")
    if version < find_oldest_version(listing):
        raise ExpiredError(
            f"{listing.root} can't be read at version {version} any more: its log was cleaned up, "
            f"and the oldest version that it still has is {find_oldest_version(listing)}"
        )


def find_segments(listing: LogListing, version: int) -> Iterator[LogSegment]:
    """Yield the segments that give a version, at least one, the newest checkpoint's first.

    DamagedLogError names what all of them lack.
    """
    bases = sorted((checkpoint for checkpoint in listing.checkpoints if checkpoint <= version), reverse=True)
    found = False
    for base in bases:
        tail = _find_tail(listing, base, version)
        if tail is None:
            continue
        for checkpoint in listing.checkpoints[base]:
            found = True
            yield LogSegment(checkpoint, tail)
    start = _find_tail(listing, -1, version)
    if start is not None:
        yield LogSegment(None, start)
    elif not found:
        raise _build_gap_error(listing, _find_first_missing(listing, bases[0] if bases else -1, version))


def _find_tail(listing: LogListing, after: int, upto: int) -> tuple[LogFile, ...] | None:
    """Find the fewest files with the versions `after` + 1 … `upto`; None if one is missing."""
    files: list[LogFile] = []
    version = after + 1
    while version <= upto:
        compaction = _find_longest_compaction(listing, version, upto)
        if compaction is not None:
            files.append(compaction.file)
            version = compaction.last + 1
        elif version in listing.commits:
            files.append(listing.commits[version])
            version += 1
        else:
            return None
    return tuple(files)


def _find_longest_compaction(listing: LogListing, first: int, upto: int) -> LogCompaction | None:
    fitting = (
        compaction
        for compaction in listing.compactions
        if compaction.first == first and first < compaction.last <= upto
    )
    return max(fitting, key=lambda compaction: compaction.last, default=None)


def _find_first_missing(listing: LogListing, after: int, upto: int) -> int:
    return next((version for version in range(after + 1, upto + 1) if version not in listing.commits), upto)


def _build_gap_error(listing: LogListing, version: int) -> DamagedLogError:
    torn = listing.torn.get(version)
    more = f", and its checkpoint lacks {torn}" if torn else ""
    return DamagedLogError(
        f"version {version} is missing from the log of {listing.root}: "
        f"there is no {listing.commit_name(version)}{more}; "
        "no later checkpoint stands in for it, so restore the file, or the table can't be read"
    )
