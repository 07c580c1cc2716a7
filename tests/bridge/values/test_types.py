"""The tables of types: every row has what code of its family needs, and DuckDB knows the names."""

from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest

from duckicelake.bridge.values.lake_values import format_cast_text, format_stats_text, parse_cast_text, parse_stats_text
from duckicelake.bridge.values.types import INTEGER_LIMITS, to_duckdb_type, to_iceberg_type, to_lake_type
from duckicelake.errors import UnsupportedError
from duckicelake.iceberg.primitives import TRAITS, TypeFamily
from duckicelake.iceberg.types import PLAIN_TYPES, PrimitiveType
from duckicelake.iceberg.values import from_bytes, from_json, to_bytes, to_json
from duckicelake.lake.model import Column
from duckicelake.lake.types import LAKE_TYPES
from duckicelake.rows.columns import RowColumn, to_arrow_type, to_python_values, to_single_value
from duckicelake.rows.inlined_values import make_encoder
from duckicelake.rows.json_values import make_primitive_reader

VALUES: dict[TypeFamily, Any] = {
    "boolean": True,
    "integer": 34,
    "float": 1.5,
    "decimal": Decimal("14.20"),
    "date": 17_486,
    "time": 81_068_123_456,
    "timestamp": 1_510_871_468_123_456,
    "string": "iceberg",
    "uuid": UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    "bytes": b"\x00\x01\x02\xff",
}
TYPES = [*sorted(PLAIN_TYPES), "decimal(9, 2)", "fixed[4]"]
COMPARED = [text for text in TYPES if not PrimitiveType.parse(text).traits.is_opaque]
UNREADABLE = {"int128", "uint128", "time_ns", "timetz", "interval"}


def test_every_type_has_a_row() -> None:
    assert {PrimitiveType.parse(text).name for text in TYPES} == set(TRAITS)
    assert set(VALUES) == {PrimitiveType.parse(text).traits.family for text in COMPARED}


@pytest.mark.parametrize("text", COMPARED)
def test_values_keep_through_every_form(text: str) -> None:
    kind = PrimitiveType.parse(text)
    value = VALUES[kind.traits.family]
    cut = value - value % 1000 if text == "timestamptz_ns" else value
    assert from_bytes(kind, to_bytes(kind, value)) == value
    assert from_json(kind, to_json(kind, value)) == value
    assert parse_cast_text(kind, format_cast_text(kind, value) or "") == cut
    assert parse_stats_text(kind, format_stats_text(kind, value) or "") == cut


@pytest.mark.parametrize("text", COMPARED)
def test_values_keep_through_posted_rows(text: str) -> None:
    kind = PrimitiveType.parse(text)
    value = VALUES[kind.traits.family]
    column = RowColumn(1, "c", kind, required=False, declared=to_lake_type(kind))
    read = make_primitive_reader(column)(to_json(kind, value))
    assert to_single_value(kind, read) == value
    (stored,) = to_python_values(pa.array([read], to_arrow_type(column)), column)
    assert to_single_value(kind, stored) == value
    assert make_encoder(column)([read]) != [None]


@pytest.mark.parametrize("name", sorted(LAKE_TYPES))
def test_duckdb_has_the_type_under_its_name(name: str) -> None:
    row = LAKE_TYPES[name]
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT typeof(CAST(NULL AS {row.duckdb}))").fetchone()
    assert found == (row.duckdb,)


@pytest.mark.parametrize("name", sorted(LAKE_TYPES))
def test_types_that_iceberg_reads_have_a_type_in_files(name: str) -> None:
    column = Column(1, None, "c", name, nulls_allowed=True)
    if name in UNREADABLE:
        with pytest.raises(UnsupportedError):
            to_iceberg_type(name, "c")
        assert to_duckdb_type(column, (), gone=[1]) == LAKE_TYPES[name].duckdb
    elif LAKE_TYPES[name].is_opaque:
        assert to_lake_type(to_iceberg_type(name, "c")) == name
    else:
        own = to_lake_type(to_iceberg_type(name, "c"))
        assert to_duckdb_type(column, ()).replace(" ", "").lower() == own or (
            to_duckdb_type(column, ()) == LAKE_TYPES[own].duckdb
        )


def test_narrow_integers_are_those_that_iceberg_widens() -> None:
    assert set(INTEGER_LIMITS) == {"int8", "int16", "uint8", "uint16", "uint32", "uint64"}
