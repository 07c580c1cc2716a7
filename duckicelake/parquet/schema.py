"""Read the schema of a Parquet file three ways: fields by id, names for mappings, physical layout."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Literal, NamedTuple, TypeVar

import duckdb

from duckicelake.errors import InvalidRequestError
from duckicelake.parquet.footer import check_footer
from duckicelake.parquet.inlined_rows import open_thread_connection

NamePath = tuple[str, ...]
_SCHEMA_SQL: Final = """
SELECT name, coalesce(num_children, 0), field_id, duckdb_type, repetition_type = 'REPEATED', type, type_length,
       coalesce(converted_type, ''), coalesce(logical_type, ''), scale, precision
FROM parquet_schema($file)
"""
_ENTRY_NAMES: Final = ("key", "value")
LayoutKind = Literal["leaf", "struct", "list", "map"]
_GroupKind = Literal["struct", "list", "elements", "map", "entries"]
"""Kinds of groups; `elements` and `entries` are the repeated levels between a list or map and what is in it."""
_TIME_UNIT: Final = re.compile(r"(MILLIS|MICROS|NANOS)=\w+\(")
_MAX_LAYOUT_DEPTH: Final = 64
UNUSUAL_STORAGE: Final = "unusual"
"""The storage of lists and maps without the specification's three levels."""
_Found = TypeVar("_Found")
_Place = TypeVar("_Place")


class _SchemaElement(NamedTuple):
    """A row of DuckDB's `parquet_schema`; a leaf has no children."""

    name: str
    children: int
    field_id: int | None
    duckdb_type: str | None
    is_repeated: bool
    physical: str | None
    length: str | None
    converted: str
    logical: str
    scale: int | None
    precision: int | None

    @property
    def kind(self) -> LayoutKind:
        if not self.children:
            return "leaf"
        if self.converted == "LIST" or self.logical.startswith("ListType"):
            return "list"
        return "map" if self.converted.startswith("MAP") or self.logical.startswith("MapType") else "struct"


@dataclass(slots=True)
class _SchemaGroup(Generic[_Place]):
    """A group while its children are read. place: the reader's state in it."""

    place: _Place
    children: int
    seen: int = 0


def _read_elements(connection: duckdb.DuckDBPyConnection, file: Path) -> list[_SchemaElement]:
    """Read the elements of a schema, the root first; duckdb.Error if the file isn't Parquet."""
    return [_SchemaElement(*row) for row in connection.execute(_SCHEMA_SQL, {"file": str(file)}).fetchall()]


def _walk_elements(
    elements: Sequence[_SchemaElement],
    place: _Place,
    visit: Callable[[_Place, int, _SchemaElement], tuple[_Found | None, _Place]],
) -> Iterator[_Found]:
    """Walk elements in depth-first order, of any depth, so without recursion.

    Args:
        elements: those of a file, the root first.
        place: of the root.
        visit: takes the place of the parent, the number of its child, and the child. Returns what it finds, None for a
            level that is no field, and the place of the child.

    """
    root, *others = elements
    groups = [_SchemaGroup(place, root.children)]
    for element in others:
        while groups[-1].seen == groups[-1].children:
            groups.pop()
        group = groups[-1]
        found, inner = visit(group.place, group.seen, element)
        group.seen += 1
        if found is not None:
            yield found
        if element.children:
            groups.append(_SchemaGroup(inner, element.children))


@dataclass(frozen=True, slots=True)
class ParquetField:
    """A column or a field of a struct. type: DuckDB's type of its values, None for a struct."""

    names: NamePath
    field_id: int | None
    expression: str
    type: str | None


@dataclass(frozen=True, slots=True)
class ParquetFields:
    """The fields of a file outside of lists and maps. Expressions are over `source`, with the parameter $file."""

    fields: tuple[ParquetField, ...]
    source: str

    def by_id(self, names: Mapping[NamePath, int] | None = None) -> dict[int, ParquetField]:
        """Map fields by field id. In a file without ids, `names` gives them by name, ignoring case.

        Raises InvalidRequestError if two fields have one id.
        """
        if any(field.field_id is not None for field in self.fields):
            return _index_by_id((field.field_id, field) for field in self.fields)
        ids = {_lower_names(path): field_id for path, field_id in (names or {}).items()}
        return _index_by_id((ids.get(_lower_names(field.names)), field) for field in self.fields)


