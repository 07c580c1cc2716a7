"""Commit times of versions, and the version that was current at a time (protocol, "In-Commit Timestamps")."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from duckicelake.delta.log.actions import Metadata
from duckicelake.delta.log.files import LogFiles
from duckicelake.delta.log.segments import LogFile, LogListing, find_newest_version, find_oldest_version
from duckicelake.errors import DamagedLogError, ExpiredError, InvalidRequestError

_YEAR_10000: Final = 253_402_300_800_000
"""Milliseconds of the year 10000. No commit is later, or before 1970."""


@dataclass(frozen=True, slots=True)
class InCommitTimes:
    """The first version with in-commit timestamps, and its time; None: there is none."""

    since_version: int | None = None
    since_ms: int = 0

    def has(self, version: int) -> bool:
        """Return whether the version's time is in its `commitInfo`."""
        return self.since_version is not None and version >= self.since_version


def read_in_commit_times(metadata: Metadata, root: str) -> InCommitTimes:
    """Read the facts from the newest metadata. Without a named version, the table began with in-commit timestamps."""
    configuration = metadata.configuration
    if configuration.get("delta.enableInCommitTimestamps", "").lower() != "true":
        return InCommitTimes()
    try:
        since = int(configuration.get("delta.inCommitTimestampEnablementVersion", "0"))
        since_ms = int(configuration.get("delta.inCommitTimestampEnablementTimestamp", "0"))
    except ValueError as error:
        raise DamagedLogError(f"{root} has an in-commit timestamp that isn't a number: {error}") from error
    return InCommitTimes(since, since_ms)


def read_commit_time(info: Mapping[str, Any], location: str) -> int:
    """Read the in-commit timestamp; DamagedLogError: there is none."""
    stated = info.get("inCommitTimestamp")
    if type(stated) is not int:
        raise DamagedLogError(
            f"{location} has no commitInfo with an inCommitTimestamp, "
            "which the table's property delta.enableInCommitTimestamps promises"
        )
    if not 0 <= stated < _YEAR_10000:
        raise DamagedLogError(f"{location} says of its inCommitTimestamp that it is {stated}: no commit is of then")
    return stated


def compute_file_times(listing: LogListing, oldest: int) -> Mapping[int, int]:
    """Compute milliseconds by version from `oldest` on.

    The time is the log file's, but at least one more than the version's before.

    A version that only a checkpoint holds has the checkpoint's time.
    """
    times: dict[int, int] = {}
    least = None
    for version in range(oldest, (listing.newest or 0) + 1):
        file = _find_commit_file(listing, version)
        if file is not None:
            least = file.modified_ms if least is None else max(file.modified_ms, least + 1)
            times[version] = least
    return times


def _find_commit_file(listing: LogListing, version: int) -> LogFile | None:
    if version in listing.commits:
        return listing.commits[version]
    found = listing.checkpoints.get(version)
    return None if not found else found[0].files[0]


def format_time(timestamp_ms: int) -> str:
    """Format a time for people, in UTC; as milliseconds if no calendar has it."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return moment.isoformat(sep=" ", timespec="milliseconds")


class VersionClock:
    """The times of a log's versions. Its newest metadata says whether commits have them."""

    def __init__(self, files: LogFiles, listing: LogListing, before: "VersionClock | None" = None) -> None:
        """before: the clock of an earlier listing, whose times aren't read again."""
        self._files = files
        self._listing = listing
        self.first, self.last = find_oldest_version(listing), find_newest_version(listing)
        self._file_times = compute_file_times(listing, self.first)
        self.in_commit = self._in_commit_times(before)

    def belongs_to(self, listing: LogListing) -> bool:
        """Return whether this is the clock of a listing."""
        return self._listing is listing

    def time(self, version: int) -> int:
        """Return the time of a readable version, in milliseconds."""
        commit = self._listing.commits.get(version)
        if not self.in_commit.has(version) or commit is None:
            return self.file_time(version)
        return read_commit_time(self._files.actions(commit.location).info, commit.location)

    def file_time(self, version: int) -> int:
        """Return the time by the file alone, also of a file before the oldest version."""
        commit = self._listing.commits.get(version)
        return self._file_times[version] if commit is None or version >= self.first else commit.modified_ms

    def version_at(self, timestamp_ms: int) -> int:
        """Return the newest version at a time.

        ExpiredError or InvalidRequestError: the time is before the first, or after the last version.
        """
        self._check(timestamp_ms)
        since = self.in_commit.since_version
        if since is None or since > self.last:
            return self._latest(timestamp_ms, self.first, self.last)
        if since <= self.first or timestamp_ms >= self.in_commit.since_ms:
            return self._latest(timestamp_ms, max(self.first, since), self.last)
        return self._latest(timestamp_ms, self.first, since - 1)

    def _check(self, timestamp_ms: int) -> None:
        first, last = self.time(self.first), self.time(self.last)
        if timestamp_ms < first:
            kind = InvalidRequestError if self.first == 0 else ExpiredError
            raise kind(
                f"{self._files.root} wasn't there at {format_time(timestamp_ms)}, as far as its log goes: "
                f"version {self.first}, the oldest, is of {format_time(first)}"
            )
        if timestamp_ms > last:
            raise InvalidRequestError(
                f"{format_time(timestamp_ms)} is after the newest version of {self._files.root}, "
                f"which is {self.last} of {format_time(last)}: leave the time out to read that"
            )

    def _latest(self, timestamp_ms: int, first: int, last: int) -> int:
        """Return the last of some versions at a time, by bisection: times increase."""
        while first < last:
            middle = (first + last + 1) // 2
            first, last = (middle, last) if self.time(middle) <= timestamp_ms else (first, middle - 1)
        return first

    def _in_commit_times(self, before: "VersionClock | None") -> InCommitTimes:
        found = self._newest_metadata(-1 if before is None else before.last)
        if found is not None:
            return read_in_commit_times(found, self._files.root)
        return InCommitTimes() if before is None else before.in_commit

    def _newest_metadata(self, known: int) -> Metadata | None:
        """Return the newest metadata of the versions after `known`; None without any. Torn files raise elsewhere."""
        lower, upper = max(known, self.first - 1), self.last
        checkpoints = sorted((version for version in self._listing.checkpoints if version > lower), reverse=True)
        for base in (*checkpoints, lower + 1):
            found = self._of_commits(base, upper) or self._of_checkpoint(base)
            if found is not None:
                return found
            upper = base - 1
        return None

    def _of_commits(self, first: int, last: int) -> Metadata | None:
        commits = self._listing.commits
        locations = [commits[version].location for version in range(last, first - 1, -1) if version in commits]
        return next(filter(None, self._files.read_metadata_at(locations)), None)

    def _of_checkpoint(self, version: int) -> Metadata | None:
        found = None
        for checkpoint in self._listing.checkpoints.get(version, ()):
            with suppress(DamagedLogError):
                found = found or self._files.checkpoint_metadata(checkpoint)
        return found
