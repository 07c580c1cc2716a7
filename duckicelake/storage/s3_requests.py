"""What a request to S3 would do, if the server signed it: pure, from method, URL, headers and body to keys.

Everything that isn't known to be harmless is refused: other hosts, subresources (`?acl`, `?policy`, `?versionId`),
headers that S3 obeys, paths that two readers might take for different keys. What is let through is spelled anew, so
that what was checked is what is signed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, unquote_to_bytes, urlsplit

from duckicelake.errors import Forbidden, InvalidRequest
from duckicelake.storage.multi_delete import deleted_keys

UNSIGNED: Final = "UNSIGNED-PAYLOAD"
_PAYLOADS: Final = re.compile(r"UNSIGNED-PAYLOAD|STREAMING-UNSIGNED-PAYLOAD-TRAILER|[0-9a-f]{64}")
_URI: Final = re.compile(r"https?://[\x21\x24-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e]+")
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HIDDEN: Final = re.compile(r"%2[fF]|%5[cC]|[\\]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_AWS_HOST: Final = re.compile(
    r"(?:(?P<bucket>[a-z0-9][a-z0-9.-]*)\.)?s3(?:[.-](?:fips\.|dualstack\.)?[a-z]{2}(?:-[a-z]+)+-\d)?\.amazonaws\.com(?:\.cn)?"
)

_READING: Final = frozenset({"x-id", "partNumber"})
_PARTS: Final = frozenset({"x-id", "uploadId", "max-parts", "part-number-marker"})
_LISTING: Final = frozenset(
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
_HEADERS: Final = frozenset(
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
        "x-amz-storage-class",
        "x-amz-te",
        "x-amz-trailer",
        "x-amz-user-agent",
    }
)
_CHECKSUM: Final = re.compile(r"x-amz-checksum-(crc32|crc32c|crc64nvme|sha1|sha256)")
_OBEYED: Final = ("x-amz-", "x-minio-", "x-goog-", "x-oss-", "x-obs-")
"""How headers begin that stores obey."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that a client wants signed. headers: by name, in whatever case."""

    method: str
    uri: str
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    body: str | None = None


@dataclass(frozen=True, slots=True)
class Touch:
    """One object that a request reads or writes; or, as a listing, all whose keys begin with `key`."""

    bucket: str
    key: str
    writes: bool = False
    lists: bool = False


@dataclass(frozen=True, slots=True)
class Examined:
    """A request that is well understood: what it touches, and how it is to be signed and sent."""

    touches: tuple[Touch, ...]
    method: str
    uri: str
    headers: Mapping[str, str]
    payload: str

    @property
    def is_reading(self) -> bool:
        """Whether it changes nothing, so that its signature may be used again."""
        return not any(touch.writes for touch in self.touches)


def examine(asked: Asked, endpoint: str | None, *, is_path_style: bool = False) -> Examined:
    """What the request would do. endpoint: where clients find the store; None: AWS.

    is_path_style: the store takes a bucket from the path, whatever the host's name says.

    Raises InvalidRequest for what is no request to S3, Forbidden for what no table's reader or writer needs.
    """
    method = asked.method.upper()
    parts = _split(asked.uri)
    bucket, path, base = _addressed(parts, endpoint, is_path_style=is_path_style)
    key = _key(path)
    query = _query(parts.query)
    headers = _headers(asked.headers, parts.netloc)
    payload = headers.pop("x-amz-content-sha256", UNSIGNED)
    if not _PAYLOADS.fullmatch(payload):
        raise Forbidden(f"x-amz-content-sha256 {payload!r} can't be signed: send {UNSIGNED}")
    if key:
        touches = _of_object(method, bucket, key, query, headers)
    elif method == "POST" and set(query) <= {"delete", "x-id"} and "delete" in query:
        touches, payload = _deleting(bucket, asked.body)
    else:
        touches = _of_bucket(method, bucket, query)
    return Examined(touches, method, base + quote(key, safe="/-_.~") + _encoded(query), headers, payload)


def _split(uri: str) -> SplitResult:
    if not _URI.fullmatch(uri) or _BROKEN_ESCAPE.search(uri):
        raise InvalidRequest(f"uri {uri[:200]!r} isn't a properly encoded http(s) URL")
    parts = urlsplit(uri)
    if "@" in parts.netloc or _HIDDEN.search(parts.path):
        raise Forbidden(f"uri {uri[:200]!r} holds a user, or an encoded slash or backslash")
    return parts


def _addressed(parts: SplitResult, endpoint: str | None, *, is_path_style: bool) -> tuple[str, str, str]:
    """(The bucket, the encoded key, the URL up to it), addressed by path or by host name."""
    host = _host(parts)
    if endpoint is None:
        match = _AWS_HOST.fullmatch(host)
        if match is None or parts.scheme != "https":
            raise Forbidden(f"{parts.scheme}://{host} isn't where this lake's files are: AWS's S3, by https")
        bucket = match["bucket"]
    else:
        ours = urlsplit(endpoint)
        bucket = host.removesuffix("." + _host(ours)) if host != _host(ours) else None
        if parts.scheme != ours.scheme or bucket == host or (is_path_style and bucket is not None):
            raise Forbidden(f"{parts.scheme}://{host} isn't where this lake's files are: {endpoint}")
    origin = f"{parts.scheme}://{parts.netloc}/"
    path = parts.path.removeprefix("/")
    if bucket is not None:
        return bucket, path, origin
    bucket, slash, key = path.partition("/")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", bucket):
        raise Forbidden(f"uri {parts.geturl()[:200]!r} names no bucket")
    return bucket, key, origin + bucket + slash


