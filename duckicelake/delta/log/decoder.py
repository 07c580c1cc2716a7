"""PURE. Decode actions from JSON lines and Parquet rows; null means absent (protocol, "Delta Files")."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final, Literal, cast

import orjson

from duckicelake.delta.log.actions import (
    NOTHING,
    AddFile,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from duckicelake.delta.log.paths import decode_path
from duckicelake.errors import DamagedLogError

ActionRow = Mapping[str, Any]
_STORAGES: Final = {"u", "p", "i"}


def parse_add(row: ActionRow) -> AddFile:
    """Parse an `add`. An empty partition value is null (protocol, "Partition Value Serialization")."""
    vector = row.get("deletionVector")
    return AddFile(
        decode_path(require_text(row["path"], "path")),
        parse_partition_values(row.get("partitionValues")),
        require_int(row["size"], "size"),
        require_int(row["modificationTime"], "modificationTime"),
        require_bool(row["dataChange"], "dataChange"),
        parse_optional_text(row.get("stats"), "stats"),
        None if vector is None else parse_vector(vector),
        parse_optional_int(row.get("baseRowId"), "baseRowId"),
        parse_optional_int(row.get("defaultRowCommitVersion"), "defaultRowCommitVersion"),
        row.get("tags") or NOTHING,
    )


def parse_remove(row: ActionRow) -> RemoveFile:
    vector, values = row.get("deletionVector"), row.get("partitionValues")
    return RemoveFile(
        decode_path(require_text(row["path"], "path")),
        row.get("dataChange") is not False,
        parse_optional_int(row.get("deletionTimestamp"), "deletionTimestamp"),
        parse_optional_int(row.get("size"), "size"),
        None if values is None else parse_partition_values(values),
        None if vector is None else parse_vector(vector),
    )


def parse_partition_values(values: Mapping[str, str | None] | None) -> Mapping[str, str | None]:
    if not values:
        return NOTHING
    for name, value in values.items():
        parse_optional_text(value, name)
    return {name: value or None for name, value in values.items()} if "" in values.values() else values


def parse_vector(row: ActionRow) -> DeletionVector:
    storage = row["storageType"]
    if storage not in _STORAGES:
        raise TypeError(f"storageType is {storage!r}, expected u, p or i")
    return DeletionVector(
        cast("Literal['u', 'p', 'i']", storage),
        require_text(row["pathOrInlineDv"], "pathOrInlineDv"),
        require_int(row["sizeInBytes"], "sizeInBytes"),
        require_int(row["cardinality"], "cardinality"),
        parse_optional_int(row.get("offset"), "offset"),
    )


def parse_metadata(row: ActionRow) -> Metadata:
    return Metadata(
        require_text(row["id"], "id"),
        require_text(row["schemaString"], "schemaString"),
        tuple(require_text(name, "a partition column") for name in row.get("partitionColumns") or ()),
        {
            name: require_text(value, name)
            for name, value in (row.get("configuration") or {}).items()
            if value is not None
        },
        parse_optional_text(row.get("name"), "name"),
        parse_optional_text(row.get("description"), "description"),
        parse_optional_int(row.get("createdTime"), "createdTime"),
        (row.get("format") or {}).get("provider") or "parquet",
    )


def parse_protocol(row: ActionRow) -> Protocol:
    return Protocol(
        require_int(row["minReaderVersion"], "minReaderVersion"),
        require_int(row["minWriterVersion"], "minWriterVersion"),
        _parse_features(row.get("readerFeatures")),
        _parse_features(row.get("writerFeatures")),
    )


def _parse_features(names: list[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset([require_text(name, "a feature") for name in list(names)])


def parse_txn(row: ActionRow) -> Txn:
    return Txn(
        require_text(row["appId"], "appId"),
        require_int(row["version"], "version"),
        parse_optional_int(row.get("lastUpdated"), "lastUpdated"),
    )


def parse_domain(row: ActionRow) -> DomainMetadata:
    return DomainMetadata(
        require_text(row["domain"], "domain"),
        parse_optional_text(row.get("configuration"), "configuration") or "",
        require_bool(row["removed"], "removed"),
    )


def require_int(value: object, name: str) -> int:
    """Return the value; TypeError: it isn't an integer."""
    if type(value) is not int:
        raise TypeError(f"{name} is {value!r}, and must be a whole number")
    return value


def parse_optional_int(value: object, name: str) -> int | None:
    return None if value is None else require_int(value, name)


def require_bool(value: object, name: str) -> bool:
    """Return the value; TypeError: it is neither true nor false."""
    if type(value) is not bool:
        raise TypeError(f"{name} is {value!r}, and must be true or false")
    return value


def require_text(value: object, name: str) -> str:
    """Return the value; TypeError: it isn't a text."""
    if type(value) is not str:
        raise TypeError(f"{name} is {value!r}, and must be a text")
    return value


def parse_optional_text(value: object, name: str) -> str | None:
    return None if value is None else require_text(value, name)


@dataclass(slots=True)
class LogActions:
    """The actions of a log file, or of several of one checkpoint. sidecars: the checkpoint's paths."""

    adds: list[AddFile] = field(default_factory=list)
    removes: list[RemoveFile] = field(default_factory=list)
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    txns: list[Txn] = field(default_factory=list)
    domains: list[DomainMetadata] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    sidecars: list[str] = field(default_factory=list)


def _set_metadata(actions: LogActions, row: dict[str, Any]) -> None:
    actions.metadata = parse_metadata(row)


def _set_protocol(actions: LogActions, row: dict[str, Any]) -> None:
    actions.protocol = parse_protocol(row)


def _set_info(actions: LogActions, row: dict[str, Any]) -> None:
    actions.info = dict(row)


ACTION_SETTERS: Final[dict[str, Callable[[LogActions, dict[str, Any]], None]]] = {
    "add": lambda actions, row: actions.adds.append(parse_add(row)),
    "remove": lambda actions, row: actions.removes.append(parse_remove(row)),
    "metaData": _set_metadata,
    "protocol": _set_protocol,
    "txn": lambda actions, row: actions.txns.append(parse_txn(row)),
    "domainMetadata": lambda actions, row: actions.domains.append(parse_domain(row)),
    "commitInfo": _set_info,
    "sidecar": lambda actions, row: actions.sidecars.append(require_text(row["path"], "path")),
}
"""Setters of actions. Other actions (`cdc`, `checkpointMetadata`, future ones) don't change the table's content."""


def read_actions(data: bytes, location: str) -> LogActions:
    """Read the actions in the lines; DamagedLogError names the file and the malformed line."""
    actions = LogActions()
    number = 0
    try:
        for number, line in enumerate(BytesIO(data), 1):  # noqa: B007 - it is for the messages
            if not line.isspace():
                _take(actions, orjson.loads(line))
    except orjson.JSONDecodeError as error:
        raise DamagedLogError(
            f"{location}, line {number}: isn't JSON ({error}); each line must be one action"
        ) from error
    except KeyError as error:
        raise DamagedLogError(f"{location}, line {number}: the action lacks {error}") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise DamagedLogError(f"{location}, line {number}: the action isn't one of Delta's: {error}") from error
    return actions


def _take(actions: LogActions, line: dict[str, Any]) -> None:
    for kind, row in line.items():
        taker = ACTION_SETTERS.get(kind)
        if taker is not None and row is not None:
            taker(actions, row)
