"""What DuckDB answers from statistics alone is what an imported Delta table's files hold, though Delta cuts them."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from duckicelake.catalog.context.services import Services
from tests.delta.import_.tables import column, defined, new_table, written
from tests.delta.import_.versions import imported
from tests.delta.logs import protocol
from tests.support.client import new_client

LONG = ["a" * 100, "b" * 100, "\U0001f600" * 70]
TABLE = pa.table(
    {
        "long": LONG,
        "cut": [text[:40] for text in LONG],
        "short": ["x", "", "\U0001f600"],
        "odd": ["\\N", "\t\n\r\\.\\t\x7f\u2028", "\\"],
        "us": pa.array([1, 1001, 10**15 + 999], pa.timestamp("us", "UTC")),
        "ntz": pa.array([-1, 1001, 10**15 + 999], pa.timestamp("us")),
        "f": pa.array([1.5, float("nan"), -0.0], pa.float32()),
        "d": pa.array([float("-inf"), 0.1, 1e300]),
        "n": pa.array([Decimal("-1.5"), Decimal("99999999999999999999.25"), None], pa.decimal128(30, 2)),
        "day": [date(1, 1, 1), date(9999, 12, 31), None],
        "i": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
        "none": pa.array([None] * 3, pa.string()),
    }
)


@pytest.fixture
def folder(services: Services, warehouse: Path) -> Path:
    """Where a Delta table may be, in a lake with the namespace of the tests."""
    new_client(services)
    return warehouse / "delta" / "t"


def check_answers(lake: duckdb.DuckDBPyConnection, folder: Path, names: list[str]) -> None:
    files = DeltaTable(str(folder)).file_uris()
    for name in names:
        asked = f'SELECT min("{name}"), max("{name}"), count("{name}"), count(*)'
        held = lake.execute(f"{asked} FROM read_parquet(?)", [files]).fetchone()
        assert repr(lake.execute(f"{asked} FROM lake.ns.t").fetchone()) == repr(held), name
        most = f'WHERE "{name}" = (SELECT max("{name}") FROM read_parquet($files))'
        with_most = lake.execute(f"SELECT count(*) FROM read_parquet($files) {most}", {"files": files}).fetchone()
        assert lake.execute(f"SELECT count(*) FROM lake.ns.t {most}", {"files": files}).fetchone() == with_most, name
        nulls = f'WHERE "{name}" IS NULL'
        held = lake.execute(f"SELECT count(*) FROM read_parquet(?) {nulls}", [files]).fetchone()
        assert lake.execute(f"SELECT count(*) FROM lake.ns.t {nulls}").fetchone() == held, name


def test_statistics_of_delta_rs(services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path) -> None:
    write_deltalake(folder, TABLE.slice(0, 2))
    write_deltalake(folder, TABLE.slice(2), mode="append")
    imported(services, folder)
    check_answers(ducklake, folder, TABLE.column_names)


def test_statistics_of_spark_cut_after_32_characters(
    services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    table = new_table(folder)
    data = pa.table({"s": ["a" * 40, "b" * 40], "t": pa.array([1, 1001], pa.timestamp("us", "UTC"))})
    stats = {
        "numRecords": 2,
        "minValues": {"s": "a" * 32, "t": "1970-01-01T00:00:00.000Z"},
        "maxValues": {"s": "b" * 32 + "\ufffd", "t": "1970-01-01T00:00:00.001Z"},
        "nullCount": {"s": 0, "t": 0},
    }
    columns = defined(column("s", "string"), column("t", "timestamp"))
    table.commit(0, protocol(), columns, written(table, "a.parquet", data, stats))
    imported(services, folder)
    check_answers(ducklake, folder, ["s", "t"])


def test_times_with_zones_are_equal_to_what_is_asked(
    services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    at = datetime(2024, 1, 1, 1, 1, 1, 999_999, UTC)
    write_deltalake(folder, pa.table({"t": pa.array([at], pa.timestamp("us", "UTC"))}))
    imported(services, folder)
    found = "SELECT count(*) FROM lake.ns.t WHERE t = TIMESTAMPTZ '2024-01-01 01:01:01.999999+00'"
    assert ducklake.execute(found).fetchone() == (1,)


def test_cut_texts_bound_files_and_not_the_table(
    services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    write_deltalake(folder, TABLE.select(["long", "cut", "short"]))
    imported(services, folder)
    report = "SELECT column_id FROM {}"
    with services.database.reading() as cursor:
        by_file = cursor.execute(report.format("ducklake_file_column_stats")).fetchall()
        by_table = cursor.execute(report.format("ducklake_table_column_stats")).fetchall()
    assert (len(by_file), len(by_table)) == (3, 1)
