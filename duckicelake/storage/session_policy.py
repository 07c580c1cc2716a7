"""The IAM session policies that narrow temporary keys down to some folders of S3: pure, from folders to JSON.

Every folder ends in `/`, so `orders/` never reaches `orders2/`. IAM reads `*`, `?` and `${…}` in a policy as patterns
and has no escape that all stores know (AWS: `${*}`; MinIO takes that for a pattern), so folders that hold one get none.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from duckicelake.errors import InvalidRequest
from duckicelake.storage.policy import canonical

MOST_CHARACTERS: Final = 2048
"""What AWS takes as an inline session policy."""
MOST_POLICIES: Final = 8
"""Of how many policies, each with keys of its own, the folders of one table may make use."""

READING: Final = ("s3:GetObject",)
WRITING: Final = (
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
)
"""Clients delete what they wrote for a commit that failed, and the files of snapshots that they expire."""
_PATTERN: Final = re.compile(r"[*?$]")


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of S3. location: as clients spell it, with a trailing slash."""

    location: str
    is_writable: bool = False

    @property
    def bucket(self) -> str:
        return _parts(self.location)[0]

    @property
    def key(self) -> str:
        """What keys below the folder begin with: ends in a slash, or is empty for the whole bucket."""
        return _parts(self.location)[1]

    def holds(self, bucket: str, key: str) -> bool:
        """Whether an object of that key lies below."""
        return bucket == self.bucket and key.startswith(self.key) and key != self.key


@dataclass(frozen=True, slots=True)
class Scope:
    """Folders that one policy covers."""

    folders: tuple[Folder, ...]
    policy: str


def folder_at(location: str, *, is_writable: bool = False) -> Folder | None:
    """The folder at a location; None unless it lies on S3 and a policy can say so."""
    try:
        is_s3 = canonical(location).startswith("s3://")
    except InvalidRequest:
        return None
    if not is_s3 or _PATTERN.search(location):
        return None
    return Folder(location.rstrip("/") + "/", is_writable)


def scopes_of(
    folders: Sequence[Folder], *, partition: str = "aws", most: int = MOST_CHARACTERS
) -> tuple[tuple[Scope, ...], tuple[Folder, ...]]:
    """(As few policies as cover the folders, in order; the folders that none can cover)."""
    scopes: list[Scope] = []
    uncovered: list[Folder] = []
    for folder in folders:
        wider = _scope((*scopes[-1].folders, folder) if scopes else (folder,), partition)
        alone = _scope((folder,), partition)
        if len(wider.policy) <= most:
            scopes[-1:] = [wider]
        elif len(alone.policy) <= most and len(scopes) < MOST_POLICIES:
            scopes.append(alone)
        else:
            uncovered.append(folder)
    return tuple(scopes), tuple(uncovered)


def session_policy(folders: Iterable[Folder], *, partition: str = "aws") -> str:
    """The policy, as compact JSON in ASCII. partition: the first word of the cloud's resource names after `arn:`."""
    given = tuple(folders)
    written = [folder for folder in given if folder.is_writable]
    read = [folder for folder in given if not folder.is_writable]
    statements = [
        *([_objects(WRITING, written, partition)] if written else []),
        *([_objects(READING, read, partition)] if read else []),
        *(_listing(bucket, given, partition) for bucket in sorted({folder.bucket for folder in given})),
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


def _scope(folders: tuple[Folder, ...], partition: str) -> Scope:
    return Scope(folders, session_policy(folders, partition=partition))


def _objects(actions: Sequence[str], folders: Sequence[Folder], partition: str) -> dict[str, object]:
    resources = sorted({f"arn:{partition}:s3:::{folder.bucket}/{folder.key}*" for folder in folders})
    return {"Effect": "Allow", "Action": _one_or_many(actions), "Resource": _one_or_many(resources)}


def _listing(bucket: str, folders: Iterable[Folder], partition: str) -> dict[str, object]:
    """Leave to list what begins with a folder's key; `*` stands for nothing, too, so the folder itself is in it."""
    prefixes = sorted({f"{folder.key}*" for folder in folders if folder.bucket == bucket})
    return {
        "Effect": "Allow",
        "Action": "s3:ListBucket",
        "Resource": f"arn:{partition}:s3:::{bucket}",
        "Condition": {"StringLike": {"s3:prefix": _one_or_many(prefixes)}},
    }


def _one_or_many(values: Sequence[str]) -> object:
    return values[0] if len(values) == 1 else list(values)


def _parts(location: str) -> tuple[str, str]:
    bucket, _, key = canonical(location).removeprefix("s3://").partition("/")
    return bucket, f"{key}/" if key else ""
