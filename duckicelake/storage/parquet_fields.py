"""The fields of a Parquet file by field id or name, as DuckDB expressions that no name in the file can mislead."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from duckicelake.errors import InvalidRequest
from duckicelake.storage.parquet_footer import check_footer

NamePath = tuple[str, ...]
_ELEMENTS = """
SELECT name, coalesce(num_children, 0), field_id, duckdb_type,
       type IS NULL AND converted_type IS NULL AND logical_type IS NULL, repetition_type = 'REPEATED'
FROM parquet_schema($file)
"""


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
        """The fields by field id; in a file without any, by what `names` call them, whatever their case.

        Raises InvalidRequest if two fields have one id.
        """
        if any(field.field_id is not None for field in self.fields):
            return _unique((field.field_id, field) for field in self.fields)
        ids = {_lowered(path): field_id for path, field_id in (names or {}).items()}
        return _unique((ids.get(_lowered(field.names)), field) for field in self.fields)


@dataclass(slots=True)
class _Group:
    """A group of the schema whose children are being read; `place` is None inside lists and maps."""

    names: NamePath
    place: tuple[int, ...] | None
    children: int
    seen: int = 0


def fields_of(file: Path) -> tuple[ParquetField, ...]:
    """The fields of a file outside of lists and maps; InvalidRequest if it isn't Parquet."""
    check_footer(file, "the data file")
    try:
        with duckdb.connect(config={"threads": 1}) as connection:
            return read_fields(connection, file).fields
    except duckdb.Error as error:
        raise InvalidRequest(f"the data file can't be read as Parquet: {error}") from error


def read_fields(connection: duckdb.DuckDBPyConnection, file: Path) -> ParquetFields:
    """The fields of a file; duckdb.Error if it isn't Parquet."""
    root, *elements = connection.execute(_ELEMENTS, {"file": str(file)}).fetchall()
    columns = [f"c{number}" for number in range(root[1])]
    source = f"read_parquet($file, hive_partitioning := false) AS file({', '.join(columns)})"
    return ParquetFields(tuple(_fields(root[1], elements)), source)


def _fields(columns: int, elements: Sequence[tuple[Any, ...]]) -> Iterator[ParquetField]:
    """Walk the schema's elements, which stand in depth-first order; any depth, so no recursion."""
    groups = [_Group((), (), columns)]
    for name, children, field_id, type_, is_struct, is_repeated in elements:
        while groups[-1].seen == groups[-1].children:
            groups.pop()
        group = groups[-1]
        place = None if group.place is None or is_repeated else (*group.place, group.seen)
        group.seen += 1
        if place is not None:
            yield ParquetField((*group.names, name), field_id, _expression(place), None if is_struct else type_)
        if children:
            groups.append(_Group((*group.names, name), place if is_struct else None, children))


def _expression(place: Sequence[int]) -> str:
    expression = f"c{place[0]}"
    for number in place[1:]:
        expression = f"struct_extract_at({expression}, {number + 1})"
    return expression


def _unique(fields: Iterator[tuple[int | None, ParquetField]]) -> dict[int, ParquetField]:
    found: dict[int, ParquetField] = {}
    for field_id, field in fields:
        if field_id is None:
            continue
        if field_id in found:
            raise InvalidRequest(
                f"{'.'.join(found[field_id].names)} and {'.'.join(field.names)} both are field {field_id}"
            )
        found[field_id] = field
    return found


def _lowered(names: NamePath) -> NamePath:
    return tuple(name.lower() for name in names)
