"""PURE. The columns of a table and of what is to be written to it: whether they fit, and what must be added or widened.

Names are compared as Spark compares them, regardless of case; the table's spelling wins.
"""

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

from duckicelake.errors import BadColumn
from duckicelake.rest.names import quoted

Path = tuple[str, ...]

_DIGITS: Final[Mapping[type[DataType], int]] = {IntegerType: 10, LongType: 19}
"""Decimal digits that hold every value."""
_EXACT: Final = {(IntegerType, LongType), (IntegerType, DoubleType), (FloatType, DoubleType)}
_WIDER: Final = {(IntegerType, LongType), (FloatType, DoubleType)}
"""What Iceberg can make of a column's type; decimals of more digits besides."""


@dataclass(frozen=True, slots=True)
class Change:
    """A column to be added, or whose type is to be widened; `path` leads through structs, lists and maps."""

    path: Path
    type: DataType
    is_new: bool

    def sql(self, table: str) -> str:
        """The statement; `table` is quoted."""
        name, wanted = quoted(*self.path), type_sql(self.type)
        return f"ALTER TABLE {table} " + (
            f"ADD COLUMNS ({name} {wanted})" if self.is_new else f"ALTER COLUMN {name} TYPE {wanted}"
        )


@dataclass(slots=True)
class Joining:
    """What joining columns to a table's has found: what would change, and what can't be."""

    changes: list[Change] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def struct(self, path: Path, table: StructType, source: StructType) -> StructType:
        """Both: the table's fields, then those that only the source has."""
        incoming = by_name(source)
        kept = [
            StructField(old.name, self._type((*path, old.name), old.dataType, new.dataType), old.nullable)
            if (new := incoming.get(old.name.lower()))
            else old
            for old in table.fields
        ]
        known = by_name(table)
        added = [new for new in source.fields if new.name.lower() not in known]
        return StructType([*kept, *(self._added((*path, new.name), new) for new in added)])

    def _added(self, path: Path, new: StructField) -> StructField:
        wanted = storable(new.dataType)
        if wanted is None:
            self.problems.append(f"{'.'.join(path)} is {new.dataType.simpleString()}, which Iceberg doesn't have")
        self.changes.append(Change(path, wanted or new.dataType, is_new=True))
        return StructField(new.name, wanted or new.dataType)

    def _type(self, path: Path, old: DataType, new: DataType) -> DataType:
        if isinstance(old, StructType) and isinstance(new, StructType):
            return self.struct(path, old, new)
        if isinstance(old, ArrayType) and isinstance(new, ArrayType):
            inner = self._type((*path, "element"), old.elementType, new.elementType)
            return ArrayType(inner, old.containsNull)
        if isinstance(old, MapType) and isinstance(new, MapType):
            key = self._type((*path, "key"), old.keyType, new.keyType)
            return MapType(key, self._type((*path, "value"), old.valueType, new.valueType), old.valueContainsNull)
        plain = storable(new)
        if plain == old or (plain is not None and _is_exact(plain, old)):
            return old
        if plain is not None and _can_widen(old, plain):
            self.changes.append(Change(path, plain, is_new=False))
            return plain
        self.problems.append(f"{'.'.join(path)} is {old.simpleString()}, which doesn't hold {new.simpleString()}")
        return old


def joined(table: StructType, source: StructType, *, may_change: bool) -> tuple[StructType, list[Change]]:
    """The table's columns as they must be for the source's rows, and the changes that make them so; BadColumn."""
    joining = Joining()
    target = joining.struct((), table, source)
    problems = list(joining.problems)
    if not may_change:
        problems += [f"{'.'.join(change.path)} {_missing(change)}" for change in joining.changes]
    has = by_name(source)
    problems += [f"{old.name} must have a value" for old in table.fields if not old.nullable and _lacks(old, has)]
    if problems:
        raise BadColumn("The columns don't fit: " + "; ".join(dict.fromkeys(problems)))
    return target, joining.changes


