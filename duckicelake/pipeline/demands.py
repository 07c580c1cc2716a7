"""PURE. The values that a table's columns demand, at any depth, and which rows lack them."""

from collections.abc import Callable, Collection, Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from duckicelake.rest.names import quoted

Test = Callable[[Column], Column]


def demands(columns: StructType, keys: Collection[str] = ()) -> Iterator[tuple[str, Column]]:
    """The name of each value that must be there, and whether a row lacks it, which is never null; keys must be, too."""
    for each in columns.fields:
        column = F.col(quoted(each.name))
        if not each.nullable or each.name in keys:
            yield each.name, column.isNull()
        for name, lacks in _inside(each.name, each.dataType):
            yield name, column.isNotNull() & lacks(column)


def _inside(name: str, given: DataType) -> Iterator[tuple[str, Test]]:
    """What values of the type, which aren't null themselves, may lack."""
    if isinstance(given, StructType):
        for each in given.fields:
            yield from _part(f"{name}.{each.name}", each.dataType, each.nullable, _field(each.name))
    elif isinstance(given, ArrayType):
        for inner, lacks in _part(f"{name}.element", given.elementType, given.containsNull, _itself):
            yield inner, _any(lacks, _itself)
    elif isinstance(given, MapType):
        for inner, lacks in _part(f"{name}.value", given.valueType, given.valueContainsNull, _itself):
            yield inner, _any(lacks, F.map_values)


def _part(name: str, given: DataType, nullable: bool, part: Test) -> Iterator[tuple[str, Test]]:
    if not nullable:
        yield name, lambda value: part(value).isNull()
    for inner, lacks in _inside(name, given):
        yield inner, _if_there(part, lacks)


def _if_there(part: Test, lacks: Test) -> Test:
    return lambda value: part(value).isNotNull() & lacks(part(value))


def _any(lacks: Test, items: Test) -> Test:
    return lambda value: F.exists(items(value), lacks)


def _field(name: str) -> Test:
    return lambda value: value.getField(name)


def _itself(value: Column) -> Column:
    return value
