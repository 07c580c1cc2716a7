"""PURE. Encode commits and classic checkpoints as bytes, the same for the same actions (protocol, "Actions")."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import orjson

from duckicelake.delta.log.actions import (
    AddFile,
    DeletionVector,
    DeltaCommit,
    DeltaSnapshot,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from duckicelake.delta.log.paths import encode_path
from duckicelake.extras import DeferredModule

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa = DeferredModule("pyarrow")
    pq = DeferredModule("pyarrow.parquet")


Json = dict[str, Any]
LAST_CHECKPOINT: Final = "_last_checkpoint"


def format_commit_name(version: int) -> str:
    """Format the name of a version's file in the log."""
    return f"{version:020d}.json"


def encode_commit(commit: DeltaCommit) -> bytes:
    """Encode a version's file, an action a line. `commitInfo` is first, as in-commit timestamps require."""
    return b"".join(orjson.dumps(action) + b"\n" for action in _encode_actions(commit))


def _encode_actions(commit: DeltaCommit) -> Iterator[Json]:
    if commit.info:
        yield {"commitInfo": dict(commit.info)}
    if commit.protocol is not None:
        yield {"protocol": encode_protocol(commit.protocol)}
    if commit.metadata is not None:
        yield {"metaData": encode_metadata(commit.metadata)}
    yield from ({"txn": encode_txn(txn)} for txn in commit.txns)
    yield from ({"remove": _encode_remove(remove)} for remove in commit.removes)
    yield from ({"add": encode_add(add)} for add in commit.adds)


def encode_protocol(protocol: Protocol) -> Json:
    """Encode a `protocol` action, with its features in order."""
    features = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    named = {key: sorted(names) for key, names in features.items() if names is not None}
    return {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        **named,
    }


def encode_metadata(metadata: Metadata) -> Json:
    values = {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": metadata.format_provider, "options": {}},
        "schemaString": metadata.schema_string,
        "partitionColumns": list(metadata.partition_columns),
        "configuration": dict(sorted(metadata.configuration.items())),
        "createdTime": metadata.created_ms,
    }
    return _drop_absent(values)


def encode_txn(txn: Txn) -> Json:
    return _drop_absent({"appId": txn.app_id, "version": txn.version, "lastUpdated": txn.last_updated_ms})


def encode_add(add: AddFile) -> Json:
    values = {
        "path": encode_path(add.path),
        "partitionValues": dict(add.partition_values),
        "size": add.size,
        "modificationTime": add.modification_ms,
        "dataChange": add.data_change,
        "stats": add.stats,
        "tags": dict(add.tags) or None,
        "deletionVector": _encode_optional_vector(add.deletion_vector),
        "baseRowId": add.base_row_id,
        "defaultRowCommitVersion": add.default_row_commit_version,
    }
    return _drop_absent(values)


def _encode_remove(remove: RemoveFile) -> Json:
    values: Json = {
        "path": encode_path(remove.path),
        "deletionTimestamp": remove.deletion_ms,
        "dataChange": remove.data_change,
        "extendedFileMetadata": remove.size is not None and remove.partition_values is not None,
        "partitionValues": None if remove.partition_values is None else dict(remove.partition_values),
        "size": remove.size,
        "deletionVector": _encode_optional_vector(remove.deletion_vector),
    }
    return _drop_absent(values)


def _encode_optional_vector(vector: DeletionVector | None) -> Json | None:
    return None if vector is None else encode_vector(vector)


def encode_vector(vector: DeletionVector) -> Json:
    values = {
        "storageType": vector.storage,
        "pathOrInlineDv": vector.path_or_inline,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }
    return _drop_absent(values)


def _drop_absent(values: Mapping[str, Any]) -> Json:
    return {key: value for key, value in values.items() if value is not None}


def format_checkpoint_name(version: int) -> str:
    """Format the name of a version's checkpoint in the log."""
    return f"{version:020d}.checkpoint.parquet"


@cache
def _build_schema() -> pa.Schema:
    """Build the schema of checkpoints."""
    text_map_type = pa.map_(pa.string(), pa.string())
    vector_type = pa.struct(
        {
            "storageType": pa.string(),
            "pathOrInlineDv": pa.string(),
            "offset": pa.int32(),
            "sizeInBytes": pa.int32(),
            "cardinality": pa.int64(),
        }
    )
    add_type = pa.struct(
        {
            "path": pa.string(),
            "partitionValues": text_map_type,
            "size": pa.int64(),
            "modificationTime": pa.int64(),
            "dataChange": pa.bool_(),
            "tags": text_map_type,
            "deletionVector": vector_type,
            "baseRowId": pa.int64(),
            "defaultRowCommitVersion": pa.int64(),
            "stats": pa.string(),
        }
    )
    remove_type = pa.struct(
        {
            "path": pa.string(),
            "deletionTimestamp": pa.int64(),
            "dataChange": pa.bool_(),
            "extendedFileMetadata": pa.bool_(),
            "partitionValues": text_map_type,
            "size": pa.int64(),
            "deletionVector": vector_type,
        }
    )
    metadata_type = pa.struct(
        {
            "id": pa.string(),
            "name": pa.string(),
            "description": pa.string(),
            "format": pa.struct({"provider": pa.string(), "options": text_map_type}),
            "schemaString": pa.string(),
            "partitionColumns": pa.list_(pa.string()),
            "configuration": text_map_type,
            "createdTime": pa.int64(),
        }
    )
    protocol_type = pa.struct(
        {
            "minReaderVersion": pa.int32(),
            "minWriterVersion": pa.int32(),
            "readerFeatures": pa.list_(pa.string()),
            "writerFeatures": pa.list_(pa.string()),
        }
    )
    txn_type = pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()})
    return pa.schema(
        {"txn": txn_type, "add": add_type, "remove": remove_type, "metaData": metadata_type, "protocol": protocol_type}
    )


def encode_checkpoint(snapshot: DeltaSnapshot) -> bytes:
    """Encode the state as a checkpoint.

    The same state gives the same bytes. Tombstones are left out: nothing here vacuums.
    """
    table = pa.Table.from_pylist(list(_build_rows(snapshot)), _build_schema())
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="snappy")
    return buffer.getvalue()


def encode_last_checkpoint(snapshot: DeltaSnapshot) -> bytes:
    """Encode `_last_checkpoint` for that checkpoint."""
    return orjson.dumps({"version": snapshot.version, "size": 2 + len(snapshot.txns) + len(snapshot.files)})


def _build_rows(snapshot: DeltaSnapshot) -> Iterator[dict[str, Any]]:
    metadata = encode_metadata(snapshot.metadata)
    yield {"protocol": encode_protocol(snapshot.protocol)}
    yield {
        "metaData": {
            **metadata,
            "format": {**metadata["format"], "options": []},
            "configuration": list(metadata["configuration"].items()),
        }
    }
    yield from ({"txn": encode_txn(snapshot.txns[name])} for name in sorted(snapshot.txns))
    for key in sorted(snapshot.files, key=lambda file_key: (file_key.path, file_key.vector_id or "")):
        add = encode_add(snapshot.files[key])
        values = list(add["partitionValues"].items())
        yield {
            "add": {**add, "dataChange": False, "partitionValues": values, "tags": list(add.get("tags", {}).items())}
        }
