"""PURE. Commits of a log as bytes, the same for the same actions (protocol, "Delta Log Entries", "Actions")."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from duckicelake.delta.actions import AddFile, Commit, DeletionVector, Metadata, Protocol, RemoveFile, Txn
from duckicelake.delta.paths import encoded

Json = dict[str, Any]


def commit_name(version: int) -> str:
    """The name of a version's file in the log."""
    return f"{version:020d}.json"


def encode_commit(commit: Commit) -> bytes:
    """A version's file: an action a line. `commitInfo` comes first, as in-commit timestamps want it."""
    return b"".join(orjson.dumps(action) + b"\n" for action in _actions(commit))


def _actions(commit: Commit) -> Iterator[Json]:
    if commit.info:
        yield {"commitInfo": dict(commit.info)}
    if commit.protocol is not None:
        yield {"protocol": protocol_json(commit.protocol)}
    if commit.metadata is not None:
        yield {"metaData": metadata_json(commit.metadata)}
    yield from ({"txn": txn_json(txn)} for txn in commit.txns)
    yield from ({"remove": _remove_json(remove)} for remove in commit.removes)
    yield from ({"add": add_json(add)} for add in commit.adds)


def protocol_json(protocol: Protocol) -> Json:
    """A `protocol` action; its features in order."""
    features = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    named = {key: sorted(names) for key, names in features.items() if names is not None}
    return {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        **named,
    }


def metadata_json(metadata: Metadata) -> Json:
    """A `metaData` action."""
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
    return _present(values)


def txn_json(txn: Txn) -> Json:
    """A `txn` action."""
    return _present({"appId": txn.app_id, "version": txn.version, "lastUpdated": txn.last_updated_ms})


def add_json(add: AddFile) -> Json:
    """An `add` action."""
    values = {
        "path": encoded(add.path),
        "partitionValues": dict(add.partition_values),
        "size": add.size,
        "modificationTime": add.modification_ms,
        "dataChange": add.data_change,
        "stats": add.stats,
        "tags": dict(add.tags) or None,
        "deletionVector": _vector_json(add.deletion_vector),
        "baseRowId": add.base_row_id,
        "defaultRowCommitVersion": add.default_row_commit_version,
    }
    return _present(values)


def _remove_json(remove: RemoveFile) -> Json:
    values: Json = {
        "path": encoded(remove.path),
        "deletionTimestamp": remove.deletion_ms,
        "dataChange": remove.data_change,
        "extendedFileMetadata": remove.size is not None and remove.partition_values is not None,
        "partitionValues": None if remove.partition_values is None else dict(remove.partition_values),
        "size": remove.size,
        "deletionVector": _vector_json(remove.deletion_vector),
    }
    return _present(values)


def _vector_json(vector: DeletionVector | None) -> Json | None:
    return None if vector is None else vector_json(vector)


def vector_json(vector: DeletionVector) -> Json:
    """The descriptor of a deletion vector."""
    values = {
        "storageType": vector.storage,
        "pathOrInlineDv": vector.path_or_inline,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }
    return _present(values)


def _present(values: Mapping[str, Any]) -> Json:
    return {key: value for key, value in values.items() if value is not None}
