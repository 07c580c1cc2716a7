"""PURE. Actions from what JSON and Parquet give of them: mappings with the protocol's names, null the same as absent.

What an action must have and hasn't is a KeyError or TypeError; whoever knows the file turns it into DamagedLog.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from duckicelake.delta.actions import (
    NOTHING,
    AddFile,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from duckicelake.delta.paths import decoded

Row = Mapping[str, Any]

_STORAGES: Final = {"u", "p", "i"}


def add_of(row: Row) -> AddFile:
    """An `add`; a partition value that is empty means null (protocol, "Partition Value Serialization")."""
    vector = row.get("deletionVector")
    return AddFile(
        decoded(text(row["path"], "path")),
        partition_values_of(row.get("partitionValues")),
        whole_number(row["size"], "size"),
        whole_number(row["modificationTime"], "modificationTime"),
        truth(row["dataChange"], "dataChange"),
        text_or_none(row.get("stats"), "stats"),
        None if vector is None else vector_of(vector),
        number_or_none(row.get("baseRowId"), "baseRowId"),
        number_or_none(row.get("defaultRowCommitVersion"), "defaultRowCommitVersion"),
        row.get("tags") or NOTHING,
    )


def remove_of(row: Row) -> RemoveFile:
    vector, values = row.get("deletionVector"), row.get("partitionValues")
    return RemoveFile(
        decoded(text(row["path"], "path")),
        row.get("dataChange") is not False,
        number_or_none(row.get("deletionTimestamp"), "deletionTimestamp"),
        number_or_none(row.get("size"), "size"),
        None if values is None else partition_values_of(values),
        None if vector is None else vector_of(vector),
    )


def partition_values_of(values: Mapping[str, str | None] | None) -> Mapping[str, str | None]:
    if not values:
        return NOTHING
    for name, value in values.items():
        text_or_none(value, name)
    return {name: value or None for name, value in values.items()} if "" in values.values() else values


def vector_of(row: Row) -> DeletionVector:
    storage = row["storageType"]
    if storage not in _STORAGES:
        raise TypeError(f"storageType is {storage!r}, and u, p and i are all there are")
    return DeletionVector(
        cast("Literal['u', 'p', 'i']", storage),
        text(row["pathOrInlineDv"], "pathOrInlineDv"),
        whole_number(row["sizeInBytes"], "sizeInBytes"),
        whole_number(row["cardinality"], "cardinality"),
        number_or_none(row.get("offset"), "offset"),
    )


def metadata_of(row: Row) -> Metadata:
    return Metadata(
        text(row["id"], "id"),
        text(row["schemaString"], "schemaString"),
        tuple(text(name, "a partition column") for name in row.get("partitionColumns") or ()),
        {name: text(value, name) for name, value in (row.get("configuration") or {}).items() if value is not None},
        text_or_none(row.get("name"), "name"),
        text_or_none(row.get("description"), "description"),
        number_or_none(row.get("createdTime"), "createdTime"),
        (row.get("format") or {}).get("provider") or "parquet",
    )


def protocol_of(row: Row) -> Protocol:
    return Protocol(
        whole_number(row["minReaderVersion"], "minReaderVersion"),
        whole_number(row["minWriterVersion"], "minWriterVersion"),
        _features(row.get("readerFeatures")),
        _features(row.get("writerFeatures")),
    )


def _features(names: list[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset([text(name, "a feature") for name in list(names)])


def txn_of(row: Row) -> Txn:
    return Txn(
        text(row["appId"], "appId"),
        whole_number(row["version"], "version"),
        number_or_none(row.get("lastUpdated"), "lastUpdated"),
    )


def domain_of(row: Row) -> DomainMetadata:
    return DomainMetadata(
        text(row["domain"], "domain"),
        text_or_none(row.get("configuration"), "configuration") or "",
        truth(row["removed"], "removed"),
    )


def whole_number(value: object, name: str) -> int:
    """The value as it is; TypeError if it isn't an integer."""
    if type(value) is not int:
        raise TypeError(f"{name} is {value!r}, and must be a whole number")
    return value


def number_or_none(value: object, name: str) -> int | None:
    return None if value is None else whole_number(value, name)


def truth(value: object, name: str) -> bool:
    """The value as it is; TypeError if it is neither true nor false."""
    if type(value) is not bool:
        raise TypeError(f"{name} is {value!r}, and must be true or false")
    return value


def text(value: object, name: str) -> str:
    """The value as it is; TypeError if it isn't a text."""
    if type(value) is not str:
        raise TypeError(f"{name} is {value!r}, and must be a text")
    return value


def text_or_none(value: object, name: str) -> str | None:
    return None if value is None else text(value, name)
