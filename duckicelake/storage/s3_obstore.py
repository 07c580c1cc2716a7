"""Send plain S3 requests for one object by obstore: five times cheaper than boto3, without its lock."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials
from botocore.httpsession import get_cert_path
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store as PlainStore
from urllib3 import HTTPResponse

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Credential
    from types_boto3_s3 import S3Client

USER_AGENT: Final = "duckicelake"
_OK_STATUS: Final = 200
_BAD_REQUEST_STATUS: Final = 400
_NOT_IMPLEMENTED_STATUS: Final = 501
_STATUS_PATTERN: Final = re.compile(
    r"Generic S3 error: Error performing \S+ \S+ in \S+ - Server returned non-2xx status code: (\d+) "
)
"""The status in obstore's message. The rest of a message may contain a client's text."""
_OTHER_REGION_CODE: Final = "<Code>AuthorizationHeaderMalformed</Code>"
_EXPRESS_SUFFIX: Final = "--x-s3"  # suffix of directory buckets, which need keys of their own
_MAX_BUCKETS: Final = 256
_FALLBACK_SECONDS: Final = 60.0
_LARGE_BYTES: Final = 4 << 20
"""Objects of more bytes go by boto3: the store is silent for long while they are sent."""
_MAX_TIMEOUT: Final = timedelta(hours=1)
_KEY_LIFETIME: Final = timedelta(minutes=6)
"""obstore renews keys five minutes before they expire, so once a minute here. boto3's keys hold ten at least."""
_REQUEST_VARIABLES: Final = frozenset(
    {
        "AWS_CHECKSUM_ALGORITHM",
        "AWS_SERVER_SIDE_ENCRYPTION",
        "AWS_SSE_BUCKET_KEY_ENABLED",
        "AWS_SSE_CUSTOMER_KEY_BASE64",
        "AWS_SSE_KMS_KEY_ID",
    }
)
"""Variables that change obstore's requests, not boto3's, and that the options here don't override."""
_CA_VARIABLES: Final = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
"""Variables in which boto3 finds certificates, besides its own and a profile's."""


class NoPlainAnswerError(Exception):
    """obstore has no usable answer; the caller repeats the request by boto3."""


class ConditionsUnknownError(Exception):
    """The store doesn't take `If-None-Match`."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Timeouts for connecting and for a silent store, and the number of kept connections."""

    connect_seconds: float
    read_seconds: float
    connections: int


