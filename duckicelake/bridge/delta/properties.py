"""PURE. What a Delta table says of itself besides its schema, as properties of Iceberg's."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from duckicelake.bridge.constraints.properties import PREFIX, parse
from duckicelake.bridge.definitions import COMMENT
from duckicelake.bridge.delta.columns import ColumnIds
from duckicelake.delta.actions import Metadata
from duckicelake.delta.schema import DeltaArray, DeltaMap, DeltaStruct, DeltaType, parse_schema
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.name_mapping import NAME_MAPPING, NamePath, name_mapping
from duckicelake.iceberg.schema import Schema

_CONSTRAINTS: Final = "delta.constraints."
_FIELDS: Final = "delta.column-metadata"
"""What Delta keeps of columns that Iceberg has no word for, as JSON by dotted name: generated values, defaults…"""
_NAME: Final = "delta.name"
_ROW_TRACKING: Final = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)
_NOWHERE: Final = 2_000_000_000
"""From here on are ids of columns that no schema has."""
_ENABLED: Final = "delta.enabled"
_MAPPED: Final = ("delta.columnMapping.", "comment")
GUARD: Final = "gc.enabled"


def properties_of(metadata: Metadata, schema: Schema, ids: ColumnIds) -> dict[str, str]:
    """The table's properties at a version; engines may delete none of its files."""
    own = {key: value for key, value in metadata.configuration.items() if key.startswith("delta.") and key != _ENABLED}
    others = {key: value for key, value in metadata.configuration.items() if _is_free(key)}
    made = {GUARD: "false", NAME_MAPPING: name_mapping({**_hidden(metadata), **ids.by_path})}
    if metadata.description:
        made[COMMENT] = metadata.description
    if metadata.name:
        made[_NAME] = metadata.name
    kept = _kept(parse_schema(metadata.schema_string))
    if kept:
        made[_FIELDS] = orjson.dumps(kept, option=orjson.OPT_SORT_KEYS).decode()
    return {**others, **own, **_constraints(own, schema), **made}


def _hidden(metadata: Metadata) -> dict[NamePath, int]:
    """Columns that files may have and the table hasn't, under ids of no schema: PyIceberg must know all names."""
    named = (metadata.configuration.get(key) for key in _ROW_TRACKING)
    return {(name,): _NOWHERE + at for at, name in enumerate(("_change_type", *named)) if name}


def _is_free(key: str) -> bool:
    """Whether a property of the users' own means nothing to the catalog."""
    return not key.startswith(("delta.", "ducklake.", "write.", "gc.", "commit.", "schema.", PREFIX, "format-version"))


def _constraints(configuration: Mapping[str, str], schema: Schema) -> dict[str, str]:
    """Those of Delta's constraints that can be checked here."""
    found: dict[str, str] = {}
    for key, text in configuration.items():
        if key.startswith(_CONSTRAINTS):
            name = key.removeprefix(_CONSTRAINTS)
            try:
                parse(name, text, schema)
            except InvalidRequest:
                continue
            found[f"{PREFIX}{name}"] = text
    return found


def _kept(type_: DeltaType, inside: str = "") -> dict[str, Any]:
    match type_:
        case DeltaStruct(fields):
            found: dict[str, Any] = {}
            for column in fields:
                name = f"{inside}{column.name}"
                facts = {key: value for key, value in column.metadata.items() if not key.startswith(_MAPPED)}
                found |= ({name: facts} if facts else {}) | _kept(column.type, f"{name}.")
            return found
        case DeltaArray(element):
            return _kept(element, f"{inside}element.")
        case DeltaMap(key, value):
            return _kept(key, f"{inside}key.") | _kept(value, f"{inside}value.")
        case _:
            return {}
