"""Whether what comes fits a table's columns, and what must change that it does."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from duckicelake.errors import BadColumnError
from duckicelake.pipeline.columns import ColumnChange, apply_known_types, join_columns, merge_columns


def columns(**types: DataType) -> StructType:
    struct = StructType()
    for name, type_ in types.items():
        struct.add(name, type_)
    return struct


@pytest.mark.parametrize(
    ("table", "source"),
    [
        (LongType(), IntegerType()),
        (IntegerType(), ByteType()),
        (DoubleType(), FloatType()),
        (DoubleType(), IntegerType()),
        (DecimalType(12, 2), IntegerType()),
        (DecimalType(10, 4), DecimalType(7, 2)),
    ],
)
def test_narrower_types_fit_as_they_are(table: DataType, source: DataType) -> None:
    assert join_columns(columns(a=table), columns(A=source), may_change=False) == (columns(a=table), [])


@pytest.mark.parametrize(
    ("table", "source"),
    [
        (IntegerType(), LongType()),
        (FloatType(), DoubleType()),
        (DecimalType(5, 2), DecimalType(9, 2)),
    ],
)
def test_wider_types_widen_the_column_if_they_may(table: DataType, source: DataType) -> None:
    target, changes = join_columns(columns(a=table), columns(a=source), may_change=True)
    assert (target, changes) == (columns(a=source), [ColumnChange(("a",), source, is_new=False)])
    with pytest.raises(BadColumnError, match=rf"a would have to become {source.simpleString().replace('(', '.')[:7]}"):
        join_columns(columns(a=table), columns(a=source), may_change=False)


@pytest.mark.parametrize(
    ("table", "source"),
    [
        (IntegerType(), StringType()),
        (StringType(), IntegerType()),
        (DoubleType(), LongType()),
        (DecimalType(5, 2), DecimalType(9, 3)),
        (DecimalType(11, 2), IntegerType()),
        (TimestampType(), TimestampNTZType()),
        (DateType(), TimestampType()),
        (columns(a=IntegerType()), IntegerType()),
    ],
)
def test_types_that_lose_something_or_mean_another_thing_are_refused(table: DataType, source: DataType) -> None:
    with pytest.raises(BadColumnError, match=r"a is .*, which doesn't hold"):
        join_columns(columns(a=table), columns(a=source), may_change=True)


def test_columns_are_added_at_any_depth_and_named_with_their_path() -> None:
    table = columns(s=columns(x=IntegerType()), m=MapType(StringType(), ArrayType(columns(y=IntegerType()))))
    inner = MapType(StringType(), ArrayType(columns(y=LongType(), z=ByteType())))
    target, changes = join_columns(table, columns(s=columns(w=StringType()), m=inner, n=DateType()), may_change=True)
    assert [(change.path, change.type, change.is_new) for change in changes] == [
        (("s", "w"), StringType(), True),
        (("m", "value", "element", "y"), LongType(), False),
        (("m", "value", "element", "z"), IntegerType(), True),
        (("n",), DateType(), True),
    ]
    assert target["s"].dataType == columns(x=IntegerType(), w=StringType())


def test_all_that_does_not_fit_is_reported_at_once() -> None:
    table = StructType().add("id", IntegerType(), nullable=False).add("v", IntegerType())
    with pytest.raises(BadColumnError) as report:
        join_columns(table, columns(v=StringType(), n=NullType(), i=DayTimeIntervalType()), may_change=True)
    for each in ("v is int, which doesn't hold string", "n is void, which", "i is interval", "id must have a value"):
        assert each in str(report.value)


def test_types_of_text_are_the_tables_where_it_has_the_column_and_its_spelling_is_the_files() -> None:
    found = columns(ID=StringType(), s=columns(X=LongType(), new=LongType()), more=LongType())
    known = columns(id=IntegerType(), s=columns(x=IntegerType()))
    wanted = columns(ID=IntegerType(), s=columns(X=IntegerType(), new=LongType()), more=LongType())
    assert apply_known_types(found, known) == wanted


def test_a_new_column_that_files_show_differently_holds_all() -> None:
    first = columns(a=IntegerType(), b=IntegerType(), c=IntegerType())
    assert merge_columns(first, columns(A=DoubleType(), b=StringType(), d=DateType())) == columns(
        a=DoubleType(), b=StringType(), c=IntegerType(), d=DateType()
    )
