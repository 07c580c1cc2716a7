"""PURE. Files that DuckDB added (`ducklake_add_data_files`): whether Iceberg clients read in them what DuckDB reads.

DuckDB takes columns by DuckLake's map of names, whatever field ids the file has, casts them to the table's types, and
believes a folder's name before the file. Iceberg clients go by field ids, or by the table's name mapping where the file
has none, and know fewer types. Where the two differ, clients get a copy with DuckDB's values and the table's field ids.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from duckicelake.bridge.values.types import build_field_ids, quote_identifier, to_duckdb_type
from duckicelake.errors import UnsupportedError
from duckicelake.lake.model import Column, ColumnStats, MappedName, NameMap, PartitionKey
from duckicelake.lake.types import LAKE_TYPES, select_types

_CONTAINERS: Final = frozenset({"struct", "list", "map"})
_WHOLE: Final = select_types(lambda row: row.is_opaque)
"""Types whose values are read as DuckDB's own files have them; a variant's parts are no fields."""
_INEXACT: Final = frozenset({("float64", "FLOAT")})
"""Types whose bounds in DuckLake are of the narrower stored type: the text 1.1 is less than the double that is read."""
_BYTES: Final = "BLOB"
_FLOATS: Final = frozenset({"float32", "float64"})
_ENTRIES: Final = ("map_keys", "map_values")
_MICRO_DIGITS: Final = 6


class StoredField(NamedTuple):
    """A field of a file, in depth-first order (`storage/parquet_layout`).

    parent: the index of what it is in. place: its position there. name: DuckDB's. stored: a leaf's physical type.
    """

    parent: int | None
    place: int
    name: str
    field_id: int | None
    kind: Literal["leaf", "struct", "list", "map"]
    stored: str


@dataclass(frozen=True, slots=True)
class CopiedColumn:
    """A column of a copy: its name, its values as SQL over `c0`, `c1`, … of the file, and its field ids for COPY."""

    name: str
    expression: str
    field_ids: str


class DuckDBAddedFile:
    """A file that DuckDB added, as its footer and DuckLake's map of it say.

    Attributes:
        is_plain: whether clients read the file itself as DuckDB does, but for columns that only its folder has.
        has_ids: whether it has field ids, so that clients don't look at names.
        inexact: columns whose bounds in DuckLake aren't those of what is read.
        in_folder: columns whose values are those of the file's folder.

    """

    def __init__(self, fields: Sequence[StoredField], names: NameMap, columns: Sequence[Column]) -> None:
        """`columns` are the table's when the file came."""
        self._fields = fields
        self._columns = {column.column_id: column for column in columns}
        self._places, found = _find_places(fields, names)
        self._inside: dict[int | None, list[int]] = defaultdict(list)
        for index in self._places:
            self._inside[fields[index].parent].append(index)
        doubled = _has_doubled_names(fields)
        self.has_ids = any(field.field_id is not None for field in fields)
        self.in_folder = frozenset(name.field_id for name in names.names if name.is_partition)
        ids = [fields[index].field_id == column_id for index, column_id in self._places.items()]
        self.is_plain = (
            found
            and not doubled
            and (all(ids) or not self.has_ids)
            and not any(self._find_unmapped())
            and all(self._is_plain(index) for index in self._places)
        )
        self.inexact = frozenset(
            column_id for index, column_id in self._places.items() if doubled or not self._is_exact(index)
        )

    def _find_unmapped(self) -> Iterator[int]:
        """Yield fields that the map doesn't name, but for the parts of variants."""
        whole: set[int] = set()
        for index, field in enumerate(self._fields):
            column = self._column(index)
            is_part = field.parent in whole
            if is_part or (column is not None and column.column_type in _WHOLE):
                whole.add(index)
            if column is None and index not in self._places and not is_part:
                yield index

    def _column(self, index: int) -> Column | None:
        """Return the column that a field is; None where it is none of the table's any more."""
        column_id = self._places.get(index)
        return None if column_id is None else self._columns.get(column_id)

    def _is_plain(self, index: int) -> bool:
        field, column = self._fields[index], self._column(index)
        if column is None or column.column_type in _WHOLE:
            return True
        if column.column_type in _CONTAINERS:
            return field.kind == column.column_type and not field.stored
        return _is_stored_as(column.column_type, field.stored)

    def _is_exact(self, index: int) -> bool:
        column, stored = self._column(index), self._fields[index].stored
        return column is None or (self._is_plain(index) and (column.column_type, stored) not in _INEXACT)

    def copy_columns(self, path: str, stats: Mapping[int, ColumnStats]) -> tuple[CopiedColumn, ...]:
        """Return the columns of a copy; what the file lacks, the copy lacks too, so that defaults are read as always.

        stats: DuckLake's of the file, which have the value of a folder. UnsupportedError, naming the path, where
        DuckDB's values can't be said.
        """
        columns = [(index, column) for index in self._inside[None] if (column := self._column(index))]
        kept = tuple(self._iterate_present())
        made = [
            CopiedColumn(
                column.column_name,
                self._build_expression(f"c{self._fields[index].place}", index, column, path),
                build_field_ids(column, kept),
            )
            for index, column in columns
        ]
        made += [_build_constant(column, stats.get(column_id), path) for column_id, column in self._folders()]
        if not made:
            raise _refuse_copy(path, "it has none of the table's columns")
        return tuple(made)

    def trust_folder(self, values: Mapping[PartitionKey, str | None]) -> dict[PartitionKey, str | None]:
        """Return the partition values that DuckDB reads.

        Of a column that it reads in the file, the folder says nothing.
        """
        return {key: value for key, value in values.items() if key.column_id in self.in_folder}

    def without_nan(self, stats: Iterable[ColumnStats]) -> Iterator[ColumnStats]:
        """Yield the statistics of columns that can't hold NaN beside their bounds, which no footer says."""
        for row in stats:
            column = self._columns.get(row.column_id)
            if column is None or column.column_type not in _FLOATS or row.contains_nan is False:
                yield row

    def _folders(self) -> Iterator[tuple[int, Column]]:
        return ((id_, self._columns[id_]) for id_ in sorted(self.in_folder) if id_ in self._columns)

    def _iterate_present(self) -> Iterator[Column]:
        """Return the table's columns that the file has."""
        return (column for index in self._places if (column := self._column(index)) is not None)

    def _build_expression(self, source: str, index: int, column: Column, path: str) -> str:
        """Return the SQL of a field's values, of the parts that the table has, in their types."""
        if column.column_type in _WHOLE:
            return source
        if column.column_type not in _CONTAINERS:
            return _build_cast(source, column)
        parts = [(part, inner) for part in self._inside[index] if (inner := self._column(part))]
        is_whole = len(parts) == {"struct": len(parts), "list": 1, "map": 2}[column.column_type]
        if self._fields[index].kind != column.column_type or not parts or not is_whole:
            raise _refuse_copy(path, f"its column {column.column_name} is stored in an unusual way")
        return f"CASE WHEN {source} IS NOT NULL THEN {self._build_container(source, column, parts, path)} END"

    def _build_container(self, source: str, column: Column, parts: Sequence[tuple[int, Column]], path: str) -> str:
        if column.column_type == "struct":
            packed = (
                f"{quote_identifier(part.column_name)} := "
                + self._build_expression(f"struct_extract_at({source}, {self._fields[at].place + 1})", at, part, path)
                for at, part in parts
            )
            return f"struct_pack({', '.join(packed)})"
        element = f"e{parts[0][0]}"
        made = [f"lambda {element}: {self._build_expression(element, at, part, path)}" for at, part in parts]
        if column.column_type == "list":
            return f"list_transform({source}, {made[0]})"
        keys, values = (f"list_transform({of}({source}), {item})" for of, item in zip(_ENTRIES, made, strict=True))
        return f"map({keys}, {values})"