class _FieldPlace(NamedTuple):
    """The place of a field. numbers: the way to its parent from the root; None inside lists and maps."""

    names: NamePath = ()
    numbers: tuple[int, ...] | None = ()


def read_file_fields(file: Path, name: str = "the data file") -> tuple[ParquetField, ...]:
    """Read the fields of a file outside of lists and maps.

    InvalidRequestError names the file: it isn't Parquet.
    """
    check_footer(file, name)
    try:
        with open_thread_connection() as connection:
            return read_fields(connection, file).fields
    except duckdb.Error as error:
        raise InvalidRequestError(f"{name} can't be read as Parquet: {error}") from error


def read_fields(connection: duckdb.DuckDBPyConnection, file: Path) -> ParquetFields:
    """Read the fields of a file; duckdb.Error: it isn't Parquet."""
    elements = _read_elements(connection, file)
    columns = [f"c{number}" for number in range(elements[0].children)]
    source = f"read_parquet($file, hive_partitioning := false) AS file({', '.join(columns)})"
    return ParquetFields(tuple(_walk_elements(elements, _FieldPlace(), _visit_field)), source)


def _visit_field(place: _FieldPlace, number: int, element: _SchemaElement) -> tuple[ParquetField | None, _FieldPlace]:
    names = (*place.names, element.name)
    if place.numbers is None or element.is_repeated:
        return None, _FieldPlace(names, None)
    numbers = (*place.numbers, number)
    is_struct = element.physical is None and not element.converted and not element.logical
    type_ = None if is_struct else element.duckdb_type
    field = ParquetField(names, element.field_id, _build_expression(numbers), type_)
    return field, _FieldPlace(names, numbers if is_struct else None)


def _build_expression(place: Sequence[int]) -> str:
    expression = f"c{place[0]}"
    for number in place[1:]:
        expression = f"struct_extract_at({expression}, {number + 1})"
    return expression


def _index_by_id(fields: Iterator[tuple[int | None, ParquetField]]) -> dict[int, ParquetField]:
    found: dict[int, ParquetField] = {}
    for field_id, field in fields:
        if field_id is None:
            continue
        if field_id in found:
            raise InvalidRequestError(
                f"{'.'.join(found[field_id].names)} and {'.'.join(field.names)} both are field {field_id}"
            )
        found[field_id] = field
    return found


def _lower_names(names: NamePath) -> NamePath:
    return tuple(name.lower() for name in names)


@dataclass(frozen=True, slots=True)
class ParquetName:
    """A field. path: its names in name mappings, parents first. source: DuckDB's name of it in its parent."""

    path: NamePath
    source: str
    field_id: int | None


class _NamePlace(NamedTuple):
    """The parent of a name. path: its names in mappings, outermost first."""

    path: NamePath = ()
    kind: _GroupKind = "struct"


def read_names(file: Path, name: str = "the data file") -> tuple[ParquetName, ...]:
    """Read the fields of a file, depth first.

    InvalidRequestError names the file, or duckdb.Error: it isn't Parquet.
    """
    check_footer(file, name)
    with open_thread_connection() as connection:
        elements = _read_elements(connection, file)
    return tuple(_walk_elements(elements, _NamePlace(), _visit_name))


def _visit_name(place: _NamePlace, number: int, element: _SchemaElement) -> tuple[ParquetName | None, _NamePlace]:
    path, kind = place
    if kind == "map":
        return None, _NamePlace(path, "entries")
    if kind == "list" and element.children == 1 and element.name not in {"array", f"{path[-1]}_tuple"}:
        return None, _NamePlace(path, "elements")
    source = _find_source_name(kind, number, element)
    inner = (*path, "element" if kind in {"list", "elements"} else source)
    return ParquetName(inner, source, element.field_id), _NamePlace(inner, _find_group_kind(element))


def _find_group_kind(element: _SchemaElement) -> _GroupKind:
    return "struct" if element.kind == "leaf" else element.kind


