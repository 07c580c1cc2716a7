"""Values of DuckDB's types as lines of JSON."""

import json
from typing import Any

import duckdb
import pytest

from duckicelake.query.result_formats import JsonWriter


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("1::BIGINT", 1),
        ("18446744073709551615::UBIGINT", 18446744073709551615),
        ("12345678901234567890::HUGEINT", "12345678901234567890"),
        ("1.50::DECIMAL(5, 2)", "1.50"),
        ("0.1::DOUBLE", 0.1),
        ("1e300::DOUBLE", 1e300),
        ("'nan'::DOUBLE", "nan"),
        ("'-infinity'::FLOAT", "-inf"),
        ("{'a': 'inf'::DOUBLE, 'b': 1.5::DOUBLE}", {"a": "inf", "b": 1.5}),
        ("[0.5::DOUBLE, 'nan', NULL]", [0.5, "nan", None]),
        ("MAP {'x': 'nan'::DOUBLE}", [["x", "nan"]]),
        ("MAP {1: 'y'}", [[1, "y"]]),
        ("[{'a': [1::FLOAT]}]", [{"a": [1.0]}]),
        ("'\\x01'::BLOB", "01"),
        ("TIMESTAMPTZ '2026-01-01 00:00:00.123+02'", "2025-12-31T22:00:00.123000+00:00"),
        ("TIMESTAMP '0001-01-01'", "0001-01-01T00:00:00"),
        ("TIMESTAMP_MS '2026-01-01 00:00:00.5'", "2026-01-01T00:00:00.500000"),
        ("DATE '2026-01-01'", "2026-01-01"),
        ("TIME '10:00:00.5'", "10:00:00.500000"),
        ("INTERVAL 2 DAY", [0, 2, 0]),
        ("'5c3c5a4e-3185-4cad-be2b-8ac1edeff9e9'::UUID", "5c3c5a4e-3185-4cad-be2b-8ac1edeff9e9"),
        ("'é\"' || chr(10)", 'é"\n'),
        ("true", True),
        ("'a'::ENUM('a')", "a"),
        ("NULL::DOUBLE", None),
    ],
)
def test_values(sql: str, expected: Any) -> None:
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        batches = [*duck.execute(f"SELECT {sql} AS v, 7 AS n FROM range(2)").to_arrow_reader()]
    written = JsonWriter(batches[0].schema).write(batches[0]).decode()
    assert [json.loads(line) for line in written.splitlines()] == 2 * [{"v": expected, "n": 7}]
    assert written.endswith("\n")


def test_names_that_occur_twice_get_a_number() -> None:
    with duckdb.connect() as duck:
        reader = duck.execute("SELECT 1 AS a, 2 AS a").to_arrow_reader()
        assert JsonWriter(reader.schema).write(reader.read_next_batch()) == b'{"a":1,"a_2":2}\n'
