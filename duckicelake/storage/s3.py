"""An object store of S3 buckets, or of any store that speaks S3's protocol, behind one endpoint.

obstore sends the requests for objects, five times cheaper than boto3 and without Python's lock. boto3 finds keys,
regions and addresses, and lists folders: obstore aborts a listing at a key with an empty segment, and names the marker
`x/` of a folder as a file `x`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from duckicelake.errors import (
    AlreadyExistsError,
    FileMissingError,
    InvalidRequestError,
    InvalidSettingsError,
    UnavailableError,
)
from duckicelake.extras import DeferredModule
from duckicelake.storage.policy import canonicalize
from duckicelake.storage.protocol import NewObject, StoredFile, build_length_error, check_same_length
from duckicelake.storage.s3_buckets import USER_AGENT, Buckets, ConnectionLimits
from duckicelake.storage.s3_errors import RequestFailedError, translate_s3_errors, translate_settings_errors
from duckicelake.storage.s3_requests import DEFAULT_REGION
from duckicelake.storage.threads import run_in_parallel

if TYPE_CHECKING:
    import boto3
    from botocore import config as boto_config
    from botocore import loaders as boto_loaders
    from botocore import session as boto_session
    from obstore import exceptions as obstore_errors
    from obstore.store import S3Store as ObstoreBucket
    from types_boto3_s3 import S3Client
else:
    boto3, boto_config = DeferredModule("boto3"), DeferredModule("botocore.config")
    boto_loaders, boto_session = DeferredModule("botocore.loaders"), DeferredModule("botocore.session")
    obstore_errors = DeferredModule("obstore.exceptions")

T = TypeVar("T")
_S3_PREFIX: Final = "s3://"
_CHUNK_BYTES: Final = 1 << 20
_MAX_WRITE_ROUNDS: Final = 3
_FIRST_PAUSE_SECONDS: Final = 0.25
_MAX_PAUSE_SECONDS: Final = 20.0
_NOT_IMPLEMENTED_STATUS: Final = 501
_PROBE_CONTENT: Final = b"duckicelake tries here whether it can write\n"


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

    def session(self) -> boto3.Session:
        """Open a boto3 session. Raises InvalidSettingsError without credentials, or for an unknown profile."""
        reader = boto_session.Session()
        reader.register_component("data_loader", _open_descriptions())
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


def parse_s3_location(location: str) -> tuple[str, str]:
    """Parse a location into (bucket, key). Raises InvalidRequestError unless it names a file in S3."""
    uri = canonicalize(location)
    bucket, _, key = uri.removeprefix(_S3_PREFIX).partition("/")
    if not uri.startswith(_S3_PREFIX):
        raise InvalidRequestError(f"Invalid location {location!r}: this server reads and writes only s3:// locations")
    if not key or location.endswith("/"):
        raise InvalidRequestError(f"Invalid location {location!r}: it names no file; expected s3://<bucket>/<key>")
    return bucket, key


class S3Store:
    """An object store (`storage/protocol.py`) of s3://, s3a:// and s3n:// locations. Threads share it.

    root: the warehouse; `check` leaves a small file there, `.duckicelake`.
    """

    def __init__(self, root: str, options: S3Options) -> None:
        """Make clients without connecting. Raises InvalidSettingsError without credentials."""
        self.root = root.rstrip("/")
        self.options = options
        self._session = options.session()
        self._clients: dict[str, S3Client] = {}
        region = options.region_of(self._session)
        self.client = self._open_client(region)
        credentials = self._session.get_credentials()
        assert credentials is not None
        limits = ConnectionLimits(options.connect_timeout, options.read_timeout, options.max_connections)
        self._buckets = Buckets(self._open_client, credentials, region, limits, options.certificates(), options.proxy)
        self.knows_conditions = True
        """Whether the store takes `If-None-Match`. The first refusal clears it."""

    def find_address(self, bucket: str) -> tuple[str, str]:
        """Return (the URL of a bucket's objects, the region to sign for), for another client of the same store."""
        return self._buckets.find_address(bucket)

    def _open_client(self, region: str) -> S3Client:
        """Return boto3's client of a region."""
        if region not in self._clients:
            with translate_settings_errors():
                self._clients[region] = self._session.client(
                    "s3", endpoint_url=self.options.endpoint, region_name=region, config=self.options.config()
                )
        return self._clients[region]

    def read(self, location: str, at_most: int | None = None) -> bytes:
        def get(bucket: ObstoreBucket, key: str) -> bytes:
            answer = bucket.get(key)
            if at_most is not None and answer.meta["size"] > at_most:
                raise build_length_error(location, answer.meta["size"], at_most)
            return answer.bytes().to_bytes()

        return self._ask(location, get)

    def read_end(self, location: str, at_most: int) -> tuple[bytes, int]:
        length = self.size(location)
        if not length:
            return b"", 0  # stores don't agree on how they answer a range of nothing
        start = max(length - at_most, 0)
        end = self._ask(location, lambda bucket, key: bucket.get_range(key, start=start, end=length).to_bytes())
        return end, length

    def download(self, location: str, path: Path) -> None:
        def save(bucket: ObstoreBucket, key: str) -> None:
            with path.open("wb") as file:
                for chunk in bucket.get(key).stream(min_chunk_size=_CHUNK_BYTES):
                    file.write(chunk)

        self._ask(location, save)

    def write(self, location: str, data: bytes) -> None:
        with translate_s3_errors(location, self.options.endpoint):
            for _ in range(_MAX_WRITE_ROUNDS):
                if self._create(location, data):
                    return
                present = self._length(location)
                if present is not None:
                    check_same_length(location, present, len(data))
                    return
        raise UnavailableError(
            f"{location} was written and deleted by other clients during each of {_MAX_WRITE_ROUNDS} attempts: "
            "try again"
        )

    def write_all(self, files: Sequence[NewObject]) -> None:
        run_in_parallel(lambda file: self.write(*file), files)

    def write_derived(self, files: Sequence[NewObject]) -> None:
        run_in_parallel(lambda file: self._write_derived(*file), files)

    def _write_derived(self, location: str, data: bytes) -> None:
        try:
            self.write(location, data)
        except AlreadyExistsError:
            self.overwrite(location, data)

    def overwrite(self, location: str, data: bytes) -> None:
        """Write a file, whether or not one is there."""
        self._ask(location, lambda bucket, key: bucket.put(key, data, use_multipart=False), len(data))

    def exists(self, location: str) -> bool:
        return self._size_if_there(location) is not None

    def size(self, location: str) -> int:
        length = self._size_if_there(location)
        if length is None:
            raise FileMissingError(f"{location} doesn't exist")
        return length

    def sizes(self, locations: Sequence[str]) -> list[int | None]:
        return run_in_parallel(self._size_if_there, locations)

    def _size_if_there(self, location: str) -> int | None:
        with translate_s3_errors(location, self.options.endpoint):
            return self._length(location)

    def delete(self, location: str) -> None:
        self._ask(location, lambda bucket, key: bucket.delete(key))

    def files_below(self, folder: str) -> Iterator[StoredFile]:
        bucket, prefix = parse_s3_location(folder.rstrip("/"))
        with translate_s3_errors(folder, self.options.endpoint):
            for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/"):
                for entry in page.get("Contents", ()):
                    modified_ms = round(entry["LastModified"].timestamp() * 1000)
                    yield StoredFile(f"{_S3_PREFIX}{bucket}/{entry['Key']}", entry["Size"], modified_ms)

    def local_path(self, location: str) -> Path | None:
        parse_s3_location(location)
        return None

    def check(self) -> None:
        self.write(f"{self.root}/.duckicelake", _PROBE_CONTENT)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _create(self, location: str, data: bytes) -> bool:
        """Write unless a file is there; return whether it was written."""

        def put_new(bucket: ObstoreBucket, key: str) -> bool:
            try:
                bucket.put(key, data, mode="create", use_multipart=False)
            except obstore_errors.AlreadyExistsError:  # or another client is writing it
                return False
            return True

        if self.knows_conditions:
            try:
                return self._send(location, put_new, len(data))
            except RequestFailedError as error:
                if error.status != _NOT_IMPLEMENTED_STATUS:
                    raise
                self.knows_conditions = False
        return self._create_after_looking(location, data)

    def _create_after_looking(self, location: str, data: bytes) -> bool:
        """Write unless a file is there, without a condition. Concurrent writers of one name write the same bytes."""
        if self._length(location) is not None:
            return False
        self.overwrite(location, data)
        return True

    def _length(self, location: str) -> int | None:
        def head(bucket: ObstoreBucket, key: str) -> int | None:
            try:
                return bucket.head(key)["size"]
            except FileNotFoundError:
                return None

        return self._send(location, head)

    def _ask(self, location: str, request: Callable[[ObstoreBucket, str], T], sent_bytes: int = 0) -> T:
        """Send a request as `_send` does. Raises errors of the error tree."""
        with translate_s3_errors(location, self.options.endpoint):
            return self._send(location, request, sent_bytes)

    def _send(self, location: str, request: Callable[[ObstoreBucket, str], T], sent_bytes: int = 0) -> T:
        """Send a request about a location; repeat it while it may succeed. Raises RequestFailedError."""
        bucket, key = parse_s3_location(location)
        attempt = 1
        while True:
            store = self._buckets.store(bucket, sent_bytes)
            try:
                return request(store, key)
            except (obstore_errors.BaseError, FileNotFoundError) as error:
                failure = RequestFailedError.from_obstore(error, key)
                if not self._may_repeat(bucket, failure, attempt):
                    raise failure from error
            attempt += 1

    def _may_repeat(self, bucket: str, failure: RequestFailedError, attempt: int) -> bool:
        """Return whether a failed request may succeed now, after a pause or in another region."""
        if failure.status is None:
            self._buckets.check_credentials()
        if failure.is_misplaced:
            return attempt <= self.options.max_attempts and self._buckets.move(bucket, failure.region)
        if attempt >= self.options.max_attempts or not failure.is_temporary:
            return False
        sleep(random.random() * min(_FIRST_PAUSE_SECONDS * 4 ** (attempt - 1), _MAX_PAUSE_SECONDS))  # noqa: S311
        return True
