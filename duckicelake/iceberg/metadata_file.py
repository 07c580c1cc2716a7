"""Read metadata.json files of any writer: plain, gzipped, or of an older format version."""

import uuid
import zlib
from collections.abc import Callable
from itertools import count
from typing import Final

import orjson

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.model import Json, has_nul
from duckicelake.iceberg.partition import FIRST_PARTITION_FIELD_ID
from duckicelake.iceberg.snapshot import MAIN

MAX_METADATA_BYTES: Final = 256 << 20
MAX_DEPTH: Final = 150
_WRITABLE_DEPTH: Final = 254
"""Levels that orjson writes."""
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_UNSORTED: Final = {"order-id": 0, "fields": []}
_NO_SNAPSHOT: Final = -1


def read_document(data: bytes, location: str) -> Json:
    """Parse a document. InvalidRequestError names the file: it isn't JSON, or too large."""
    try:
        plain = _unpack_gzip(data) if data.startswith(_GZIP_MAGIC) else data
        document = orjson.loads(plain)
        _check_depth(document)
    except (zlib.error, EOFError, OverflowError, orjson.JSONDecodeError) as error:
        raise InvalidRequestError(f"{location} isn't a metadata.json: {error}") from error
    if has_nul(plain):
        raise InvalidRequestError(f"{location} holds a NUL character (\\u0000), which can't be stored")
    return document


def _check_depth(document: Json) -> None:
    """Raise OverflowError for a document that can be read, but not be written again with a few more levels."""
    for _ in range(_WRITABLE_DEPTH - MAX_DEPTH):
        document = [document]
    try:
        orjson.dumps(document)
    except orjson.JSONEncodeError as error:
        raise OverflowError(f"it is nested more than {MAX_DEPTH} levels deep") from error


def _unpack_gzip(data: bytes) -> bytes:
    """Unpack one gzip stream."""
    stream = zlib.decompressobj(_GZIP_WINDOW)
    plain = stream.decompress(data, MAX_METADATA_BYTES)
    if stream.unconsumed_tail:
        raise OverflowError(f"unpacked it has more than {MAX_METADATA_BYTES} bytes")
    if not stream.eof:
        raise EOFError("it ends in the midst of its compressed data")
    return plain


def normalize_metadata(data: dict[str, Json]) -> dict[str, Json]:
    """Write out everything that readers may infer. Malformed values stay, for the caller to refuse.

    A version 1 table without a uuid gets one that follows from its location.
    """
    present = {key: value for key, value in data.items() if value is not None}
    return _add_main(_upgrade_version_1(present) if present["format-version"] == 1 else present)


def _upgrade_version_1(data: dict[str, Json]) -> dict[str, Json]:
    defaults: dict[str, Json] = {
        "table-uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, str(data.get("location")))),
        "last-sequence-number": 0,
        "sort-orders": [_UNSORTED],
        "default-sort-order-id": 0,
        "default-spec-id": 0,
    }
    if "schemas" not in data and isinstance(data.get("schema"), dict):
        schema = {"schema-id": 0} | data["schema"]
        defaults |= {"schemas": [schema], "current-schema-id": schema["schema-id"]}
    if "partition-specs" not in data and "partition-spec" in data:
        defaults["partition-specs"] = [{"spec-id": 0, "fields": data["partition-spec"]}]
    merged = defaults | data
    specs = _map_objects(_add_field_ids, merged.get("partition-specs"))
    return {"last-partition-id": _find_last_partition_id(specs)} | merged | {"partition-specs": specs}


def _add_field_ids(spec: Json) -> Json:
    numbers = count(FIRST_PARTITION_FIELD_ID)
    if not isinstance(spec, dict):
        return spec
    return spec | {"fields": _map_objects(lambda field: _add_field_id(field, next(numbers)), spec.get("fields"))}


def _add_field_id(field: Json, field_id: int) -> Json:
    return {"field-id": field_id} | field if isinstance(field, dict) else field


def _find_last_partition_id(specs: Json) -> int:
    ids = (field["field-id"] for spec in _select_objects(specs) for field in _select_objects(spec["fields"]))
    return max((id_ for id_ in ids if isinstance(id_, int)), default=FIRST_PARTITION_FIELD_ID - 1)


def _map_objects(change: Callable[[Json], Json], values: Json) -> Json:
    return [change(value) for value in values] if isinstance(values, list) else values


def _select_objects(values: Json) -> list[dict[str, Json]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _add_main(data: dict[str, Json]) -> dict[str, Json]:
    current, refs = data.get("current-snapshot-id"), data.get("refs", {})
    if current == _NO_SNAPSHOT:
        return {key: value for key, value in data.items() if key != "current-snapshot-id"}
    if current is None or not isinstance(refs, dict) or MAIN in refs:
        return data
    return data | {"refs": refs | {MAIN: {"snapshot-id": current, "type": "branch"}}}
