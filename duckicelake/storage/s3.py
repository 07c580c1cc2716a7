"""An object store of S3 buckets, or of any store that speaks S3's protocol, behind one endpoint."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, IncompleteReadError, ReadTimeoutError, ResponseStreamingError
from botocore.handlers import add_expect_header
from botocore.response import StreamingBody

from duckicelake.errors import (
    AlreadyExistsError,
    FileMissingError,
    InvalidRequestError,
    InvalidSettingsError,
    UnavailableError,
)
from duckicelake.storage.policy import canonicalize
from duckicelake.storage.protocol import NewObject, StoredFile, check_length, check_same_length
from duckicelake.storage.s3_errors import translate_s3_errors, translate_settings_errors
from duckicelake.storage.s3_obstore import (
    USER_AGENT,
    ConditionsUnknownError,
    ConnectionLimits,
    NoPlainAnswerError,
    ObstoreRequests,
)
from duckicelake.storage.s3_requests import DEFAULT_REGION
from duckicelake.storage.threads import run_in_parallel

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

T = TypeVar("T")
_S3_PREFIX: Final = "s3://"
_CHUNK_BYTES: Final = 1 << 20
_MAX_ATTEMPTS: Final = 3
_EXISTS_STATUSES: Final = frozenset({409, 412})  # it is there, or somebody is writing it
_NOT_IMPLEMENTED_STATUS: Final = 501
_BROKEN_READ_ERRORS: Final = (IncompleteReadError, ReadTimeoutError, ResponseStreamingError)
_PROBE_CONTENT: Final = b"duckicelake tries here whether it can write\n"


@dataclass(frozen=True, slots=True)
class S3Options:
    """Settings for S3. Without keys boto3 looks in the environment, a profile and the machine's role.

    Attributes:
        endpoint: None is Amazon's.
        connect_timeout: seconds.
        read_timeout: seconds.
        max_attempts: attempts of boto3, the first one included, obstore's plain request before it not.

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

    def session(self) -> boto3.Session:
        """Open a boto3 session. Raises InvalidSettingsError without credentials, or for an unknown profile."""
        with translate_settings_errors():
            session = boto3.Session(
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

    def config(self) -> Config:
        """Return the configuration of boto3's clients."""
        return Config(
            connect_timeout=self.connect_timeout,
            read_timeout=self.read_timeout,
            retries={"mode": "standard", "total_max_attempts": self.max_attempts},
            max_pool_connections=self.max_connections,
            s3={"addressing_style": "path" if self.path_style else "auto"},
            # Measured: validating parameters and building the user agent are a quarter of botocore's work on a request.
            parameter_validation=False,
            user_agent=USER_AGENT,
            # Some stores other than Amazon's don't know the checksums that boto3 would send.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )

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
        session = options.session()
        region = options.region_of(session)
        with translate_settings_errors():
            self.client, namesake = (_open_client(session, options, region) for _ in range(2))
        # boto3 would send `Expect: 100-continue` before a body: a round trip for each small file.
        self.client.meta.events.unregister("before-call.s3", add_expect_header)
        credentials = session.get_credentials()
        assert credentials is not None
        limits = ConnectionLimits(options.connect_timeout, options.read_timeout, options.max_connections)
        self._plain = ObstoreRequests(namesake, credentials, region, limits)
        self.knows_conditions = True
        """Whether the store takes `If-None-Match`. The first refusal clears it."""

    def read(self, location: str, at_most: int | None = None) -> bytes:
        with translate_s3_errors(location, self.options.endpoint), suppress(NoPlainAnswerError):
            return self._plain.read(*parse_s3_location(location), at_most)
        return self._get(location, lambda body: body.read(), at_most)

    def read_end(self, location: str, at_most: int) -> tuple[bytes, int]:
        bucket, key = parse_s3_location(location)
        length = self.size(location)
        if not length:
            return b"", 0
        wanted = f"bytes={max(length - at_most, 0)}-{length - 1}"
        with translate_s3_errors(location, self.options.endpoint):
            for _ in range(_MAX_ATTEMPTS - 1):
                with suppress(*_BROKEN_READ_ERRORS):
                    return self._range(bucket, key, wanted), length
            return self._range(bucket, key, wanted), length

    def _range(self, bucket: str, key: str, wanted: str) -> bytes:
        with closing(self.client.get_object(Bucket=bucket, Key=key, Range=wanted)["Body"]) as body:
            return body.read()

    def download(self, location: str, path: Path) -> None:
        self._get(location, lambda body: _save_body(body, path))

    def write(self, location: str, data: bytes) -> None:
        bucket, key = parse_s3_location(location)
        with translate_s3_errors(location, self.options.endpoint):
            for _ in range(_MAX_ATTEMPTS):
                if self._put(bucket, key, data):
                    return
                present = self._length(bucket, key)
                if present is not None:
                    check_same_length(location, present, len(data))
                    return
        raise UnavailableError(
            f"{location} was written and deleted by other clients during each of {_MAX_ATTEMPTS} attempts: try again"
        )

    def write_all(self, files: Sequence[NewObject]) -> None:
        run_in_parallel(lambda file: self.write(*file), files)

    def write_derived(self, files: Sequence[NewObject]) -> None:
        run_in_parallel(lambda file: self._write_derived(*file), files)

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
            return self._length(*parse_s3_location(location))

    def delete(self, location: str) -> None:
        bucket, key = parse_s3_location(location)
        with translate_s3_errors(location, self.options.endpoint):
            self.client.delete_object(Bucket=bucket, Key=key)

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
        self.client.close()

    def _get(self, location: str, consume: Callable[[StreamingBody], T], at_most: int | None = None) -> T:
        """Read a file by `consume`; start over if the connection breaks meanwhile."""
        with translate_s3_errors(location, self.options.endpoint):
            for _ in range(_MAX_ATTEMPTS - 1):
                try:
                    return self._consume(location, consume, at_most)
                except _BROKEN_READ_ERRORS:
                    continue
            return self._consume(location, consume, at_most)

    def _consume(self, location: str, consume: Callable[[StreamingBody], T], at_most: int | None) -> T:
        bucket, key = parse_s3_location(location)
        answer = self.client.get_object(Bucket=bucket, Key=key)
        with closing(answer["Body"]) as body:
            check_length(location, answer["ContentLength"], at_most)
            return consume(body)

    def _write_derived(self, location: str, data: bytes) -> None:
        try:
            self.write(location, data)
        except AlreadyExistsError:
            bucket, key = parse_s3_location(location)
            with translate_s3_errors(location, self.options.endpoint):
                self.client.put_object(Bucket=bucket, Key=key, Body=data)

    def _put(self, bucket: str, key: str, data: bytes) -> bool:
        """Write unless a file is there; return whether it was written."""
        if self.knows_conditions:
            try:
                return self._put_new(bucket, key, data)
            except ConditionsUnknownError:
                self.knows_conditions = False
        return self._put_after_looking(bucket, key, data)

    def _put_new(self, bucket: str, key: str, data: bytes) -> bool:
        with suppress(NoPlainAnswerError):
            return self._plain.create(bucket, key, data)
        try:
            self.client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
        except ClientError as error:
            if _read_status(error) in _EXISTS_STATUSES:
                return False
            if _read_status(error) == _NOT_IMPLEMENTED_STATUS:
                raise ConditionsUnknownError from error
            raise
        return True

    def _put_after_looking(self, bucket: str, key: str, data: bytes) -> bool:
        """Write unless a file is there, without a condition. Concurrent writers of one name write the same bytes."""
        if self._length(bucket, key) is not None:
            return False
        self.client.put_object(Bucket=bucket, Key=key, Body=data)
        return True

    def _length(self, bucket: str, key: str) -> int | None:
        with suppress(NoPlainAnswerError):
            return self._plain.length(bucket, key)
        try:
            return self.client.head_object(Bucket=bucket, Key=key)["ContentLength"]
        except ClientError as error:
            if _read_status(error) == 404:
                return None
            raise


def _open_client(session: boto3.Session, options: S3Options, region: str) -> "S3Client":
    return session.client("s3", endpoint_url=options.endpoint, region_name=region, config=options.config())


def _read_status(error: ClientError) -> int:
    return error.response["ResponseMetadata"]["HTTPStatusCode"]


def _save_body(body: StreamingBody, path: Path) -> None:
    with path.open("wb") as file:
        for chunk in body.iter_chunks(_CHUNK_BYTES):
            file.write(chunk)
