"""An object store of S3 buckets, or of any store that speaks S3's protocol, behind one endpoint.

obstore sends the requests for objects, five times cheaper than boto3 and without Python's lock. boto3 finds keys,
regions and addresses, and lists folders: obstore aborts a listing at a key with an empty segment, and names the marker
`x/` of a folder as a file `x`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from duckicelake.errors import InvalidSettingsError
from duckicelake.extras import DeferredModule
from duckicelake.storage.bucket_store import BucketStore, ObjectContent, measure_content, parse_bucket_location
from duckicelake.storage.connections import USER_AGENT, ConnectionLimits
from duckicelake.storage.failed_requests import RequestFailedError
from duckicelake.storage.protocol import StoredFile
from duckicelake.storage.s3_buckets import PAYER_HEADER, Buckets, ServerSideEncryption
from duckicelake.storage.s3_errors import translate_s3_errors, translate_settings_errors
from duckicelake.storage.s3_requests import DEFAULT_REGION
from duckicelake.storage.s3_uploads import send_in_parts

if TYPE_CHECKING:
    import boto3
    from botocore import config as boto_config
    from botocore import loaders as boto_loaders
    from botocore import session as boto_session
    from types_boto3_s3 import S3Client

    from duckicelake.storage.bucket_store import ObstoreBucket
else:
    boto3, boto_config = DeferredModule("boto3"), DeferredModule("botocore.config")
    boto_loaders, boto_session = DeferredModule("botocore.loaders"), DeferredModule("botocore.session")

_S3_PREFIX: Final = "s3://"
_NOT_IMPLEMENTED_STATUS: Final = 501
_OBSTORE_HEADERS: Final = (
    "AWS_CHECKSUM_ALGORITHM",
    "AWS_SERVER_SIDE_ENCRYPTION",
    "AWS_SSE_BUCKET_KEY_ENABLED",
    "AWS_SSE_CUSTOMER_KEY_BASE64",
    "AWS_SSE_KMS_KEY_ID",
)
"""Variables by which obstore adds headers to each part, which boto3 doesn't read."""


@cache
def _open_descriptions() -> boto_loaders.Loader:
    """Open what boto3 knows of S3 and STS, once: reading it takes 90 ms, and each session would do so."""
    return boto_loaders.Loader()


