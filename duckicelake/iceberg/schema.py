"""Table schemas: an id, fields, identifier fields (table spec, "Schemas")."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import count, islice
from typing import Final, Literal

import orjson

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.model import Int, Json, SpecModel, compute_digest
from duckicelake.iceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    walk_fields,
)
from duckicelake.iceberg.values import from_json

MAX_FIELDS: Final = 10_000
"""Fields of a client's schema, nested ones included: DuckLake has a row for each."""

HIGHEST_FIELD_ID = 2147483447  # ids above are reserved for metadata columns
DEFAULTS_FIRST_VERSION = 3


class Schema(SpecModel):
    type: Literal["struct"] = "struct"
    schema_id: Int = 0
    identifier_field_ids: tuple[Int, ...] = ()
    fields: tuple[NestedField, ...]

    @property
    def struct(self) -> StructType:
        """The fields as one struct type."""
        return StructType.model_construct(fields=self.fields)

    @cached_property
    def _walked(self) -> tuple[tuple[NestedField, int | None], ...]:
        return tuple(walk_fields(self.struct))

    def map_fields_by_id(self) -> dict[int, NestedField]:
        """Map fields at any depth by id, in document order. `types.list_children` gives those of lists and maps."""
        return {field.id: field for field, _ in self._walked}

    def parents(self) -> dict[int, int | None]:
        """Return the parent's field id for each field id, None for columns."""
        return {field.id: parent for field, parent in self._walked}

    def leaves(self) -> dict[int, PrimitiveType]:
        """Return the type of every primitive field at any depth, by field id."""
        return dict(self._leaves)

    @cached_property
    def _leaves(self) -> dict[int, PrimitiveType]:
        return {field.id: field.type for field, _ in self._walked if isinstance(field.type, PrimitiveType)}

    def full_names(self) -> dict[int, str]:
        """Return the dotted name of every field by id, such as `locations.element.latitude`."""
        names: dict[int, str] = {}
        for field, parent in self._walked:
            names[field.id] = field.name if parent is None else f"{names[parent]}.{field.name}"
        return names

    def names(self) -> dict[str, int]:
        """Return the id of the field that Java's library finds by each name.

        Names are full names, and short names without the `element` and `value` of structs in lists and maps, unless a
        field has that as its full name.
        """
        fields, full, short = self.map_fields_by_id(), dict[int, str](), dict[int, str]()
        for field, parent in self._walked:
            full[field.id] = field.name if parent is None else f"{full[parent]}.{field.name}"
            is_silent = parent is not None and _is_silent(field, fields[parent])
            above = "" if parent is None else short[parent]
            short[field.id] = above if is_silent else f"{above}.{field.name}" if above else field.name
        shorts = {name: field_id for field_id, name in reversed(short.items())}
        return shorts | {name: field_id for field_id, name in full.items()}

    def find_clashing_name(self) -> str | None:
        """Find a full name that two fields have, ignoring case; None if there is none.

        Engines find fields by full names; some ignore case.
        """
        full = self.full_names()
        counts = Counter(name.lower() if "." in name else name for name in full.values())
        return next((name for name in full.values() if counts[name.lower() if "." in name else name] > 1), None)

    def highest_field_id(self) -> int:
        """Return the highest field id at any depth, 0 for an empty schema."""
        return max((field.id for field, _ in self._walked), default=0)

    def find_lowest_version(self) -> int:
        """Return the first format version that has all the types."""
        return max((kind.traits.first_version for kind in self.leaves().values()), default=1)

    def same_as(self, other: "Schema") -> bool:
        """Return whether both have the same fields, docs and defaults included, and the same identifier fields."""
        return self.meaning == other.meaning

    @cached_property
    def meaning(self) -> bytes:
        """A digest of what `same_as` compares."""
        return compute_digest([self.struct.to_json()["fields"], sorted(set(self.identifier_field_ids))])

    def to_json(self) -> dict[str, Json]:
        """Return the JSON of the spec; identifier-field-ids only where there are any."""
        identifiers = {"identifier-field-ids": list(self.identifier_field_ids)} if self.identifier_field_ids else {}
        return {"type": "struct", "schema-id": self.schema_id, **identifiers, "fields": self.struct.to_json()["fields"]}

    @cached_property
    def encoded(self) -> bytes:
        """The JSON, encoded once: each manifest and each metadata.json has it."""
        return orjson.dumps(self.to_json())


