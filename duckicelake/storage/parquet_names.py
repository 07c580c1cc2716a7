"""The names in a Parquet file's schema, those inside of lists and maps included."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import duckdb

from duckicelake.storage.parquet_footer import check_footer

NamePath = tuple[str, ...]
_ELEMENTS: Final = """
SELECT name, coalesce(num_children, 0), field_id, coalesce(converted_type, ''), coalesce(logical_type, '')
FROM parquet_schema($file)
"""
_ENTRY: Final = ("key", "value")

_Kind = Literal["struct", "list", "elements", "map", "entries"]


@dataclass(frozen=True, slots=True)
class ParquetName:
    """A field: `path` is what name mappings call it and all that it is in, `source` what DuckDB calls it there."""

    path: NamePath
    source: str
    field_id: int | None


@dataclass(slots=True)
class _Group:
    """A group of the schema whose children are being read; the one level between a list and its elements is its own."""

    path: NamePath
    kind: _Kind
    children: int
    seen: int = 0


def read_names(file: Path, name: str = "the data file") -> tuple[ParquetName, ...]:
    """The fields of a file, depth first; InvalidRequest, which names it, or duckdb.Error if it isn't Parquet."""
    check_footer(file, name)
    with duckdb.connect(config={"threads": 1}) as connection:
        root, *elements = connection.execute(_ELEMENTS, {"file": str(file)}).fetchall()
    return tuple(_names(root[1], elements))


def _names(columns: int, elements: Sequence[tuple[Any, ...]]) -> Iterator[ParquetName]:
    """Walk the schema's elements, which stand in depth-first order; any depth, so no recursion."""
    groups = [_Group((), "struct", columns)]
    for name, children, field_id, converted, logical in elements:
        while groups[-1].seen == groups[-1].children:
            groups.pop()
        group = groups[-1]
        kind: _Kind = _kind(converted, logical)
        if _is_between(group, name, children):
            groups.append(_Group(group.path, "elements" if group.kind == "list" else "entries", children))
        else:
            field = _field(group, name, field_id)
            yield field
            groups += [_Group(field.path, kind, children)] if children else []
        group.seen += 1


def _kind(converted: str, logical: str) -> _Kind:
    if converted == "LIST" or logical.startswith("ListType"):
        return "list"
    return "map" if converted.startswith("MAP") or logical.startswith("MapType") else "struct"


def _is_between(group: _Group, name: str, children: int) -> bool:
    """Whether it is the repeated group between a map and its entries, or a list and its elements, if that is there."""
    if group.kind == "list":
        return children == 1 and name not in {"array", f"{group.path[-1]}_tuple"}
    return group.kind == "map"


def _field(group: _Group, name: str, field_id: int | None) -> ParquetName:
    if group.kind in {"list", "elements"}:
        return ParquetName((*group.path, "element"), "list", field_id)
    if group.kind == "entries":
        name = _ENTRY[min(group.seen, 1)]
    return ParquetName((*group.path, name), name, field_id)
