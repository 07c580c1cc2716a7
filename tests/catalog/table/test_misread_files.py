"""Files that DuckDB adds and Iceberg clients would misread: these get a copy with what DuckDB reads, or are refused."""

from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table import StaticTable
from pyiceberg.types import TimestampNanoType, TimestampType

from duckicelake.catalog.context.services import Services
from duckicelake.errors import UnsupportedError
from duckicelake.storage.policy import LocationPolicy
from tests.support.client import Client, data_files, delete
from tests.support.lakes import Lake, iceberg_rows
from tests.support.seams import fresh

MOMENT = "'2023-01-02 03:04:05.678901'"
DEEP = "STRUCT(x BIGINT, y STRUCT(z TIMESTAMP_MS, w INTEGER)[], m MAP(VARCHAR, STRUCT(k DECIMAL(18, 3))))"
CASES = {
    "ids of another table": ("a BIGINT, b BIGINT", "range AS b, range * 100 AS a FROM range(4)", "{b: 1, a: 2}"),
    "ids of columns to come": ("a BIGINT", "range AS a, range AS b FROM range(4)", "{a: 1, b: 2}"),
    "ids that are right": ("a BIGINT, b BIGINT", "range AS b, range * 100 AS a FROM range(4)", "{b: 2, a: 1}"),
    "ids of some": ("a BIGINT, b BIGINT", "range AS b, range * 100 AS a FROM range(4)", "{b: 2}"),
    "ids inside swapped": ("s STRUCT(x INT, y INT)", "{'x': 1::INT, 'y': 2::INT} AS s", "{s: {x: 3, y: 2}}"),
    "extra column": ("a BIGINT", "range AS a, 'x' AS more FROM range(4)", ""),
    "extra in a struct": ("s STRUCT(x INT)", "{'y': 'n', 'x': 1::INT} AS s", ""),
    "extra in a list": ("l STRUCT(x INT)[]", "[{'y': 'n', 'x': 1::INT}, NULL] AS l", ""),
    "extra in a map": ("m MAP(VARCHAR, STRUCT(x INT))", "MAP {'k': {'y': 'n', 'x': 1::INT}} AS m", ""),
    "missing and extra": ("a BIGINT, b BIGINT", "range AS a, 'x' AS more FROM range(4)", ""),
    "nested missing": ("s STRUCT(x INT, y INT)", "{'y': 2::INT} AS s", ""),
    "other case": ('"Id" INT, "nAme" VARCHAR', "1::INT AS iD, 'x' AS NAME", ""),
    "int as long": ("a BIGINT", "7::INT AS a", ""),
    "float as double": ("a DOUBLE", "1.1::FLOAT AS a", ""),
    "short decimal": ("a DECIMAL(9, 2)", "1.25::DECIMAL(5, 2) AS a", ""),
    "decimal of another scale": ("a DECIMAL(18, 3)", "1.25::DECIMAL(5, 2) AS a", ""),
    "unsigned": ("a BIGINT", "4000000000::UINTEGER AS a", ""),
    "unsigned in a list": ("a BIGINT[]", "[4000000000::UINTEGER, NULL] AS a", ""),
    "unsigned column": ("a UBIGINT", "18000000000000000000::UBIGINT AS a", ""),
    "seconds": ("a TIMESTAMP_S", f"TIMESTAMP {MOMENT} AS a", ""),
    "milliseconds": ("a TIMESTAMP_MS", f"TIMESTAMP {MOMENT} AS a", ""),
    "milliseconds in the file": ("a TIMESTAMP", f"TIMESTAMP_MS {MOMENT} AS a", ""),
    "nanoseconds": ("a TIMESTAMP_NS", f"TIMESTAMP {MOMENT} AS a", ""),
    "nanoseconds in the file": ("a TIMESTAMP", f"TIMESTAMP_NS {MOMENT} AS a", ""),
    "time with zone": ("a TIME", "TIMETZ '01:02:03+01' AS a", ""),
    "json": ("a JSON", """'{"x": 1}'::JSON AS a""", ""),
    "all at once": (
        f"s {DEEP}",
        (
            "{'m': MAP {'k': {'k': 1.5::DECIMAL(5, 2)}, 'n': NULL}, "
            f"'y': [{{'w': 1::INT, 'z': TIMESTAMP {MOMENT}}}, NULL], 'more': 5}} AS s UNION ALL SELECT NULL"
        ),
        "",
    ),
    "nothing known": ("a BIGINT, b BIGINT", "range AS b FROM range(2)", ""),
}


