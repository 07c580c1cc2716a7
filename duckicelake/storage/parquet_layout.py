"""How a Parquet file stores its rows: its fields as DuckDB sees them, with their field ids and physical types."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from duckicelake.errors import InvalidRequest
from duckicelake.storage.parquet import own_connection
from duckicelake.storage.parquet_footer import check_footer

Kind = Literal["leaf", "struct", "list", "map"]
_ELEMENTS: Final = """
SELECT name, coalesce(num_children, 0), field_id, repetition_type = 'REPEATED', type, type_length,
       coalesce(converted_type, ''), coalesce(logical_type, ''), scale, precision
FROM parquet_schema($file)
"""
_ENTRY: Final = ("key", "value")
_UNIT: Final = re.compile(r"(MILLIS|MICROS|NANOS)=\w+\(")
_MAX_DEPTH: Final = 64
UNUSUAL: Final = "unusual"
"""How lists and maps are stored that have not exactly the three levels of the specification."""


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
    kind: Kind
    stored: str


@dataclass(slots=True)
class _Group:
    """A group whose children are being read; `elements` and `entries` are the levels between a list or map and them."""

    index: int | None
    name: str
    kind: Kind | Literal["elements", "entries"]
    children: int
    seen: int = 0


def read_layout(file: Path, name: str) -> tuple[LayoutField, ...]:
    """The fields of a file, depth first; InvalidRequest, which names it, or duckdb.Error if it isn't Parquet."""
    check_footer(file, name)
    with own_connection() as connection:
        root, *elements = connection.execute(_ELEMENTS, {"file": str(file)}).fetchall()
    return tuple(_fields(root[1], elements, name))


def _fields(columns: int, elements: Sequence[tuple[Any, ...]], name: str) -> Iterator[LayoutField]:
    """Walk the schema's elements, which stand in depth-first order."""
    groups, index = [_Group(None, "", "struct", columns)], 0
    for element in elements:
        while groups[-1].seen == groups[-1].children:
            groups.pop()
        if len(groups) > _MAX_DEPTH:
            raise InvalidRequest(f"{name} is nested more than {_MAX_DEPTH} levels deep")
        group, children = groups[-1], element[1]
        if _is_between(group, element):
            groups.append(_Group(group.index, group.name, "elements" if group.kind == "list" else "entries", children))
        else:
            field = _field(group, element)
            yield field
            groups += [_Group(index, field.name, field.kind, children)] if children else []
            index += 1
        group.seen += 1


def _is_between(group: _Group, element: tuple[Any, ...]) -> bool:
    """Whether it is the repeated group of a list or map that has three levels."""
    name, children, _, repeated, *_ = element
    if group.kind == "list":
        return repeated and children == 1 and name not in {"array", f"{group.name}_tuple"}
    return group.kind == "map" and repeated and children == len(_ENTRY)


def _field(group: _Group, element: tuple[Any, ...]) -> LayoutField:
    name, children, field_id, repeated, physical, length, converted, logical, scale, precision = element
    if group.kind in {"list", "elements"}:
        name = "list"
    if group.kind == "entries":
        name = _ENTRY[group.seen]
    kind = _kind(children, converted, logical)
    stored = ""
    if repeated or group.kind in {"list", "map"}:
        stored = UNUSUAL
    elif kind == "leaf":
        stored = f"{_physical(physical, length)} {_annotation(converted, logical, scale, precision)}".rstrip()
    return LayoutField(group.index, group.seen, name, field_id, kind, stored)


def _kind(children: int, converted: str, logical: str) -> Kind:
    if not children:
        return "leaf"
    if converted == "LIST" or logical.startswith("ListType"):
        return "list"
    return "map" if converted.startswith("MAP") or logical.startswith("MapType") else "struct"


def _physical(physical: str, length: str | None) -> str:
    return f"FIXED({length})" if physical == "FIXED_LEN_BYTE_ARRAY" else physical


def _annotation(converted: str, logical: str, scale: int | None, precision: int | None) -> str:
    """What Parquet says that the physical values mean, in one spelling; times say whether they are adjusted to UTC."""
    if logical.startswith(("TimestampType", "TimeType")):
        unit = _UNIT.search(logical)
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