def _host(parts: SplitResult) -> str:
    return parts.netloc.lower().removesuffix(_DEFAULT_PORTS[parts.scheme])


def _key(path: str) -> str:
    try:
        key = unquote_to_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"key {path[:200]!r} isn't UTF-8") from error
    return _checked(key) if key else key


def _checked(key: str) -> str:
    """The key, if every reader takes it for the same: not with `.`, `..` or empty segments, or control characters."""
    if not {"", ".", ".."}.isdisjoint(key.split("/")) or _CONTROL.search(key):
        raise Forbidden(f"key {key[:200]!r} has an empty segment, . or .., or a control character")
    return key


def _query(query: str) -> dict[str, str]:
    if "+" in query or ";" in query:
        raise InvalidRequest("the query holds + or ;, which not every reader takes for the same: write %2B, %20 or %3B")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, encoding="utf-8", errors="strict", max_num_fields=20)
    except ValueError as error:
        raise InvalidRequest(f"the query can't be read: {error}") from error
    values = dict(pairs)
    if len(values) != len(pairs):
        raise InvalidRequest("the query names a parameter twice")
    return values


def _encoded(query: Mapping[str, str]) -> str:
    pairs = (f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in query.items())
    return "?" + "&".join(pairs) if query else ""


def _headers(given: Mapping[str, Sequence[str]], netloc: str) -> dict[str, str]:
    """What is to be signed of the headers: those that S3 obeys, and the digest of the body."""
    signed: dict[str, str] = {}
    for raw, values in given.items():
        name = raw.strip().lower()
        if name == "host" and list(values) != [netloc]:
            raise Forbidden(f"the host header names {values}, the uri {netloc}")
        if name.startswith(_OBEYED) and name not in _HEADERS and not _CHECKSUM.fullmatch(name):
            raise Forbidden(f"header {raw} isn't signed: no reader or writer of tables needs it")
        if name.startswith("x-amz-") or name == "content-md5":
            if len(values) != 1 or name in signed or _CONTROL.search(values[0]):
                raise InvalidRequest(f"header {raw} must have one value")
            signed[name] = values[0]
    signed.pop("x-amz-date", None)
    return signed


def _of_object(
    method: str, bucket: str, key: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> tuple[Touch, ...]:
    names = set(query)
    source = headers.get("x-amz-copy-source")
    if source is not None and (method != "PUT" or names - {"x-id", "partNumber", "uploadId"}):
        raise Forbidden("x-amz-copy-source goes with PUT of an object or a part only")
    if method in {"GET", "HEAD"} and names <= _READING:
        return (Touch(bucket, key),)
    is_written = (
        (method == "GET" and names <= _PARTS and "uploadId" in names)
        or (method == "PUT" and (names <= {"x-id"} or names - {"x-id"} == {"partNumber", "uploadId"}))
        or (method == "POST" and names - {"x-id"} in ({"uploads"}, {"uploadId"}))
        or (method == "DELETE" and names <= {"x-id", "uploadId"})
    )
    if not is_written:
        raise Forbidden(f"{method} of an object with {sorted(names) or 'no parameters'} isn't signed")
    written = Touch(bucket, key, writes=True)
    return (written,) if source is None else (written, _copied(source))


def _copied(source: str) -> Touch:
    if "?" in source or _BROKEN_ESCAPE.search(source):
        raise Forbidden("x-amz-copy-source names a version, or isn't properly encoded")
    bucket, _, key = source.removeprefix("/").partition("/")
    try:
        decoded = unquote(key, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidRequest("x-amz-copy-source isn't UTF-8") from error
    if "%2f" in source.lower() or not bucket or not key or decoded != unquote(decoded):
        raise Forbidden("x-amz-copy-source isn't /<bucket>/<key>, encoded once")
    return Touch(bucket, _checked(decoded))


def _of_bucket(method: str, bucket: str, query: Mapping[str, str]) -> tuple[Touch, ...]:
    if method != "GET" or not set(query) <= _LISTING or "prefix" not in query:
        raise Forbidden(
            f"{method} of a bucket with {sorted(query) or 'no parameters'} isn't signed: list with a prefix"
        )
    prefix = query["prefix"]
    if not {".", ".."}.isdisjoint(prefix.split("/")) or "//" in prefix or prefix.startswith("/"):
        raise Forbidden(f"prefix {prefix[:200]!r} has an empty segment, . or ..")
    return (Touch(bucket, prefix, lists=True),)


def _deleting(bucket: str, body: str | None) -> tuple[tuple[Touch, ...], str]:
    """(The objects that a multi-object delete names, the digest that ties the signature to its body)."""
    if body is None:
        raise InvalidRequest("a request that deletes several objects is signed with its body only: send it as `body`")
    keys = deleted_keys(body)
    return tuple(Touch(bucket, _checked(key), writes=True) for key in keys), sha256(body.encode()).hexdigest()
