"""PURE. Location rules of a warehouse: spelling, zones, and which table owns a location."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import quote
from uuid import UUID

from duckicelake.errors import InvalidRequestError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME_ALIASES: Final = {
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    "abfs": "abfss",
    "wasb": "abfss",
    "wasbs": "abfss",
}
_BUCKETS: Final = {
    "s3": (re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"), "s3://<bucket>/<path>, without user or port"),
    "gs": (re.compile(r"[a-z0-9][a-z0-9._-]*"), "gs://<bucket>/<path>, without user or port"),
    "abfss": (
        re.compile(r"[$a-z0-9][a-z0-9-]*@[a-z0-9]{3,24}\.dfs\.[a-z0-9.-]+"),
        "abfss://<container>@<account>.dfs.core.windows.net/<path>",
    ),
}
"""What names a bucket in each kind of store with buckets, and how a location is written there."""
BUCKET_SCHEMES: Final = frozenset(_BUCKETS)
_HOST_OF_BLOBS: Final = re.compile(r"(@[a-z0-9]{3,24})\.blob\.")
_MAX_SEGMENT_BYTES: Final = 160
"""A folder name of a file system holds 255 bytes; the rest is for the table's suffix and for temporary names."""
_MAX_NAME_BYTES: Final = 255
_MAX_LOCATION_BYTES: Final = 860
"""A key of S3 holds 1,024 bytes; the rest is for the names of the files below."""
_MAX_FILE_BYTES: Final = 2000
_LRU_ENTRIES: Final = 4096
_MAX_CACHED_CHARACTERS: Final = 2 * _MAX_FILE_BYTES
"""Characters of a location. Clients may send one as long as a body; valid ones are shorter."""


def canonicalize(location: str) -> str:
    """Return the canonical spelling of a location, for comparisons. Locations are stored and sent as received.

    `/x`, `file:/x` and `file:///x` become `file:///x`; s3a and s3n become s3, gcs becomes gs, abfs, wasb and wasbs
    become abfss, and Azure's host of blobs that of files; a trailing slash is removed. In local paths, empty and `.`
    segments vanish and `..` is resolved, never above the root. Keys of other stores are literal.
    Nothing is percent-decoded, since no reader does that.

    Raises:
        InvalidRequestError: the location isn't absolute; or it has a `.` or `..` segment, which clients resolve
            differently; or, in a bucket, an empty segment, which some stores drop.

    """
    return _canonicalize_cached(location) if len(location) <= _MAX_CACHED_CHARACTERS else _canonicalize(location)


def _canonicalize(location: str) -> str:
    if _CONTROL.search(location):
        raise InvalidRequestError(f"location {location!r} holds a control character")
    scheme, authority, path = _split(location)
    if scheme != "file":
        _check_key(location, scheme, authority, path)
        return f"{scheme}://{authority}/{path}".rstrip("/")
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment not in {"", "."}:
            segments.append(segment)
    return "/".join(("file://", *segments)) if segments else "file:///"


_canonicalize_cached = lru_cache(_LRU_ENTRIES)(_canonicalize)


def _check_key(location: str, scheme: str, authority: str, path: str) -> None:
    if not {".", ".."}.isdisjoint(path.split("/")):
        raise InvalidRequestError(
            f"location {location!r} has a segment . or ..: keys are literal, write what it stands for"
        )
    if scheme not in _BUCKETS:
        return
    pattern, example = _BUCKETS[scheme]
    if not pattern.fullmatch(authority):
        raise InvalidRequestError(f"location {location!r} names no bucket: write {example}")
    if scheme == "abfss" and "\\" in path:
        raise InvalidRequestError(
            f"location {location!r} holds a backslash, which Azure makes a slash: write it without"
        )
    if "//" in f"/{path.rstrip('/')}":
        raise InvalidRequestError(
            f"location {location!r} has an empty segment, which some stores drop from the key: write one slash, not two"
        )
    if "?" in path or "#" in path:
        raise InvalidRequestError(
            f"location {location!r} holds ? or #, where some readers end the key and take options: write it without"
        )


def _split(location: str) -> tuple[str, str, str]:
    match = _SCHEME.match(location)
    if match is None:
        if not location.startswith("/"):
            raise InvalidRequestError(f"location {location!r} is neither a URI nor an absolute path")
        return "file", "", location
    scheme = match[1].lower()
    scheme = _SCHEME_ALIASES.get(scheme, scheme)
    rest = location[match.end() :]
    if scheme == "file":
        return scheme, "", _parse_file_path(location, rest, has_authority=match[2] is not None)
    authority, _, path = rest.partition("/")
    if match[2] is None or not authority:
        raise InvalidRequestError(f"location {location!r} names no bucket: write {scheme}://<bucket>/<path>")
    return scheme, _HOST_OF_BLOBS.sub(r"\1.dfs.", authority.lower()) if scheme == "abfss" else authority, path


