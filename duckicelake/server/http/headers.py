"""Headers of responses: safety and caching."""

import re
from functools import lru_cache
from typing import Final

from fastapi import Response

from duckicelake.catalog.context.cache import LoadedTable

RawHeader = tuple[bytes, bytes]
_LRU_ENTRIES: Final = 4096
_SAFETY_HEADERS: Final[tuple[RawHeader, ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)
_DEFAULT_HEADERS: Final[tuple[RawHeader, ...]] = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
_TLS_HEADER: Final[RawHeader] = (b"strict-transport-security", b"max-age=31536000")
VARY_HEADERS = "Authorization, X-Iceberg-Access-Delegation"
_RAW_CACHE_HEADERS: Final[tuple[RawHeader, ...]] = ((b"vary", VARY_HEADERS.encode()), (b"cache-control", b"private"))
_JSON_HEADER: Final[RawHeader] = (b"content-type", b"application/json")
_ENTITY_TAG_PATTERN = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')


@lru_cache(_LRU_ENTRIES)
def add_safety_headers(headers: tuple[RawHeader, ...], *, is_https: bool) -> tuple[RawHeader, ...]:
    """Add the headers of every response; what the response says about caching and content policy stays."""
    said = {name for name, _ in headers}
    made = [*headers, *_SAFETY_HEADERS, *(header for header in _DEFAULT_HEADERS if header[0] not in said)]
    if is_https:
        made.append(_TLS_HEADER)
    return tuple(made)


def build_cache_headers(etag: str | None) -> dict[str, str]:
    """Build the headers of every representation of a table, 304 included."""
    headers = {"Vary": VARY_HEADERS, "Cache-Control": "private"}
    return headers if etag is None else {**headers, "ETag": quote_entity_tag(etag)}


def quote_entity_tag(etag: str) -> str:
    """Quote an entity tag, unless it is quoted."""
    return etag if etag.endswith('"') and _ENTITY_TAG_PATTERN.fullmatch(etag) else f'"{etag}"'


def is_unchanged(if_none_match: str | None, etag: str | None) -> bool:
    """Return whether If-None-Match lets us answer 304: weak comparison with each listed tag, or `*`."""
    if if_none_match is None or etag is None:
        return False
    if if_none_match.strip() == "*":
        return True
    ours = _strip_weak_mark(quote_entity_tag(etag))
    return any(_strip_weak_mark(tag) == ours for tag in _ENTITY_TAG_PATTERN.findall(if_none_match))


def build_outcome(
    loaded: LoadedTable, if_none_match: bytes | None
) -> tuple[int, tuple[RawHeader, ...], tuple[bytes, ...]]:
    """Build status, headers and pieces of the body of a load."""
    assert loaded.etag is not None
    if if_none_match is not None:
        headers = _build_headers(loaded.etag)
        if if_none_match == headers[-1][1] or is_unchanged(if_none_match.decode("latin-1"), loaded.etag):
            return 304, headers, ()
    return 200, _build_headers(loaded.etag, sum(map(len, loaded.pieces))), loaded.pieces


def build_conditional_response(body: bytes, etag: str | None, if_none_match: str | None = None) -> Response:
    """Build a response with the JSON body, or 304 if the client's copy is current."""
    headers = build_cache_headers(etag)
    if is_unchanged(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


@lru_cache(_LRU_ENTRIES)
def _build_headers(etag: str, length: int | None = None) -> tuple[RawHeader, ...]:
    """Build the headers of a response with a body of this length, or without one."""
    entity = () if length is None else ((b"content-length", b"%d" % length), _JSON_HEADER)
    return (*entity, *_RAW_CACHE_HEADERS, (b"etag", quote_entity_tag(etag).encode("latin-1")))


def _strip_weak_mark(tag: str) -> str:
    return tag.removeprefix("W/")
