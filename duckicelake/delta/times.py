"""PURE. When versions were committed: by their files' times, made to increase, or as commits say themselves.

The protocol calls the latter "In-Commit Timestamps"; Delta does the former in its history manager.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from duckicelake.delta.actions import Metadata
from duckicelake.delta.listing import Listing
from duckicelake.delta.store import LogFile
from duckicelake.errors import DamagedLog

_YEAR_10000: Final = 253_402_300_800_000
"""In milliseconds; from then on, and before 1970, no commit is made."""


@dataclass(frozen=True, slots=True)
class InCommitTimes:
    """From which version on commits say when they were made, and when that began; None: they never do."""

    since_version: int | None = None
    since_ms: int = 0

    def has(self, version: int) -> bool:
        """Whether the version's time is what its `commitInfo` says."""
        return self.since_version is not None and version >= self.since_version


def in_commit_times(metadata: Metadata, root: str) -> InCommitTimes:
    """What the newest metadata says about it; the table began with it unless a version is named."""
    configuration = metadata.configuration
    if configuration.get("delta.enableInCommitTimestamps", "").lower() != "true":
        return InCommitTimes()
    try:
        since = int(configuration.get("delta.inCommitTimestampEnablementVersion", "0"))
        since_ms = int(configuration.get("delta.inCommitTimestampEnablementTimestamp", "0"))
    except ValueError as error:
        raise DamagedLog(f"{root} says of its in-commit timestamps what isn't a number: {error}") from error
    return InCommitTimes(since, since_ms)


def stated_time(info: Mapping[str, Any], location: str) -> int:
    """What a commit says that its time is; DamagedLog if it doesn't."""
    stated = info.get("inCommitTimestamp")
    if type(stated) is not int:
        raise DamagedLog(
            f"{location} has no commitInfo with an inCommitTimestamp, "
            "which the table's property delta.enableInCommitTimestamps promises"
        )
    if not 0 <= stated < _YEAR_10000:
        raise DamagedLog(f"{location} says of its inCommitTimestamp that it is {stated}: no commit is of then")
    return stated


def file_times(listing: Listing, oldest: int) -> Mapping[int, int]:
    """Milliseconds by version from `oldest` on: the log file's, but later than the version's before by one at least.

    A version that only a checkpoint tells has the checkpoint's time.
    """
    times: dict[int, int] = {}
    least = None
    for version in range(oldest, (listing.newest or 0) + 1):
        file = _file_of(listing, version)
        if file is not None:
            least = file.modified_ms if least is None else max(file.modified_ms, least + 1)
            times[version] = least
    return times


def _file_of(listing: Listing, version: int) -> LogFile | None:
    if version in listing.commits:
        return listing.commits[version]
    found = listing.checkpoints.get(version)
    return None if not found else found[0].files[0]


def shown(timestamp_ms: int) -> str:
    """A time as people read it, in UTC; as milliseconds if no calendar has it."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return moment.isoformat(sep=" ", timespec="milliseconds")