def _is_silent(field: NestedField, parent: NestedField) -> bool:
    """Return whether short names leave a field out: it is the struct in a list, or the value of a map."""
    is_value = isinstance(parent.type, ListType) or (isinstance(parent.type, MapType) and field.name == "value")
    return is_value and isinstance(field.type, StructType)


def assign_fresh_ids(schema: Schema, start: int = 1) -> tuple[Schema, dict[int, int]]:
    """Number all fields from `start`: a struct's fields first, then what is inside them.

    Also returns new ids by old ids.

    Raises:
        InvalidRequestError: two fields have one id, or an identifier field doesn't exist.

    """
    check_field_ids(schema)
    ids = count(start)
    new: dict[int, int] = {}
    fields = _renumber_fields(schema.fields, ids, new)
    unknown = [field_id for field_id in schema.identifier_field_ids if field_id not in new]
    if unknown:
        raise InvalidRequestError(f"identifier field {unknown[0]} doesn't exist in the schema")
    identifiers = tuple(new[field_id] for field_id in schema.identifier_field_ids)
    return schema.replace_fields(fields=fields, identifier_field_ids=identifiers), new


def _renumber_fields(
    fields: tuple[NestedField, ...], ids: Iterator[int], new: dict[int, int]
) -> tuple[NestedField, ...]:
    for field in fields:
        new[field.id] = next(ids)
    return tuple(field.replace_fields(id=new[field.id], type=_renumber_type(field.type, ids, new)) for field in fields)


def _renumber_type(kind: IcebergType, ids: Iterator[int], new: dict[int, int]) -> IcebergType:
    if isinstance(kind, StructType):
        return kind.replace_fields(fields=_renumber_fields(kind.fields, ids, new))
    if isinstance(kind, ListType):
        new[kind.element_id] = next(ids)
        return kind.replace_fields(element_id=new[kind.element_id], element=_renumber_type(kind.element, ids, new))
    if isinstance(kind, MapType):
        new[kind.key_id], new[kind.value_id] = next(ids), next(ids)
        key, value = _renumber_type(kind.key, ids, new), _renumber_type(kind.value, ids, new)
        return kind.replace_fields(key_id=new[kind.key_id], key=key, value_id=new[kind.value_id], value=value)
    return kind


def check_schema(schema: Schema, format_version: int, served: Mapping[int, NestedField] | None = None) -> None:
    """Check that a table of this format version may have the schema.

    served: the fields that the table has. A default that clients got with one of them may come back, even if the format
    version has no defaults.

    Raises:
        InvalidRequestError: ids or names collide (names that differ only by case too), a type or a default isn't in the
            format version, or an identifier field isn't a required, exact primitive.

    """
    check_schema_size(schema)
    check_field_ids(schema)
    _check_names(schema.fields, "")
    for field, _ in walk_fields(schema.struct):
        _check_names(field.type.fields if isinstance(field.type, StructType) else (), f" in {field.name!r}")
        _check_version(field, format_version, (served or {}).get(field.id))
        _check_default(field)
    _check_dotted_names(schema)
    fields, parents = schema.map_fields_by_id(), schema.parents()
    for field_id in schema.identifier_field_ids:
        _check_identifier(fields, parents, field_id)


def check_schema_size(schema: Schema) -> None:
    """Check the schema's size before any work on it; InvalidRequestError: it is too large."""
    if sum(1 for _ in islice(walk_fields(schema.struct), MAX_FIELDS + 1)) > MAX_FIELDS:
        raise InvalidRequestError(
            f"The schema has more than {MAX_FIELDS} fields, nested ones included: divide the table"
        )