class ObstoreRequests:
    """Send signed requests where a boto3 client would send them. Threads share it. All raise NoPlainAnswerError."""

    def __init__(self, namesake: "S3Client", credentials: Credentials, region: str, limits: ConnectionLimits) -> None:
        """Take addresses from a second boto3 client, the namesake, which sends nothing any more.

        Args:
            namesake: a client with the same options; its requests are answered here.
            credentials: the client's; they may be renewed meanwhile.
            region: the region to sign for.
            limits: of connections.

        """
        self._namesake, self._credentials, self._region = namesake, credentials, region
        self._client_options = _build_client_options(limits)
        self._namesake.meta.events.register("before-send.s3", _answer_with_address)  # type: ignore[arg-type] # a handler may answer
        self._stores: dict[str, PlainStore] = {}
        self._alone_until: dict[str, float] = {}
        self._is_never = bool(_REQUEST_VARIABLES & os.environ.keys())

    def read(self, bucket: str, key: str, at_most: int | None = None) -> bytes:
        """Read an object of at most `at_most` bytes."""
        with self._plain(bucket, key) as store:
            answer = store.get(key)
            if at_most is not None and answer.meta["size"] > at_most:
                raise NoPlainAnswerError
            return answer.bytes().to_bytes()

    def length(self, bucket: str, key: str) -> int | None:
        """Return the bytes of an object, None if it doesn't exist."""
        with self._plain(bucket, key) as store:
            try:
                return store.head(key)["size"]
            except FileNotFoundError:
                return None

    def create(self, bucket: str, key: str, data: bytes) -> bool:
        """Write an object unless one is there; return whether it was written. Raises ConditionsUnknownError, too."""
        if len(data) > _LARGE_BYTES:
            raise NoPlainAnswerError
        with self._plain(bucket, key) as store:
            try:
                store.put(key, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            except GenericError as error:
                if _read_status(error) == _NOT_IMPLEMENTED_STATUS:
                    raise ConditionsUnknownError from error
                raise
        return True

    @contextmanager
    def _plain(self, bucket: str, key: str) -> Iterator[PlainStore]:
        """Yield the bucket's store; raise NoPlainAnswerError for its errors."""
        if not self._is_plain(bucket, key):
            raise NoPlainAnswerError
        try:
            yield self._store(bucket)
        except (FileNotFoundError, PermissionDeniedError, UnauthenticatedError) as error:
            raise NoPlainAnswerError from error
        except (BaseError, ValueError) as error:
            if not _is_object_error(error):
                self._alone_until[bucket] = monotonic() + _FALLBACK_SECONDS
            raise NoPlainAnswerError from error

    def _is_plain(self, bucket: str, key: str) -> bool:
        """Return whether obstore sends the request as boto3 would; it changes keys with empty or dot segments."""
        is_left = monotonic() < self._alone_until.get(bucket, 0) or bucket.endswith(_EXPRESS_SUFFIX)
        return not (self._is_never or is_left or {"", ".", ".."} & set(key.split("/")))

    def _store(self, bucket: str) -> PlainStore:
        found = self._stores.get(bucket)
        if found is None:
            if len(self._stores) >= _MAX_BUCKETS:
                self._stores.clear()
                self._alone_until.clear()
            found = self._stores[bucket] = self._open(bucket)
        return found

    def _open(self, bucket: str) -> PlainStore:
        """Open obstore's store with all options that it would else take from the environment."""
        address = self._address(bucket)
        return PlainStore(
            bucket,
            endpoint=address,
            aws_endpoint_url_s3=address,
            virtual_hosted_style_request=True,  # the address has the bucket
            region=self._region,
            credential_provider=self._keys,
            skip_signature=False,
            unsigned_payload=False,
            request_payer=False,
            s3_express=False,
            conditional_put="etag",
            client_options=self._client_options,
            retry_config={"max_retries": 0},
        )

    def _keys(self) -> "S3Credential":
        keys = self._credentials.get_frozen_credentials()
        return {
            "access_key_id": keys.access_key or "",
            "secret_access_key": keys.secret_key or "",
            "token": keys.token,
            "expires_at": datetime.now(UTC) + _KEY_LIFETIME,
        }

    def _address(self, bucket: str) -> str:
        """Return boto3's address of the bucket's objects."""
        answered = self._namesake.head_object(Bucket=bucket, Key="k")["ResponseMetadata"]
        return answered["HTTPHeaders"]["location"].removesuffix("/k")


def _build_client_options(limits: ConnectionLimits) -> "ClientConfig":
    options: ClientConfig = {
        "allow_http": True,
        "allow_invalid_certificates": False,
        "connect_timeout": timedelta(seconds=limits.connect_seconds),
        "read_timeout": timedelta(seconds=limits.read_seconds),
        "timeout": _MAX_TIMEOUT,
        "pool_max_idle_per_host": str(limits.connections),
        "user_agent": USER_AGENT,
    }
    trusted = next(filter(None, map(os.environ.get, _CA_VARIABLES)), None) or get_cert_path(verify=True)
    if trusted is not None and Path(trusted).is_file():
        options["root_certificate"] = Path(trusted).read_bytes()
    return options


def _read_status(error: Exception) -> int | None:
    """Return the status in a generic obstore error, None without one."""
    said = _STATUS_PATTERN.match(str(error))
    return int(said[1]) if said else None


def _is_object_error(error: Exception) -> bool:
    """Return whether the error concerns one object only, such as its name: the bucket stays with obstore then."""
    return _read_status(error) == _BAD_REQUEST_STATUS and _OTHER_REGION_CODE not in str(error)


def _answer_with_address(request: AWSPreparedRequest, **_: object) -> AWSResponse:
    """Answer a request without sending it, with its URL as `Location`."""
    return AWSResponse(
        request.url, _OK_STATUS, HTTPHeaders.from_dict({"Location": request.url}), HTTPResponse(BytesIO())
    )
