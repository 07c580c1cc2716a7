"""Sign S3 requests for clients without keys, after a check against a table's folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duckicelake.errors import ForbiddenError, UnavailableError
from duckicelake.extras import DeferredModule
from duckicelake.storage.policy import StoreFolder
from duckicelake.storage.s3_buckets import KMS_KEY_HEADER, PAYER_HEADER, ServerSideEncryption
from duckicelake.storage.s3_requests import CheckedRequest, ObjectAccess, SignatureRequest, check_request
from duckicelake.storage.sts_vendor import S3Keys
from duckicelake.storage.vendor import FolderKeys, VendedKeys, Vendor

if TYPE_CHECKING:
    import boto3
    from botocore import auth as boto_auth
    from botocore import awsrequest as boto_requests
    from botocore import credentials as boto_credentials
else:
    boto_auth, boto_requests = DeferredModule("botocore.auth"), DeferredModule("botocore.awsrequest")
    boto_credentials = DeferredModule("botocore.credentials")


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The signed URL and the headers to add. is_reusable: the request only reads."""

    uri: str
    headers: Mapping[str, str]
    is_reusable: bool


@dataclass(frozen=True, slots=True)
class ServerKeys:
    """The server's own keys for signing. Only the key's id leaves this module, in signatures."""

    current: Callable[[], S3Keys | None]

    def vend(self, holder: str, folders: Sequence[StoreFolder], most_seconds: int | None = None) -> VendedKeys:  # noqa: ARG002
        keys = self.current()
        if keys is None:
            raise UnavailableError("the server has no keys for S3 to sign with")
        return VendedKeys((FolderKeys(keys, tuple(folders)),))


@dataclass(frozen=True, slots=True)
class Signer:
    """Sign requests for folders.

    Attributes:
        endpoint: the store's address for clients; None is AWS.
        is_path_style: the store knows buckets in paths only.
        encryption: the only one by a key of KMS that clients may ask for.
        is_payer: whether the signed requests accept their costs.

    """

    vendor: Vendor
    region: str
    endpoint: str | None
    is_path_style: bool = False
    encryption: ServerSideEncryption | None = None
    is_payer: bool = False

    def sign(self, asked: SignatureRequest, holder: str, folders: Sequence[StoreFolder]) -> SignedRequest:
        """Sign a request that the folders allow. Raises ForbiddenError, InvalidRequestError, UnavailableError."""
        examined = self.check(asked)
        for touch in examined.touches:
            if not any(_allows(folder, touch) for folder in folders):
                raise ForbiddenError(_explain_refusal(touch))
        for vended in self.vendor.vend(holder, folders).vended:
            if all(any(_allows(folder, touch) for folder in vended.folders) for touch in examined.touches):
                assert isinstance(vended.keys, S3Keys)
                return self._sign_checked(examined, vended.keys)
        raise ForbiddenError("the request touches folders that no single key reaches: send one request for each folder")

    def check(self, asked: SignatureRequest) -> CheckedRequest:
        """Check what the request would do. Raises ForbiddenError, InvalidRequestError."""
        examined = check_request(asked, self.endpoint, is_path_style=self.is_path_style)
        key = examined.headers.get(KMS_KEY_HEADER)
        if key is not None and (self.encryption is None or key != self.encryption.key):
            raise ForbiddenError(f"{KMS_KEY_HEADER} {key!r} isn't signed: it names another key than this lake's")
        return examined

    def _sign_checked(self, examined: CheckedRequest, keys: S3Keys) -> SignedRequest:
        request = boto_requests.AWSRequest(method=examined.method, url=examined.uri, headers=dict(examined.headers))
        if self.is_payer:
            request.headers[PAYER_HEADER] = "requester"
        _build_auth(keys, self.region, examined.payload).add_auth(request)
        added = {name: value for name, value in request.headers.items() if name.lower() not in examined.headers}
        return SignedRequest(examined.uri, added, examined.is_reading)


def _build_auth(keys: S3Keys, region: str, digest: str) -> boto_auth.S3SigV4Auth:
    """Build signature version 4 with a given payload digest."""
    credentials = boto_credentials.Credentials(keys.access_key_id, keys.secret_access_key, keys.session_token)
    auth = boto_auth.S3SigV4Auth(credentials, "s3", region)
    auth.payload = lambda request: digest  # type: ignore[method-assign]  # noqa: ARG005
    return auth


def _allows(folder: StoreFolder, touch: ObjectAccess) -> bool:
    if touch.lists:
        return touch.bucket == folder.bucket and touch.key.startswith(folder.key)
    return folder.holds(touch.bucket, touch.key) and (folder.is_writable or not touch.writes)


def _explain_refusal(touch: ObjectAccess) -> str:
    act = "listed" if touch.lists else "written" if touch.writes else "read"
    return f"s3://{touch.bucket}/{touch.key} may not be {act} in this table's name"


def read_server_keys(session: boto3.Session) -> ServerKeys:
    """Return the server's own keys; boto3 renews them."""

    def current() -> S3Keys | None:
        credentials = session.get_credentials()
        if credentials is None:
            return None
        frozen = credentials.get_frozen_credentials()
        if frozen.access_key is None or frozen.secret_key is None:
            return None
        return S3Keys(frozen.access_key, frozen.secret_key, frozen.token)

    return ServerKeys(current)
