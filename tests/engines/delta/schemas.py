"""What a Delta schema is in Iceberg's words, both as JSON has them."""

from collections.abc import Iterator, Mapping
from typing import Any

TYPES = {
    "byte": "int",
    "short": "int",
    "integer": "int",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
"""Those that are called otherwise, or aren't there, in Iceberg."""


def delta_shape(schema: Mapping[str, Any]) -> Any:
    """Names and types of all fields, in order."""
    return [(field["name"], _of_delta(field["type"])) for field in schema["fields"]]


def _of_delta(kind: Any) -> Any:
    if isinstance(kind, str):
        return TYPES.get(kind, kind.replace(",", ", "))
    match kind["type"]:
        case "struct":
            return delta_shape(kind)
        case "array":
            return ["list", _of_delta(kind["elementType"])]
        case _:
            return ["map", _of_delta(kind["keyType"]), _of_delta(kind["valueType"])]


def iceberg_shape(schema: Mapping[str, Any]) -> Any:
    return [(field["name"], _of_iceberg(field["type"])) for field in schema["fields"]]


def _of_iceberg(kind: Any) -> Any:
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "struct":
            return iceberg_shape(kind)
        case "list":
            return ["list", _of_iceberg(kind["element"])]
        case _:
            return ["map", _of_iceberg(kind["key"]), _of_iceberg(kind["value"])]


def required_fields(schema: Mapping[str, Any]) -> set[str]:
    """Paths of columns, and of structs' fields, that are never NULL as Iceberg has it."""
    return {path for path, field in _fields("", schema) if field["required"]}


def not_null_fields(schema: Mapping[str, Any]) -> set[str]:
    """The same of a Delta schema."""
    return {path for path, field in _fields("", schema) if not field["nullable"]}


def _fields(above: str, struct: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for field in struct["fields"]:
        yield above + field["name"], field
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _fields(f"{above}{field['name']}.", field["type"])
