"""PURE. Which files of a log tell a version: a checkpoint, or the very start, and what was logged since."""

from collections.abc import Iterator
from dataclasses import dataclass

from duckicelake.delta.listing import Checkpoint, Compaction, Listing
from duckicelake.delta.store import LogFile
from duckicelake.errors import DamagedLog, Forgotten, InvalidRequest


@dataclass(frozen=True, slots=True)
class Segment:
    """Files that tell a version, `tail` in order: commits, and compactions that stand for several."""

    checkpoint: Checkpoint | None
    tail: tuple[LogFile, ...]


def newest(listing: Listing) -> int:
    """The newest version of a log that holds something; DamagedLog if that is only checkpoints with missing parts."""
    if listing.newest is None:
        name = next(iter(listing.torn.values()), f"{0:020}.json")
        raise DamagedLog(f"the log of {listing.root} can't be read from: {name} is missing")
    return listing.newest


def oldest(listing: Listing) -> int:
    """The oldest version from which on every one can be told; DamagedLog naming the gap if the newest can't be."""
    first = newest(listing)
    while first - 1 in listing.commits and first in listing.commits:
        first -= 1
    if first in listing.commits and first == 0:
        return 0
    base = first - 1 if first in listing.commits else first
    found = min((version for version in listing.checkpoints if version >= base), default=None)
    if found is None:
        raise _gap(listing, base)
    return found


def check_version(listing: Listing, version: int) -> None:
    """Raise InvalidRequest for a version that never was, Forgotten for one that the log no longer tells."""
    last = newest(listing)
    if not 0 <= version <= last:
        raise InvalidRequest(f"{listing.root} has no version {version}: its newest is {last}")
    if version < oldest(listing):
        raise Forgotten(
            f"{listing.root} can't be read at version {version} any more: its log was cleaned up, "
            f"and the oldest version that it still tells is {oldest(listing)}"
        )


def segments(listing: Listing, version: int) -> Iterator[Segment]:
    """The ways to a version, at least one, the newest checkpoint's first; DamagedLog names what all of them lack."""
    bases = sorted((each for each in listing.checkpoints if each <= version), reverse=True)
    found = False
    for base in bases:
        tail = _tail(listing, base, version)
        if tail is None:
            continue
        for checkpoint in listing.checkpoints[base]:
            found = True
            yield Segment(checkpoint, tail)
    start = _tail(listing, -1, version)
    if start is not None:
        yield Segment(None, start)
    elif not found:
        raise _gap(listing, _first_missing(listing, bases[0] if bases else -1, version))


def _tail(listing: Listing, after: int, upto: int) -> tuple[LogFile, ...] | None:
    """The fewest files that tell `after` + 1 … `upto`; None if one is missing."""
    files: list[LogFile] = []
    version = after + 1
    while version <= upto:
        compaction = _longest(listing, version, upto)
        if compaction is not None:
            files.append(compaction.file)
            version = compaction.last + 1
        elif version in listing.commits:
            files.append(listing.commits[version])
            version += 1
        else:
            return None
    return tuple(files)


def _longest(listing: Listing, first: int, upto: int) -> Compaction | None:
    fitting = (each for each in listing.compactions if each.first == first and first < each.last <= upto)
    return max(fitting, key=lambda each: each.last, default=None)


def _first_missing(listing: Listing, after: int, upto: int) -> int:
    return next((version for version in range(after + 1, upto + 1) if version not in listing.commits), upto)


def _gap(listing: Listing, version: int) -> DamagedLog:
    torn = listing.torn.get(version)
    more = f", and its checkpoint lacks {torn}" if torn else ""
    return DamagedLog(
        f"version {version} is missing from the log of {listing.root}: "
        f"there is no {listing.commit_name(version)}{more}; "
        "no later checkpoint stands in for it, so restore the file, or the table can't be read"
    )
