"""PURE. Check what a request to S3 would do if the server signed it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, unquote_to_bytes, urlsplit
from xml.parsers.expat import ExpatError, ParserCreate

from duckicelake.errors import ForbiddenError, InvalidRequestError

DEFAULT_REGION: Final = "us-east-1"
MAX_DELETED_KEYS: Final = 1000
MAX_DELETE_CHARACTERS: Final = 4 * 1024 * 1024
"""Characters of a multi-object delete: a thousand keys of a kilobyte, each letter an escape at worst."""
_DELETE_PATHS: Final = {
    ("Delete",),
    ("Delete", "Quiet"),
    ("Delete", "Object"),
    ("Delete", "Object", "Key"),
}
UNSIGNED_PAYLOAD: Final = "UNSIGNED-PAYLOAD"
_PAYLOAD_PATTERN: Final = re.compile(r"UNSIGNED-PAYLOAD|STREAMING-UNSIGNED-PAYLOAD-TRAILER|[0-9a-f]{64}")
_URI_PATTERN: Final = re.compile(r"https?://[\x21\x24-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e]+")
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HIDDEN_SEPARATOR: Final = re.compile(r"%2[fF]|%5[cC]|[\\]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_AWS_HOST_PATTERN: Final = re.compile(
    r"(?:(?P<bucket>[a-z0-9][a-z0-9.-]*)\.)?s3(?:[.-](?:fips\.|dualstack\.)?[a-z]{2}(?:-[a-z]+)+-\d)?\.amazonaws\.com(?:\.cn)?"
)
_READ_PARAMETERS: Final = frozenset({"x-id", "partNumber"})
_PART_PARAMETERS: Final = frozenset({"x-id", "uploadId", "max-parts", "part-number-marker"})
_LIST_PARAMETERS: Final = frozenset(
    {
        "list-type",
        "prefix",
        "delimiter",
        "max-keys",
        "start-after",
        "marker",
        "continuation-token",
        "encoding-type",
        "fetch-owner",
        "x-id",
    }
)
_ALLOWED_HEADERS: Final = frozenset(
    {
        "x-amz-checksum-algorithm",
        "x-amz-checksum-mode",
        "x-amz-checksum-type",
        "x-amz-content-sha256",
        "x-amz-copy-source",
        "x-amz-copy-source-if-match",
        "x-amz-copy-source-if-modified-since",
        "x-amz-copy-source-if-none-match",
        "x-amz-copy-source-if-unmodified-since",
        "x-amz-copy-source-range",
        "x-amz-date",
        "x-amz-decoded-content-length",
        "x-amz-expected-bucket-owner",
        "x-amz-metadata-directive",
        "x-amz-mp-object-size",
        "x-amz-sdk-checksum-algorithm",
        "x-amz-server-side-encryption",
        "x-amz-server-side-encryption-aws-kms-key-id",
        "x-amz-storage-class",
        "x-amz-te",
        "x-amz-trailer",
        "x-amz-user-agent",
    }
)
_CHECKSUM_HEADER: Final = re.compile(r"x-amz-checksum-(crc32|crc32c|crc64nvme|sha1|sha256)")
_OBEYED_PREFIXES: Final = ("x-amz-", "x-minio-", "x-goog-", "x-oss-", "x-obs-")
"""Prefixes of headers that stores obey."""


def parse_deleted_keys(body: str) -> tuple[str, ...]:
    """Parse the keys of a multi-object delete.

    Raises:
        InvalidRequestError: the body isn't a multi-object delete.
        ForbiddenError: the body holds more than keys.

    """
    if len(body) > MAX_DELETE_CHARACTERS:
        raise InvalidRequestError(f"the body has more than {MAX_DELETE_CHARACTERS} characters")
    reader = _DeleteReader()
    try:
        reader.read(body)
    except (ExpatError, UnicodeEncodeError) as error:
        raise InvalidRequestError(f"the body isn't the XML of a multi-object delete: {error}") from error
    if not reader.keys:
        raise InvalidRequestError("the body names no keys")
    if len(reader.keys) > MAX_DELETED_KEYS:
        raise InvalidRequestError(f"the body names more than {MAX_DELETED_KEYS} keys")
    return tuple(reader.keys)


class _DeleteReader:
    """Collect keys from the XML parser's events; refuse every other shape."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._path: tuple[str, ...] = ()
        self._text = ""
        self._named = 0

    def read(self, body: str) -> None:
        parser = ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = _refuse_document
        parser.EntityDeclHandler = _refuse_document
        parser.CommentHandler = _refuse_document
        parser.ProcessingInstructionHandler = _refuse_document
        parser.StartCdataSectionHandler = _refuse_document
        parser.Parse(body.encode(), True)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._path = (*self._path, name)
        if self._path not in _DELETE_PATHS or set(attributes) - ({"xmlns"} if len(self._path) == 1 else set()):
            raise ForbiddenError(
                f"the body of a multi-object delete may not hold {'/'.join(self._path)} {attributes or ''}"
            )
        self._text = ""

    def _end(self, name: str) -> None:
        if name == "Key":
            if self._text != self._text.strip() or not self._text:
                raise ForbiddenError(f"key {self._text[:200]!r} is empty, or begins or ends with white space")
            self.keys.append(self._text)
            self._named += 1
        elif name == "Object":
            if self._named != 1:
                raise InvalidRequestError("each Object must have one Key")
            self._named = 0
        elif self._text.strip() and name == "Delete":
            raise InvalidRequestError("there is text between the elements")
        self._path = self._path[:-1]
        self._text = ""

    def _characters(self, text: str) -> None:
        if self._path[-1] not in {"Key", "Quiet"} and text.strip():
            raise InvalidRequestError("there is text between the elements")
        self._text += text


