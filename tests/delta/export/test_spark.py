"""Delta's own reader, in Spark, reads a table of ours at each version as Iceberg's do, and writes nothing."""

import os
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from duckicelake.catalog.context.services import Services
from tests.delta.corpus.spark_queries import asked
from tests.delta.export.readers import Version, assert_same, keep, versions
from tests.support.lakes import Lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def lake(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Lake:
    """A table with all that Delta can say: inlined rows, deletes, partitions, schema evolution, checkpoints."""
    lake = Lake(services, ducklake)
    lake.run(
        "CREATE TABLE t (a INTEGER, p VARCHAR, ts TIMESTAMP, tz TIMESTAMPTZ, dec DECIMAL(9, 2), s STRUCT(x INTEGER, "
        "l STRUCT(q FLOAT)[]), m MAP(VARCHAR, INTEGER))",
        "ALTER TABLE t SET PARTITIONED BY (p)",
    )
    lake.commit({"action": "set-properties", "updates": {"delta.enabled": "true", "comment": "all of it"}})
    keep(lake)
    row = (
        "'2024-01-01 00:00:00.123456', '2024-01-01 00:00:00.5+00', 1.25, {'x': range, 'l': [{'q': 1.5}, NULL]}, "
        "MAP {'k': 1}"
    )
    statements = (
        f"INSERT INTO t SELECT range, 'x/y %20', {row} FROM range(2)",
        f"INSERT INTO t SELECT range + 10, ['ä', NULL][range % 2 + 1], {row} FROM range(40)",
        "DELETE FROM t WHERE a IN (1, 11, 12)",
        "ALTER TABLE t ADD COLUMN n BIGINT",
        "UPDATE t SET n = a WHERE a BETWEEN 20 AND 35",
        "ALTER TABLE t ALTER a TYPE BIGINT",
        "ALTER TABLE t RENAME COLUMN dec TO amount",
        "DELETE FROM t WHERE p IS NULL AND a > 40",
        "CALL ducklake_flush_inlined_data('lake')",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("duckicelake.delta.export.files.CHECKPOINT_VERSIONS", 3)
        for statement in statements:
            lake.run(statement)
            keep(lake)
    return lake


def test_spark_reads_each_version_as_iceberg_and_writes_nothing(lake: Lake, tmp_path: Path) -> None:
    log, static = keep(lake), lake.static()
    found = versions(lake)
    assert len(found) > 8
    name = f"delta.`{log.root}`"
    refused = (f"DELETE FROM {name}", f"VACUUM {name} RETAIN 0 HOURS")
    reads = [f"SELECT * FROM {name} {_at(each)}" for each in found]
    *answers, history, deleted, vacuumed = asked(
        [*reads, f"DESCRIBE HISTORY {name}", *refused], tmp_path, dict(os.environ)
    )
    for each, read in zip(found, answers, strict=True):
        assert isinstance(read, pa.Table), read
        expected = static.scan(snapshot_id=each.snapshot_id).to_arrow() if each.snapshot_id else read.slice(0, 0)
        assert_same(read, expected, _at(each), renamed={"amount": "dec"})
    assert isinstance(history, pa.Table), history
    assert history["version"].to_pylist() == [each.version for each in reversed(found)]
    assert "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE" in deleted
    assert "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE" in vacuumed


def _at(version: Version) -> str:
    """By version or by time, in turns."""
    if version.version % 4 == 1:
        return f"TIMESTAMP AS OF '{_text(version.timestamp_ms)}'"
    return f"VERSION AS OF {version.version}"


def _text(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")[:23]