@pytest.fixture
def lake(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Lake:
    return Lake(services, ducklake)


def place(lake: Lake, name: str, table: str = "main/t") -> Path:
    """Where the server may read: in DuckLake's folder of the table."""
    path = Path(lake.services.policy.warehouse, "ducklake", table, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def add(lake: Lake, path: Path, table: str = "t", *, hive: bool = False) -> None:
    options = f"allow_missing => true, ignore_extra_columns => true, hive_partitioning => {hive}"
    lake.run(f"CALL ducklake_add_data_files('lake', '{table}', '{path}', {options})")


def copied(lake: Lake, name: str, select: str, ids: str = "", table: str = "t") -> None:
    """Add a file of these rows, written by DuckDB."""
    path = place(lake, name, f"main/{table}")
    lake.run(f"COPY (SELECT {select}) TO '{path}' (FORMAT parquet{f', FIELD_IDS {ids}' if ids else ''})")
    add(lake, path, table, hive="=" in name)


def check(lake: Lake, table: str = "t", case: str = "") -> None:
    """The same rows on both sides, and the first row is found by each of its values."""
    read, expected = lake.static(table), lake.duck_rows(table)
    assert expected, case
    assert iceberg_rows(read) == expected, case
    for at, field in enumerate(read.schema().fields):
        value = expected[0][at]
        if isinstance(field.field_type, TimestampType):
            value = value and value.replace(" ", "T")
        if not isinstance(value, int | str | float) or isinstance(field.field_type, TimestampNanoType):
            continue
        found = read.scan(row_filter=EqualTo(field.name, value)).to_arrow().num_rows
        assert found == sum(row[at] == expected[0][at] for row in expected), (case, field.name)


def test_iceberg_clients_read_what_duckdb_reads(lake: Lake) -> None:
    for number, (columns, select, ids) in enumerate(CASES.values()):
        lake.run(f"CREATE TABLE t{number} ({columns})")
        copied(lake, f"{number}.parquet", select, ids, f"t{number}")
    for number, case in enumerate(CASES):
        check(lake, f"t{number}", case)


def test_files_that_all_read_alike_are_served_as_they_are(lake: Lake) -> None:
    lake.run("CREATE TABLE t (a BIGINT, s STRUCT(x INT, y VARCHAR[]), m MAP(VARCHAR, DATE))")
    select = "{'y': ['v'], 'x': 1::INT} AS s, MAP {'k': DATE '2024-01-02'} AS m, 7::INT AS a"
    copied(lake, "names.parquet", select)
    copied(
        lake,
        "ids.parquet",
        select,
        "{a: 1, s: {__duckdb_field_id: 2, x: 3, y: {__duckdb_field_id: 4, element: 5}}, "
        "m: {__duckdb_field_id: 6, key: 7, value: 8}}",
    )
    check(lake)
    served = [Path(task.file.file_path).name for task in lake.static().scan().plan_files()]
    assert sorted(served) == ["ids.parquet", "names.parquet"]


def test_columns_that_differ_by_case_are_read_as_duckdb_reads_them(lake: Lake) -> None:
    lake.run("CREATE TABLE t (id INT, v VARCHAR)")
    path = place(lake, "f.parquet")
    pq.write_table(pa.table({"ID": pa.array([1], pa.int32()), "id": pa.array([2], pa.int32()), "v": ["x"]}), path)
    add(lake, path)
    check(lake)


def test_types_that_duckdb_does_not_write_are_read_as_duckdb_reads_them(lake: Lake) -> None:
    arrays = {
        "old": (pa.array([10**15], pa.timestamp("ns")), "TIMESTAMP"),
        "bits": (pa.array([b"ab"], pa.binary(2)), "BLOB"),
        "pair": (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), "BIGINT[]"),
    }
    lake.run(f"CREATE TABLE t ({', '.join(f'{name} {type_}' for name, (_, type_) in arrays.items())})")
    path = place(lake, "f.parquet")
    pq.write_table(
        pa.table({name: array for name, (array, _) in arrays.items()}), path, use_deprecated_int96_timestamps=True
    )
    add(lake, path)
    check(lake)


def test_folders_say_what_duckdb_reads_and_nothing_else(lake: Lake) -> None:
    cases = {
        "year": ("id INT, d DATE", "year(d)", "y/year=2024", "1::INT AS id, DATE '2023-05-05' AS d"),
        "inside": ("id INT, k VARCHAR", "k", "k/k=folder", "range::INT AS id, 'real' || range AS k FROM range(2)"),
        "alone": ("id INT, k INT", "k", "o/k=07", "1::INT AS id"),
        "empty": ("id INT, k INT", "k", "e/k=__HIVE_DEFAULT_PARTITION__", "1::INT AS id"),
        "unsaid": ("id INT, k DATE", None, "u/k=2024-01-02", "1::INT AS id, DATE '2020-02-02' AS k"),
        "quoted": ("id INT, k VARCHAR", None, "q/k=one%20more", "1::INT AS id"),
        "month": ("id INT, d TIMESTAMP", "month(d)", "m/month=2", "1::INT AS id, TIMESTAMP '2023-05-05 01:02:03' AS d"),
    }
    for table, (columns, key, folder, select) in cases.items():
        lake.run(f"CREATE TABLE {table} ({columns})")
        if key is not None:
            lake.run(f"ALTER TABLE {table} SET PARTITIONED BY ({key})")
        copied(lake, f"{folder}/f.parquet", select, table=table)
    for table in cases:
        check(lake, table, table)


def test_names_that_mean_another_column_by_now_get_a_copy(lake: Lake) -> None:
    lake.run("CREATE TABLE t (id BIGINT, other BIGINT)")
    copied(lake, "first.parquet", "1 AS other, 2 AS id")
    lake.run("ALTER TABLE t RENAME COLUMN other TO old", "ALTER TABLE t ADD COLUMN other BIGINT")
    copied(lake, "second.parquet", "3 AS other, 4 AS id")
    check(lake)
    lake.run("ALTER TABLE t DROP COLUMN old")
    copied(lake, "third.parquet", "5 AS other, 6 AS id")
    check(lake)


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_of_iceberg_clients_delete_the_rows_that_they_saw(lake: Lake, version: int) -> None:
    lake.run("CREATE SCHEMA ns", "CREATE TABLE ns.t (id BIGINT, name BIGINT)")
    path = place(lake, "f.parquet", "ns/t")
    lake.run(f"COPY (SELECT range AS name, range * 10 AS id FROM range(4)) TO '{path}' (FIELD_IDS {{name: 1, id: 2}})")
    lake.run(f"CALL ducklake_add_data_files('lake', 't', '{path}', schema => 'ns')")
    client = Client(fresh(lake.services))
    if version > 2:
        client.commit({"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 3}]})
        lake.run("DELETE FROM ns.t WHERE id = 10")
    else:
        client.commit(delete(client.metadata(), (data_files(client.metadata())[0], 1)))
    left = [(0, 0), (20, 2), (30, 3)]
    assert iceberg_rows(StaticTable.from_metadata(client.load()["metadata-location"])) == left
    assert lake.duck.sql("FROM ns.t ORDER BY id").fetchall() == left
    lake.run("DELETE FROM ns.t WHERE name = 3")
    assert iceberg_rows(StaticTable.from_metadata(client.load()["metadata-location"])) == left[:2]


def test_added_files_elsewhere_are_served_as_they_are_or_refused(lake: Lake, tmp_path: Path) -> None:
    """Of files where the server may not read it reads the footer only."""
    lake.run("CREATE TABLE t (id BIGINT, v VARCHAR)")
    path = tmp_path / "elsewhere" / "f.parquet"
    path.parent.mkdir()
    lake.run(f"COPY (SELECT 'x' AS v, 1::BIGINT AS id) TO '{path}'")
    add(lake, path)
    check(lake)
    other = path.with_name("g.parquet")
    lake.run(f"COPY (SELECT 'x' AS v, 1::BIGINT AS id, 'y' AS more) TO '{other}'")
    add(lake, other)
    with pytest.raises(UnsupportedError, match=f"{other}.*DUCKICELAKE_ALLOWED_LOCATIONS.*added-files"):
        lake.metadata()
    policy = LocationPolicy(lake.services.policy.warehouse, allowed=(str(path.parent),))
    check(Lake(replace(fresh(lake.services), policy=policy), lake.duck))


def test_added_files_that_the_server_does_not_find_are_refused(lake: Lake, tmp_path: Path) -> None:
    lake.run("CREATE TABLE t (id BIGINT)")
    path = tmp_path / "gone.parquet"
    lake.run(f"COPY (SELECT 1::BIGINT AS id) TO '{path}'")
    add(lake, path)
    path.unlink()
    with pytest.raises(UnsupportedError, match=r"gone\.parquet.*isn't a file.*added-files"):
        lake.metadata()
