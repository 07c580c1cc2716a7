"""PURE. Join the columns of rows with those of a table; names are compared regardless of case."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    CharType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from duckicelake.errors import BadColumnError
from duckicelake.rest.names import quote_name

ColumnPath = tuple[str, ...]

_INTEGER_DIGITS: Final[Mapping[type[DataType], int]] = {IntegerType: 10, LongType: 19}
"""Decimal digits that hold every value."""
_EXACT_CASTS: Final = {(IntegerType, LongType), (IntegerType, DoubleType), (FloatType, DoubleType)}
_WIDENINGS: Final = {(IntegerType, LongType), (FloatType, DoubleType)}
"""What Iceberg can make of a column's type; decimals of more digits besides."""


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column to be added, or whose type is to be widened; `path` leads through structs, lists and maps."""

    path: ColumnPath
    type: DataType
    is_new: bool

    def sql(self, table: str) -> str:
        """Return the statement; `table` is quoted."""
        name, wanted = quote_name(*self.path), format_type(self.type)
        return f"ALTER TABLE {table} " + (
            f"ADD COLUMNS ({name} {wanted})" if self.is_new else f"ALTER COLUMN {name} TYPE {wanted}"
        )


@dataclass(slots=True)
class ColumnJoin:
    """What joining columns to a table's has found: what would change, and what can't be."""

    changes: list[ColumnChange] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def struct(self, path: ColumnPath, table: StructType, source: StructType) -> StructType:
        """Return the table's fields, then those that only the source has."""
        incoming = index_by_name(source)
        kept = [
            StructField(old.name, self._type((*path, old.name), old.dataType, new.dataType), old.nullable)
            if (new := incoming.get(old.name.lower()))
            else old
            for old in table.fields
        ]
        known = index_by_name(table)
        added = [new for new in source.fields if new.name.lower() not in known]
        return StructType([*kept, *(self._add_field((*path, new.name), new) for new in added)])

    def _add_field(self, path: ColumnPath, new: StructField) -> StructField:
        wanted = find_storable_type(new.dataType)
        if wanted is None:
            self.problems.append(f"{'.'.join(path)} is {new.dataType.simpleString()}, which Iceberg doesn't have")
        self.changes.append(ColumnChange(path, wanted or new.dataType, is_new=True))
        return StructField(new.name, wanted or new.dataType)

    def _type(self, path: ColumnPath, old: DataType, new: DataType) -> DataType:
        if isinstance(old, StructType) and isinstance(new, StructType):
            return self.struct(path, old, new)
        if isinstance(old, ArrayType) and isinstance(new, ArrayType):
            inner = self._type((*path, "element"), old.elementType, new.elementType)
            return ArrayType(inner, old.containsNull)
        if isinstance(old, MapType) and isinstance(new, MapType):
            key = self._type((*path, "key"), old.keyType, new.keyType)
            return MapType(key, self._type((*path, "value"), old.valueType, new.valueType), old.valueContainsNull)
        plain = find_storable_type(new)
        if plain == old or (plain is not None and _is_exact(plain, old)):
            return old
        if plain is not None and _can_widen(old, plain):
            self.changes.append(ColumnChange(path, plain, is_new=False))
            return plain
        self.problems.append(f"{'.'.join(path)} is {old.simpleString()}, which doesn't hold {new.simpleString()}")
        return old


def join_columns(table: StructType, source: StructType, *, may_change: bool) -> tuple[StructType, list[ColumnChange]]:
    """Return the table's columns as they must be for the source's rows, and the changes that make them so.

    Raises BadColumnError.
    """
    joining = ColumnJoin()
    target = joining.struct((), table, source)
    problems = list(joining.problems)
    if not may_change:
        problems += [f"{'.'.join(change.path)} {_describe_missing(change)}" for change in joining.changes]
    has = index_by_name(source)
    problems += [f"{old.name} must have a value" for old in table.fields if not old.nullable and _lacks(old, has)]
    if problems:
        raise BadColumnError("The columns don't fit: " + "; ".join(dict.fromkeys(problems)))
    return target, joining.changes


def merge_columns(first: StructType, second: StructType) -> StructType:
    """Return one schema for the rows of two: the wider type of a column, and string where there is none."""
    known, incoming = index_by_name(first), index_by_name(second)
    kept = [
        StructField(old.name, _find_common_type(old.dataType, new.dataType))
        if (new := incoming.get(old.name.lower()))
        else old
        for old in first.fields
    ]
    return StructType([*kept, *(new for new in second.fields if new.name.lower() not in known)])


