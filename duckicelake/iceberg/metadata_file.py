"""A metadata.json of any writer as a JSON document, plain or gzipped (table spec, "Naming for GZIP compressed ...").

The file may be a stranger's: unpacked it takes at most `MAX_BYTES`.
"""

import zlib
from typing import Final

import orjson

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.model import Json
from duckicelake.iceberg.nul import holds_nul

MAX_BYTES: Final = 256 << 20
MAX_DEPTH: Final = 150
_WRITABLE_DEPTH: Final = 254
"""What orjson writes."""
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


def read_document(data: bytes, location: str) -> Json:
    """The document; InvalidRequest, naming the file, if it isn't JSON or is too large."""
    try:
        plain = _unpacked(data) if data.startswith(_GZIP_MAGIC) else data
        document = orjson.loads(plain)
        _check_depth(document)
    except (zlib.error, EOFError, OverflowError, orjson.JSONDecodeError) as error:
        raise InvalidRequest(f"{location} isn't a metadata.json: {error}") from error
    if holds_nul(plain):
        raise InvalidRequest(f"{location} holds a NUL character (\\u0000), which can't be stored")
    return document


def _check_depth(document: Json) -> None:
    """OverflowError for what could be read, but never be written again: within a few more levels it is too deep."""
    for _ in range(_WRITABLE_DEPTH - MAX_DEPTH):
        document = [document]
    try:
        orjson.dumps(document)
    except orjson.JSONEncodeError as error:
        raise OverflowError(f"it is nested more than {MAX_DEPTH} levels deep") from error


def _unpacked(data: bytes) -> bytes:
    """What one gzip stream holds."""
    stream = zlib.decompressobj(_GZIP_WINDOW)
    plain = stream.decompress(data, MAX_BYTES)
    if stream.unconsumed_tail:
        raise OverflowError(f"unpacked it has more than {MAX_BYTES} bytes")
    if not stream.eof:
        raise EOFError("it ends in the midst of its compressed data")
    return plain
