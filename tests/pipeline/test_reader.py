"""What is said of columns that were found out of text."""

from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from duckicelake.pipeline.reader import format_found_columns

NUMBERS = StructType([StructField("id", LongType()), StructField("x", DoubleType())])
TEXTS = StructType([StructField("id", LongType()), StructField("x", StringType())])


def test_text_columns_come_with_the_option_that_names_what_stands_for_null() -> None:
    found, advice = format_found_columns([TEXTS], None)
    assert found == "columns found: id bigint, x string"
    assert "--option nullValue=NA" in advice
    assert "--schema" in advice


def test_columns_without_text_are_shown_alone() -> None:
    assert list(format_found_columns([NUMBERS, NUMBERS], None)) == ["columns found: id bigint, x double"]


def test_only_columns_that_the_table_lacks_are_shown() -> None:
    known = StructType([StructField("ID", LongType())])
    assert list(format_found_columns([NUMBERS], known)) == ["columns found: x double"]
    assert list(format_found_columns([NUMBERS], NUMBERS)) == []
