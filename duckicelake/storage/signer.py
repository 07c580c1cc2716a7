"""Sign S3 requests for clients without keys, after a check against a table's folders."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from duckicelake.errors import ForbiddenError, UnavailableError
from duckicelake.storage.s3_requests import CheckedRequest, ObjectAccess, SignatureRequest, check_request
from duckicelake.storage.session_policy import S3Folder
from duckicelake.storage.vendor import FolderKeys, S3Keys, VendedKeys, Vendor


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

    def vend(self, holder: str, folders: Sequence[S3Folder], most_seconds: int | None = None) -> VendedKeys:  # noqa: ARG002
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

    """

    vendor: Vendor
    region: str
    endpoint: str | None
    is_path_style: bool = False

    def sign(self, asked: SignatureRequest, holder: str, folders: Sequence[S3Folder]) -> SignedRequest:
        """Sign a request that the folders allow. Raises ForbiddenError, InvalidRequestError, UnavailableError."""
        examined = self.check(asked)
        for touch in examined.touches:
            if not any(_allows(folder, touch) for folder in folders):
                raise ForbiddenError(_explain_refusal(touch))
        for vended in self.vendor.vend(holder, folders).vended:
            if all(any(_allows(folder, touch) for folder in vended.folders) for touch in examined.touches):
                return self._sign_checked(examined, vended.keys)
        raise ForbiddenError("the request touches folders that no single key reaches: send one request for each folder")

    def check(self, asked: SignatureRequest) -> CheckedRequest:
        """Check what the request would do. Raises ForbiddenError, InvalidRequestError."""
        return check_request(asked, self.endpoint, is_path_style=self.is_path_style)

    def _sign_checked(self, examined: CheckedRequest, keys: S3Keys) -> SignedRequest:
        request = AWSRequest(method=examined.method, url=examined.uri, headers=dict(examined.headers))
        _SigV4Auth(keys, self.region, examined.payload).add_auth(request)
        added = {name: value for name, value in request.headers.items() if name.lower() not in examined.headers}
        return SignedRequest(examined.uri, added, examined.is_reading)


class _SigV4Auth(S3SigV4Auth):
    """Signature version 4 with a given payload digest."""

    def __init__(self, keys: S3Keys, region: str, digest: str) -> None:
        credentials = Credentials(keys.access_key_id, keys.secret_access_key, keys.session_token)
        super().__init__(credentials, "s3", region)
        self._digest = digest

    def payload(self, request: AWSRequest) -> str:  # noqa: ARG002
        return self._digest


def _allows(folder: S3Folder, touch: ObjectAccess) -> bool:
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
