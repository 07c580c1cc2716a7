"""Types of --schema beside those of a table's columns: which hold the others' values."""

import pytest

from duckicelake.file_import.column_types import holds_type, parse_schema


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        ("long", "int"),
        ("double", "int"),
        ("double", "float"),
        ("decimal(12, 4)", "decimal(10, 2)"),
        ("decimal(10, 0)", "int"),
        ("decimal(21, 2)", "long"),
        ("timestamp", "date"),
        ("struct<a long>", "struct<a int>"),
        ("struct<b string, a long>", "struct<a int, b string>"),
        ("struct<a long, gained string>", "struct<a long>"),
        ("struct<a long not null>", "struct<a int>"),
        ("list<struct<a double>>", "list<struct<a float>>"),
        ("map<string, long>", "map<string, int>"),
    ],
)
def test_wider_types_hold_narrower_ones(column: str, wanted: str) -> None:
    (here,), (given,) = (parse_schema(f"x {text}").fields for text in (column, wanted))
    assert holds_type(here.field_type, given.field_type)
    assert not holds_type(given.field_type, here.field_type)


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        ("long", "double"),
        ("double", "long"),
        ("decimal(12, 4)", "decimal(12, 2)"),
        ("decimal(12, 2)", "decimal(10, 3)"),
        ("decimal(18, 0)", "long"),
        ("decimal(38, 10)", "double"),
        ("string", "int"),
        ("string", "struct<a long>"),
        ("timestamptz", "date"),
        ("timestamptz", "timestamp"),
        ("struct<a long>", "struct<b long>"),
        ("struct<a long>", "struct<a long not null>"),
        ("list<long>", "map<string, long>"),
    ],
)
def test_other_types_do_not(column: str, wanted: str) -> None:
    (here,), (given,) = (parse_schema(f"x {text}").fields for text in (column, wanted))
    assert not holds_type(here.field_type, given.field_type)


@pytest.mark.parametrize("type_", ["string", "decimal(9, 2)", "uuid", "struct<a long, b list<string>>"])
def test_types_hold_themselves_whatever_their_ids(type_: str) -> None:
    here, given = parse_schema(f"x {type_}").fields[0], parse_schema(f"w long, x {type_}").fields[1]
    assert holds_type(here.field_type, given.field_type)