def _find_source_name(kind: _GroupKind, number: int, element: _SchemaElement) -> str:
    """Find DuckDB's name of a field in a group of this kind."""
    if kind in {"list", "elements"}:
        return "list"
    return _ENTRY_NAMES[min(number, 1)] if kind == "entries" else element.name


class LayoutField(NamedTuple):
    """A field of a file.

    Attributes:
        parent: the index of what it is in.
        place: its position there.
        name: what DuckDB calls it.
        stored: of a leaf its physical type and annotation; UNUSUAL_STORAGE of a list or map that isn't written as the
            specification wants it.

    """

    parent: int | None
    place: int
    name: str
    field_id: int | None
    kind: LayoutKind
    stored: str


class _LayoutPlace(NamedTuple):
    """The place of a field. parent: its index among the fields. depth: the number of groups around the field."""

    parent: int | None = None
    name: str = ""
    kind: _GroupKind = "struct"
    depth: int = 1


class _LayoutWalk:
    """Number the fields of a file, in their order. name: of the file, for errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0

    def visit(
        self, place: _LayoutPlace, number: int, element: _SchemaElement
    ) -> tuple[LayoutField | None, _LayoutPlace]:
        if place.depth > _MAX_LAYOUT_DEPTH:
            raise InvalidRequestError(f"{self._name} is nested more than {_MAX_LAYOUT_DEPTH} levels deep")
        if _is_layout_level(place, element):
            kind: _GroupKind = "elements" if place.kind == "list" else "entries"
            return None, place._replace(kind=kind, depth=place.depth + 1)
        name = _find_source_name(place.kind, number, element)
        stored = _describe_storage(place, element)
        field = LayoutField(place.parent, number, name, element.field_id, element.kind, stored)
        inner = _LayoutPlace(self._count, name, _find_group_kind(element), place.depth + 1)
        self._count += 1
        return field, inner


def read_layout(file: Path, name: str) -> tuple[LayoutField, ...]:
    """Read the fields of a file, depth first.

    InvalidRequestError names the file, or duckdb.Error: it isn't Parquet.
    """
    check_footer(file, name)
    with open_thread_connection() as connection:
        elements = _read_elements(connection, file)
    return tuple(_walk_elements(elements, _LayoutPlace(), _LayoutWalk(name).visit))


def _is_layout_level(place: _LayoutPlace, element: _SchemaElement) -> bool:
    """Return whether the element is the repeated group of a three-level list or map."""
    if not element.is_repeated:
        return False
    if place.kind == "list":
        return element.children == 1 and element.name not in {"array", f"{place.name}_tuple"}
    return place.kind == "map" and element.children == len(_ENTRY_NAMES)


def _describe_storage(place: _LayoutPlace, element: _SchemaElement) -> str:
    if element.is_repeated or place.kind in {"list", "map"}:
        return UNUSUAL_STORAGE
    return _describe_leaf(element) if element.kind == "leaf" else ""


def _describe_leaf(element: _SchemaElement) -> str:
    is_fixed = element.physical == "FIXED_LEN_BYTE_ARRAY"
    return f"{f'FIXED({element.length})' if is_fixed else element.physical} {_describe_annotation(element)}".rstrip()


def _describe_annotation(element: _SchemaElement) -> str:
    """Describe the annotation of a type, in one spelling.

    Times include whether they are adjusted to UTC.
    """
    logical, converted = element.logical, element.converted
    if logical.startswith(("TimestampType", "TimeType")):
        unit = _TIME_UNIT.search(logical)
        adjusted = " UTC" if "isAdjustedToUTC=1" in logical else ""
        return f"{logical.partition('Type')[0].upper()}_{unit[1] if unit else '?'}{adjusted}"
    if logical.startswith("IntType"):
        return "UINT" if "isSigned=0" in logical else ""
    if converted == "DECIMAL" or logical.startswith("DecimalType"):
        return f"DECIMAL({element.precision},{element.scale})"
    if converted.startswith(("INT_", "UINT_")):
        return "UINT" if converted.startswith("UINT_") else ""
    named = {"UTF8": "STRING", "DATE": "DATE", "JSON": "JSON"}
    return named.get(converted) or logical.partition("(")[0].removesuffix("Type").upper() or converted
