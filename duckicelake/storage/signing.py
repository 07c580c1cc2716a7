"""Signs requests to S3 for clients that have no keys (remote signing), after a check against a table's folders.

With STS the signature is made by keys that reach these folders only, so that the store checks as well. Without, it is
made by the server's: then this check is all there is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from duckicelake.errors import Forbidden, Unavailable
from duckicelake.storage.s3_requests import Asked, Examined, Touch, examine
from duckicelake.storage.session_policy import Folder
from duckicelake.storage.vending import Keys, Vended, Vending, Vendor


@dataclass(frozen=True, slots=True)
class Signed:
    """The request's URL as it was signed, and the headers to add to it. is_reusable: it only reads."""

    uri: str
    headers: Mapping[str, str]
    is_reusable: bool


@dataclass(frozen=True, slots=True)
class OwnKeys:
    """The server's own keys, as the signer's; they never leave this module but for the id that a signature names."""

    current: Callable[[], Keys | None]

    def vend(self, holder: str, folders: Sequence[Folder]) -> Vending:  # noqa: ARG002
        keys = self.current()
        if keys is None:
            raise Unavailable("the server has no keys for S3 to sign with")
        return Vending((Vended(keys, tuple(folders)),))


@dataclass(frozen=True, slots=True)
class Signer:
    """endpoint: where clients find the store; None: AWS. is_path_style: it knows buckets in paths only."""

    vendor: Vendor
    region: str
    endpoint: str | None
    is_path_style: bool = False

    def sign(self, asked: Asked, holder: str, folders: Sequence[Folder]) -> Signed:
        """Sign what the folders allow. Raises Forbidden, InvalidRequest, Unavailable."""
        examined = self.examined(asked)
        for touch in examined.touches:
            if not any(_allows(folder, touch) for folder in folders):
                raise Forbidden(_refusal(touch))
        for vended in self.vendor.vend(holder, folders).vended:
            if all(any(_allows(folder, touch) for folder in vended.folders) for touch in examined.touches):
                return self._signed(examined, vended.keys)
        raise Forbidden("the request touches folders that no single key reaches: make one for each folder")

    def examined(self, asked: Asked) -> Examined:
        """What the request would do. Raises Forbidden, InvalidRequest."""
        return examine(asked, self.endpoint, is_path_style=self.is_path_style)

    def _signed(self, examined: Examined, keys: Keys) -> Signed:
        request = AWSRequest(method=examined.method, url=examined.uri, headers=dict(examined.headers))
        _Auth(keys, self.region, examined.payload).add_auth(request)
        added = {name: value for name, value in request.headers.items() if name.lower() not in examined.headers}
        return Signed(examined.uri, added, examined.is_reading)


class _Auth(S3SigV4Auth):
    """Signature version 4 with a payload digest that was decided before."""

    def __init__(self, keys: Keys, region: str, digest: str) -> None:
        credentials = Credentials(keys.access_key_id, keys.secret_access_key, keys.session_token)
        super().__init__(credentials, "s3", region)
        self._digest = digest

    def payload(self, request: AWSRequest) -> str:  # noqa: ARG002
        return self._digest


def _allows(folder: Folder, touch: Touch) -> bool:
    if touch.lists:
        return touch.bucket == folder.bucket and touch.key.startswith(folder.key)
    return folder.holds(touch.bucket, touch.key) and (folder.is_writable or not touch.writes)


def _refusal(touch: Touch) -> str:
    act = "listed" if touch.lists else "written" if touch.writes else "read"
    return f"s3://{touch.bucket}/{touch.key} may not be {act} in this table's name"


def own_keys(session: boto3.Session) -> OwnKeys:
    """The keys that the server itself uses, renewed as boto3 renews them."""

    def current() -> Keys | None:
        credentials = session.get_credentials()
        if credentials is None:
            return None
        frozen = credentials.get_frozen_credentials()
        if frozen.access_key is None or frozen.secret_key is None:
            return None
        return Keys(frozen.access_key, frozen.secret_key, frozen.token)

    return OwnKeys(current)
