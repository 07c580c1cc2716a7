"""When the versions of a log were committed, and which was there at a time."""

from contextlib import suppress

from duckicelake.delta.actions import Metadata
from duckicelake.delta.files import LogFiles
from duckicelake.delta.listing import Listing
from duckicelake.delta.segments import newest, oldest
from duckicelake.delta.times import InCommitTimes, file_times, in_commit_times, shown, stated_time
from duckicelake.errors import DamagedLog, Forgotten, InvalidRequest


class Clock:
    """The times of a log's versions, by its newest metadata, which says whether commits state them themselves."""

    def __init__(self, files: LogFiles, listing: Listing, before: "Clock | None" = None) -> None:
        """`before` is the clock of an earlier listing: of what it has read, nothing is read again."""
        self._files = files
        self._listing = listing
        self.first, self.last = oldest(listing), newest(listing)
        self._file_times = file_times(listing, self.first)
        self.in_commit = self._in_commit_times(before)

    def is_of(self, listing: Listing) -> bool:
        """Whether this is the clock of a listing."""
        return self._listing is listing

    def time(self, version: int) -> int:
        """Milliseconds of a version from the oldest on that can be told."""
        commit = self._listing.commits.get(version)
        if not self.in_commit.has(version) or commit is None:
            return self.file_time(version)
        return stated_time(self._files.actions(commit.location).info, commit.location)

    def file_time(self, version: int) -> int:
        """The same by the file alone; one from before the oldest version has its file's."""
        commit = self._listing.commits.get(version)
        return self._file_times[version] if commit is None or version >= self.first else commit.modified_ms

    def version_at(self, timestamp_ms: int) -> int:
        """The newest version that isn't later; Forgotten or InvalidRequest if there is none, or none yet."""
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
            kind = InvalidRequest if self.first == 0 else Forgotten
            raise kind(
                f"{self._files.root} wasn't there at {shown(timestamp_ms)}, as far as its log tells: "
                f"version {self.first}, the oldest, is of {shown(first)}"
            )
        if timestamp_ms > last:
            raise InvalidRequest(
                f"{shown(timestamp_ms)} is after the newest version of {self._files.root}, "
                f"which is {self.last} of {shown(last)}: leave the time out to read that"
            )

    def _latest(self, timestamp_ms: int, first: int, last: int) -> int:
        """The last of some versions that isn't later, by bisection: their times increase."""
        while first < last:
            middle = (first + last + 1) // 2
            first, last = (middle, last) if self.time(middle) <= timestamp_ms else (first, middle - 1)
        return first

    def _in_commit_times(self, before: "Clock | None") -> InCommitTimes:
        found = self._newest_metadata(-1 if before is None else before.last)
        if found is not None:
            return in_commit_times(found, self._files.root)
        return InCommitTimes() if before is None else before.in_commit

    def _newest_metadata(self, known: int) -> Metadata | None:
        """That of the versions after `known`; None if they set none. Readers are told of torn files, not here."""
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
        return next(filter(None, self._files.metadata_of(locations)), None)

    def _of_checkpoint(self, version: int) -> Metadata | None:
        found = None
        for checkpoint in self._listing.checkpoints.get(version, ()):
            with suppress(DamagedLog):
                found = found or self._files.checkpoint_metadata(checkpoint)
        return found
