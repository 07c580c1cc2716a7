"""PURE. Log files of JSON, an action in each line: commits, compactions, V2 checkpoints (protocol, "Delta Files")."""

from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final

import orjson

from duckicelake.delta.actions import AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from duckicelake.delta.parsing import add_of, domain_of, metadata_of, protocol_of, remove_of, text, txn_of
from duckicelake.errors import DamagedLog


@dataclass(slots=True)
class Actions:
    """What a log file says, or several of one checkpoint. `sidecars` are paths as the checkpoint has them."""

    adds: list[AddFile] = field(default_factory=list)
    removes: list[RemoveFile] = field(default_factory=list)
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    txns: list[Txn] = field(default_factory=list)
    domains: list[DomainMetadata] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    sidecars: list[str] = field(default_factory=list)


def _set_metadata(actions: Actions, row: dict[str, Any]) -> None:
    actions.metadata = metadata_of(row)


def _set_protocol(actions: Actions, row: dict[str, Any]) -> None:
    actions.protocol = protocol_of(row)


def _set_info(actions: Actions, row: dict[str, Any]) -> None:
    actions.info = dict(row)


TAKERS: Final[dict[str, Callable[[Actions, dict[str, Any]], None]]] = {
    "add": lambda actions, row: actions.adds.append(add_of(row)),
    "remove": lambda actions, row: actions.removes.append(remove_of(row)),
    "metaData": _set_metadata,
    "protocol": _set_protocol,
    "txn": lambda actions, row: actions.txns.append(txn_of(row)),
    "domainMetadata": lambda actions, row: actions.domains.append(domain_of(row)),
    "commitInfo": _set_info,
    "sidecar": lambda actions, row: actions.sidecars.append(text(row["path"], "path")),
}
"""Other actions (`cdc`, `checkpointMetadata`, ones to come) say nothing about what the table holds."""


def read_actions(data: bytes, location: str) -> Actions:
    """What the lines say; DamagedLog names the file and the line that can't be understood."""
    actions = Actions()
    number = 0
    try:
        for number, line in enumerate(BytesIO(data), 1):  # noqa: B007 - it is for the messages
            if not line.isspace():
                _take(actions, orjson.loads(line))
    except orjson.JSONDecodeError as error:
        raise DamagedLog(f"{location}, line {number}: isn't JSON ({error}); each line must be one action") from error
    except KeyError as error:
        raise DamagedLog(f"{location}, line {number}: the action lacks {error}") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise DamagedLog(f"{location}, line {number}: the action isn't one of Delta's: {error}") from error
    return actions


def _take(actions: Actions, line: dict[str, Any]) -> None:
    for kind, row in line.items():
        taker = TAKERS.get(kind)
        if taker is not None and row is not None:
            taker(actions, row)
