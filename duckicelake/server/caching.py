"""Validators and conditional requests, RFC 9110 §8.8.3 and §13.1.2."""

import re
from functools import lru_cache
from typing import Final

from fastapi import Response

from duckicelake.catalog.loads.cache import LoadedTable
from duckicelake.server.headers import Header

VARY = "Authorization, X-Iceberg-Access-Delegation"
_CACHE_HEADERS: Final[tuple[Header, ...]] = ((b"vary", VARY.encode()), (b"cache-control", b"private"))
_JSON: Final[Header] = (b"content-type", b"application/json")
_REMEMBERED: Final = 4096
_ENTITY_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')


def cache_headers(etag: str | None) -> dict[str, str]:
    """What accompanies every representation of a table, 304 included."""
    headers = {"Vary": VARY, "Cache-Control": "private"}
    return headers if etag is None else {**headers, "ETag": as_entity_tag(etag)}


def as_entity_tag(etag: str) -> str:
    """The tag in quotes, if it isn't already."""
    return etag if etag.endswith('"') and _ENTITY_TAG.fullmatch(etag) else f'"{etag}"'


def is_unchanged(if_none_match: str | None, etag: str | None) -> bool:
    """Whether If-None-Match lets us answer 304: weak comparison with each listed tag, or `*`."""
    if if_none_match is None or etag is None:
        return False
    if if_none_match.strip() == "*":
        return True
    ours = _opaque(as_entity_tag(etag))
    return any(_opaque(tag) == ours for tag in _ENTITY_TAG.findall(if_none_match))


def outcome(loaded: LoadedTable, if_none_match: bytes | None) -> tuple[int, tuple[Header, ...], tuple[bytes, ...]]:
    """The same as status, headers and pieces of the body, for those who send them themselves."""
    assert loaded.etag is not None
    if if_none_match is not None:
        headers = _headers(loaded.etag)
        if if_none_match == headers[-1][1] or is_unchanged(if_none_match.decode("latin-1"), loaded.etag):
            return 304, headers, ()
    return 200, _headers(loaded.etag, sum(map(len, loaded.pieces))), loaded.pieces


def conditional(body: bytes, etag: str | None, if_none_match: str | None = None) -> Response:
    """The JSON body, or 304 without one where the client's copy is the current one."""
    headers = cache_headers(etag)
    if is_unchanged(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


@lru_cache(_REMEMBERED)
def _headers(etag: str, length: int | None = None) -> tuple[Header, ...]:
    """Of an answer with a body of this length, or without one."""
    entity = () if length is None else ((b"content-length", b"%d" % length), _JSON)
    return (*entity, *_CACHE_HEADERS, (b"etag", as_entity_tag(etag).encode("latin-1")))


def _opaque(tag: str) -> str:
    return tag.removeprefix("W/")
