"""PURE. IAM session policies that narrow temporary keys down to some folders of S3."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from duckicelake.storage.policy import StoreFolder

MAX_POLICY_CHARACTERS: Final = 2048
"""AWS's limit for an inline session policy."""
MAX_POLICIES: Final = 8
"""Policies for the folders of one table, each with keys of its own."""

READ_ACTIONS: Final = ("s3:GetObject",)
WRITE_ACTIONS: Final = (
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
)
"""Clients delete what they wrote for a commit that failed, and the files of snapshots that they expire."""
_ARN_START: Final = "arn:"
KMS_ACTIONS: Final = ("kms:Decrypt", "kms:GenerateDataKey")
"""What reads and writes of objects ask of the key that encrypts them; uploads in parts need both."""


@dataclass(frozen=True, slots=True)
class PolicyScope:
    """Folders that one policy covers."""

    folders: tuple[StoreFolder, ...]
    policy: str


def build_scopes(
    folders: Sequence[StoreFolder],
    *,
    partition: str = "aws",
    most: int = MAX_POLICY_CHARACTERS,
    kms_key: str | None = None,
) -> tuple[tuple[PolicyScope, ...], tuple[StoreFolder, ...]]:
    """Return (as few policies as cover the folders, in order; folders that none can cover)."""
    scopes: list[PolicyScope] = []
    uncovered: list[StoreFolder] = []
    for folder in folders:
        wider = _build_scope((*scopes[-1].folders, folder) if scopes else (folder,), partition, kms_key)
        alone = _build_scope((folder,), partition, kms_key)
        if len(wider.policy) <= most:
            scopes[-1:] = [wider]
        elif len(alone.policy) <= most and len(scopes) < MAX_POLICIES:
            scopes.append(alone)
        else:
            uncovered.append(folder)
    return tuple(scopes), tuple(uncovered)


def build_session_policy(folders: Iterable[StoreFolder], *, partition: str = "aws", kms_key: str | None = None) -> str:
    """Build the policy as compact ASCII JSON.

    partition: the first word after `arn:` of the cloud's names. kms_key: ARN of the key that encrypts the objects.
    MinIO's keys have names only, and whoever may write an object may use them.
    """
    given = tuple(folders)
    written = [folder for folder in given if folder.is_writable]
    read = [folder for folder in given if not folder.is_writable]
    statements = [
        *([_allow_objects(WRITE_ACTIONS, written, partition)] if written else []),
        *([_allow_objects(READ_ACTIONS, read, partition)] if read else []),
        *(_allow_listing(bucket, given, partition) for bucket in sorted({folder.bucket for folder in given})),
        *([_allow_key(kms_key)] if kms_key is not None and kms_key.startswith(_ARN_START) else []),
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


def _build_scope(folders: tuple[StoreFolder, ...], partition: str, kms_key: str | None) -> PolicyScope:
    return PolicyScope(folders, build_session_policy(folders, partition=partition, kms_key=kms_key))


def _allow_objects(actions: Sequence[str], folders: Sequence[StoreFolder], partition: str) -> dict[str, object]:
    resources = sorted({f"arn:{partition}:s3:::{folder.bucket}/{folder.key}*" for folder in folders})
    return {"Effect": "Allow", "Action": _unwrap_single(actions), "Resource": _unwrap_single(resources)}


def _allow_key(arn: str) -> dict[str, object]:
    return {"Effect": "Allow", "Action": list(KMS_ACTIONS), "Resource": arn}


def _allow_listing(bucket: str, folders: Iterable[StoreFolder], partition: str) -> dict[str, object]:
    """Allow listings of a folder's prefix. `*` also matches nothing, so the folder itself is covered."""
    prefixes = sorted({f"{folder.key}*" for folder in folders if folder.bucket == bucket})
    return {
        "Effect": "Allow",
        "Action": "s3:ListBucket",
        "Resource": f"arn:{partition}:s3:::{bucket}",
        "Condition": {"StringLike": {"s3:prefix": _unwrap_single(prefixes)}},
    }


def _unwrap_single(values: Sequence[str]) -> object:
    return values[0] if len(values) == 1 else list(values)