def drop_bounds(
    metrics: Mapping[str, Mapping[str, object]], columns: AbstractSet[int]
) -> dict[str, Mapping[str, object]]:
    """Return the metrics of a file without the bounds of these columns."""
    gone = {str(column) for column in columns}
    return {
        name: {key: value for key, value in of.items() if key not in gone} if name.endswith("_bounds") else of
        for name, of in metrics.items()
    }


def _find_places(fields: Sequence[StoredField], names: NameMap) -> tuple[dict[int, int], bool]:
    """Return (column ids by the index of a field, whether all that the map names is there)."""
    by_name: dict[tuple[int | None, str], int] = {}
    for index, field in enumerate(fields):
        by_name.setdefault((field.parent, field.name), index)
    found: dict[int, int] = {}
    indexes: list[int | None] = []
    for name in names.names:
        at = None if name.is_partition else _find_place(name, indexes, by_name)
        indexes.append(at)
        if at is not None:
            found[at] = name.field_id
    is_whole = all(name.is_partition or index is not None for name, index in zip(names.names, indexes, strict=True))
    return dict(sorted(found.items())), is_whole


def _find_place(
    name: MappedName, indexes: Sequence[int | None], by_name: Mapping[tuple[int | None, str], int]
) -> int | None:
    if name.parent is None:
        return by_name.get((None, name.source_name))
    parent = indexes[name.parent]
    return None if parent is None else by_name.get((parent, name.source_name))