def _parse_file_path(location: str, rest: str, *, has_authority: bool) -> str:
    if has_authority and rest.startswith("localhost/"):
        return rest.removeprefix("localhost")
    if not rest.startswith("/"):
        raise InvalidRequestError(f"location {location!r} isn't an absolute local path: write file:///<path>")
    return rest


def check_file(location: str) -> None:
    """Raise InvalidRequestError if readers would disagree on which data or delete file the location names."""
    try:
        length = len(location.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"the path {location!r} isn't valid Unicode") from error
    if length > _MAX_FILE_BYTES:
        raise InvalidRequestError(f"the path {location[:80]}… has more than {_MAX_FILE_BYTES} bytes")
    if _CONTROL.search(location):
        raise InvalidRequestError(f"the path {location!r} holds a control character")
    if _SCHEME.match(location):
        canonicalize(location)


def is_within(location: str, prefix: str) -> bool:
    """Return whether location is prefix or lies below it, by whole segments (`/orders2` isn't within `/orders`)."""
    inner, outer = canonicalize(location), canonicalize(prefix).rstrip("/")
    return inner == outer or inner.startswith(outer + "/")


def list_prefixes(place: str) -> list[str]:
    """Return all prefixes of a canonical location by whole segments, itself included."""
    scheme, _, rest = place.partition("://")
    segments = rest.split("/")
    return [f"{scheme}://{'/'.join(segments[:count])}" for count in range(1, len(segments) + 1)]


@dataclass(frozen=True, slots=True)
class LocationPolicy:
    """Decide where tables of a warehouse may be, and which files the server may read for them.

    Attributes:
        warehouse: absolute path or URI, without trailing slash.
        allowed: further prefixes for tables.
        lake_path: the DATA_PATH of a lake that was adopted, as the registry has it; None: `data_path`.
        foreign: prefixes below which all but the own places are other warehouses'; None: that is so everywhere.
        advice: how an administrator allows further prefixes.

    """

    warehouse: str
    allowed: tuple[str, ...] = ()
    lake_path: str | None = None
    foreign: tuple[str, ...] | None = ()
    advice: str = "the server's DUCKICELAKE_ALLOWED_LOCATIONS adds places"

    @property
    def places(self) -> tuple[str, ...]:
        """The prefixes of the warehouse's files."""
        return (self.warehouse, *self.allowed, *(() if self.lake_path is None else (self.lake_path,)))

    def holds(self, location: str) -> bool:
        """Return whether a location may be the warehouse's, whatever its catalog says. Raises InvalidRequestError."""
        if self.foreign is None:
            return any(is_within(location, place) for place in self.places)
        is_foreign = any(is_within(location, place) for place in self.foreign)
        return not is_foreign or any(is_within(location, place) for place in self.places)

    def check_held(self, location: str) -> None:
        """Raise InvalidRequestError for a location in no place of the warehouse."""
        if not self.holds(location):
            raise InvalidRequestError(
                f"{location} isn't in the warehouse: "
                + (
                    f"expected a place below {' or '.join(self.places)} ({self.advice})"
                    if self.foreign is None
                    else f"below {' and '.join(self.foreign)} are the files of others"
                )
            )

    @property
    def data_path(self) -> str:
        """DuckLake's DATA_PATH, for DuckLake's own files only."""
        return f"{self.warehouse}/ducklake/"

    @property
    def data_zone(self) -> str:
        """The folder of Iceberg tables, unless a client asks for an allowed prefix."""
        return f"{_format_uri(self.warehouse)}/data"

    def table_location(self, namespace: tuple[str, ...], name: str, table_uuid: UUID | str) -> str:
        """Build the location of a new table: readable, legal in every store, unique.

        The end of the uuid makes it unique: uuids that DuckDB makes within a minute begin alike.
        """
        return f"{self.namespace_folder(namespace)}/{_format_segment(name)}-{str(table_uuid)[-8:]}"

    def namespace_folder(self, namespace: tuple[str, ...]) -> str:
        """Build the folder of a namespace; each of its tables has a folder below."""
        return "/".join((self.data_zone, *(_format_segment(level) for level in namespace)))

    def check_table_location(self, location: str) -> None:
        """Raise InvalidRequestError unless a table may be here."""
        _check_length(location)
        if is_within(location, self.data_path) or is_within(self.data_path, location):
            raise InvalidRequestError(
                f"location {location} overlaps {self.data_path}, where DuckLake keeps its files: "
                f"choose one below {self._zones(self.data_zone)}"
            )
        if is_within(self.data_zone, location) or not self._is_in(location, self.data_zone):
            raise InvalidRequestError(f"location {location} isn't below {self._zones(self.data_zone)}")

    def check_readable(self, location: str, table_location: str, folders: Iterable[str] = ()) -> None:
        """Raise InvalidRequestError unless the file belongs to the table, its folders or an allowed prefix."""
        if not self._is_in(location, table_location, *folders):
            raise InvalidRequestError(
                f"{location} can't be read by the server: it must lie in {self._zones(table_location)}"
            )

    def check_property(self, name: str, value: str, table_location: str) -> None:
        """Raise InvalidRequestError unless a property's value lies in the table's location or an allowed prefix."""
        if not self._is_in(value, table_location):
            raise InvalidRequestError(
                f"Invalid {name} {value!r}: a table's files must lie in {self._zones(table_location)}"
            )

    def _is_in(self, location: str, *zones: str) -> bool:
        return any(is_within(location, prefix) for prefix in (*zones, *self.allowed))

    def _zones(self, zone: str) -> str:
        return f"{' or '.join((zone, *self.allowed))} ({self.advice})"


