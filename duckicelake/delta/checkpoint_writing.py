"""PURE. Classic checkpoints: a version's whole state as one Parquet file (protocol, "Checkpoints")."""

import io
from collections.abc import Iterator
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from duckicelake.delta.actions import DeltaSnapshot
from duckicelake.delta.writing import add_json, metadata_json, protocol_json, txn_json

LAST_CHECKPOINT: Final = "_last_checkpoint"
_TEXTS: Final = pa.map_(pa.string(), pa.string())
_VECTOR: Final = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
_ADD: Final = pa.struct(
    {
        "path": pa.string(),
        "partitionValues": _TEXTS,
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "dataChange": pa.bool_(),
        "tags": _TEXTS,
        "deletionVector": _VECTOR,
        "baseRowId": pa.int64(),
        "defaultRowCommitVersion": pa.int64(),
        "stats": pa.string(),
    }
)
_REMOVE: Final = pa.struct(
    {
        "path": pa.string(),
        "deletionTimestamp": pa.int64(),
        "dataChange": pa.bool_(),
        "extendedFileMetadata": pa.bool_(),
        "partitionValues": _TEXTS,
        "size": pa.int64(),
        "deletionVector": _VECTOR,
    }
)
_METADATA: Final = pa.struct(
    {
        "id": pa.string(),
        "name": pa.string(),
        "description": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
        "schemaString": pa.string(),
        "partitionColumns": pa.list_(pa.string()),
        "configuration": _TEXTS,
        "createdTime": pa.int64(),
    }
)
_PROTOCOL: Final = pa.struct(
    {
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "readerFeatures": pa.list_(pa.string()),
        "writerFeatures": pa.list_(pa.string()),
    }
)
_TXN: Final = pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()})
_SCHEMA: Final = pa.schema({"txn": _TXN, "add": _ADD, "remove": _REMOVE, "metaData": _METADATA, "protocol": _PROTOCOL})


def checkpoint_name(version: int) -> str:
    """The name of a version's checkpoint in the log."""
    return f"{version:020d}.checkpoint.parquet"


def encode_checkpoint(snapshot: DeltaSnapshot) -> bytes:
    """The state as a checkpoint; the same state gives the same bytes. Tombstones aren't kept: nothing here vacuums."""
    table = pa.Table.from_pylist(list(_rows(snapshot)), _SCHEMA)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="snappy")
    return buffer.getvalue()


def encode_last_checkpoint(snapshot: DeltaSnapshot) -> bytes:
    """What `_last_checkpoint` says once that checkpoint is there."""
    return orjson.dumps({"version": snapshot.version, "size": 2 + len(snapshot.txns) + len(snapshot.files)})


def _rows(snapshot: DeltaSnapshot) -> Iterator[dict[str, Any]]:
    metadata = metadata_json(snapshot.metadata)
    yield {"protocol": protocol_json(snapshot.protocol)}
    yield {
        "metaData": {
            **metadata,
            "format": {**metadata["format"], "options": []},
            "configuration": list(metadata["configuration"].items()),
        }
    }
    yield from ({"txn": txn_json(snapshot.txns[name])} for name in sorted(snapshot.txns))
    for key in sorted(snapshot.files, key=lambda each: (each.path, each.vector_id or "")):
        add = add_json(snapshot.files[key])
        values = list(add["partitionValues"].items())
        yield {
            "add": {**add, "dataChange": False, "partitionValues": values, "tags": list(add.get("tags", {}).items())}
        }
