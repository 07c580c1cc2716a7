"""Read the schema of a Parquet file three ways: fields by id, names for mappings, physical layout."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import duckdb

from duckicelake.errors import InvalidRequestError
from duckicelake.parquet.footer import check_footer
from duckicelake.parquet.inlined_rows import open_thread_connection

NamePath = tuple[str, ...]
_FIELDS_SQL = """
SELECT name, coalesce(num_children, 0), field_id, duckdb_type,
       type IS NULL AND converted_type IS NULL AND logical_type IS NULL, repetition_type = 'REPEATED'
FROM parquet_schema($file)
"""
_NAMES_SQL: Final = """
SELECT name, coalesce(num_children, 0), field_id, coalesce(converted_type, ''), coalesce(logical_type, '')
FROM parquet_schema($file)
"""
_ENTRY_NAMES: Final = ("key", "value")
_NameKind = Literal["struct", "list", "elements", "map", "entries"]
LayoutKind = Literal["leaf", "struct", "list", "map"]
_LAYOUT_SQL: Final = """
SELECT name, coalesce(num_children, 0), field_id, repetition_type = 'REPEATED', type, type_length,
       coalesce(converted_type, ''), coalesce(logical_type, ''), scale, precision
FROM parquet_schema($file)
"""
_TIME_UNIT: Final = re.compile(r"(MILLIS|MICROS|NANOS)=\w+\(")
_MAX_LAYOUT_DEPTH: Final = 64
UNUSUAL_STORAGE: Final = "unusual"
"""How lists and maps are stored that have not exactly the three levels of the specification."""


@dataclass(frozen=True, slots=True)
class ParquetField:
    """A column or a part of a struct; `type` is DuckDB's for what is read, None for a struct."""

    names: NamePath
    field_id: int | None
    expression: str
    type: str | None


@dataclass(frozen=True, slots=True)
class ParquetFields:
    """What a file holds outside of lists and maps; expressions are over `source`, which takes the parameter $file."""

    fields: tuple[ParquetField, ...]
    source: str

    def by_id(self, names: Mapping[NamePath, int] | None = None) -> dict[int, ParquetField]:
        """Return the fields by field id; in a file without any, by what `names` call them, whatever their case.

        Raises InvalidRequestError if two fields have one id.
        """
        if any(field.field_id is not None for field in self.fields):
            return _index_by_id((field.field_id, field) for field in self.fields)
        ids = {_lower_names(path): field_id for path, field_id in (names or {}).items()}
        return _index_by_id((ids.get(_lower_names(field.names)), field) for field in self.fields)


@dataclass(slots=True)
class _FieldGroup:
    """A group of the schema whose children are being read; `place` is None inside lists and maps."""

    names: NamePath
    place: tuple[int, ...] | None
    children: int
    seen: int = 0


def read_file_fields(file: Path) -> tuple[ParquetField, ...]:
    """Return the fields of a file outside of lists and maps; InvalidRequestError if it isn't Parquet."""
    check_footer(file, "the data file")
    try:
        with duckdb.connect(config={"threads": 1}) as connection:
            return read_fields(connection, file).fields
    except duckdb.Error as error:
        raise InvalidRequestError(f"the data file can't be read as Parquet: {error}") from error


def read_fields(connection: duckdb.DuckDBPyConnection, file: Path) -> ParquetFields:
    """Return the fields of a file; duckdb.Error if it isn't Parquet."""
    root, *elements = connection.execute(_FIELDS_SQL, {"file": str(file)}).fetchall()
    columns = [f"c{number}" for number in range(root[1])]
    source = f"read_parquet($file, hive_partitioning := false) AS file({', '.join(columns)})"
    return ParquetFields(tuple(_walk_fields(root[1], elements)), source)


def _walk_fields(columns: int, elements: Sequence[tuple[Any, ...]]) -> Iterator[ParquetField]:
    """Walk the schema's elements, which stand in depth-first order; any depth, so no recursion."""
    groups = [_FieldGroup((), (), columns)]
    for name, children, field_id, type_, is_struct, is_repeated in elements:
        while groups[-1].seen == groups[-1].children:
            groups.pop()
        group = groups[-1]
        place = None if group.place is None or is_repeated else (*group.place, group.seen)
        group.seen += 1
        if place is not None:
            yield ParquetField((*group.names, name), field_id, _build_expression(place), None if is_struct else type_)
        if children:
            groups.append(_FieldGroup((*group.names, name), place if is_struct else None, children))


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
    """A field: `path` is what name mappings call it and all that it is in, `source` what DuckDB calls it there."""

    path: NamePath
    source: str
    field_id: int | None


@dataclass(slots=True)
class _NameGroup:
    """A group of the schema whose children are being read; the one level between a list and its elements is its own."""

    path: NamePath
    kind: _NameKind
    children: int
    seen: int = 0


def read_names(file: Path, name: str = "the data file") -> tuple[ParquetName, ...]:
    """Return the fields of a file, depth first.

    Raises InvalidRequestError, which names it, or duckdb.Error if it isn't Parquet.
    """
    check_footer(file, name)
    with duckdb.connect(config={"threads": 1}) as connection:
        root, *elements = connection.execute(_NAMES_SQL, {"file": str(file)}).fetchall()
    return tuple(_walk_names(root[1], elements))


def _walk_names(columns: int, elements: Sequence[tuple[Any, ...]]) -> Iterator[ParquetName]:
    """Walk the schema's elements, which stand in depth-first order; any depth, so no recursion."""
    groups = [_NameGroup((), "struct", columns)]
    for name, children, field_id, converted, logical in elements:
        while groups[-1].seen == groups[-1].children:
            groups.pop()
        group = groups[-1]
        kind: _NameKind = _classify_name(converted, logical)
        if _is_name_level(group, name, children):
            groups.append(_NameGroup(group.path, "elements" if group.kind == "list" else "entries", children))
        else:
            field = _build_name(group, name, field_id)
            yield field
            groups += [_NameGroup(field.path, kind, children)] if children else []
        group.seen += 1


