"""Validators and conditional requests, RFC 9110 §8.8.3 and §13.1.2."""

import re

from fastapi import Response

VARY = "Authorization, X-Iceberg-Access-Delegation"
_ENTITY_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')


def cache_headers(etag: str | None) -> dict[str, str]:
    """What accompanies every representation of a table, 304 included."""
    headers = {"Vary": VARY, "Cache-Control": "private"}
    return headers if etag is None else {**headers, "ETag": as_entity_tag(etag)}


def as_entity_tag(etag: str) -> str:
    """The tag in quotes, if it isn't already."""
    return etag if _ENTITY_TAG.fullmatch(etag) else f'"{etag}"'


def is_unchanged(if_none_match: str | None, etag: str | None) -> bool:
    """Whether If-None-Match lets us answer 304: weak comparison with each listed tag, or `*`."""
    if if_none_match is None or etag is None:
        return False
    if if_none_match.strip() == "*":
        return True
    ours = _opaque(as_entity_tag(etag))
    return any(_opaque(tag) == ours for tag in _ENTITY_TAG.findall(if_none_match))


def conditional(body: bytes, etag: str | None, if_none_match: str | None = None) -> Response:
    """The JSON body, or 304 without one where the client's copy is the current one."""
    headers = cache_headers(etag)
    if is_unchanged(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def _opaque(tag: str) -> str:
    return tag.removeprefix("W/")
