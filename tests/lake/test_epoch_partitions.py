"""Calendar partitions in DuckLake 1.1: both sides have the same value, and PyIceberg skips files by it."""

from collections.abc import Iterator
from datetime import UTC, date, datetime

import orjson
import psycopg
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DateType, LongType, NestedField, TimestampType, TimestamptzType

from duckicelake.catalog.flush import flush_rows
from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from tests.lake.iceberg_client import append
from tests.support.ducklake_11 import add_snapshot, as_1_0, epoch_value, migrate, partition_by
from tests.support.lakes import Lake, iceberg_rows

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "d", DateType(), required=False),
    NestedField(3, "ts", TimestampType(), required=False),
    NestedField(4, "tz", TimestamptzType(), required=False),
)
ARROW = {"id": pa.int64(), "d": pa.date32(), "ts": pa.timestamp("us"), "tz": pa.timestamp("us", "UTC")}
COLUMNS = "id BIGINT, d DATE, ts TIMESTAMP, tz TIMESTAMPTZ"
MOMENTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2024, 2, 29, 23, 30, tzinfo=UTC),
    datetime(2024, 3, 1, 0, 30, tzinfo=UTC),
]
CASES = [("d", 2, "year"), ("d", 2, "month"), ("d", 2, "day")]
CASES += [(name, place, part) for name, place in (("ts", 3), ("tz", 4)) for part in ("year", "month", "day", "hour")]
FILTERS = {
    "d": "d = '2024-02-29'",
    "ts": "ts >= '2024-02-29T23:00:00' and ts < '2024-02-29T23:59:00'",
    "tz": "tz >= '2024-02-29T23:00:00+00:00' and tz < '2024-02-29T23:59:00+00:00'",
}
FOUND = {"year": 2, "month": 1, "day": 1, "hour": 1}
"""How many of the files a filter can't skip."""


@pytest.fixture
def migrated(lake: Lake, database_url: str) -> Lake:
    lake.run("CALL lake.set_option('data_inlining_row_limit', 0)")
    migrate(database_url, is_guarded=False)
    return lake


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as opened:
        yield opened


def post(lake: Lake, *rows: tuple[int, datetime | None]) -> None:
    """Post rows, to files where nothing is inlined."""
    made = [
        {"id": number, "d": f"{at:%F}", "ts": f"{at:%FT%T.%f}", "tz": f"{at:%FT%T.%f}+00:00"} if at else {"id": number}
        for number, at in rows
    ]
    append_rows(lake.services, PostedRows(("main",), "t", orjson.dumps(made), "application/json"))


def offset(part: str, moment: datetime | None) -> int | None:
    text = epoch_value(f"epoch_{part}", moment)
    return None if text is None else int(text)


def row(number: int, moment: datetime | None) -> dict[str, pa.Array]:
    day = None if moment is None else moment.date()
    plain = None if moment is None else moment.replace(tzinfo=None)
    values = {"id": number, "d": day, "ts": plain, "tz": moment}
    return {name: pa.array([values[name]], kind) for name, kind in ARROW.items()}


def spec_of(place: int, part: str) -> PartitionSpec:
    return PartitionSpec(PartitionField(place, 1000, parse_transform(part), "p"))


def count_files(catalog: Catalog, text: str) -> int:
    return len(list(catalog.load_table("main.t").scan(row_filter=text).plan_files()))


KEYS = """SELECT column_id, transform FROM ducklake_partition_column JOIN ducklake_partition_info USING (partition_id)
WHERE end_snapshot IS NULL ORDER BY partition_key_index"""
VALUES = "SELECT partition_value FROM ducklake_file_partition_value ORDER BY data_file_id, partition_key_index"


@pytest.mark.parametrize(("name", "place", "part"), CASES)
def test_a_table_of_a_client_has_one_epoch_key_with_icebergs_value(migrated, catalog, name, place, part):
    catalog.create_table("main.t", SCHEMA, partition_spec=spec_of(place, part))
    for number, moment in enumerate([*MOMENTS, None]):
        if number % 2:
            post(migrated, (number, moment))
        else:
            append(migrated, row(number, moment), partition=(offset(part, moment),))

    assert migrated.sql(KEYS) == [(place, f"epoch_{part}")]
    assert [value for (value,) in migrated.sql(VALUES)] == [epoch_value(f"epoch_{part}", at) for at in [*MOMENTS, None]]
    assert count_files(catalog, FILTERS[name]) == 1  # the posted file of March has bounds, too
    assert count_files(catalog, f"{name} is null") == 1


