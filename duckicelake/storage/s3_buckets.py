"""Open obstore's stores of buckets with boto3's addresses, regions, keys and certificates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal

from duckicelake.extras import DeferredModule
from duckicelake.storage.connections import ConnectionLimits, OpenStores

if TYPE_CHECKING:
    from botocore import exceptions as boto_errors
    from botocore.credentials import Credentials
    from obstore import store as obstore_stores
    from obstore.store import S3Config, S3Credential
    from types_boto3_s3 import S3Client
else:
    boto_errors, obstore_stores = DeferredModule("botocore.exceptions"), DeferredModule("obstore.store")

_EXPRESS_SUFFIX: Final = "--x-s3"
"""Suffix of directory buckets, for which S3 gives keys of their own."""
_MAX_REGIONS: Final = 256
_KEY_LIFETIME: Final = timedelta(minutes=6)
"""obstore renews keys five minutes before they expire, so once a minute here. boto3's keys hold ten at least."""


PAYER_HEADER: Final = "x-amz-request-payer"
"""Header by which a request's sender accepts its costs, whose value is `requester`."""
KMS_KEY_HEADER: Final = "x-amz-server-side-encryption-aws-kms-key-id"
EncryptionType = Literal["s3", "kms", "dsse-kms"]
_ALGORITHMS: Final[Mapping[EncryptionType, str]] = {"s3": "AES256", "kms": "aws:kms", "dsse-kms": "aws:kms:dsse"}


@dataclass(frozen=True, slots=True)
class ServerSideEncryption:
    """How the store encrypts the objects that are written.

    Attributes:
        type: in the words of Iceberg's `s3.sse.type`.
        key: ARN or id of the key of KMS; None: the store's default key.
        has_bucket_key: whether one key of the bucket spares calls of KMS; None: as the bucket says.

    """

    type: EncryptionType
    key: str | None = None
    has_bucket_key: bool | None = None

    def build_store_options(self) -> S3Config:
        """Build the options of obstore's store."""
        options: S3Config = {"server_side_encryption": _ALGORITHMS[self.type]}
        if self.key is not None:
            options["sse_kms_key_id"] = self.key
        if self.has_bucket_key is not None:
            options["sse_bucket_key_enabled"] = self.has_bucket_key
        return options

    def build_upload_options(self) -> Mapping[str, Any]:
        """Build boto3's options of an upload in parts."""
        options: dict[str, Any] = {"ServerSideEncryption": _ALGORITHMS[self.type]}
        if self.key is not None:
            options["SSEKMSKeyId"] = self.key
        if self.has_bucket_key is not None:
            options["BucketKeyEnabled"] = self.has_bucket_key
        return options

    def list_client_properties(self) -> Mapping[str, str]:
        """Return the properties by which Iceberg's clients do the same: Java and Rust, then PyIceberg with fsspec."""
        properties = {"s3.sse.type": self.type, "s3.server-side-encryption": _ALGORITHMS[self.type]}
        return properties if self.key is None else {**properties, "s3.sse.key": self.key, "s3.sse-kms-key-id": self.key}


class Buckets:
    """obstore's stores by bucket. Threads share it."""

    def __init__(
        self,
        open_client: Callable[[str], S3Client],
        credentials: Credentials,
        region: str,
        limits: ConnectionLimits,
        certificates: str | None,
        proxy: str | None = None,
        encryption: ServerSideEncryption | None = None,
        *,
        is_payer: bool = False,
    ) -> None:
        """Remember how to open stores; nothing is opened yet.

        Args:
            open_client: opens boto3's client of a region, which knows the addresses of buckets.
            credentials: of the client; boto3 may renew them meanwhile.
            region: the region to sign for.
            limits: of connections.
            certificates: file or folder with certificate authorities; None: those of botocore.
            proxy: URL of the proxy for all requests; None: as the environment says.
            encryption: of what is written; None: as the environment or the bucket says.
            is_payer: whether the server pays for its requests, where the owner of the bucket doesn't.

        """
        self._open_client = open_client
        self._credentials, self._region, self._limits = credentials, region, limits
        self._certificates, self._proxy = certificates, proxy
        self._encryption: S3Config = {} if encryption is None else encryption.build_store_options()
        self._is_payer = is_payer
        self._stores = OpenStores(self._open)
        self._regions: dict[str, str] = {}
        self._lock = Lock()

    def store(self, bucket: str, sent_bytes: int = 0) -> obstore_stores.S3Store:
        """Return the store of a bucket, for a request that sends so many bytes. Raises ValueError."""
        return self._stores.find(bucket, self._limits.upload_seconds(sent_bytes))

    def move(self, bucket: str, named: str | None) -> bool:
        """Sign for another region from now on; return whether that is another than before.

        named: the region that the store named; None asks the store.
        """
        known = self._regions.get(bucket, self._region)
        region = named or self._ask_region(bucket, known)
        with self._lock:
            if len(self._regions) >= _MAX_REGIONS:
                self._regions.clear()
            self._regions[bucket] = region
            self._stores.forget(bucket)
        return region != known

    def _ask_region(self, bucket: str, known: str) -> str:
        """Ask the store for the region of a bucket; return the known one if it doesn't say."""
        try:
            return self._open_client(known).head_bucket(Bucket=bucket).get("BucketRegion", known)
        except boto_errors.ClientError as error:
            headers: dict[str, str] = error.response["ResponseMetadata"]["HTTPHeaders"]
            return headers.get("x-amz-bucket-region", known)

    def find_address(self, bucket: str) -> tuple[str, str]:
        """Return (the URL of a bucket's objects, the region to sign for)."""
        region = self._regions.get(bucket, self._region)
        return self._address(bucket, region), region

    def check_credentials(self) -> None:
        """Raise botocore's error if there are no keys any more."""
        self._credentials.get_frozen_credentials()

    def _open(self, bucket: str, read_seconds: float) -> obstore_stores.S3Store:
        """Open a store with all options that obstore would else take from the environment."""
        address, region = self.find_address(bucket)
        return obstore_stores.S3Store(
            bucket,
            endpoint=address,
            aws_endpoint_url_s3=address,
            virtual_hosted_style_request=True,  # the address has the bucket
            region=region,
            credential_provider=self._keys,
            skip_signature=False,
            unsigned_payload=False,
            request_payer=self._is_payer,
            s3_express=bucket.endswith(_EXPRESS_SUFFIX),
            conditional_put="etag",
            disable_bulk_delete=True,  # some stores don't have it, and it answers 200 for a refused key
            client_options=self._limits.build_client(
                read_seconds, self._certificates, self._proxy, is_secure=address.startswith("https:")
            ),
            retry_config={"max_retries": 0},
            config=self._encryption,
        )

    def _keys(self) -> S3Credential:
        keys = self._credentials.get_frozen_credentials()
        return {
            "access_key_id": keys.access_key or "",
            "secret_access_key": keys.secret_key or "",
            "token": keys.token,
            "expires_at": datetime.now(UTC) + _KEY_LIFETIME,
        }

    def _address(self, bucket: str, region: str) -> str:
        """Return boto3's address of the bucket's objects."""
        signed = self._open_client(region).generate_presigned_url("head_object", {"Bucket": bucket, "Key": "k"})
        return signed.partition("?")[0].removesuffix("/k")
