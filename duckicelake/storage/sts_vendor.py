"""Vend S3 keys to clients: temporary keys of STS that reach some folders, or configured static keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlsplit

from duckicelake.errors import UnavailableError
from duckicelake.extras import DeferredModule
from duckicelake.storage.policy import StoreFolder
from duckicelake.storage.s3 import S3Options
from duckicelake.storage.session_policy import PolicyScope, build_scopes
from duckicelake.storage.vendor import MAX_CACHED_KEYS, CachingVendor, FolderKeys, VendedKeys

if TYPE_CHECKING:
    import boto3
    from botocore import exceptions as boto_errors
    from types_boto3_sts import STSClient

    Session = boto3.Session
else:
    boto_errors = DeferredModule("botocore.exceptions")

REQUESTER_PAYS: Final = "s3.requester-pays"
"""Property that says whether clients must pay for their requests. No client of Iceberg reads it yet."""
_SESSION_NAME_PATTERN: Final = re.compile(r"[^\w+=,.@-]", re.ASCII)
_TOO_LARGE_CODE: Final = "PackedPolicyTooLarge"


@dataclass(frozen=True, slots=True)
class S3Keys:
    """A key pair for S3, with a session token and an end if it is temporary."""

    refresh_prefix: ClassVar[str] = "client"

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_at_ms: int | None = None

    @property
    def name(self) -> str:
        return self.access_key_id

    def list_properties(self) -> Mapping[str, str]:
        properties = {"s3.access-key-id": self.access_key_id, "s3.secret-access-key": self.secret_access_key}
        if self.session_token is not None:
            properties["s3.session-token"] = self.session_token
        if self.expires_at_ms is not None:
            properties["s3.session-token-expires-at-ms"] = str(self.expires_at_ms)
        return properties

    def list_secret_options(self, client: Mapping[str, str]) -> Mapping[str, str]:
        endpoint = urlsplit(client.get("s3.endpoint", ""))
        options = {
            "TYPE": "s3",
            "KEY_ID": self.access_key_id,
            "SECRET": self.secret_access_key,
            "SESSION_TOKEN": self.session_token,
            "REGION": client.get("s3.region"),
            "ENDPOINT": endpoint.netloc,
            "URL_STYLE": "path" if client.get("s3.path-style-access") == "true" else None,
            "USE_SSL": "false" if endpoint.scheme == "http" else None,
            "KMS_KEY_ID": client.get("s3.sse.key"),
            "REQUESTER_PAYS": client.get(REQUESTER_PAYS),
        }
        return {name: value for name, value in options.items() if value}


@dataclass(frozen=True, slots=True)
class StaticVendor:
    """Give every client the same keys, whatever rights these have."""

    keys: S3Keys

    def vend(self, holder: str, folders: Sequence[StoreFolder], most_seconds: int | None = None) -> VendedKeys:  # noqa: ARG002
        """Return the keys; none where they would have to end."""
        if most_seconds is not None:
            return VendedKeys((), tuple(folders))
        return VendedKeys((FolderKeys(self.keys, tuple(folders)),) if folders else ())


@dataclass(frozen=True, slots=True)
class StsRole:
    """The role for STS. arn: required by AWS; MinIO ignores it and narrows the server's own rights.

    kms_key: ARN of the key that encrypts the objects, which clients' keys may use; None: they need none.
    """

    arn: str | None = None
    external_id: str | None = None
    seconds: int = 3600
    kms_key: str | None = None

    @property
    def partition(self) -> str:
        """The partition of the role's cloud, and of its buckets."""
        return "aws" if self.arn is None else self.arn.split(":")[1]


_PLACEHOLDER_ROLE: Final = "arn:aws:iam::000000000000:role/duckicelake"
"""STS requires a well-formed name, also of stores that ignore it."""


class StsVendor(CachingVendor):
    """Assume a role with a session policy of exactly the folders."""

    def __init__(
        self, client: STSClient, role: StsRole, clock: Callable[[], int], most_kept: int = MAX_CACHED_KEYS
    ) -> None:
        super().__init__(role.seconds, clock, most_kept)
        self._client = client
        self._role = role

    def make_keys(
        self, holder: str, folders: Sequence[StoreFolder], seconds: int
    ) -> tuple[Sequence[FolderKeys], Sequence[StoreFolder]]:
        scopes, refused_folders = build_scopes(folders, partition=self._role.partition, kms_key=self._role.kms_key)
        vended: list[FolderKeys] = []
        uncovered = list(refused_folders)
        for scope in scopes:
            made, refused = self._narrow(holder, scope, seconds)
            vended += made
            uncovered += refused
        return vended, uncovered

    def _narrow(
        self, holder: str, scope: PolicyScope, seconds: int
    ) -> tuple[list[FolderKeys], tuple[StoreFolder, ...]]:
        """Make keys for a scope; halve the scope if AWS finds its packed policy too large. Only AWS knows that size."""
        try:
            return [FolderKeys(self._assume(holder, scope.policy, seconds), scope.folders)], ()
        except _PolicyTooLargeError:
            if len(scope.folders) == 1:
                return [], scope.folders
        half = len(scope.folders) // 2
        vended: list[FolderKeys] = []
        uncovered: tuple[StoreFolder, ...] = ()
        for part in (scope.folders[:half], scope.folders[half:]):
            for smaller in build_scopes(part, partition=self._role.partition, kms_key=self._role.kms_key)[0]:
                made, refused = self._narrow(holder, smaller, seconds)
                vended += made
                uncovered += refused
        return vended, uncovered

    def _assume(self, holder: str, policy: str, seconds: int) -> S3Keys:
        request: dict[str, Any] = {
            "RoleArn": self._role.arn or _PLACEHOLDER_ROLE,
            "RoleSessionName": build_session_name(holder),
            "Policy": policy,
            "DurationSeconds": seconds,
        }
        if self._role.external_id is not None:
            request["ExternalId"] = self._role.external_id
        try:
            credentials = self._client.assume_role(**request)["Credentials"]
        except boto_errors.ClientError as error:
            code = error.response.get("Error", {}).get("Code", "no reason")
            if code == _TOO_LARGE_CODE:
                raise _PolicyTooLargeError from None
            raise UnavailableError(
                f"STS refuses to give the server keys for clients ({code}): run `duckicelake doctor` for advice"
            ) from error
        except boto_errors.BotoCoreError as error:
            raise UnavailableError(
                f"STS doesn't answer ({type(error).__name__}), so there are no keys for clients: try again"
            ) from error
        return S3Keys(
            credentials["AccessKeyId"],
            credentials["SecretAccessKey"],
            credentials["SessionToken"],
            int(credentials["Expiration"].timestamp() * 1000),
        )


class _PolicyTooLargeError(Exception):
    """The policy is too large after AWS packed it."""


def build_session_name(holder: str) -> str:
    """Build a legal, distinct session name: replace letters that STS refuses, and cut long names."""
    legal = _SESSION_NAME_PATTERN.sub("-", holder)
    if legal == holder and 2 <= len(holder) <= 64:
        return legal
    return f"{legal[:48]}-{sha256(holder.encode(errors='surrogatepass')).hexdigest()[:12]}"


def open_sts_client(session: Session, options: S3Options, endpoint: str | None) -> STSClient:
    """Open a client of STS with the server's keys. endpoint: None is Amazon's of the region."""
    return session.client("sts", endpoint_url=endpoint, region_name=options.region_of(session), config=options.config())