def both(first: StructType, second: StructType) -> StructType:
    """One schema for the rows of two: the wider type of a column, and string where there is none."""
    known, incoming = by_name(first), by_name(second)
    kept = [
        StructField(old.name, _common(old.dataType, new.dataType)) if (new := incoming.get(old.name.lower())) else old
        for old in first.fields
    ]
    return StructType([*kept, *(new for new in second.fields if new.name.lower() not in known)])


def typed_by(source: StructType, known: StructType) -> StructType:
    """The source's fields, by its own spelling and in its order, with the known types of those that are known."""
    types = by_name(known)
    return StructType(
        [
            StructField(each.name, _typed_by(each.dataType, types[each.name.lower()].dataType))
            if each.name.lower() in types
            else each
            for each in source.fields
        ]
    )


def fitted(column: Column, source: DataType, target: DataType) -> Column:
    """The value as the target's type, which `joined` has found to hold it; absent fields are null."""
    if source == target:
        return column
    if isinstance(source, StructType) and isinstance(target, StructType):
        has = by_name(source)
        return F.when(column.isNotNull(), F.struct(*(_field(column, has, each) for each in target.fields)))
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        return F.transform(column, lambda item: fitted(item, source.elementType, target.elementType))
    if isinstance(source, MapType) and isinstance(target, MapType):
        keys = F.transform_keys(column, lambda key, _: fitted(key, source.keyType, target.keyType))
        return F.transform_values(keys, lambda _, value: fitted(value, source.valueType, target.valueType))
    return column.cast(target)


def _field(column: Column, has: dict[str, StructField], target: StructField) -> Column:
    source = has.get(target.name.lower())
    value = F.lit(None) if source is None else column.getField(source.name)
    inner = value.cast(target.dataType) if source is None else fitted(value, source.dataType, target.dataType)
    return inner.alias(target.name)


def by_name(struct: StructType) -> dict[str, StructField]:
    return {each.name.lower(): each for each in struct.fields}


def storable(given: DataType) -> DataType | None:
    """The type as Iceberg keeps it, and Spark reads it back; None if Iceberg has none."""
    if isinstance(given, StructType):
        inner = [(each, storable(each.dataType)) for each in given.fields]
        found = [StructField(each.name, kept) for each, kept in inner if kept is not None]
        return StructType(found) if len(found) == len(given.fields) else None
    if isinstance(given, ArrayType):
        element = storable(given.elementType)
        return None if element is None else ArrayType(element)
    if isinstance(given, MapType):
        key, value = storable(given.keyType), storable(given.valueType)
        return None if key is None or value is None else MapType(key, value)
    if isinstance(given, ByteType | ShortType):
        return IntegerType()
    if isinstance(given, CharType | VarcharType):
        return StringType()
    return None if isinstance(given, NullType) or "interval" in given.typeName() else given


def type_sql(given: DataType) -> str:
    """A type in Spark's SQL, names quoted where they must be."""
    return StructType([StructField("x", given)]).toDDL().removeprefix("x ")


def _typed_by(given: DataType, known: DataType) -> DataType:
    if isinstance(given, StructType) and isinstance(known, StructType):
        return typed_by(given, known)
    if isinstance(given, ArrayType) and isinstance(known, ArrayType):
        return ArrayType(_typed_by(given.elementType, known.elementType))
    return known


def _is_exact(new: DataType, old: DataType) -> bool:
    """Whether every value of `new` is one of `old`."""
    if (type(new), type(old)) in _EXACT:
        return True
    if not isinstance(old, DecimalType):
        return False
    if isinstance(new, DecimalType):
        return old.scale >= new.scale and old.precision - old.scale >= new.precision - new.scale
    return old.precision - old.scale >= _DIGITS.get(type(new), 39)


def _can_widen(old: DataType, new: DataType) -> bool:
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and new.precision > old.precision
    return (type(old), type(new)) in _WIDER


def _common(one: DataType, other: DataType) -> DataType:
    if one == other or _is_exact(other, one):
        return one
    return other if _is_exact(one, other) else StringType()


def _missing(change: Change) -> str:
    if change.is_new:
        return "isn't a column of the table (--evolve add would add it)"
    return f"would have to become {change.type.simpleString()} (--evolve add would widen it)"


def _lacks(old: StructField, has: dict[str, StructField]) -> bool:
    return old.name.lower() not in has
