"""Vend S3 keys to clients: temporary keys of STS that reach some folders, or configured static keys."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol

from duckicelake.errors import UnavailableError
from duckicelake.extras import DeferredModule
from duckicelake.storage.s3 import S3Options
from duckicelake.storage.session_policy import PolicyScope, S3Folder, build_scopes

if TYPE_CHECKING:
    import boto3
    from botocore import exceptions as boto_errors
    from types_boto3_sts import STSClient

    Session = boto3.Session
else:
    boto_errors = DeferredModule("botocore.exceptions")

MAX_CACHED_KEYS: Final = 4096
_Key = tuple[str, tuple[S3Folder, ...], int]
"""The holder of keys, their folders, and the seconds for which they are made."""
_MIN_REMAINING_MS: Final = 5 * 60 * 1000
"""Milliseconds before the end at which clients renew keys; cached keys must last longer."""
_SESSION_NAME_PATTERN: Final = re.compile(r"[^\w+=,.@-]", re.ASCII)
_TOO_LARGE_CODE: Final = "PackedPolicyTooLarge"


@dataclass(frozen=True, slots=True)
class S3Keys:
    """A key pair for S3, with a session token and an end if it is temporary."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FolderKeys:
    """Keys, and the folders that they reach."""

    keys: S3Keys
    folders: tuple[S3Folder, ...]


@dataclass(frozen=True, slots=True)
class VendedKeys:
    """Keys for a client.

    Attributes:
        vended: keys with their folders.
        uncovered: folders for which no keys could be made.
        renew_at_ms: time to make new keys, well before the end of these.

    """

    vended: tuple[FolderKeys, ...]
    uncovered: tuple[S3Folder, ...] = ()
    renew_at_ms: float = inf

    @property
    def expires_at_ms(self) -> int | None:
        """The end of the key that ends first."""
        ends = [folder.keys.expires_at_ms for folder in self.vended if folder.keys.expires_at_ms is not None]
        return min(ends, default=None)


class Vendor(Protocol):
    """Make keys for folders."""

    def vend(self, holder: str, folders: Sequence[S3Folder], most_seconds: int | None = None) -> VendedKeys:
        """Return keys for the folders. Raises UnavailableError.

        holder: the client's name in the store's logs. most_seconds: for which they may live at most.
        """


@dataclass(frozen=True, slots=True)
class StaticVendor:
    """Give every client the same keys, whatever rights these have."""

    keys: S3Keys

    def vend(self, holder: str, folders: Sequence[S3Folder], most_seconds: int | None = None) -> VendedKeys:  # noqa: ARG002
        """Return the keys; none where they would have to end."""
        if most_seconds is not None:
            return VendedKeys((), tuple(folders))
        return VendedKeys((FolderKeys(self.keys, tuple(folders)),) if folders else ())


@dataclass(frozen=True, slots=True)
class StsRole:
    """The role for STS. arn: required by AWS; MinIO ignores it and narrows the server's own rights."""

    arn: str | None = None
    external_id: str | None = None
    seconds: int = 3600

    @property
    def partition(self) -> str:
        """The partition of the role's cloud, and of its buckets."""
        return "aws" if self.arn is None else self.arn.split(":")[1]


_PLACEHOLDER_ROLE: Final = "arn:aws:iam::000000000000:role/duckicelake"
"""STS requires a well-formed name, also of stores that ignore it."""


class StsVendor:
    """Assume a role with a session policy of exactly the folders."""

    def __init__(
        self, client: STSClient, role: StsRole, clock: Callable[[], int], most_kept: int = MAX_CACHED_KEYS
    ) -> None:
        self._client = client
        self._role = role
        self._clock = clock
        self._most_kept = most_kept
        self._lock = Lock()
        self._kept: OrderedDict[_Key, Future[VendedKeys]] = OrderedDict()

    def vend(self, holder: str, folders: Sequence[S3Folder], most_seconds: int | None = None) -> VendedKeys:
        key = (holder, tuple(folders), min(self._role.seconds, most_seconds or self._role.seconds))
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and (not kept.done() or kept.result().renew_at_ms > self._clock()):
                self._kept.move_to_end(key)
                future, is_ours = kept, False
            else:
                future, is_ours = Future(), True
                self._kept[key] = future
                self._kept.move_to_end(key)
                self._forget_oldest()
        if is_ours:
            self._fulfil(key, future, None if kept is None else kept.result())
        return future.result()

    def _left(self, vending: VendedKeys) -> float:
        end = vending.expires_at_ms
        return inf if end is None else end - self._clock()

    def _enough(self, seconds: int) -> int:
        return max(_MIN_REMAINING_MS, seconds * 250)

    def _forget_oldest(self) -> None:
        while len(self._kept) > self._most_kept:
            self._kept.popitem(last=False)

    def _fulfil(self, key: _Key, future: Future[VendedKeys], before: VendedKeys | None) -> None:
        """Make keys; if STS fails, reuse the previous keys while clients can use them."""
        try:
            future.set_result(self._make_keys(*key))
        except UnavailableError as error:
            if before is not None and self._left(before) > _MIN_REMAINING_MS:
                future.set_result(before)
            else:
                self._give_up(key, future, error)
        except BaseException as error:  # waiting threads must get it, whatever it is
            self._give_up(key, future, error)
            raise

    def _give_up(self, key: _Key, future: Future[VendedKeys], error: BaseException) -> None:
        with self._lock:
            if self._kept.get(key) is future:
                del self._kept[key]
        future.set_exception(error)

    def _make_keys(self, holder: str, folders: Sequence[S3Folder], seconds: int) -> VendedKeys:
        scopes, uncovered = build_scopes(folders, partition=self._role.partition)
        vended: list[FolderKeys] = []
        for scope in scopes:
            made, refused = self._narrow(holder, scope, seconds)
            vended += made
            uncovered += refused
        ends = VendedKeys(tuple(vended)).expires_at_ms
        return VendedKeys(tuple(vended), uncovered, inf if ends is None else ends - self._enough(seconds))

    def _narrow(self, holder: str, scope: PolicyScope, seconds: int) -> tuple[list[FolderKeys], tuple[S3Folder, ...]]:
        """Make keys for a scope; halve the scope if AWS finds its packed policy too large. Only AWS knows that size."""
        try:
            return [FolderKeys(self._assume(holder, scope.policy, seconds), scope.folders)], ()
        except _PolicyTooLargeError:
            if len(scope.folders) == 1:
                return [], scope.folders
        half = len(scope.folders) // 2
        vended: list[FolderKeys] = []
        uncovered: tuple[S3Folder, ...] = ()
        for part in (scope.folders[:half], scope.folders[half:]):
            for smaller in build_scopes(part, partition=self._role.partition)[0]:
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