def _classify_name(converted: str, logical: str) -> _NameKind:
    if converted == "LIST" or logical.startswith("ListType"):
        return "list"
    return "map" if converted.startswith("MAP") or logical.startswith("MapType") else "struct"


def _is_name_level(group: _NameGroup, name: str, children: int) -> bool:
    """Whether it is the repeated group between a map and its entries, or a list and its elements, if that is there."""
    if group.kind == "list":
        return children == 1 and name not in {"array", f"{group.path[-1]}_tuple"}
    return group.kind == "map"


def _build_name(group: _NameGroup, name: str, field_id: int | None) -> ParquetName:
    if group.kind in {"list", "elements"}:
        return ParquetName((*group.path, "element"), "list", field_id)
    if group.kind == "entries":
        name = _ENTRY_NAMES[min(group.seen, 1)]
    return ParquetName((*group.path, name), name, field_id)


class LayoutField(NamedTuple):
    """A field of a file.

    parent: the index of what it is in. place: its position there. name: what DuckDB calls it. stored: of a leaf its
    physical type and annotation; UNUSUAL where a list or
    map isn't written as the specification wants it.
    """

    parent: int | None
    place: int
    name: str
    field_id: int | None
    kind: LayoutKind
    stored: str


@dataclass(slots=True)
class _LayoutGroup:
    """A group whose children are being read; `elements` and `entries` are the levels between a list or map and them."""

    index: int | None
    name: str
    kind: LayoutKind | Literal["elements", "entries"]
    children: int
    seen: int = 0


def read_layout(file: Path, name: str) -> tuple[LayoutField, ...]:
    """Return the fields of a file, depth first.

    Raises InvalidRequestError, which names it, or duckdb.Error if it isn't Parquet.
    """
    check_footer(file, name)
    with open_thread_connection() as connection:
        root, *elements = connection.execute(_LAYOUT_SQL, {"file": str(file)}).fetchall()
    return tuple(_walk_layout(root[1], elements, name))


def _walk_layout(columns: int, elements: Sequence[tuple[Any, ...]], name: str) -> Iterator[LayoutField]:
    """Walk the schema's elements, which stand in depth-first order."""
    groups, index = [_LayoutGroup(None, "", "struct", columns)], 0
    for element in elements:
        while groups[-1].seen == groups[-1].children:
            groups.pop()
        if len(groups) > _MAX_LAYOUT_DEPTH:
            raise InvalidRequestError(f"{name} is nested more than {_MAX_LAYOUT_DEPTH} levels deep")
        group, children = groups[-1], element[1]
        if _is_layout_level(group, element):
            groups.append(
                _LayoutGroup(group.index, group.name, "elements" if group.kind == "list" else "entries", children)
            )
        else:
            field = _build_layout_field(group, element)
            yield field
            groups += [_LayoutGroup(index, field.name, field.kind, children)] if children else []
            index += 1
        group.seen += 1


def _is_layout_level(group: _LayoutGroup, element: tuple[Any, ...]) -> bool:
    """Return whether it is the repeated group of a list or map that has three levels."""
    name, children, _, repeated, *_ = element
    if group.kind == "list":
        return repeated and children == 1 and name not in {"array", f"{group.name}_tuple"}
    return group.kind == "map" and repeated and children == len(_ENTRY_NAMES)


def _build_layout_field(group: _LayoutGroup, element: tuple[Any, ...]) -> LayoutField:
    name, children, field_id, repeated, physical, length, converted, logical, scale, precision = element
    if group.kind in {"list", "elements"}:
        name = "list"
    if group.kind == "entries":
        name = _ENTRY_NAMES[group.seen]
    kind = _classify_layout(children, converted, logical)
    stored = ""
    if repeated or group.kind in {"list", "map"}:
        stored = UNUSUAL_STORAGE
    elif kind == "leaf":
        annotation = _describe_annotation(converted, logical, scale, precision)
        stored = f"{_describe_physical(physical, length)} {annotation}".rstrip()
    return LayoutField(group.index, group.seen, name, field_id, kind, stored)


def _classify_layout(children: int, converted: str, logical: str) -> LayoutKind:
    if not children:
        return "leaf"
    if converted == "LIST" or logical.startswith("ListType"):
        return "list"
    return "map" if converted.startswith("MAP") or logical.startswith("MapType") else "struct"


def _describe_physical(physical: str, length: str | None) -> str:
    return f"FIXED({length})" if physical == "FIXED_LEN_BYTE_ARRAY" else physical


def _describe_annotation(converted: str, logical: str, scale: int | None, precision: int | None) -> str:
    """Return what Parquet says that the physical values mean, in one spelling.

    Times say whether they are adjusted to UTC.
    """
    if logical.startswith(("TimestampType", "TimeType")):
        unit = _TIME_UNIT.search(logical)
        adjusted = " UTC" if "isAdjustedToUTC=1" in logical else ""
        return f"{logical.partition('Type')[0].upper()}_{unit[1] if unit else '?'}{adjusted}"
    if logical.startswith("IntType"):
        return "UINT" if "isSigned=0" in logical else ""
    if converted == "DECIMAL" or logical.startswith("DecimalType"):
        return f"DECIMAL({precision},{scale})"
    if converted.startswith(("INT_", "UINT_")):
        return "UINT" if converted.startswith("UINT_") else ""
    named = {"UTF8": "STRING", "DATE": "DATE", "JSON": "JSON"}
    return named.get(converted) or logical.partition("(")[0].removesuffix("Type").upper() or converted