def check_field_ids(schema: Schema) -> None:
    """Check that no two fields share an id and that none is in the reserved range; InvalidRequestError otherwise."""
    for field_id, times in Counter(field.id for field, _ in walk_fields(schema.struct)).items():
        if times > 1:
            raise InvalidRequestError(f"{times} fields of the schema have the id {field_id}; ids are unique")
        if not 0 <= field_id <= HIGHEST_FIELD_ID:
            raise InvalidRequestError(f"field id {field_id} is out of range; ids are 0 to {HIGHEST_FIELD_ID}")


def _check_names(fields: tuple[NestedField, ...], where: str) -> None:
    seen: dict[str, str] = {}
    for field in fields:
        if not field.name:
            raise InvalidRequestError(f"field {field.id}{where} has no name")
        other = seen.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise InvalidRequestError(
                f"fields {other!r} and {field.name!r}{where} differ only by case, which DuckDB can't tell apart"
            )
    if len(seen) < len(fields):
        duplicate = next(name for name, times in Counter(field.name for field in fields).items() if times > 1)
        raise InvalidRequestError(f"the schema has {duplicate!r}{where} twice; names are unique")


def _check_dotted_names(schema: Schema) -> None:
    name = schema.find_clashing_name()
    if name is not None:
        raise InvalidRequestError(f"the schema has two fields with the full name {name!r}")


def _check_version(field: NestedField, format_version: int, served: NestedField | None) -> None:
    problem = f"Invalid schema for v{format_version}: Invalid"
    first = field.type.traits.first_version if isinstance(field.type, PrimitiveType) else 1
    if format_version < first:
        raise InvalidRequestError(f"{problem} type for {field.name}: {field.type} is not supported until v{first}")
    known = (served.initial_default, served.write_default) if served else (None, None)
    defaults = zip((field.initial_default, field.write_default), known, strict=True)
    has_default = any(default is not None and default != before for default, before in defaults)
    if has_default and format_version < DEFAULTS_FIRST_VERSION:
        raise InvalidRequestError(f"{problem} default for {field.name}: not supported until v{DEFAULTS_FIRST_VERSION}")


def _check_default(field: NestedField) -> None:
    kind, defaults = (
        field.type,
        [default for default in (field.initial_default, field.write_default) if default is not None],
    )
    if isinstance(kind, PrimitiveType) and kind.traits.is_opaque and defaults:
        raise InvalidRequestError(f"field {field.name!r}: the default of {kind} must be null")
    if isinstance(kind, StructType) and any(default != {} for default in defaults):
        raise InvalidRequestError(f"field {field.name!r}: the default of a struct is null or {{}}")
    if isinstance(kind, PrimitiveType) and kind.name == "unknown" and field.required:
        raise InvalidRequestError(f"field {field.name!r}: a field of type unknown must be optional")
    for default in defaults:
        from_json(kind, default)


def _check_identifier(fields: Mapping[int, NestedField], parents: Mapping[int, int | None], field_id: int) -> None:
    problem = find_identifier_problem(fields, parents, field_id)
    if problem is not None:
        raise InvalidRequestError(f"identifier field {field_id} {problem}")


def find_identifier_problem(
    fields: Mapping[int, NestedField], parents: Mapping[int, int | None], field_id: int
) -> str | None:
    """Explain why a field can't identify rows; None if it can."""
    problem = "doesn't exist" if field_id not in fields else _find_identifier_problem(fields[field_id])
    parent = parents.get(field_id)
    while problem is None and parent is not None:
        around = fields[parent]
        if not (isinstance(around.type, StructType) and around.required):
            problem = f"is inside {around.name!r}, which is not a required struct"
        parent = parents[parent]
    return problem


def _find_identifier_problem(field: NestedField) -> str | None:
    if not isinstance(field.type, PrimitiveType) or field.type.name == "variant":
        return f"({field.name}) is not a primitive"
    if not field.required:
        return f"({field.name}) is not required"
    if field.type.traits.family == "float":
        return f"({field.name}) is a {field.type}, which can't identify rows"
    return None
