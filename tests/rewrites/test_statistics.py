"""Distinct values of columns, counted by workers, as sketches that Java's library reads."""

import random
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.table.puffin import PuffinFile

from duckicelake.catalog.context.services import Services
from duckicelake.rewrites.statistics import compute_statistics
from duckicelake.rewrites.theta import SKETCH_HASHES, ThetaSketch, hash_texts, hash_values
from tests.rewrites.test_histories import Control, task
from tests.support.client import Client
from tests.support.seams import fresh

Duck = duckdb.DuckDBPyConnection
TYPES = (
    "flag BOOLEAN, tiny TINYINT, wide UBIGINT, big BIGINT, f FLOAT, d DOUBLE, day DATE, clock TIME, moment TIMESTAMP, "
    "sec TIMESTAMP_S, zoned TIMESTAMPTZ, text VARCHAR, id UUID, raw BLOB, small DECIMAL(9, 2), huge DECIMAL(38, 3), "
    "parts STRUCT(x INTEGER), many INTEGER[]"
)
VALUES = (
    "range % 2 = 0, (range % 5)::TINYINT, (range % 11)::UBIGINT + 18446744073709551600, range, (range % 7)::FLOAT, "
    "CASE WHEN range % 3 = 0 THEN 'nan'::DOUBLE ELSE range % 13 END, DATE '1960-01-01' + (range % 17)::INTEGER, "
    "TIME '10:00' + to_seconds(range % 19), TIMESTAMP '1950-01-01' + to_hours(range % 23), "
    "(TIMESTAMP '2020-01-01' + to_seconds(range % 29))::TIMESTAMP_S, TIMESTAMPTZ '2020-01-01 00:00:00+01' + "
    "to_minutes((range % 31)::INTEGER), CASE WHEN range % 4 > 0 THEN repeat('ä', (range % 37)::INTEGER) END, "
    "format('00000000-0000-0000-0000-{:012d}', range % 41)::UUID, ('b' || range % 43)::BLOB, (range % 47 - 20) / 4, "
    "((range % 53)::DECIMAL(38, 3) - 25) * 1000000000000000000000, {'x': 1}, [range]"
)
DISTINCT = {
    "flag": 2, "tiny": 5, "wide": 11, "big": 1000, "f": 7, "d": 14, "day": 17, "clock": 19, "moment": 23, "sec": 29,
    "zoned": 31, "text": 36, "id": 41, "raw": 43, "small": 47, "huge": 53,
}  # fmt: skip
"""An empty text isn't counted: DataSketches takes none."""


@pytest.fixture
def control(tmp_path: Path) -> Control:
    return Control()


def read_counts(metadata: dict[str, Any]) -> dict[str, int]:
    names = {field["id"]: field["name"] for field in metadata["schemas"][-1]["fields"]}
    file = metadata["statistics"][-1]
    assert file["snapshot-id"] == metadata["current-snapshot-id"]
    return {names[blob["fields"][0]]: int(blob["properties"]["ndv"]) for blob in file["blob-metadata"]}


def test_distinct_values_of_every_type_are_counted_wherever_rows_lie(
    services: Services, client: Client, ducklake: Duck, control: Control
) -> None:
    ducklake.execute(f"CREATE SCHEMA IF NOT EXISTS lake.ns; CREATE TABLE lake.ns.t ({TYPES})")
    assert compute_statistics(services, task("statistics"), control).result == "unchanged"
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 100)")
    ducklake.execute(f"INSERT INTO lake.ns.t SELECT {VALUES} FROM range(950)")
    ducklake.execute(f"INSERT INTO lake.ns.t SELECT {VALUES} FROM range(950, 1000)")
    outcome = compute_statistics(services, task("statistics"), control)
    assert (outcome.result, outcome.counts["columns"]) == ("done", len(DISTINCT))
    metadata = Client(fresh(services)).metadata()
    assert read_counts(metadata) == DISTINCT
    assert compute_statistics(services, task("statistics"), control).result == "unchanged"
    ducklake.execute("DELETE FROM lake.ns.t WHERE big >= 10")
    assert compute_statistics(services, task("statistics"), control).result == "done"
    assert read_counts(Client(fresh(services)).metadata())["big"] == 10


