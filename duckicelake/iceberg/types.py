"""Iceberg types, format versions 1 to 3, and their JSON (table spec, "Schemas and Data Types" and Appendix C)."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Discriminator,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    Tag,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.model import Int, Json, SpecModel
from duckicelake.iceberg.primitives import TRAITS, PrimitiveTypeTraits

PLAIN_TYPES = frozenset(name for name, traits in TRAITS.items() if not traits.has_parameters)
"""Names of types that need no parameters."""
GEOGRAPHY_ALGORITHMS = ("spherical", "vincenty", "thomas", "andoyer", "karney")
DEFAULT_CRS = "OGC:CRS84"
MAX_PRECISION = 38

_BLANK = re.compile(r"\s{9}")
"""A run of blanks. Patterns with more blanks could take hours to match."""
_MAX_TYPE_CHARS = 1000
_FIXED = re.compile(r"fixed\[\s*(\d{1,9})\s*\]", re.IGNORECASE)
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)", re.IGNORECASE)
_GEOMETRY = re.compile(r"geometry\s*\(\s*(['\"]?)([^'\",]*?)\1\s*\)", re.IGNORECASE)
_GEOGRAPHY = re.compile(r"geography\s*\(\s*(['\"]?)([^'\",]*?)\1\s*(?:,\s*(['\"]?)(\w+)\3\s*)?\)", re.IGNORECASE)


class PrimitiveType(SpecModel):
    """A type without fields. JSON: its text, such as `decimal(9, 2)`. Variant counts as one here.

    length: of fixed. precision, scale: of decimal. crs: of geometry and geography (None is OGC:CRS84). algorithm: of
    geography (None is spherical).
    """

    name: str
    length: Int | None = None
    precision: Int | None = None
    scale: Int | None = None
    crs: str | None = None
    algorithm: str | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _from_text(cls, value: Any, build: ModelWrapValidatorHandler[Self]) -> Any:
        return _parse_type(value) if isinstance(value, str) else build(value)

    @model_serializer
    def _to_text(self) -> str:
        return str(self)

    @classmethod
    def __get_pydantic_json_schema__(cls, _: CoreSchema, __: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "examples": ["long", "decimal(9, 2)", "fixed[16]"]}

    @property
    def traits(self) -> PrimitiveTypeTraits:
        """The spec's facts about the type, whatever its parameters."""
        return TRAITS[self.name]

    @staticmethod
    def parse(text: str) -> "PrimitiveType":
        """Read the spec's text of a type.

        Raises:
            InvalidRequestError: no such type, or parameters out of range.

        """
        return _parse_type(text)

    def __str__(self) -> str:
        """Return the spec's text, spelled as the Java library does."""
        if self.name == "fixed":
            return f"fixed[{self.length}]"
        parameters = (self.precision, self.scale) if self.name == "decimal" else self._geo_parameters()
        return f"{self.name}({', '.join(str(parameter) for parameter in parameters)})" if parameters else self.name

    def _geo_parameters(self) -> tuple[str, ...]:
        if self.algorithm is not None:
            return (self.crs or DEFAULT_CRS, self.algorithm)
        return () if self.crs is None else (self.crs,)


class NestedField(SpecModel):
    """A field of a struct; list elements, map keys and map values are seen as fields too. Defaults are JSON values."""

    id: Int
    name: str
    required: bool
    type: "IcebergType"
    doc: str | None = None
    initial_default: Json = None
    write_default: Json = None


class StructType(SpecModel):
    type: Literal["struct"] = "struct"
    fields: tuple[NestedField, ...]


class ListType(SpecModel):
    type: Literal["list"] = "list"
    element_id: Int
    element: "IcebergType"
    element_required: bool


class MapType(SpecModel):
    type: Literal["map"] = "map"
    key_id: Int
    key: "IcebergType"
    value_id: Int
    value: "IcebergType"
    value_required: bool