def _refuse_document(*_: object) -> None:
    raise ForbiddenError("the body may not hold document types, entities, comments, instructions or CDATA")


@dataclass(frozen=True, slots=True)
class SignatureRequest:
    """A request that a client wants signed. headers: by name, in any case."""

    method: str
    uri: str
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    body: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectAccess:
    """One object that a request reads or writes. lists: all objects whose keys begin with `key`."""

    bucket: str
    key: str
    writes: bool = False
    lists: bool = False


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A checked request: the objects that it touches, and what is signed and sent."""

    touches: tuple[ObjectAccess, ...]
    method: str
    uri: str
    headers: Mapping[str, str]
    payload: str

    @property
    def is_reading(self) -> bool:
        """Whether it only reads, so that its signature may be used again."""
        return not any(touch.writes for touch in self.touches)


def check_request(asked: SignatureRequest, endpoint: str | None, *, is_path_style: bool = False) -> CheckedRequest:
    """Check what a request would do at the store.

    Args:
        asked: the client's request.
        endpoint: the store's address for clients; None is AWS.
        is_path_style: the store takes the bucket from the path, whatever the host's name is.

    Raises:
        InvalidRequestError: it is no request to S3.
        ForbiddenError: no reader or writer of tables needs it.

    """
    method = asked.method.upper()
    parts = _split_uri(asked.uri)
    bucket, path, base = _parse_address(parts, endpoint, is_path_style=is_path_style)
    key = _decode_key(path)
    query = _parse_query(parts.query)
    headers = _select_headers(asked.headers, parts.netloc)
    payload = headers.pop("x-amz-content-sha256", UNSIGNED_PAYLOAD)
    if not _PAYLOAD_PATTERN.fullmatch(payload):
        raise ForbiddenError(f"x-amz-content-sha256 {payload!r} can't be signed: send {UNSIGNED_PAYLOAD}")
    if key:
        touches = _list_object_accesses(method, bucket, key, query, headers)
    elif method == "POST" and set(query) <= {"delete", "x-id"} and "delete" in query:
        touches, payload = _list_deletions(bucket, asked.body)
    else:
        touches = _list_bucket_accesses(method, bucket, query)
    return CheckedRequest(touches, method, base + quote(key, safe="/-_.~") + _encode_query(query), headers, payload)


def _split_uri(uri: str) -> SplitResult:
    if not _URI_PATTERN.fullmatch(uri) or _BROKEN_ESCAPE.search(uri):
        raise InvalidRequestError(f"uri {uri[:200]!r} isn't a properly encoded http(s) URL")
    parts = urlsplit(uri)
    if "@" in parts.netloc or _HIDDEN_SEPARATOR.search(parts.path):
        raise ForbiddenError(f"uri {uri[:200]!r} holds a user, or an encoded slash or backslash")
    return parts


def _parse_address(parts: SplitResult, endpoint: str | None, *, is_path_style: bool) -> tuple[str, str, str]:
    """Parse a path-style or host-style URL into (bucket, encoded key, URL up to the key)."""
    host = _format_host(parts)
    if endpoint is None:
        match = _AWS_HOST_PATTERN.fullmatch(host)
        if match is None or parts.scheme != "https":
            raise ForbiddenError(f"{parts.scheme}://{host} isn't where this lake's files are: AWS's S3, by https")
        bucket = match["bucket"]
    else:
        ours = urlsplit(endpoint)
        bucket = host.removesuffix("." + _format_host(ours)) if host != _format_host(ours) else None
        if parts.scheme != ours.scheme or bucket == host or (is_path_style and bucket is not None):
            raise ForbiddenError(f"{parts.scheme}://{host} isn't where this lake's files are: {endpoint}")
    origin = f"{parts.scheme}://{parts.netloc}/"
    path = parts.path.removeprefix("/")
    if bucket is not None:
        return bucket, path, origin
    bucket, slash, key = path.partition("/")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", bucket):
        raise ForbiddenError(f"uri {parts.geturl()[:200]!r} names no bucket")
    return bucket, key, origin + bucket + slash


def _format_host(parts: SplitResult) -> str:
    return parts.netloc.lower().removesuffix(_DEFAULT_PORTS[parts.scheme])


def _decode_key(path: str) -> str:
    try:
        key = unquote_to_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"key {path[:200]!r} isn't UTF-8") from error
    return _check_key(key) if key else key


def _check_key(key: str) -> str:
    """Return the key. Raises ForbiddenError for segments or characters on which readers differ."""
    if not {"", ".", ".."}.isdisjoint(key.split("/")) or _CONTROL.search(key):
        raise ForbiddenError(f"key {key[:200]!r} has an empty segment, . or .., or a control character")
    return key


def _parse_query(query: str) -> dict[str, str]:
    if "+" in query or ";" in query:
        raise InvalidRequestError(
            "the query holds + or ;, which not every reader takes for the same: write %2B, %20 or %3B"
        )
    try:
        pairs = parse_qsl(query, keep_blank_values=True, encoding="utf-8", errors="strict", max_num_fields=20)
    except ValueError as error:
        raise InvalidRequestError(f"the query can't be read: {error}") from error
    values = dict(pairs)
    if len(values) != len(pairs):
        raise InvalidRequestError("the query names a parameter twice")
    return values


def _encode_query(query: Mapping[str, str]) -> str:
    pairs = (f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in query.items())
    return "?" + "&".join(pairs) if query else ""


def _select_headers(given: Mapping[str, Sequence[str]], netloc: str) -> dict[str, str]:
    """Return the headers to sign: those that S3 obeys, and the digest of the body."""
    signed: dict[str, str] = {}
    for raw, values in given.items():
        name = raw.strip().lower()
        if name == "host" and list(values) != [netloc]:
            raise ForbiddenError(f"the host header names {values}, the uri {netloc}")
        if name.startswith(_OBEYED_PREFIXES) and name not in _ALLOWED_HEADERS and not _CHECKSUM_HEADER.fullmatch(name):
            raise ForbiddenError(f"header {raw} isn't signed: no reader or writer of tables needs it")
        if name.startswith("x-amz-") or name == "content-md5":
            if len(values) != 1 or name in signed or _CONTROL.search(values[0]):
                raise InvalidRequestError(f"header {raw} must have one value")
            signed[name] = values[0]
    signed.pop("x-amz-date", None)
    return signed


def _list_object_accesses(
    method: str, bucket: str, key: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> tuple[ObjectAccess, ...]:
    names = set(query)
    source = headers.get("x-amz-copy-source")
    if source is not None and (method != "PUT" or names - {"x-id", "partNumber", "uploadId"}):
        raise ForbiddenError("x-amz-copy-source goes with PUT of an object or a part only")
    if method in {"GET", "HEAD"} and names <= _READ_PARAMETERS:
        return (ObjectAccess(bucket, key),)
    is_written = (
        (method == "GET" and names <= _PART_PARAMETERS and "uploadId" in names)
        or (method == "PUT" and (names <= {"x-id"} or names - {"x-id"} == {"partNumber", "uploadId"}))
        or (method == "POST" and names - {"x-id"} in ({"uploads"}, {"uploadId"}))
        or (method == "DELETE" and names <= {"x-id", "uploadId"})
    )
    if not is_written:
        raise ForbiddenError(f"{method} of an object with {sorted(names) or 'no parameters'} isn't signed")
    written = ObjectAccess(bucket, key, writes=True)
    return (written,) if source is None else (written, _parse_copy_source(source))


def _parse_copy_source(source: str) -> ObjectAccess:
    if "?" in source or _BROKEN_ESCAPE.search(source):
        raise ForbiddenError("x-amz-copy-source names a version, or isn't properly encoded")
    bucket, _, key = source.removeprefix("/").partition("/")
    try:
        decoded = unquote(key, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidRequestError("x-amz-copy-source isn't UTF-8") from error
    if "%2f" in source.lower() or not bucket or not key or decoded != unquote(decoded):
        raise ForbiddenError("x-amz-copy-source isn't /<bucket>/<key>, encoded once")
    return ObjectAccess(bucket, _check_key(decoded))


def _list_bucket_accesses(method: str, bucket: str, query: Mapping[str, str]) -> tuple[ObjectAccess, ...]:
    if method != "GET" or not set(query) <= _LIST_PARAMETERS or "prefix" not in query:
        raise ForbiddenError(
            f"{method} of a bucket with {sorted(query) or 'no parameters'} isn't signed: list with a prefix"
        )
    prefix = query["prefix"]
    if not {".", ".."}.isdisjoint(prefix.split("/")) or "//" in prefix or prefix.startswith("/"):
        raise ForbiddenError(f"prefix {prefix[:200]!r} has an empty segment, . or ..")
    return (ObjectAccess(bucket, prefix, lists=True),)


def _list_deletions(bucket: str, body: str | None) -> tuple[tuple[ObjectAccess, ...], str]:
    """Return (objects that a multi-object delete names, digest of the body that the signature covers)."""
    if body is None:
        raise InvalidRequestError(
            "a request that deletes several objects is signed with its body only: send it as `body`"
        )
    keys = parse_deleted_keys(body)
    return tuple(ObjectAccess(bucket, _check_key(key), writes=True) for key in keys), sha256(body.encode()).hexdigest()
