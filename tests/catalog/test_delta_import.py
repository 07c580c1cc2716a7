"""Delta tables imported with their history: every reader reads each version as delta-rs does."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from duckicelake.catalog.services import Services
from tests.catalog.client import new_client
from tests.catalog.delta_reading import assert_law, delta_rows, imported


@pytest.fixture
def folder(services: Services, warehouse: Path) -> Path:
    """Where a Delta table may be, in a lake with the namespace of the tests."""
    new_client(services)
    return warehouse / "delta" / "t"


def expected(folder: Path) -> dict[int, list[str]]:
    return {version: delta_rows(folder, version) for version in range(DeltaTable(str(folder)).version() + 1)}


TYPES = pa.table(
    {
        "b": pa.array([True, None, False]),
        "i8": pa.array([1, None, -128], pa.int8()),
        "i16": pa.array([1, None, -32768], pa.int16()),
        "i32": pa.array([1, None, -(2**31)], pa.int32()),
        "i64": pa.array([1, None, -(2**63)], pa.int64()),
        "f": pa.array([1.5, None, float("inf")], pa.float32()),
        "d": pa.array([1.1, None, float("nan")], pa.float64()),
        "dec": pa.array(
            [Decimal("1.50"), None, Decimal("99999999.99")], pa.decimal128(10, 2)
        ),  # delta-rs reads no negative ones as partitions
        "big": pa.array([Decimal("1.5"), None, Decimal("12345678901234567890.123456789")], pa.decimal128(38, 9)),
        "s": pa.array(["a", None, "ü" * 40]),
        "bin": pa.array([b"\x00\xff", None, b""]),
        "day": pa.array([date(2024, 1, 2), None, date(1900, 1, 1)]),
        "ts": pa.array([datetime(2024, 1, 2, 3, 4, 5, 123456, UTC), None, datetime(1969, 12, 31, tzinfo=UTC)]),
        "ntz": pa.array([datetime(2024, 1, 2, 3, 4, 5, 123456), None, datetime(1969, 12, 31)], pa.timestamp("us")),
        "st": pa.array([{"x": 1, "y": {"z": "a"}}, None, {"x": None, "y": None}]),
        "li": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        # without null lists and maps of structs, which PyIceberg reads as empty ones
        "ls": pa.array([[{"k": "a", "v": [1]}], [], []]),
        "m": pa.array([[("a", {"q": 1})], [], []], pa.map_(pa.string(), pa.struct([("q", pa.int64())]))),
    }
)


def test_every_type_is_read_by_every_reader(
    services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    write_deltalake(folder, TYPES)
    write_deltalake(folder, TYPES.slice(0, 2), mode="append")
    DeltaTable(str(folder)).delete("i32 = 1")
    told = imported(services, folder)
    assert (told.versions, told.left_out) == (3, ())
    assert_law(services, ducklake, expected(folder))


def test_partitions_of_every_type(services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path) -> None:
    names = ["b", "i32", "i64", "f", "dec", "s", "day", "ts", "ntz"]
    for name in names:
        table = TYPES.select([name, "i16"]).rename_columns(["p", "v"])
        write_deltalake(folder.with_name(name), table, partition_by=["p"])
        write_deltalake(folder.with_name(name), table.slice(1), mode="append")
        imported(services, folder.with_name(name), name)
        assert_law(services, ducklake, expected(folder.with_name(name)), name)


def test_history_of_every_operation(services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path) -> None:
    rows = pa.table({"id": list(range(20)), "p": ["a/b c", "", None, "x=y&%41"] * 5, "v": [1.5] * 20})
    write_deltalake(folder, rows.slice(0, 0), partition_by=["p"])
    write_deltalake(folder, rows, mode="append")
    table = DeltaTable(str(folder))
    table.update(updates={"v": "v + 1"}, predicate="id < 3")
    table.delete("id = 7")
    table.merge(
        pa.table({"id": [1, 100], "p": ["z", "z"], "v": [0.0, 0.0]}), "t.id = s.id", "s", "t"
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    write_deltalake(folder, rows.append_column("extra", pa.array([None, 5] * 10, pa.int64())), mode="append",
                    schema_mode="merge")  # fmt: skip
    table = DeltaTable(str(folder))
    table.optimize.compact()
    table.create_checkpoint()
    write_deltalake(folder, pa.table({"id": ["a", "b"], "q": [1, 2]}), mode="overwrite", schema_mode="overwrite",
                    partition_by=[])  # fmt: skip
    table = DeltaTable(str(folder))
    table.restore(5)
    told = imported(services, folder)
    assert told.left_out == ()
    assert_law(services, ducklake, expected(folder))