def apply_known_types(source: StructType, known: StructType) -> StructType:
    """Return the source's fields, in its spelling and order, with known types where there are some."""
    types = index_by_name(known)
    return StructType(
        [
            StructField(field.name, _apply_known_type(field.dataType, types[field.name.lower()].dataType))
            if field.name.lower() in types
            else field
            for field in source.fields
        ]
    )


def fit_value(column: Column, source: DataType, target: DataType) -> Column:
    """Return the value as the target's type, which `joined` has found to hold it; absent fields are null."""
    if source == target:
        return column
    if isinstance(source, StructType) and isinstance(target, StructType):
        has = index_by_name(source)
        return F.when(column.isNotNull(), F.struct(*(_fit_field(column, has, field) for field in target.fields)))
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        return F.transform(column, lambda item: fit_value(item, source.elementType, target.elementType))
    if isinstance(source, MapType) and isinstance(target, MapType):
        keys = F.transform_keys(column, lambda key, _: fit_value(key, source.keyType, target.keyType))
        return F.transform_values(keys, lambda _, value: fit_value(value, source.valueType, target.valueType))
    return column.cast(target)


def _fit_field(column: Column, has: dict[str, StructField], target: StructField) -> Column:
    source = has.get(target.name.lower())
    value = F.lit(None) if source is None else column.getField(source.name)
    inner = value.cast(target.dataType) if source is None else fit_value(value, source.dataType, target.dataType)
    return inner.alias(target.name)


def index_by_name(struct: StructType) -> dict[str, StructField]:
    return {field.name.lower(): field for field in struct.fields}


def find_storable_type(given: DataType) -> DataType | None:
    """Return the type as Iceberg keeps it, and Spark reads it back; None if Iceberg has none."""
    if isinstance(given, StructType):
        inner = [(field, find_storable_type(field.dataType)) for field in given.fields]
        found = [StructField(field.name, kept) for field, kept in inner if kept is not None]
        return StructType(found) if len(found) == len(given.fields) else None
    if isinstance(given, ArrayType):
        element = find_storable_type(given.elementType)
        return None if element is None else ArrayType(element)
    if isinstance(given, MapType):
        key, value = find_storable_type(given.keyType), find_storable_type(given.valueType)
        return None if key is None or value is None else MapType(key, value)
    if isinstance(given, ByteType | ShortType):
        return IntegerType()
    if isinstance(given, CharType | VarcharType):
        return StringType()
    return None if isinstance(given, NullType) or "interval" in given.typeName() else given


def format_type(given: DataType) -> str:
    """Return a type in Spark's SQL, names quoted where they must be."""
    return StructType([StructField("x", given)]).toDDL().removeprefix("x ")


def _apply_known_type(given: DataType, known: DataType) -> DataType:
    if isinstance(given, StructType) and isinstance(known, StructType):
        return apply_known_types(given, known)
    if isinstance(given, ArrayType) and isinstance(known, ArrayType):
        return ArrayType(_apply_known_type(given.elementType, known.elementType))
    return known


def _is_exact(new: DataType, old: DataType) -> bool:
    """Return whether every value of `new` is one of `old`."""
    if (type(new), type(old)) in _EXACT_CASTS:
        return True
    if not isinstance(old, DecimalType):
        return False
    if isinstance(new, DecimalType):
        return old.scale >= new.scale and old.precision - old.scale >= new.precision - new.scale
    return old.precision - old.scale >= _INTEGER_DIGITS.get(type(new), 39)


def _can_widen(old: DataType, new: DataType) -> bool:
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and new.precision > old.precision
    return (type(old), type(new)) in _WIDENINGS


def _find_common_type(one: DataType, other: DataType) -> DataType:
    if one == other or _is_exact(other, one):
        return one
    return other if _is_exact(one, other) else StringType()


def _describe_missing(change: ColumnChange) -> str:
    if change.is_new:
        return "isn't a column of the table (--evolve add would add it)"
    return f"would have to become {change.type.simpleString()} (--evolve add would widen it)"


def _lacks(old: StructField, has: dict[str, StructField]) -> bool:
    return old.name.lower() not in has