def _check_length(location: str) -> None:
    """Raise InvalidRequestError if names of files wouldn't fit below the location: the table would be unreadable."""
    data = location.encode(errors="replace")
    if len(data) > _MAX_LOCATION_BYTES:
        raise InvalidRequestError(
            f"location {location[:80]}… has {len(data)} bytes: choose one of up to {_MAX_LOCATION_BYTES}"
        )
    if any(len(segment) > _MAX_NAME_BYTES for segment in data.split(b"/")):
        raise InvalidRequestError(
            f"location {location[:80]}… has a folder whose name is longer than {_MAX_NAME_BYTES} bytes"
        )


def _format_uri(warehouse: str) -> str:
    """Format a warehouse as Iceberg locations: a folder as `file:/x`, a URI unchanged.

    Spark and Flink write names of local files as Hadoop's Path does, `file:/x`. With another spelling a table's files
    would begin in two ways, and `rewrite_table_path` replaces one prefix.
    """
    return f"file:{warehouse}" if warehouse.startswith("/") else warehouse


def _format_segment(name: str) -> str:
    """Encode a name as one path segment: percent-encoded, never `.` or `..`, cut to the file system's limit."""
    encoded = quote(name, safe="", errors="replace")
    if not encoded.strip("."):
        encoded = encoded.replace(".", "%2E")
    return re.sub(r"%[0-9A-F]?$", "", encoded[:_MAX_SEGMENT_BYTES])


_UNSCOPED_PATTERNS: Final = {"s3": re.compile(r"[*?$]"), "gs": re.compile(r"['\"\\\\]")}
"""What can't be written in the policy that bounds keys of a store."""


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """A folder in a bucket. location: as clients spell it, with a trailing slash."""

    location: str
    is_writable: bool = False

    @property
    def scheme(self) -> str:
        """The canonical scheme of the store."""
        return canonicalize(self.location).partition("://")[0]

    @property
    def bucket(self) -> str:
        """The bucket; in Azure the container with the account's host."""
        return _split_location(self.location)[0]

    @property
    def key(self) -> str:
        """The prefix of keys below the folder: ends in a slash, or is empty for the whole bucket."""
        return _split_location(self.location)[1]

    def holds(self, bucket: str, key: str) -> bool:
        """Return whether an object of that key lies below."""
        return bucket == self.bucket and key.startswith(self.key) and key != self.key


def parse_folder(location: str, *, is_writable: bool = False) -> StoreFolder | None:
    """Parse a location into a folder; None unless it lies in a bucket, and keys can be bounded to it."""
    try:
        scheme = canonicalize(location).partition("://")[0]
    except InvalidRequestError:
        return None
    unscoped = _UNSCOPED_PATTERNS.get(scheme)
    if scheme not in BUCKET_SCHEMES or (unscoped is not None and unscoped.search(location)):
        return None
    return StoreFolder(location.rstrip("/") + "/", is_writable)


def _split_location(location: str) -> tuple[str, str]:
    bucket, _, key = canonicalize(location).partition("://")[2].partition("/")
    return bucket, f"{key}/" if key else ""
