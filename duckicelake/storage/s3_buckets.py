"""Open obstore's stores of buckets with boto3's addresses, regions, keys and certificates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from duckicelake.extras import DeferredModule

if TYPE_CHECKING:
    from botocore import exceptions as boto_errors
    from botocore import httpsession as boto_http
    from botocore.credentials import Credentials
    from obstore import store as obstore_stores
    from obstore.store import ClientConfig, S3Credential
    from types_boto3_s3 import S3Client
else:
    boto_errors, boto_http = DeferredModule("botocore.exceptions"), DeferredModule("botocore.httpsession")
    obstore_stores = DeferredModule("obstore.store")

USER_AGENT: Final = "duckicelake"
_EXPRESS_SUFFIX: Final = "--x-s3"
"""Suffix of directory buckets, for which S3 gives keys of their own."""
_MAX_STORES: Final = 256
_SLOW_BYTES_PER_SECOND: Final = 64 << 10
"""The slowest upload that is waited for: a store is silent while it receives a file."""
_MAX_TIMEOUT: Final = timedelta(hours=1)
_KEY_LIFETIME: Final = timedelta(minutes=6)
"""obstore renews keys five minutes before they expire, so once a minute here. boto3's keys hold ten at least."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Timeouts for connecting and for a silent store, and the number of kept connections."""

    connect_seconds: float
    read_seconds: float
    connections: int

    def upload_seconds(self, sent_bytes: int) -> float:
        """Return the timeout for a store that receives so many bytes, in steps of powers of two."""
        steps = int(sent_bytes / _SLOW_BYTES_PER_SECOND / self.read_seconds).bit_length()
        return self.read_seconds * (1 << steps)


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
    ) -> None:
        """Remember how to open stores; nothing is opened yet.

        Args:
            open_client: opens boto3's client of a region, which knows the addresses of buckets.
            credentials: of the client; boto3 may renew them meanwhile.
            region: the region to sign for.
            limits: of connections.
            certificates: file or folder with certificate authorities; None: those of botocore.
            proxy: URL of the proxy for all requests; None: as the environment says.

        """
        self._open_client = open_client
        self._credentials, self._region, self._limits = credentials, region, limits
        self._certificates, self._proxy = certificates, proxy
        self._stores: dict[tuple[str, float], obstore_stores.S3Store] = {}
        self._regions: dict[str, str] = {}
        self._lock = Lock()

    def store(self, bucket: str, sent_bytes: int = 0) -> obstore_stores.S3Store:
        """Return the store of a bucket, for a request that sends so many bytes. Raises ValueError."""
        key = bucket, self._limits.upload_seconds(sent_bytes)
        found = self._stores.get(key)
        if found is None:
            with self._lock:
                if len(self._stores) >= _MAX_STORES:
                    self._stores.clear()
                found = self._stores[key] = self._open(*key)
        return found

    def move(self, bucket: str, named: str | None) -> bool:
        """Sign for another region from now on; return whether that is another than before.

        named: the region that the store named; None asks the store.
        """
        known = self._regions.get(bucket, self._region)
        region = named or self._ask_region(bucket, known)
        with self._lock:
            if len(self._regions) >= _MAX_STORES:
                self._regions.clear()
            self._regions[bucket] = region
            for key in [key for key in self._stores if key[0] == bucket]:
                del self._stores[key]
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
            request_payer=False,
            s3_express=bucket.endswith(_EXPRESS_SUFFIX),
            conditional_put="etag",
            disable_bulk_delete=True,  # some stores don't have it, and it answers 200 for a refused key
            client_options=self._client_options(read_seconds, is_secure=address.startswith("https:")),
            retry_config={"max_retries": 0},
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

    def _client_options(self, read_seconds: float, *, is_secure: bool) -> ClientConfig:
        options: ClientConfig = {
            "allow_http": True,
            "allow_invalid_certificates": False,
            "connect_timeout": timedelta(seconds=self._limits.connect_seconds),
            "read_timeout": timedelta(seconds=read_seconds),
            "timeout": _MAX_TIMEOUT,
            "pool_max_idle_per_host": str(self._limits.connections),
            "user_agent": USER_AGENT,
        }
        if self._proxy is not None:
            options["proxy_url"] = self._proxy
        trusted = self._certificates or boto_http.get_cert_path(verify=True)
        if is_secure and trusted is not None:
            options["root_certificate"] = _read_certificates(Path(trusted))
        return options


def _read_certificates(path: Path) -> bytes:
    """Read a file of certificates, or all files of a folder. Raises ValueError if there is none."""
    try:
        files = sorted(filter(Path.is_file, path.iterdir())) if path.is_dir() else [path]
        return b"\n".join(file.read_bytes() for file in files)
    except OSError as error:
        raise ValueError(f"certificates {path} can't be read: {error.strerror}") from error
