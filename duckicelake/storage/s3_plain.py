"""Plain requests for one object, without most of botocore's layers, which are half of Python's part in a request to S3.

botocore makes the addresses, signs and sends. Where a plain answer doesn't come there is none here, and who asks lets
boto3 ask again: it knows about retries, redirections, clocks and errors.
"""

from io import BytesIO
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials
from botocore.exceptions import HTTPClientError
from botocore.httpsession import URLLib3Session
from botocore.utils import percent_encode
from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

USER_AGENT: Final = "duckicelake"
_OK: Final = 200
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
EXISTS: Final = frozenset({409, 412})  # it is there, or somebody is writing it
NOT_IMPLEMENTED: Final = 501
_REDIRECTIONS: Final = range(300, 400)
_OTHER_REGION: Final = b"AuthorizationHeaderMalformed"
_OTHER_SIGNATURE: Final = "--x-s3"  # directory buckets' names end so; they are signed for by keys of their own
_MOST_BUCKETS: Final = 256


class NotPlain(Exception):  # noqa: N818 - says what happened; never leaves the store
    """There is no plain answer: ask boto3."""


class ConditionsUnknown(Exception):  # noqa: N818 - says what was found; never leaves the store
    """The store doesn't take `If-None-Match`."""


class _Sent(TypedDict, total=False):
    data: bytes
    headers: dict[str, str]
    stream_output: bool


class PlainRequests:
    """Signed requests over the connections of a client of boto3's; all raise NotPlain. Threads share it."""

    def __init__(self, client: "S3Client", namesake: "S3Client", credentials: Credentials, region: str) -> None:
        """Take the client's connections; one like it is asked for addresses and sends nothing any more.

        credentials: those of the client, which may be renewed meanwhile. region: what is signed for.
        """
        self._namesake, self._credentials, self._region = namesake, credentials, region
        self._namesake.meta.events.register("before-send.s3", _own_address)  # type: ignore[arg-type] # an answer is welcome
        self._connections: URLLib3Session = client._endpoint.http_session  # type: ignore[attr-defined] # noqa: SLF001
        self._addresses: dict[str, str | None] = {}

    def read(self, bucket: str, key: str, at_most: int | None = None) -> bytes:
        """All bytes of an object that has at most so many."""
        answer = self._answer("GET", bucket, key, stream_output=True)
        if answer.status_code != _OK:
            raise NotPlain
        length = _length(answer)
        if length is None or (at_most is not None and length > at_most):
            answer.raw.close()
            raise NotPlain
        try:
            data: bytes = answer.content
        except HTTPError as error:
            raise NotPlain from error
        if len(data) != length:
            raise NotPlain
        return data

    def length(self, bucket: str, key: str) -> int | None:
        """How many bytes an object has, None if there is none."""
        answer = self._answer("HEAD", bucket, key)
        if answer.status_code == _NOT_FOUND:
            return None
        length = _length(answer) if answer.status_code == _OK else None
        if length is None:
            raise NotPlain
        return length

    def create(self, bucket: str, key: str, data: bytes) -> bool:
        """Write an object unless one is there; whether it was written. Raises ConditionsUnknown, too."""
        status = self._answer("PUT", bucket, key, data=data, headers={"If-None-Match": "*"}).status_code
        if status == NOT_IMPLEMENTED:
            raise ConditionsUnknown
        if status != _OK and status not in EXISTS:
            raise NotPlain
        return status == _OK

    def _answer(self, method: str, bucket: str, key: str, **sent: Unpack[_Sent]) -> AWSResponse:
        address = self._address(bucket)
        if address is None:
            raise NotPlain
        request = AWSRequest(method, f"{address}/{percent_encode(key, safe='/~')}", **sent)
        request.headers["User-Agent"] = USER_AGENT
        S3SigV4Auth(self._credentials.get_frozen_credentials(), "s3", self._region).add_auth(request)
        try:
            answer: AWSResponse = self._connections.send(request.prepare())
            if answer.status_code != _OK and _is_elsewhere(answer.status_code, answer.content):
                self._addresses[bucket] = None
        except (HTTPClientError, HTTPError) as error:
            raise NotPlain from error
        return answer

    def _address(self, bucket: str) -> str | None:
        """Where the bucket's objects are, as boto3 has such addresses; None: boto3 alone finds them."""
        if bucket not in self._addresses:
            if len(self._addresses) >= _MOST_BUCKETS:
                self._addresses.clear()
            self._addresses[bucket] = None if bucket.endswith(_OTHER_SIGNATURE) else self._made_address(bucket)
        return self._addresses.get(bucket)

    def _made_address(self, bucket: str) -> str:
        answered = self._namesake.head_object(Bucket=bucket, Key="k")["ResponseMetadata"]
        return answered["HTTPHeaders"]["location"].removesuffix("/k")


def _own_address(request: AWSPreparedRequest, **_: object) -> AWSResponse:
    """Answers a request instead of any store: by where it would have been sent."""
    return AWSResponse(request.url, _OK, HTTPHeaders.from_dict({"Location": request.url}), HTTPResponse(BytesIO()))


def _is_elsewhere(status: int, said: bytes) -> bool:
    return status in _REDIRECTIONS or (status == _BAD_REQUEST and _OTHER_REGION in said)


def _length(answer: AWSResponse) -> int | None:
    text = answer.headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() else None