@pytest.mark.parametrize(("name", "place", "part"), CASES)
def test_files_of_duckdb_2_are_skipped_by_their_epoch_value_alone(
    migrated, catalog, connection, database_url, name, place, part
):
    moments = [*MOMENTS, None]
    with as_1_0(database_url):
        migrated.run("SET TimeZone = 'Asia/Kolkata'", f"CREATE TABLE t ({COLUMNS})")
        for number, moment in enumerate(moments):
            values = f"'{moment:%F}', '{moment:%F %T.%f}', '{moment.isoformat()}'" if moment else "NULL, NULL, NULL"
            migrated.run(f"INSERT INTO t VALUES ({number}, {values})")
    ((table_id,),) = connection.execute("SELECT max(table_id) FROM ducklake_table").fetchall()
    partition_id = partition_by(connection, table_id, (place, f"epoch_{part}"))
    files = connection.execute("SELECT data_file_id FROM ducklake_data_file ORDER BY 1").fetchall()
    for (file_id,), moment in zip(files, moments, strict=True):
        connection.execute(
            "INSERT INTO ducklake_file_partition_value VALUES (%s, %s, 0, %s)",
            [file_id, table_id, epoch_value(f"epoch_{part}", moment)],
        )
    # as if DuckDB had written them so, in the snapshots after the change, without bounds but with counts
    connection.execute("UPDATE ducklake_data_file SET partition_id = %s", [partition_id])
    connection.execute("UPDATE ducklake_file_column_stats SET min_value = NULL, max_value = NULL")
    newest = add_snapshot(connection, f"inserted_into_table:{table_id}")
    connection.execute("UPDATE ducklake_data_file SET begin_snapshot = %s", [newest])

    assert [str(field.transform) for field in catalog.load_table("main.t").spec().fields] == [part]
    assert count_files(catalog, FILTERS[name]) == FOUND[part]
    assert [id_ for id_, *_ in iceberg_rows(migrated.static())] == [0, 1, 2, 3, 4]


def test_calendar_keys_of_before_stay_until_the_spec_changes(lake, catalog, connection, database_url):
    lake.run(
        "CALL lake.set_option('data_inlining_row_limit', 0)",
        f"CREATE TABLE t ({COLUMNS})",
        "ALTER TABLE t SET PARTITIONED BY (year(d), month(d))",
        "INSERT INTO t VALUES (0, '2024-02-29', NULL, NULL)",
    )
    migrate(database_url, is_guarded=False)
    append(lake, row(1, MOMENTS[3]), partition=(650,))
    table = catalog.load_table("main.t")
    with table.update_schema() as update:
        update.add_column("more", LongType())

    assert lake.sql(KEYS) == [(2, "year"), (2, "month")]
    assert [value for (value,) in lake.sql(VALUES)] == ["2024", "2", "2024", "3"]
    assert count_files(catalog, "d = '2024-03-01'") == 1

    table = catalog.load_table("main.t")
    with table.update_spec() as update:
        update.add_field("ts", parse_transform("day"), "ts_day")
    append(lake, row(2, MOMENTS[0]), partition=(-1, -1))

    assert lake.sql(KEYS) == [(2, "epoch_month"), (3, "epoch_day")]
    assert [value for (value,) in lake.sql(VALUES)][4:] == ["-1", "-1"]
    assert count_files(catalog, "d = '1969-12-31'") == 1
    assert count_files(catalog, "d = '2024-03-01'") == 1
    assert [id_ for id_, *_ in iceberg_rows(lake.static())] == [0, 1, 2]


@pytest.mark.parametrize(("name", "place", "part"), [("tz", 4, "hour"), ("d", 2, "month"), ("ts", 3, "day")])
def test_flushed_rows_are_divided_by_epoch_keys(migrated, catalog, connection, name, place, part):
    catalog.create_table("main.t", SCHEMA, partition_spec=spec_of(place, part))
    connection.execute("UPDATE ducklake_metadata SET value = '100' WHERE key = 'data_inlining_row_limit'")
    post(migrated, *enumerate(MOMENTS))
    assert migrated.sql("SELECT count(*) FROM ducklake_data_file") == [(0,)]

    flush_rows(migrated.services, ("main",), "t")

    values = sorted({epoch_value(f"epoch_{part}", at) or "" for at in MOMENTS})
    assert sorted(value for (value,) in migrated.sql(VALUES)) == values
    assert f"epoch_{part}=" in migrated.sql("SELECT path FROM ducklake_data_file")[0][0]
    assert count_files(catalog, FILTERS[name]) == 1
    assert sorted(id_ for id_, *_ in iceberg_rows(migrated.static())) == [0, 1, 2, 3]


@pytest.mark.parametrize(("column", "place", "transform"), [("BIGINT", 1, "epoch_hour"), ("DATE", 2, "epoch_hour")])
def test_epoch_keys_that_iceberg_cannot_say_are_read_as_unpartitioned(
    migrated, catalog, connection, database_url, column, place, transform
):
    with as_1_0(database_url):
        migrated.run("CREATE TABLE t (id BIGINT, d DATE)", "INSERT INTO t VALUES (1, '2024-03-05')")
    ((table_id,),) = connection.execute("SELECT max(table_id) FROM ducklake_table").fetchall()

    partition_by(connection, table_id, (place, transform))

    assert catalog.load_table("main.t").spec().fields == ()
    assert iceberg_rows(migrated.static()) == [(1, date(2024, 3, 5))]


@pytest.mark.parametrize("keys", ["year(d)", "year(d), month(d), day(d)"])
def test_a_filter_for_values_finds_infinite_days(lake, catalog, keys):
    lake.run(
        "CALL lake.set_option('data_inlining_row_limit', 0)",
        "CREATE TABLE t (id BIGINT, d DATE)",
        f"ALTER TABLE t SET PARTITIONED BY ({keys})",
        "INSERT INTO t VALUES (1, 'infinity')",
        "INSERT INTO t VALUES (2, NULL)",
        "INSERT INTO t VALUES (3, '2024-03-05')",
    )

    assert count_files(catalog, "d is not null") == 2
    assert count_files(catalog, "d is null") == 1
