"""Checksums of values, as DuckDB computes them; tests/engines/pipeline/test_verify.py has Spark's beside them."""

import duckdb
import pytest

from duckicelake.pipeline import checksums
from duckicelake.pipeline.checksums import DuckSQL, join_halves
from duckicelake.pipeline.column_types import from_duckdb_type


def summed(*rows: str) -> tuple[object, ...]:
    """Count and checksum of a column with these values, in this order."""
    with duckdb.connect() as connection:
        relation = f"(VALUES {', '.join(f'({row})' for row in rows)}) AS t (v)"
        type_ = from_duckdb_type(connection.sql(f"SELECT * FROM {relation}").types[0])
        query = checksums.build_checksum_query(DuckSQL(), relation, [("v", type_)])
        count, high, low, values, *halves = connection.sql(query).fetchall()[0]
    return count, join_halves(high, low), values, join_halves(*halves)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("1", "2", "2"), ("2", "1", "2")),
        (("NULL", "1.5::DOUBLE"), ("1.5::DOUBLE", "NULL")),
        (("'nan'::DOUBLE",), ("-'nan'::DOUBLE",)),
        (("'nan'::FLOAT",), ("-'nan'::FLOAT",)),
        (("1::TINYINT",), ("1::UBIGINT",)),
        (("7::BIGINT",), ("7::DECIMAL(20, 0)",)),
        (("map {'a': 1, 'b': NULL}",), ("map {'b': NULL, 'a': 1}",)),
        (("TIMESTAMPTZ '2024-06-01 12:00:00+02'",), ("TIMESTAMPTZ '2024-06-01 10:00:00+00'",)),
        (("TIMESTAMP_S '2024-06-01 10:00:00'",), ("TIMESTAMP '2024-06-01 10:00:00'",)),
    ],
)
def test_same_values_have_one_checksum(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert summed(*one) == summed(*other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("1", "2", "2"), ("1", "1", "2")),
        (("1", "2"), ("1", "2", "2")),
        (("1", "1", "3", "3"), ("1", "3", "2", "2")),
        (("''",), ("NULL::VARCHAR",)),
        (("'a'", "NULL"), ("'a'", "'n'")),
        (("0.0::DOUBLE",), ("-0.0::DOUBLE",)),
        (("0.0::FLOAT",), ("-0.0::FLOAT",)),
        (("'nan'::DOUBLE",), ("'inf'::DOUBLE",)),
        (("'nan'::DOUBLE",), ("NULL::DOUBLE",)),
        (("1.5::DOUBLE",), ("1.5000000000000002::DOUBLE",)),
        (("0.05::DECIMAL(2, 2)",), ("-0.05::DECIMAL(2, 2)",)),
        (("1e37::DECIMAL(38, 0)",), ("1e37::DECIMAL(38, 0) + 1",)),
        (("'\\xFF'::BLOB",), ("'\\xFE'::BLOB",)),
        (("'\\x61'::BLOB",), ("'\\x61\\x00'::BLOB",)),
        (("TIMESTAMP '1969-12-31 23:59:59.999999'",), ("TIMESTAMP '1970-01-01 00:00:00'",)),
        (("'infinity'::TIMESTAMP",), ("'-infinity'::TIMESTAMP",)),
        (("'infinity'::TIMESTAMP",), ("NULL::TIMESTAMP",)),
        (("'infinity'::DATE",), ("NULL::DATE",)),
        (("[1, 2]",), ("[2, 1]",)),
        (("[]::INT[]",), ("NULL::INT[]",)),
        (("[]::INT[]",), ("[NULL]::INT[]",)),
        (("[[1], [2]]",), ("[[1, 2], []]",)),
        (("['ab', 'c']",), ("['a', 'bc']",)),
        (("{'a': 1, 'b': NULL::INT}",), ("{'a': NULL::INT, 'b': 1}",)),
        (("{'a': NULL::INT}",), ("NULL::STRUCT(a INT)",)),
        (("map {'a': 1, 'b': 2}",), ("map {'a': 2, 'b': 1}",)),
        (("map {}::MAP(VARCHAR, INT)",), ("NULL::MAP(VARCHAR, INT)",)),
    ],
)
def test_different_values_have_different_checksums(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert summed(*one)[1] != summed(*other)[1]
    assert summed(*one)[2:] != summed(*other)[2:]


def test_values_that_stand_in_other_rows_change_the_checksum_of_rows_alone() -> None:
    with duckdb.connect() as connection:
        columns = [(name, from_duckdb_type(connection.sql("SELECT 1 AS v").types[0])) for name in ("a", "b")]
        query = [
            checksums.build_checksum_query(DuckSQL(), f"(VALUES {rows}) AS t (a, b)", columns)
            for rows in ("(1, 1), (2, 2)", "(1, 2), (2, 1)")
        ]
        one, other = (connection.sql(each).fetchall()[0] for each in query)
    assert one[3:] == other[3:]
    assert one[:3] != other[:3]


def test_checksum_is_a_number_of_64_bits_and_none_of_no_rows() -> None:
    assert join_halves(None, None) == 0
    assert join_halves(2**40, 2**40) == (2**70 + 2**40) % 2**64
