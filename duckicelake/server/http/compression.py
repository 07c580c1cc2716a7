"""Compress long responses as the client accepts (RFC 9110, "Accept-Encoding"). Call it in a thread, not in the loop."""

import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from fastapi import Response

from duckicelake.extras import import_extra, is_installed

MIN_COMPRESSED_BYTES: Final = 10_000
"""Of a response that is compressed: shorter ones fit into few packets."""
_LEVEL: Final = 1
_GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS
_LRU_ENTRIES: Final = 256
_MAX_HEADER_CHARS: Final = 200


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP_WINDOW_BITS)
    return packer.compress(body) + packer.flush()


def _zstd(body: bytes) -> bytes:
    packed: bytes = import_extra("zstandard").ZstdCompressor(_LEVEL).compress(body)
    return packed


_PACKERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    **({"zstd": _zstd} if is_installed("zstandard") else {}),
    "gzip": _gzip,
}
"""By content coding, the best first."""


def build_json_response(body: bytes, accept_encoding: str | None) -> Response:
    """Build a response with the JSON body, compressed if that is long and the client accepts it."""
    headers = {"Vary": "Accept-Encoding"}
    coding = None
    if len(body) >= MIN_COMPRESSED_BYTES and accept_encoding and len(accept_encoding) <= _MAX_HEADER_CHARS:
        coding = choose_coding(accept_encoding)
    if coding is not None:
        body, headers["Content-Encoding"] = compress(body, coding), coding
    return Response(body, headers=headers, media_type="application/json")


def compress(body: bytes, coding: str) -> bytes:
    """Compress by a content coding that `choose_coding` returned."""
    return _PACKERS[coding](body)


@lru_cache(_LRU_ENTRIES)
def choose_coding(accept_encoding: str) -> str | None:
    """Return the content coding that the client likes best, of ours; None if it accepts none of them."""
    weights = dict(map(_parse_coding, accept_encoding.lower().split(",")))
    weights.setdefault("gzip", weights.get("x-gzip", 0.0))
    liked = max(_PACKERS, key=lambda coding: weights.get(coding, 0.0))
    weight = weights.get(liked, 0.0)
    return liked if weight > 0 and weight >= weights.get("identity", 0.0) else None


def _parse_coding(text: str) -> tuple[str, float]:
    """Parse a coding and its weight; a weight that is none counts as 0."""
    coding, *parameters = (part.strip() for part in text.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            return coding, _parse_weight(value.strip())
    return coding, 1.0


def _parse_weight(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0
