"""PURE. Folders in buckets, which keys of clients may reach."""

import re
from dataclasses import dataclass
from typing import Final

from duckicelake.errors import InvalidRequestError
from duckicelake.storage.policy import BUCKET_SCHEMES, canonicalize

_UNSCOPED_PATTERNS: Final = {"s3": re.compile(r"[*?$]"), "gs": re.compile(r"['\"\\\\]")}
"""What can't be written in the policy that bounds keys of a store."""


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """A folder in a bucket. location: as clients spell it, with a trailing slash."""

    location: str
    is_writable: bool = False

    @property
    def scheme(self) -> str:
        """The canonical scheme of the store."""
        return canonicalize(self.location).partition("://")[0]

    @property
    def bucket(self) -> str:
        """The bucket; in Azure the container with the account's host."""
        return _split_location(self.location)[0]

    @property
    def key(self) -> str:
        """The prefix of keys below the folder: ends in a slash, or is empty for the whole bucket."""
        return _split_location(self.location)[1]

    def holds(self, bucket: str, key: str) -> bool:
        """Return whether an object of that key lies below."""
        return bucket == self.bucket and key.startswith(self.key) and key != self.key


def parse_folder(location: str, *, is_writable: bool = False) -> StoreFolder | None:
    """Parse a location into a folder; None unless it lies in a bucket, and keys can be bounded to it."""
    try:
        scheme = canonicalize(location).partition("://")[0]
    except InvalidRequestError:
        return None
    unscoped = _UNSCOPED_PATTERNS.get(scheme)
    if scheme not in BUCKET_SCHEMES or (unscoped is not None and unscoped.search(location)):
        return None
    return StoreFolder(location.rstrip("/") + "/", is_writable)


def _split_location(location: str) -> tuple[str, str]:
    bucket, _, key = canonicalize(location).partition("://")[2].partition("/")
    return bucket, f"{key}/" if key else ""