def _discriminate_type(value: Any) -> str:
    if isinstance(value, str | PrimitiveType):
        return "primitive"
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    if not isinstance(kind, str) or kind not in {"struct", "list", "map"}:
        raise InvalidRequestError(
            f"unknown type {str(kind)[:80]!r}: a nested type is an object whose type is struct, list or map"
        )
    return str(kind)


IcebergType = Annotated[
    Annotated[PrimitiveType, Tag("primitive")]
    | Annotated[StructType, Tag("struct")]
    | Annotated[ListType, Tag("list")]
    | Annotated[MapType, Tag("map")],
    Discriminator(_discriminate_type),
]

for _model in (NestedField, StructType, ListType, MapType):
    _model.model_rebuild()


def list_children(kind: IcebergType) -> tuple[NestedField, ...]:
    """List the fields directly inside a type: a struct's, or `element`, or `key` and `value`."""
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return (_make_part(kind.element_id, "element", kind.element, required=kind.element_required),)
    if isinstance(kind, MapType):
        key = _make_part(kind.key_id, "key", kind.key, required=True)
        return key, _make_part(kind.value_id, "value", kind.value, required=kind.value_required)
    return ()


def walk_fields(kind: IcebergType, parent: int | None = None) -> Iterator[tuple[NestedField, int | None]]:
    """Yield each field inside a type at any depth, parents first, with the id of its parent."""
    for field in list_children(kind):
        yield field, parent
        yield from walk_fields(field.type, field.id)


def walk_required_fields(fields: Iterable[NestedField]) -> Iterator[NestedField]:
    """Yield required fields at any depth, except keys of maps, which are always required, and fields inside them."""
    for field in fields:
        if field.required:
            yield field
        parts = list_children(field.type)
        yield from walk_required_fields(parts[1:] if isinstance(field.type, MapType) else parts)


def _make_part(field_id: int, name: str, kind: IcebergType, *, required: bool) -> NestedField:
    return NestedField.model_construct(id=field_id, name=name, required=required, type=kind)


@lru_cache(maxsize=1024)
def _parse_type(text: str) -> PrimitiveType:
    if len(text) > _MAX_TYPE_CHARS or _BLANK.search(text):
        raise InvalidRequestError(f"unknown type {text[:80]!r}…: no type is that long, or holds so many blanks")
    lowered = text.strip().lower()
    if lowered in PLAIN_TYPES:
        return PrimitiveType(name=lowered)
    parsed = _parse_sized(text.strip()) or _parse_geo(text.strip())
    if parsed is None:
        raise InvalidRequestError(
            f"unknown type {text!r}: expected one of {', '.join(sorted(PLAIN_TYPES))}, decimal(P, S), fixed[L]"
        )
    return parsed


def _parse_sized(text: str) -> PrimitiveType | None:
    if match := _FIXED.fullmatch(text):
        return PrimitiveType(name="fixed", length=int(match[1]))
    if match := _DECIMAL.fullmatch(text):
        precision, scale = int(match[1]), int(match[2])
        if not (1 <= precision <= MAX_PRECISION and scale <= precision):
            raise InvalidRequestError(
                f"{text}: the precision is 1 to {MAX_PRECISION} and the scale at most the precision"
            )
        return PrimitiveType(name="decimal", precision=precision, scale=scale)
    return None


def _parse_geo(text: str) -> PrimitiveType | None:
    if match := _GEOMETRY.fullmatch(text):
        return PrimitiveType(name="geometry", crs=_parse_crs(match[2]))
    if match := _GEOGRAPHY.fullmatch(text):
        algorithm = match[4].lower() if match[4] else None
        if algorithm not in (None, *GEOGRAPHY_ALGORITHMS):
            raise InvalidRequestError(f"{text}: the algorithm is one of {', '.join(GEOGRAPHY_ALGORITHMS)}")
        return PrimitiveType(name="geography", crs=_parse_crs(match[2]), algorithm=algorithm)
    return None


def _parse_crs(text: str) -> str | None:
    return None if text == "" or text.upper() == DEFAULT_CRS else text