def test_file_is_one_that_iceberg_reads(services: Services, client: Client, ducklake: Duck, control: Control) -> None:
    client.create()
    ducklake.execute("INSERT INTO lake.ns.t SELECT range, 'n' || range % 10 FROM range(30000)")
    assert compute_statistics(services, task("statistics"), control).result == "done"
    (file,) = Client(fresh(services)).metadata()["statistics"]
    data = services.store.read(file["statistics-path"])
    assert len(data) == file["file-size-in-bytes"]
    assert data[-file["file-footer-size-in-bytes"] :][:4] == b"PFA1"
    puffin = PuffinFile(data)
    for blob, listed in zip(puffin.footer.blobs, file["blob-metadata"], strict=True):
        assert (blob.type, blob.fields) == ("apache-datasketches-theta-v1", listed["fields"])
        count, hashes = read_sketch(data[blob.offset : blob.offset + blob.length])
        assert round(count) == int(listed["properties"]["ndv"])
        assert hashes == sorted(set(hashes))
    counts = read_counts(Client(fresh(services)).metadata())
    assert counts["name"] == 10
    assert abs(counts["id"] - 30000) < 30000 * 0.05


def read_sketch(data: bytes) -> tuple[float, list[int]]:
    """The estimate and the hashes of a compact sketch, by DataSketches' description of its form."""
    longs, version, family, _, _, flags, seed = struct.unpack_from("<BBBBBBH", data)
    assert (version, family, seed, flags & 0b11010) == (3, 3, 37836, 0b11010)
    theta = struct.unpack_from("<Q", data, 16)[0] if longs == 3 else 2**63 - 1
    hashes = [number for (number,) in struct.iter_unpack("<Q", data[8 * longs :])]
    expected = struct.unpack_from("<I", data, 8)[0] if longs > 1 else int(not flags & 4)
    assert (len(hashes), max(hashes, default=0) < theta) == (expected, True)
    return len(hashes) / (theta / 2**63), hashes


@pytest.mark.parametrize("count", [0, 1, 2, SKETCH_HASHES, SKETCH_HASHES + 1, 100_000])
def test_sketch_of_any_size_is_read_back(count: int) -> None:
    sketch = ThetaSketch()
    for _ in range(2):
        for start in range(0, count, 7000):
            sketch.add(hash_values(pa.array(range(start, min(start + 7000, count)), pa.int64())))
    estimate, hashes = read_sketch(sketch.to_bytes())
    assert (round(estimate), len(hashes)) == (sketch.estimate, min(count, SKETCH_HASHES))
    assert abs(estimate - count) <= (0 if count <= SKETCH_HASHES else count * 0.05)


def test_values_are_hashed_as_the_bytes_that_iceberg_serializes() -> None:
    chance = random.Random(7)
    texts = [chance.randbytes(chance.randrange(70)) for _ in range(500)]
    decimals = [Decimal(0), Decimal(-1), Decimal(127), Decimal(128), Decimal(-128), Decimal(-129), Decimal(10**30)]
    unscaled = [int(number) for number in decimals]
    cases: list[tuple[pa.Array, list[bytes]]] = [
        (pa.array(texts), texts),
        (pa.array([7, None, -1], pa.int32()).slice(1), [struct.pack("<i", -1)]),
        (pa.array([1, -(2**40)], pa.int64()), [struct.pack("<q", 1), struct.pack("<q", -(2**40))]),
        (pa.array([1.5], pa.float32()), [struct.pack("<f", 1.5)]),
        (pa.array([1.5], pa.float64()), [struct.pack("<d", 1.5)]),
        (pa.array([date(1969, 12, 31)]), [struct.pack("<i", -1)]),
        (pa.array([time(0, 0, 1)], pa.time64("us")), [struct.pack("<q", 10**6)]),
        (pa.array([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]), [struct.pack("<q", 10**6)]),
        (pa.array([UUID(int=5).bytes]), [UUID(int=5).bytes]),
        (
            pa.array(decimals, pa.decimal128(38, 0)),
            [number.to_bytes(count_bytes(number), "big", signed=True) for number in unscaled],
        ),
    ]
    for column, expected in cases:
        assert set(hash_values(column).tolist()) == {hash_bytes(value) for value in expected if value}


def count_bytes(number: int) -> int:
    """Of a number in two's complement."""
    return (number if number >= 0 else ~number).bit_length() // 8 + 1


def hash_bytes(value: bytes) -> int:
    (found,) = hash_texts(value, np.array([len(value)])).tolist()
    return int(found)
