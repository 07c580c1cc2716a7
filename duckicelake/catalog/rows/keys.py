"""Keys that tell rows apart: the columns they are of, all of which have a value in each key, and requests to delete."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.expressions import Predicate, parse_predicate
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.rows.batch import Batch
from duckicelake.rows.json_parsing import parse_object
from duckicelake.rows.json_rows import read_objects
from duckicelake.rows.kinds import is_storable
from duckicelake.rows.layout import Layout

INEXACT: Final = {"float", "double"}
"""Types of which different values are equal, and equal ones are not: Iceberg has no identifier fields of them."""


def parse_deletion(body: bytes) -> list[Any] | Predicate:
    """The keys that a request lists, whatever they are, with all digits, or its filter; InvalidRequest, Unsupported."""
    request = parse_object(body)
    if request.keys() == {"filter"}:
        return parse_predicate(request["filter"])
    if request.keys() != {"keys"} or type(request["keys"]) is not list:
        raise InvalidRequest(
            'The body is {"keys": [{…}, …]}, with a value for each key column in each object, or {"filter": …}, '
            "with an expression of Iceberg's"
        )
    keys: list[Any] = request["keys"]
    return keys


def key_layout(metadata: TableMetadata, layout: Layout, names: Sequence[str]) -> Layout:
    """The key columns alone, each of them required: those with the names, else the table's identifier fields.

    InvalidRequest if there are none, or one that can't tell rows apart.
    """
    by_name = {column.name: column for column in layout.columns}
    keys = tuple(dict.fromkeys(names)) or _identifiers(metadata, layout)
    for name in keys:
        column = by_name.get(name)
        if column is None or column.children or not is_storable(column):
            raise InvalidRequest(f"{name!r} is no column that tells rows apart: there are {', '.join(by_name)}")
        if str(column.type) in INEXACT:
            raise InvalidRequest(f"Column {name} is a {column.type}, which can't tell rows apart: name others as keys")
    return Layout([replace(by_name[name], required=True, default=None, computed_default=None) for name in keys])


def read_keys(objects: Sequence[Any], layout: Layout) -> Batch:
    """The objects as keys of the layout; InvalidRequest names those that are none."""
    try:
        return read_objects(objects, layout, "reject")
    except InvalidRequest as error:
        names = ", ".join(column.name for column in layout.columns)
        raise InvalidRequest(f"A key is an object with a value for each of {names}, and no more: {error}") from error


def with_keys(layout: Layout, keys: Layout) -> Layout:
    """The table's layout for rows that must have a value in each key column."""
    required = {column.field_id: column for column in keys.columns}
    return Layout([required.get(column.field_id, column) for column in layout.columns])


def _identifiers(metadata: TableMetadata, layout: Layout) -> tuple[str, ...]:
    """The names of the identifier fields, full ones for those in structs; InvalidRequest if there are none."""
    schema = metadata.schema()
    names = schema.full_names() | {column.field_id: column.name for column in layout.columns}
    if not schema.identifier_field_ids:
        raise InvalidRequest("The table has no identifier fields: name the columns that tell rows apart, as ?key=a,b")
    return tuple(names[field_id] for field_id in schema.identifier_field_ids)
