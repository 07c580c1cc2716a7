"""Partition transforms, specs, and the names of partition fields (table spec, "Partitioning")."""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Self

from pydantic import (
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.model import Int, SpecModel, compute_digest
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import NestedField, PrimitiveType, StructType

FIRST_PARTITION_FIELD_ID = 1000
_PLAIN = frozenset(("identity", "year", "month", "day", "hour", "void"))
_SIZED = frozenset(("bucket", "truncate"))
_RESULTS = {"bucket": "int", "year": "int", "month": "int", "day": "date", "hour": "int"}
_MAX_CACHED_CHARS = 100
_WITH_WIDTH = re.compile(r"(\w+)\[(\d{1,10})\]")
_NO_VALUES = StructType(fields=())


class Transform(SpecModel):
    """A partition or sort transform. JSON: its text, such as `bucket[16]`. Unknown texts are kept for reading."""

    name: str
    width: Int | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _from_text(cls, value: Any, build: ModelWrapValidatorHandler[Self]) -> Any:
        return cls.parse(value) if isinstance(value, str) else build(value)

    @model_serializer
    def _to_text(self) -> str:
        return str(self)

    @staticmethod
    def parse(text: str) -> "Transform":
        """Read the spec's text of a transform; InvalidRequestError for a width of zero or beyond 32 bits."""
        return _parse_cached(text) if len(text) <= _MAX_CACHED_CHARS else _parse_transform(text)

    @classmethod
    def __get_pydantic_json_schema__(cls, _: CoreSchema, __: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "examples": ["identity", "bucket[16]", "truncate[4]", "day"]}

    def __str__(self) -> str:
        """Return the spec's text."""
        return self.name if self.width is None else f"{self.name}[{self.width}]"

    @property
    def is_known(self) -> bool:
        """Whether this server knows what the transform does."""
        return self.name in (_PLAIN if self.width is None else _SIZED)

    def accepts(self, source: PrimitiveType) -> bool:
        """Return whether values of the type can be transformed: by void always, by an unknown transform never."""
        return self.is_known and self.name in source.traits.transforms

    def result_type(self, source: PrimitiveType) -> PrimitiveType:
        """Return the type of the transformed values; string for an unknown transform, as in the Java library."""
        if not self.is_known:
            return PrimitiveType.parse("string")
        return PrimitiveType.parse(_RESULTS[self.name]) if self.name in _RESULTS else source


def _parse_transform(text: str) -> Transform:
    match = _WITH_WIDTH.fullmatch(text.strip().lower())
    if match and match[1] in _SIZED:
        width = int(match[2])
        if not 0 < width < 2**31:
            raise InvalidRequestError(f"transform {text!r}: the number is 1 to {2**31 - 1}")
        return Transform(name=match[1], width=width)
    lowered = text.strip().lower()
    return Transform(name=lowered if lowered in _PLAIN else text)


_parse_cached = lru_cache(maxsize=1024)(_parse_transform)


class Sourced(SpecModel):
    """A value made of a source field, or of several. `source_id` is the first of `source_ids`."""

    source_id: Int
    source_ids: tuple[Int, ...] | None = None
    transform: Transform

    @model_validator(mode="before")
    @classmethod
    def _of_source_ids(cls, data: Any) -> Any:
        """Read the `source-ids` of format version 3. InvalidRequestError: several, for a transform of one."""
        sources = data.get("source-ids") if isinstance(data, dict) else None
        if not isinstance(sources, list) or not sources:
            return data
        if len(sources) == 1:
            return {"source-id": sources[0]} | {key: value for key, value in data.items() if key != "source-ids"}
        text = str(data.get("transform"))
        if text.lower() in _PLAIN:
            raise InvalidRequestError(f"source-ids {sources}: transform {text} takes one source field")
        return data | {"source-id": sources[0], "transform": Transform(name=text)}  # unknown, whatever its name

    @model_serializer(mode="wrap")
    def _either(self, plain: SerializerFunctionWrapHandler) -> Any:
        data = plain(self)
        return data if self.source_ids is None else {key: value for key, value in data.items() if key != "source-id"}


class UnboundPartitionField(Sourced):
    """A partition field as a client proposes it: `field_id` is None where the server is to choose."""

    field_id: Int | None = None
    name: str


class PartitionField(UnboundPartitionField):
    field_id: Int


class UnboundPartitionSpec(SpecModel):
    """A partition spec as a client proposes it: ids are hints."""

    spec_id: Int | None = None
    fields: tuple[UnboundPartitionField, ...] = ()

    def same_as(self, other: "UnboundPartitionSpec | PartitionSpec") -> bool:
        """Return whether both have the same fields in the same order; spec ids and field ids may differ."""
        return self.meaning == other.meaning

    @cached_property
    def meaning(self) -> bytes:
        """A digest of what `same_as` compares."""
        return _describe_meaning(self.fields)


def _describe_meaning(fields: Iterable[UnboundPartitionField]) -> bytes:
    """Digest source, transform and name of each field, without field ids."""
    return compute_digest([(field.source_id, field.source_ids, str(field.transform), field.name) for field in fields])


class PartitionSpec(SpecModel):
    spec_id: Int
    fields: tuple[PartitionField, ...] = ()

    def same_as(self, other: "PartitionSpec | UnboundPartitionSpec") -> bool:
        """Return whether both have the same fields in the same order; spec ids and field ids may differ."""
        return self.meaning == other.meaning

    @cached_property
    def meaning(self) -> bytes:
        """A digest of what `same_as` compares."""
        return _describe_meaning(self.fields)

    def highest_field_id(self) -> int:
        """Return the highest partition field id, 999 if there is none."""
        return max((field.field_id for field in self.fields), default=FIRST_PARTITION_FIELD_ID - 1)


UNPARTITIONED = PartitionSpec(spec_id=0)


def build_partition_type(spec: PartitionSpec, schema: Schema) -> StructType:
    """Build the struct of a spec's partition values. Ids are the partition field ids; all fields are optional.

    If the source column isn't in the schema, its type is `unknown`. So is the result, unless the transform fixes it.
    """
    if not spec.fields:
        return _NO_VALUES
    leaves = schema.leaves()
    unknown = PrimitiveType.parse("unknown")
    return StructType.model_construct(
        fields=tuple(
            NestedField.model_construct(
                id=field.field_id,
                name=field.name,
                required=False,
                type=field.transform.result_type(leaves.get(field.source_id, unknown)),
            )
            for field in spec.fields
        )
    )


def check_spec(spec: PartitionSpec | UnboundPartitionSpec, schema: Schema) -> None:
    """Check that a table with this schema may have the spec.

    Raises:
        InvalidRequestError: a source is missing, nested in a list or map, or of a type the transform doesn't take; a
            name is empty, used twice or that of another column.

    """
    columns = {name: field_id for field_id, name in schema.full_names().items()}
    names: set[str] = set()
    for field in spec.fields:
        if not field.name or field.name.lower() in names:
            raise InvalidRequestError(f"partition field name {field.name!r} is empty or used twice")
        if columns.get(field.name, field.source_id) != field.source_id:
            raise InvalidRequestError(f"partition field {field.name!r} has the name of a column that is not its source")
        names.add(field.name.lower())
        check_known_transform(field.transform)
    check_sources(spec, schema)


def check_known_transform(transform: Transform) -> None:
    """Check that this server knows the transform, so that writers may use it; InvalidRequestError otherwise."""
    if not transform.is_known:
        raise InvalidRequestError(f"unknown transform {str(transform)!r}: it can be read but not added to a table")


def check_sources(spec: PartitionSpec | UnboundPartitionSpec, schema: Schema) -> None:
    """Check that the schema has the sources of the spec's fields. Unknown transforms are not checked.

    Raises InvalidRequestError.
    """
    for field in spec.fields:
        check_source(schema, field.source_id, field.transform, f"partition field {field.name!r}")


def check_source(schema: Schema, source_id: int, transform: Transform, what: str) -> None:
    """Check that `transform` takes the field `source_id` (void and unknown ones take any).

    Raises InvalidRequestError otherwise.
    """
    if transform.name == "void" or not transform.is_known:
        return
    source = schema.map_fields_by_id().get(source_id)
    if source is None:
        raise InvalidRequestError(f"{what}: source field {source_id} doesn't exist in the schema")
    if not isinstance(source.type, PrimitiveType) or not transform.accepts(source.type):
        kind = source.type if isinstance(source.type, PrimitiveType) else source.type.type
        raise InvalidRequestError(f"{what}: transform {transform} doesn't take {source.name!r} of type {kind}")
    _check_only_in_structs(schema, source_id, what)


def _check_only_in_structs(schema: Schema, source_id: int, what: str) -> None:
    fields, parents = schema.map_fields_by_id(), schema.parents()
    parent = parents[source_id]
    while parent is not None:
        if not isinstance(fields[parent].type, StructType):
            raise InvalidRequestError(f"{what}: its source is inside {fields[parent].name!r}, a list or map")
        parent = parents[parent]


def check_column_names(specs: Iterable[PartitionSpec], schema: Schema) -> bool:
    """Check that no partition field has the name of a column that it isn't made of; InvalidRequestError otherwise.

    A field whose source has left the schema may have one, as in Java's library. Returns whether there is such a field:
    some readers refuse it, so it needs another name.
    """
    columns, sources = schema.names(), schema.map_fields_by_id()
    clashing = [
        field for spec in specs for field in spec.fields if columns.get(field.name, field.source_id) != field.source_id
    ]
    for field in clashing:
        if field.source_id in sources:
            raise InvalidRequestError(
                f"Cannot create identity partition sourced from different field in schema: {field.name} is a partition "
                f"field made of column {sources[field.source_id].name}; give the new column another name"
            )
    return bool(clashing)


def rename_clashing_fields(specs: Sequence[PartitionSpec], schema: Schema) -> tuple[PartitionSpec, ...]:
    """Rename fields that have a column's name, or that of an earlier field.

    A field has one id. If one of its names can't stay, it gets one name in all specs: the newest, if that is free.
    """
    columns = {name.lower(): field_id for name, field_id in schema.names().items()}
    taken: set[str] = set()
    changed: dict[int, str] = {}
    newest = {field.field_id: field for spec in sorted(specs, key=_get_spec_id) for field in spec.fields}
    for field_id, field in sorted(newest.items()):
        others = {name for name, column_id in columns.items() if column_id != field.source_id}
        names = {other.name.lower() for spec in specs for other in spec.fields if other.field_id == field_id}
        name = field.name
        if name.lower() in taken | others:
            name = _find_free_name(field, taken | columns.keys())
        if name != field.name or names & others:
            changed[field_id] = name
        taken.add(name.lower())
    if not changed:
        return tuple(specs)
    return tuple(_rename_fields(spec, changed) for spec in specs)


def _get_spec_id(spec: PartitionSpec) -> int:
    return spec.spec_id


def _find_free_name(field: PartitionField, taken: set[str]) -> str:
    """Find a free name as Java's library does: with the width, else with the field's id."""
    width = [] if field.transform.width is None else [f"{field.name}_{field.transform.width}"]
    name = next((name for name in (*width, f"{field.name}_{field.field_id}") if name.lower() not in taken), field.name)
    while name.lower() in taken:
        name += "_"
    return name


def _rename_fields(spec: PartitionSpec, names: dict[int, str]) -> PartitionSpec:
    fields = tuple(
        field.replace_fields(name=names[field.field_id]) if field.field_id in names else field for field in spec.fields
    )
    return spec if fields == spec.fields else spec.replace_fields(fields=fields)