@dataclass(frozen=True, slots=True)
class S3Options:
    """Settings for S3. Without keys boto3 looks in the environment, a profile and the machine's role.

    Attributes:
        endpoint: None is Amazon's.
        connect_timeout: seconds.
        read_timeout: seconds.
        max_attempts: attempts of one request, the first one included.
        proxy: URL of the proxy for all requests; None: straight, or by that of the environment.
        has_own_endpoints: no endpoint is taken from the environment or a file of the machine, which are the operator's.
        encryption: of the objects that the server writes; None: as the environment or the bucket says.
        is_payer: whether the server pays for its requests, where the owner of the bucket doesn't.

    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool = False
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None
    connect_timeout: float = 5
    read_timeout: float = 30
    max_attempts: int = 4
    max_connections: int = 64
    proxy: str | None = field(default=None, repr=False)
    has_own_endpoints: bool = False
    encryption: ServerSideEncryption | None = None
    is_payer: bool = False

    def session(self) -> boto3.Session:
        """Open a boto3 session. Raises InvalidSettingsError without credentials, or for an unknown profile."""
        reader = boto_session.Session()
        reader.register_component("data_loader", _open_descriptions())
        if self.has_own_endpoints:
            reader.set_config_variable("ignore_configured_endpoint_urls", True)
        with translate_settings_errors():
            session = boto3.Session(
                botocore_session=reader,
                aws_access_key_id=self.access_key_id,
                aws_secret_access_key=self.secret_access_key,
                aws_session_token=self.session_token,
                region_name=self.region,
                profile_name=self.profile,
            )
            if session.get_credentials() is None:
                raise InvalidSettingsError(
                    "there are no credentials for S3: set DUCKICELAKE_S3_ACCESS_KEY_ID and "
                    "DUCKICELAKE_S3_SECRET_ACCESS_KEY, or DUCKICELAKE_S3_PROFILE, or give this machine a role"
                )
        return session

    def config(self) -> boto_config.Config:
        """Return the configuration of boto3's clients."""
        # With "auto" boto3 signs URLs for the global endpoint, but sends requests to the region's.
        style: Literal["path", "virtual", "auto"] = (
            "path" if self.path_style else "virtual" if self.endpoint is None else "auto"
        )
        return boto_config.Config(
            connect_timeout=self.connect_timeout,
            read_timeout=self.read_timeout,
            retries={"mode": "standard", "total_max_attempts": self.max_attempts},
            max_pool_connections=self.max_connections,
            s3={"addressing_style": style},
            proxies=None if self.proxy is None else dict.fromkeys(("http", "https"), self.proxy),
            # Measured: validating parameters and building the user agent are a quarter of botocore's work on a request.
            parameter_validation=False,
            user_agent=USER_AGENT,
            # Some stores other than Amazon's don't know the checksums that boto3 would send.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )

    def certificates(self) -> str | None:
        """Return the file or folder of certificate authorities that the environment or the profile names."""
        with translate_settings_errors():
            named = boto_session.Session(profile=self.profile).get_config_variable("ca_bundle")
        return named or os.environ.get("REQUESTS_CA_BUNDLE")

    def region_of(self, session: boto3.Session) -> str:
        """Return the region to sign for: the setting's, the profile's, or the default for stores without regions."""
        return session.region_name or DEFAULT_REGION


def _accept_costs(params: dict[str, Any], **_: object) -> None:
    params["headers"][PAYER_HEADER] = "requester"


def parse_s3_location(location: str) -> tuple[str, str]:
    """Parse a location into (bucket, key). Raises InvalidRequestError unless it names a file in S3."""
    return parse_bucket_location(location, S3Store.scheme)


class S3Store(BucketStore):
    """An object store of s3://, s3a:// and s3n:// locations."""

    scheme: ClassVar[str] = "s3"

    def __init__(self, root: str, options: S3Options) -> None:
        """Make clients without connecting. Raises InvalidSettingsError without credentials."""
        super().__init__(root, options.max_attempts)
        self.options = options
        self._session = options.session()
        self._clients: dict[str, S3Client] = {}
        region = options.region_of(self._session)
        self.client = self._open_client(region)
        credentials = self._session.get_credentials()
        assert credentials is not None
        limits = ConnectionLimits(options.connect_timeout, options.read_timeout, options.max_connections)
        self._buckets = Buckets(
            self._open_client,
            credentials,
            region,
            limits,
            options.certificates(),
            options.proxy,
            options.encryption,
            is_payer=options.is_payer,
        )

    def find_address(self, bucket: str) -> tuple[str, str]:
        """Return (the URL of a bucket's objects, the region to sign for), for another client of the same store."""
        return self._buckets.find_address(bucket)

    def _open_client(self, region: str) -> S3Client:
        """Return boto3's client of a region."""
        if region not in self._clients:
            with translate_settings_errors():
                client = self._session.client(
                    "s3", endpoint_url=self.options.endpoint, region_name=region, config=self.options.config()
                )
            if self.options.is_payer:  # not every operation has boto3's parameter for it
                client.meta.events.register("before-call.s3", _accept_costs)
            self._clients[region] = client
        return self._clients[region]

    def open_bucket(self, bucket: str, sent_bytes: int = 0) -> ObstoreBucket:
        return self._buckets.store(bucket, sent_bytes)

    def translate_errors(self, location: str) -> AbstractContextManager[None]:
        return translate_s3_errors(location, self.options.endpoint)

    def delete(self, location: str) -> None:
        self._ask(location, lambda bucket, key: bucket.delete(key))  # a 404 is that of a missing bucket

    def put_parts(self, location: str, content: ObjectContent) -> None:
        if any(os.environ.get(name) for name in _OBSTORE_HEADERS):
            super().put_parts(location, content)
            return
        bucket, key = parse_s3_location(location)
        part_bytes = self.limits.find_part_bytes(measure_content(content))
        client = self._open_client(self.find_address(bucket)[1])
        options = {} if self.options.encryption is None else self.options.encryption.build_upload_options()
        with self.translate_errors(location):
            send_in_parts(client, (bucket, key), content, part_bytes, options)

    def files_below(self, folder: str) -> Iterator[StoredFile]:
        bucket, prefix = parse_s3_location(folder.rstrip("/"))
        with self.translate_errors(folder):
            for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/"):
                for entry in page.get("Contents", ()):
                    modified_ms = round(entry["LastModified"].timestamp() * 1000)
                    yield StoredFile(f"{_S3_PREFIX}{bucket}/{entry['Key']}", entry["Size"], modified_ms)

    def try_list(self, root: str) -> None:
        bucket, prefix = parse_s3_location(f"{root}/x")
        with self.translate_errors(root):
            self.client.list_objects_v2(Bucket=bucket, Prefix=prefix.removesuffix("x"), MaxKeys=1)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def create(self, location: str, content: ObjectContent) -> bool:
        if self.knows_conditions:
            try:
                return super().create(location, content)
            except RequestFailedError as error:
                if error.status != _NOT_IMPLEMENTED_STATUS:
                    raise
                self.knows_conditions = False  # by the first refusal, for good
        return self.create_after_look(location, content)

    def may_repeat(self, bucket: str, failure: RequestFailedError, attempt: int) -> bool:
        """Return whether a failed request may succeed now, after a pause or in another region."""
        if failure.status is None:
            self._buckets.check_credentials()
        if failure.is_misplaced:
            return attempt <= self.options.max_attempts and self._buckets.move(bucket, failure.region)
        return super().may_repeat(bucket, failure, attempt)
