"""An object store of buckets, through obstore: what S3, Google Cloud Storage and Azure have in common."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeVar

from duckicelake.errors import AlreadyExistsError, FileMissingError, InvalidRequestError, UnavailableError
from duckicelake.extras import DeferredModule
from duckicelake.storage.failed_requests import RequestFailedError
from duckicelake.storage.policy import canonicalize
from duckicelake.storage.protocol import NewObject, StoredFile, build_length_error, check_same_length
from duckicelake.storage.threads import run_in_parallel

if TYPE_CHECKING:
    from obstore import exceptions as obstore_errors
    from obstore import store as obstore_stores

    ObstoreBucket: TypeAlias = obstore_stores.S3Store | obstore_stores.GCSStore | obstore_stores.AzureStore
else:
    obstore_errors = DeferredModule("obstore.exceptions")

T = TypeVar("T")
ObjectContent: TypeAlias = "bytes | Path"
"""Of a file to write: bytes, or a local file that has them."""
_CHUNK_BYTES: Final = 1 << 20
_MAX_WRITE_ROUNDS: Final = 3
_FIRST_PAUSE_SECONDS: Final = 0.25
_MAX_PAUSE_SECONDS: Final = 20.0
PARALLEL_PARTS: Final = 4
"""How many parts of a file are sent at once."""
_PROBE_CONTENT: Final = b"duckicelake tries here whether it can write\n"


def parse_bucket_location(location: str, scheme: str) -> tuple[str, str]:
    """Parse a location into (bucket, key). Raises InvalidRequestError unless it names a file of the scheme."""
    uri, prefix = canonicalize(location), f"{scheme}://"
    bucket, _, key = uri.removeprefix(prefix).partition("/")
    if not uri.startswith(prefix):
        raise InvalidRequestError(f"Invalid location {location!r}: this store reads and writes only {prefix} locations")
    if not key or location.endswith("/"):
        raise InvalidRequestError(f"Invalid location {location!r}: it names no file; expected {prefix}<bucket>/<key>")
    return bucket, key


def measure_content(content: ObjectContent) -> int:
    """Return the bytes of a file to write."""
    return content.stat().st_size if isinstance(content, Path) else len(content)


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """Sizes of uploads: S3 takes at most 5 GB in one request, and at most 10,000 parts of a file.

    Attributes:
        whole_bytes: up to which a file is sent in one request.
        part_bytes: of each part of a larger file, unless there would be too many.
        parts: of a file at most.

    """

    whole_bytes: int = 256 << 20
    part_bytes: int = 64 << 20
    parts: int = 10_000

    def find_part_bytes(self, length: int) -> int:
        """Return the size of each part of a file."""
        return max(self.part_bytes, -(-length // self.parts))


class BucketStore(ABC):
    """An object store (`storage/protocol.py`) of one scheme's locations. Threads share it.

    Attributes:
        root: the warehouse; `check` leaves a small file there, `.duckicelake`.
        knows_conditions: whether the store takes conditional writes (`If-None-Match`).
        limits: from which size on a file is sent in parts.

    """

    scheme: ClassVar[str]

    def __init__(self, root: str, max_attempts: int) -> None:
        self.root = root.rstrip("/")
        self.knows_conditions = True
        self.limits = UploadLimits()
        self._max_attempts = max_attempts

    @abstractmethod
    def open_bucket(self, bucket: str, sent_bytes: int = 0) -> ObstoreBucket:
        """Return obstore's store of a bucket, for a request that sends so many bytes. Raises ValueError."""

    @abstractmethod
    def translate_errors(self, location: str) -> AbstractContextManager[None]:
        """Raise an error of the error tree for one of obstore about a location."""

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
        self._write(location, data)

    def upload(self, location: str, path: Path) -> None:
        self._write(location, path)

    def _write(self, location: str, content: ObjectContent) -> None:
        with self.translate_errors(location):
            for _ in range(_MAX_WRITE_ROUNDS):
                if self.create(location, content):
                    return
                present = self._length(location)
                if present is not None:
                    check_same_length(location, present, measure_content(content))
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

    def overwrite(self, location: str, content: ObjectContent) -> None:
        """Write a file, whether or not one is there."""
        if self._is_in_parts(content):
            self.put_parts(location, content)
            return
        length = measure_content(content)
        self._ask(location, lambda bucket, key: bucket.put(key, content, use_multipart=False), length)

    def _is_in_parts(self, content: ObjectContent) -> bool:
        """Return whether a file goes in parts: obstore reads one that goes as a whole into memory."""
        limit = self.limits.part_bytes if isinstance(content, Path) else self.limits.whole_bytes
        return measure_content(content) > limit

    def put_parts(self, location: str, content: ObjectContent) -> None:
        """Write a file in parts, whether or not one is there. Raises errors of the error tree."""
        part_bytes = self.limits.find_part_bytes(measure_content(content))

        def put(bucket: ObstoreBucket, key: str) -> None:
            bucket.put(key, content, use_multipart=True, chunk_size=part_bytes, max_concurrency=PARALLEL_PARTS)

        self._ask(location, put, part_bytes * PARALLEL_PARTS)

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
        with self.translate_errors(location):
            return self._length(location)

    def delete(self, location: str) -> None:
        def remove(bucket: ObstoreBucket, key: str) -> None:
            try:
                bucket.delete(key)
            except FileNotFoundError:
                return

        self._ask(location, remove)

    def files_below(self, folder: str) -> Iterator[StoredFile]:
        bucket, prefix = parse_bucket_location(folder.rstrip("/"), self.scheme)
        with self.translate_errors(folder):
            try:
                for page in self.open_bucket(bucket).list(f"{prefix}/"):
                    for entry in page:
                        modified_ms = round(entry["last_modified"].timestamp() * 1000)
                        yield StoredFile(f"{self.scheme}://{bucket}/{entry['path']}", entry["size"], modified_ms)
            except obstore_errors.BaseError as error:
                raise RequestFailedError.from_obstore(error, prefix) from error

    def try_list(self, root: str) -> None:
        """Ask for the first files below a location. Raises errors of the error tree."""
        next(iter(self.files_below(root)), None)

    def local_path(self, location: str) -> Path | None:
        parse_bucket_location(location, self.scheme)
        return None

    def check(self) -> None:
        self.write(f"{self.root}/.duckicelake", _PROBE_CONTENT)

    def close(self) -> None:
        return None

    def create(self, location: str, content: ObjectContent) -> bool:
        """Write unless a file is there; return whether it was written. Raises RequestFailedError."""

        def put_new(bucket: ObstoreBucket, key: str) -> bool:
            try:
                bucket.put(key, content, mode="create", use_multipart=False)
            except obstore_errors.AlreadyExistsError:  # or another client is writing it
                return False
            return True

        if self._is_in_parts(content):  # obstore has no condition for parts
            return self.create_after_look(location, content)
        return self._send(location, put_new, measure_content(content))

    def create_after_look(self, location: str, content: ObjectContent) -> bool:
        """Write unless a file is there, without a condition. Concurrent writers of one name write the same bytes."""
        if self._length(location) is not None:
            return False
        self.overwrite(location, content)
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
        with self.translate_errors(location):
            return self._send(location, request, sent_bytes)

    def _send(self, location: str, request: Callable[[ObstoreBucket, str], T], sent_bytes: int = 0) -> T:
        """Send a request about a location; repeat it while it may succeed. Raises RequestFailedError."""
        bucket, key = parse_bucket_location(location, self.scheme)
        attempt = 1
        while True:
            store = self.open_bucket(bucket, sent_bytes)
            try:
                return request(store, key)
            except (obstore_errors.BaseError, FileNotFoundError) as error:
                failure = RequestFailedError.from_obstore(error, key)
                if not self.may_repeat(bucket, failure, attempt):
                    raise failure from error
            attempt += 1

    def may_repeat(self, bucket: str, failure: RequestFailedError, attempt: int) -> bool:  # noqa: ARG002
        """Return whether a failed request may succeed now, after a pause; `attempt` counts from 1."""
        if attempt >= self._max_attempts or not failure.is_temporary:
            return False
        sleep(random.random() * min(_FIRST_PAUSE_SECONDS * 4 ** (attempt - 1), _MAX_PAUSE_SECONDS))  # noqa: S311
        return True
