"""Field ids for data files that have none, by the names in them (table spec, "Name Mapping Serialization")."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from pydantic import TypeAdapter, ValidationError

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.model import Int, SpecModel, explain_errors
from duckicelake.iceberg.schema import Schema
from duckicelake.properties import NAME_MAPPING

NamePath: TypeAlias = tuple[str, ...]
"""The names of a field and what it is in, outermost first; `element`, `key` and `value` inside lists and maps."""


class MappedField(SpecModel):
    field_id: Int | None = None
    names: tuple[str, ...]
    fields: tuple["MappedField", ...] = ()


_MAPPING = TypeAdapter(tuple[MappedField, ...])


def parse_name_mapping(properties: Mapping[str, str]) -> dict[NamePath, int] | None:
    """Parse the name mapping in a table's properties: field ids by name, None without one.

    InvalidRequestError: the property is no name mapping.
    """
    text = properties.get(NAME_MAPPING)
    if text is None:
        return None
    try:
        return dict(_walk_paths(_MAPPING.validate_json(text), ()))
    except ValidationError as error:
        raise InvalidRequestError(
            f"The table property {NAME_MAPPING} isn't a name mapping: {explain_errors(error)}"
        ) from error


def build_name_mapping(ids: Mapping[NamePath, int]) -> str:
    """Build the table property that maps these names."""
    inside: dict[int | None, dict[int, set[str]]] = {}
    for path, field_id in ids.items():
        inside.setdefault(ids.get(path[:-1]), {}).setdefault(field_id, set()).add(path[-1])
    return _MAPPING.dump_json(_build_fields(inside, None), by_alias=True, exclude_none=True).decode()


def _build_fields(inside: Mapping[int | None, Mapping[int, set[str]]], parent: int | None) -> tuple[MappedField, ...]:
    return tuple(
        MappedField(field_id=field_id, names=tuple(sorted(names)), fields=_build_fields(inside, field_id))
        for field_id, names in inside.get(parent, {}).items()
    )


def collect_schema_names(schema: Schema) -> dict[NamePath, int]:
    """Collect field ids by the names that a schema has."""
    parents, paths = schema.parents(), dict[int, NamePath]()
    for field_id, field in schema.map_fields_by_id().items():
        parent = parents[field_id]
        paths[field_id] = (*(() if parent is None else paths[parent]), field.name)
    return {path: field_id for field_id, path in paths.items()}


def _walk_paths(fields: Iterable[MappedField], inside: NamePath) -> Iterator[tuple[NamePath, int]]:
    for field in fields:
        for name in field.names:
            if field.field_id is not None:
                yield (*inside, name), field.field_id
            yield from _walk_paths(field.fields, (*inside, name))
