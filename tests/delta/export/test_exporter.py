"""A Delta log beside a table of ours: Delta's readers read at each version what Iceberg's and DuckDB read."""

from collections.abc import Iterator

import duckdb
import pytest
from duckdb_extensions import import_extension

from duckicelake.catalog.context.services import Services
from duckicelake.delta.export.definition import READ_ONLY_PROPERTY
from duckicelake.delta.log.reader import DeltaLog
from duckicelake.delta.log.schema import parse_schema
from duckicelake.errors import InvalidRequestError, UnsupportedError
from tests.delta.export.readers import assert_read_alike, delta_rs, duckdb_delta, keep, rows_of
from tests.support.lakes import Lake

INLINE = "CALL lake.set_option('data_inlining_row_limit', {})"


@pytest.fixture(scope="module")
def delta() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its delta extension."""
    import_extension("delta")
    connection = duckdb.connect(config={"threads": 2, "allow_unsigned_extensions": True})
    yield connection.execute("LOAD delta")
    connection.close()


@pytest.fixture
def lake(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Lake:
    return Lake(services, ducklake)


def enable(lake: Lake, table: str = "t", value: str = "true") -> None:
    lake.commit({"action": "set-properties", "updates": {"delta.enabled": value}}, table=table)


def test_all_that_duckdb_does(lake: Lake, delta: duckdb.DuckDBPyConnection) -> None:
    lake.run(
        "CREATE TABLE t (a BIGINT, b VARCHAR)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO t SELECT range + 10, 'row ' || range FROM range(100)",
    )
    enable(lake)
    assert assert_read_alike(lake, delta)[0]
    lake.run(
        "INSERT INTO t VALUES (3, 'c')",
        "DELETE FROM t WHERE a = 2",
        "DELETE FROM t WHERE a IN (12, 13)",
        "DELETE FROM t WHERE a BETWEEN 20 AND 60",
        "UPDATE t SET b = 'new' WHERE a IN (1, 15)",
        "MERGE INTO t USING (SELECT 16 AS a, 'merged' AS b) s ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = s.b",
        "INSERT INTO t SELECT range + 1000, 'more' FROM range(50)",
    )
    seen = assert_read_alike(lake, delta)
    assert len(seen) >= 5
    lake.run("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')")
    assert seen.items() <= assert_read_alike(lake, delta).items()


def test_versions_stay_what_they_were_as_schema_changes(lake: Lake, delta: duckdb.DuckDBPyConnection) -> None:
    lake.run(
        INLINE.format(0),
        "CREATE TABLE t (a INTEGER, s STRUCT(x INTEGER, y VARCHAR), l INTEGER[], m MAP(VARCHAR, INTEGER))",
    )
    enable(lake)
    keep(lake)
    lake.run("INSERT INTO t VALUES (1, {'x': 1, 'y': 'a'}, [1, 2], MAP {'k': 1}), (NULL, NULL, NULL, NULL)")
    assert_read_alike(lake, delta)
    lake.run("ALTER TABLE t ADD COLUMN n DOUBLE")
    assert_read_alike(lake, delta)
    lake.run("INSERT INTO t VALUES (2, {'x': 2, 'y': 'b'}, [], MAP {}, 1.5)", "ALTER TABLE t ALTER a TYPE BIGINT")
    assert_read_alike(lake, delta)
    lake.run(
        f"INSERT INTO t VALUES ({1 << 40}, {{'x': 2, 'y': 'b'}}, [], MAP {{}}, 'NaN')", "ALTER TABLE t DROP COLUMN l"
    )
    assert_read_alike(lake, delta)
    lake.run("DELETE FROM t WHERE a = 2")
    assert len(assert_read_alike(lake, delta)) >= 7


def test_renamed_column_is_read_until_files_disagree_and_from_when_they_agree_again(
    lake: Lake, delta: duckdb.DuckDBPyConnection
) -> None:
    lake.run(INLINE.format(0), "CREATE TABLE t (a INTEGER, b VARCHAR)", "INSERT INTO t VALUES (1, 'x')")
    enable(lake)
    lake.run("INSERT INTO t VALUES (2, 'y')", "ALTER TABLE t RENAME COLUMN b TO c", "DELETE FROM t WHERE a = 1")
    seen = assert_read_alike(lake, delta)
    lake.run("INSERT INTO t VALUES (3, 'z')")
    with pytest.raises(UnsupportedError, match="means what other files call 'b'"):
        keep(lake)
    with pytest.raises(UnsupportedError, match="means what other files call 'b'"):
        keep(lake)
    lake.run("CREATE TEMP TABLE kept AS FROM t", "DELETE FROM t", "INSERT INTO t FROM kept")
    again = assert_read_alike(lake, delta)
    assert seen.items() <= again.items()


def test_column_that_has_the_name_of_a_dropped_one_reads_none_of_its_values(
    lake: Lake, delta: duckdb.DuckDBPyConnection
) -> None:
    lake.run(INLINE.format(0), "CREATE TABLE t (a INTEGER, b VARCHAR)", "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    enable(lake)
    keep(lake)
    for statement in ("ALTER TABLE t DROP COLUMN b", "DELETE FROM t WHERE a = 1", "ALTER TABLE t ADD COLUMN b VARCHAR"):
        lake.run(statement)
        assert_read_alike(lake, delta)
    lake.run("INSERT INTO t VALUES (3, 'new')")
    with pytest.raises(UnsupportedError, match="mean different columns by that name"):
        keep(lake)


def test_partitioned_table_is_read_whatever_its_partitions_were(lake: Lake, delta: duckdb.DuckDBPyConnection) -> None:
    lake.run("CREATE TABLE t (a INTEGER, p VARCHAR, d DATE)", "ALTER TABLE t SET PARTITIONED BY (p, year(d))")
    enable(lake)
    lake.run(
        "INSERT INTO t SELECT range, ['x/y', 'ä ü%20', NULL][range % 3 + 1], DATE '2024-01-01' + range::INT "
        "FROM range(30)",
        "INSERT INTO t VALUES (100, 'x/y', NULL)",
        "ALTER TABLE t SET PARTITIONED BY (bucket(4, a))",
        "INSERT INTO t SELECT range, 'later', NULL FROM range(40)",
        "DELETE FROM t WHERE p = 'ä ü%20'",
    )
    assert_read_alike(lake, delta)
    log = keep(lake)
    for where in ("p = 'later'", "p IS NULL", "a > 35", "d >= DATE '2024-01-25'", "p = 'nowhere'"):
        expected = lake.duck_rows(f"t WHERE {where}")
        assert rows_of(delta_rs(log.root, log.version, where)) == expected
        assert rows_of(duckdb_delta(delta, log.root, log.version, where)) == expected


TYPES = {
    "i": ("INTEGER", "-5", "7"),
    "l": ("BIGINT", "-9007199254740995", "9007199254740993"),
    "f": ("FLOAT", "-1.5", "2.5"),
    "x": ("DOUBLE", "-1e300", "'NaN'"),
    "dec": (
        "DECIMAL(38, 10)",
        "'-1234567890123456789.0000000001'::DECIMAL(38, 10)",
        "'1234567890123456789.0000000001'::DECIMAL(38, 10)",
    ),
    "bo": ("BOOLEAN", "true", "false"),
    "d": ("DATE", "DATE '1900-02-03'", "DATE '2199-12-31'"),
    "ts": ("TIMESTAMP", "TIMESTAMP '1969-12-31 23:59:59.999999'", "TIMESTAMP '2024-01-02 03:04:05.123456'"),
    "tz": ("TIMESTAMPTZ", "TIMESTAMPTZ '1969-12-31 23:59:59.999999+00'", "TIMESTAMPTZ '2024-01-02 03:04:05.123456+00'"),
    "s": ("VARCHAR", "''", "'ünï' || repeat('z', 60)"),
    "bin": ("BLOB", "'\\x00\\xff'::BLOB", "''::BLOB"),
    "small": ("SMALLINT", "-5", "7"),
    "big": ("UINTEGER", "0", "4294967295"),
}


def test_every_type_is_read_and_compared_as_iceberg_does(lake: Lake, delta: duckdb.DuckDBPyConnection) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in TYPES.items())
    lake.run(INLINE.format(0), f"CREATE TABLE t ({columns})")
    enable(lake)
    for number in (1, 2):
        lake.run(f"INSERT INTO t VALUES ({', '.join(each[number] for each in TYPES.values())})")
    lake.run("INSERT INTO t (i) VALUES (NULL)")
    assert_read_alike(lake, delta)
    log = keep(lake)
    for name, (_, *values) in TYPES.items():
        for value in values if name != "bo" else ():
            where = f"{name} = {value}" if name != "x" or value != "'NaN'" else "x > 5"
            expected = lake.duck_rows(f"t WHERE {where}")
            assert rows_of(duckdb_delta(delta, log.root, log.version, where)) == expected, where
            if name not in {"bin", "f", "x", "tz"}:  # which are written otherwise in DataFusion
                assert rows_of(delta_rs(log.root, log.version, where)) == expected, where


def test_constraints_and_comments_are_reported_and_only_features_in_use_are_asked_for(lake: Lake) -> None:
    lake.run("CREATE TABLE t (a INTEGER NOT NULL, ts TIMESTAMP)", "COMMENT ON COLUMN t.a IS 'counted'")
    enable(lake)
    log = DeltaLog(lake.services.store, keep(lake).root)
    protocol = log.snapshot().protocol
    assert protocol.reader_features == {"columnMapping", "timestampNtz"}
    assert protocol.writer_features == protocol.reader_features | {
        "inCommitTimestamp",
        "invariants",
        READ_ONLY_PROPERTY,
    }
    lake.commit({"action": "set-properties", "updates": {"constraint.positive": "a > 0", "comment": "numbers"}})
    lake.run("INSERT INTO t SELECT range + 1, NULL FROM range(20)", "DELETE FROM t WHERE a = 5")
    keep(lake)
    snapshot = log.snapshot()
    assert snapshot.protocol.reader_features == {"columnMapping", "timestampNtz", "deletionVectors"}
    assert "checkConstraints" in (snapshot.protocol.writer_features or ())
    assert snapshot.metadata.configuration["delta.constraints.positive"] == "a > 0"
    assert snapshot.metadata.description == "numbers"
    assert parse_schema(snapshot.metadata.schema_string).fields[0].comment == "counted"


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("c TIME", "Column c has the type time"),
        ("c UUID", "Column c has the type uuid"),
        ("c TIMESTAMP_NS", "Column c has the type timestamp_ns"),
        ("c STRUCT(x TIME[])", "Column c.x.element has the type time"),
    ],
)
def test_table_that_delta_can_not_say_is_refused(lake: Lake, column: str, reason: str) -> None:
    lake.run(f"CREATE TABLE t (a INTEGER, {column})")
    if "NS" in column:
        lake.upgrade(3)
    with pytest.raises(UnsupportedError, match=reason):
        enable(lake)
    assert "delta.enabled" not in lake.metadata().properties


def test_value_that_is_neither_true_nor_false_is_refused(lake: Lake) -> None:
    lake.run("CREATE TABLE t (a INTEGER)")
    with pytest.raises(InvalidRequestError, match="write true or false"):
        enable(lake, value="yes")