def _has_doubled_names(fields: Sequence[StoredField]) -> bool:
    """Return whether two fields beside one another differ by case at most: engines don't agree on which is meant."""
    counts = Counter((field.parent, field.name.lower()) for field in fields)
    return any(count > 1 for count in counts.values())


def _is_stored_as(type_: str, stored: str) -> bool:
    if not type_.startswith("decimal("):
        return type_ in LAKE_TYPES and stored in LAKE_TYPES[type_].parquet
    physical, _, annotation = stored.partition(" ")
    if not annotation.startswith("DECIMAL(") or physical == "BYTE_ARRAY":
        return False
    own, wanted = (text.lower().removeprefix("decimal(").removesuffix(")").split(",") for text in (annotation, type_))
    return int(own[1]) == int(wanted[1]) and int(own[0]) <= int(wanted[0])


def _build_cast(source: str, column: Column) -> str:
    """Return the values as DuckDB reads them for the column, in the type in which they are written for Iceberg."""
    own = LAKE_TYPES.get(column.column_type)
    is_rounded = own is not None and own.digits is not None and own.digits < _MICRO_DIGITS
    value = f"CAST({source} AS {own.duckdb})" if own and is_rounded else source
    return f"CAST({value} AS {to_duckdb_type(column, ())})"


def _build_constant(column: Column, stats: ColumnStats | None, path: str) -> CopiedColumn:
    """Return a column that has the value of the file's folder in each row."""
    type_ = to_duckdb_type(column, ())
    if stats is not None and stats.value_count == 0:
        value = "NULL"
    elif stats and stats.min_value is not None and stats.min_value == stats.max_value and type_ != _BYTES:
        value = "'" + stats.min_value.replace("'", "''") + "'"
    else:
        raise _refuse_copy(path, f"DuckLake doesn't say which value of {column.column_name} its folder means")
    return CopiedColumn(column.column_name, f"CAST({value} AS {type_})", str(column.column_id))


def _refuse_copy(path: str, reason: str) -> UnsupportedError:
    return UnsupportedError(
        "added-files",
        f"{path} was added by DuckDB and Iceberg clients would misread it, but no copy of it can be made for them, as "
        f"{reason}: delete its rows in DuckDB and insert them from the file instead",
    )
