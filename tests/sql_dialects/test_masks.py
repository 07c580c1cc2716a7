"""Masks of columns: real DuckDB beside what the specification says of each, computed by Python."""

import hashlib
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

import duckdb
import pytest

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.model import parse
from duckicelake.iceberg.read_restrictions import Mask, check_mask
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PLAIN_TYPES, NestedField
from duckicelake.sql_dialects.masks import write_mask
from duckicelake.sql_dialects.placeholders import DUCKDB, format_type_name

SALT = bytes(range(16))
COLUMN = '"a ""c"""'


def build_field(kind: Any, *, is_required: bool = False) -> NestedField:
    fields = [{"id": 1, "name": 'a "c"', "type": kind, "required": is_required}]
    return parse(Schema, {"type": "struct", "fields": fields}, "schema").fields[0]


def apply(mask: Mask, kind: Any, values: list[str], salt: bytes = SALT, zone: str = "UTC") -> list[Any]:
    """Mask values, which are written in DuckDB's SQL; the column keeps its type, and null stays null."""
    type_ = build_field(kind).type
    rows = ", ".join(f"({value})" for value in [*values, "NULL"])
    type_name = format_type_name(DUCKDB, type_)
    with duckdb.connect() as connection:
        connection.execute(f"SET TimeZone = '{zone}'")
        connection.execute(f"CREATE TABLE t ({COLUMN} {type_name}); INSERT INTO t VALUES {rows}")
        masked = write_mask(mask, COLUMN, type_, salt)
        query = f"SELECT {masked} AS m FROM t"
        ((_, described, *_),) = connection.execute(f"DESCRIBE {query}").fetchall()
        assert described == connection.execute("DESCRIBE t").fetchall()[0][1]
        *found, (null,) = connection.execute(query).fetchall()
    assert null is None
    return [value for (value,) in found]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (Mask.ALPHANUM, ["xxxx.xxx@xxxxxxx.nnn", "(nnn),n-n", "xx", "", "xxxx"]),
        (Mask.FIRST_4, ["Anna.xxx@xxxxxxx.nnn", "(123),n-n", "ab", "", "ÄÖ x"]),
        (Mask.LAST_4, ["xxxx.xxx@xxxxxxx.001"[:-4] + ".001", "(nnn),4-5"[:-4] + ",4-5", "ab", "", "ÄÖ x"]),
        (Mask.FIXED_VALUE, ["XXXXXXXX"] * 5),
        (Mask.NULL, [None] * 5),
    ],
)
def test_texts(mask: Mask, expected: list[Any]) -> None:
    texts = ["'Anna.Ott@example.001'", "'(123),4-5'", "'ab'", "''", "'ÄÖ x'"]
    assert apply(mask, "string", texts) == expected


def read_signed(digest: bytes) -> int:
    return int.from_bytes(digest, "little", signed=True)


@pytest.mark.parametrize("salt", [b"", SALT])
def test_hashes_are_of_the_bytes_that_the_specification_says(salt: bytes) -> None:
    mask = Mask.SHA_256_LOCAL if salt else Mask.SHA_256

    def digest(value: bytes) -> bytes:
        return hashlib.sha256(salt + value).digest()

    numbers = [0, 1, -1, 123_456, 2**31 - 1, -(2**31)]
    as_int = [read_signed(digest(number.to_bytes(4, "little", signed=True))[:4]) for number in numbers]
    as_long = [read_signed(digest(number.to_bytes(8, "little", signed=True))[:8]) for number in numbers]
    assert apply(mask, "int", list(map(str, numbers))) == as_int
    assert apply(mask, "long", list(map(str, numbers))) == as_long
    assert apply(mask, "string", ["'Zoë'", "''"]) == [digest("Zoë".encode()).hex(), digest(b"").hex()]
    assert apply(mask, "binary", ["'\\x00\\xFF'::BLOB"]) == [digest(b"\x00\xff")]


def test_two_salts_give_two_hashes() -> None:
    assert apply(Mask.SHA_256_LOCAL, "long", ["7"]) != apply(Mask.SHA_256_LOCAL, "long", ["7"], bytes(16))


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Anchorage"])
def test_times_are_truncated_in_utc(zone: str) -> None:
    assert apply(Mask.YEAR, "date", ["DATE '2026-11-28'"]) == [date(2026, 1, 1)]
    assert apply(Mask.MONTH, "timestamp", ["TIMESTAMP '2026-11-28 13:01:02'"]) == [datetime(2026, 11, 1)]
    assert apply(Mask.MONTH, "timestamp_ns", ["'1969-11-28 13:01:02.000000001'"]) == [datetime(1969, 11, 1)]
    for kind in ("timestamptz", "timestamptz_ns"):
        moment = ["TIMESTAMPTZ '2026-01-01 00:30:00+00'", "TIMESTAMPTZ '2025-12-31 23:30:00+00'"]
        found = apply(Mask.YEAR, kind, moment, zone=zone)
        assert [value.astimezone(UTC) for value in found] == [
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2025, 1, 1, tzinfo=UTC),
        ]


SAMPLES = (
    {"string": "'s'", "uuid": "uuid()", "boolean": "true", "binary": "'\\x01'::BLOB"}
    | {
        "date": "DATE '2026-11-28'",
        "time": "TIME '01:02:03'",
    }
    | dict.fromkeys(["timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"], "'2026-11-28 01:02:03'")
)
STRUCT = {"type": "struct", "fields": [{"id": 2, "name": 'in "it"', "type": "int", "required": True}]}


def is_fitting(mask: Mask, kind: str) -> bool:
    with suppress(InvalidRequestError):
        check_mask(mask, build_field(kind))
        return True
    return False


@pytest.mark.parametrize("mask", Mask)
def test_a_mask_fits_types_that_duckdb_masks(mask: Mask) -> None:
    fitting = [kind for kind in sorted(PLAIN_TYPES) if is_fitting(mask, kind)]
    assert fitting
    for kind in fitting:
        assert mask is Mask.NULL or len(apply(mask, kind, [SAMPLES.get(kind, "5")])) == 1


def test_the_fixed_value_of_nested_types_is_whole() -> None:
    assert apply(Mask.FIXED_VALUE, STRUCT, ["{'in \"it\"': 5}"]) == [{'in "it"': 999999999}]
    assert apply(Mask.FIXED_VALUE, "fixed[3]", ["'abc'::BLOB"]) == [bytes(3)]
    assert apply(Mask.FIXED_VALUE, "decimal(9, 2)", ["1.5"]) == [0]
    element = {"type": "list", "element-id": 2, "element": "int", "element-required": False}
    assert apply(Mask.FIXED_VALUE, element, ["[1, 2]"]) == [[]]
    pairs = {"type": "map", "key-id": 2, "key": "string", "value-id": 3, "value": "int", "value-required": False}
    assert apply(Mask.FIXED_VALUE, pairs, ["MAP {'a': 1}"]) == [{}]


@pytest.mark.parametrize(
    ("mask", "kind"), [(Mask.LAST_4, "long"), (Mask.YEAR, "string"), (Mask.SHA_256, "uuid"), (Mask.ALPHANUM, STRUCT)]
)
def test_a_mask_for_other_types_is_refused(mask: Mask, kind: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"which is a .*: it is for"):
        check_mask(mask, build_field(kind))


def test_a_required_column_has_no_nulls() -> None:
    with pytest.raises(InvalidRequestError, match="required"):
        check_mask(Mask.NULL, build_field("string", is_required=True))
