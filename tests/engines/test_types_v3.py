"""Types and defaults of format version 3: what one engine writes, the others read, as far as they know the type."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from tests.engines.engines import Engines, sorted_rows

pytestmark = [pytest.mark.engine, pytest.mark.spark]

VERSION_3 = "USING iceberg TBLPROPERTIES ('format-version' = '3', 'read.parquet.vectorization.enabled' = 'false')"
VARIANTS: dict[int, Any] = {1: {"a": 1, "b": [1, "x"], "c": {"d": 1.5}}, 2: [1, 2], 3: "text", 4: True, 5: 1e300, 6: -7}
POINT = "0101000000000000000000F03F0000000000000040"


@pytest.mark.parametrize("creator", ["spark", "duckdb"])
def test_variants_are_the_same_in_spark_and_duckdb(engines: Engines, namespace: str, creator: str) -> None:
    """DuckDB shreds them, which Spark reads without its vectorized reader: DuckDB's own tables say so by themselves."""
    name = f"lake.{namespace}.t"
    if creator == "spark":
        engines.spark.sql(f"CREATE TABLE {name} (id int, v variant) {VERSION_3}")
    else:
        engines.duck.execute(f"CREATE TABLE {name} (id int, v variant)")
    for key, value in VARIANTS.items():
        text = json.dumps(value)
        engines.spark.sql(f"INSERT INTO {name} SELECT {key}, parse_json('{text}')")
        engines.duck.execute(f"INSERT INTO {name} SELECT {key + 10}, '{text}'::JSON::VARIANT")
    engines.spark.sql(f"INSERT INTO {name} VALUES (7, NULL)")
    engines.spark.sql(f"DELETE FROM {name} WHERE id = 11")
    engines.duck.execute(f"DELETE FROM {name} WHERE id = 1")

    expected = {key: value for key, value in VARIANTS.items() if key != 1} | {
        key + 10: value for key, value in VARIANTS.items() if key != 1
    }
    by_spark = engines.spark.sql(f"SELECT id, to_json(v) FROM {name}").collect()
    assert {key: json.loads(text) if text else None for key, text in by_spark} == expected | {7: None}
    by_duckdb = engines.duck.sql(f"SELECT id, v::JSON FROM {name}").fetchall()
    assert {key: json.loads(text) if text else None for key, text in by_duckdb} == expected | {7: None}


def test_geometries_are_the_same_in_spark_and_duckdb(engines: Engines, namespace: str) -> None:
    """Geographies too, as far as Spark wrote them: DuckDB writes geometries, which Spark takes for nothing else."""
    engines.spark.conf.set("spark.sql.geospatial.enabled", "true")
    name = f"lake.{namespace}.t"
    engines.spark.sql(f"CREATE TABLE {name} (id int, g geometry(4326), h geography(4326)) {VERSION_3}")
    engines.spark.sql(
        f"INSERT INTO {name} SELECT 1, st_setsrid(st_geomfromwkb(X'{POINT}'), 4326), st_geogfromwkb(X'{POINT}')"
    )
    engines.duck.execute(f"INSERT INTO {name} SELECT 2, g, NULL FROM {name} UNION ALL VALUES (3, NULL, NULL)")
    engines.duck.execute(f"ALTER TABLE {name} ADD COLUMN note VARCHAR")

    by_spark = engines.spark.sql(
        f"SELECT id, hex(st_asbinary(g)), hex(st_asbinary(h)) FROM {name} ORDER BY id"
    ).collect()
    by_duckdb = engines.duck.sql(f"SELECT id, hex(ST_AsWKB(g)), hex(ST_AsWKB(h)) FROM {name} ORDER BY id").fetchall()

    assert [tuple(row) for row in by_spark] == by_duckdb == [(1, POINT, POINT), (2, POINT, None), (3, None, None)]
    columns: dict[str, str] = dict(engines.spark.sql(f"DESCRIBE {name}").select("col_name", "data_type").collect())
    assert (columns["g"], columns["h"]) == ("geometry(4326)", "geography(4326)")


def test_column_without_type_is_null_in_spark_and_not_there_in_duckdb(engines: Engines, namespace: str) -> None:
    name = f"lake.{namespace}.t"
    engines.spark.sql(f"CREATE TABLE {name} (id int, u void) {VERSION_3}")
    engines.spark.sql(f"INSERT INTO {name} VALUES (1, NULL)")
    engines.duck.execute(f"INSERT INTO {name} VALUES (2)")
    engines.duck.execute(f"ALTER TABLE {name} ADD COLUMN n INTEGER")

    assert sorted(map(tuple, engines.spark.table(name).collect())) == [(1, None, None), (2, None, None)]
    assert engines.duck.sql(f"FROM {name} ORDER BY id").fetchall() == [(1, None), (2, None)]
    assert engines.catalog.load_table(f"{namespace}.t").scan().to_arrow().column_names == ["id", "u", "n"]


DEFAULTS: dict[str, tuple[PrimitiveType, Any]] = {
    "boolean": (BooleanType(), True),
    "int": (IntegerType(), -7),
    "long": (LongType(), 2**62),
    "double": (DoubleType(), 0.1),
    "decimal": (DecimalType(9, 2), Decimal("-1.50")),
    "date": (DateType(), dt.date(1969, 12, 31)),
    "timestamp": (TimestampType(), dt.datetime(2024, 2, 29, 1, 2, 3, 500000)),
    "timestamptz": (TimestamptzType(), dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=dt.UTC)),
    "string": (StringType(), "it's"),
    "binary": (BinaryType(), b"\x00\xff"),
}


def test_defaults_are_the_same_in_every_engine(engines: Engines, namespace: str) -> None:
    """Of rows before they were given, by each writer, and of rows that name no value since."""
    name = f"lake.{namespace}.t"
    engines.spark.sql(f"CREATE TABLE {name} (id int) {VERSION_3}")
    engines.spark.sql(f"INSERT INTO {name} VALUES (1), (2)")
    engines.duck.execute(f"INSERT INTO {name} VALUES (3)")
    with engines.catalog.load_table(f"{namespace}.t").update_schema() as update:
        for column, (kind, value) in DEFAULTS.items():
            update.add_column(column, kind, default_value=value)
    engines.duck.execute(f"ALTER TABLE {name} ADD COLUMN of_duckdb INTEGER DEFAULT 5")
    engines.spark.sql(f"INSERT INTO {name} (id) VALUES (4)")
    engines.duck.execute(f"INSERT INTO {name} (id) VALUES (5)")
    engines.duck.execute(f"UPDATE {name} SET id = 6 WHERE id = 1")

    expected = [(key, *(value for _, value in DEFAULTS.values()), 5) for key in (2, 3, 4, 5, 6)]
    for engine, table in engines.read(f"{namespace}.t").items():
        assert table.column_names == ["id", *DEFAULTS, "of_duckdb"], engine
        assert [plain(row) for row in sorted_rows(table)] == [plain(row) for row in expected], engine


def plain(row: tuple[Any, ...]) -> list[Any]:
    return [bytes(value) if isinstance(value, bytearray) else value for value in row]


def test_nanoseconds_are_the_same_in_pyiceberg_and_duckdb_and_refused_by_spark(
    engines: Engines, namespace: str
) -> None:
    name = f"lake.{namespace}.t"
    engines.duck.execute(f"CREATE TABLE {name} (id int, c timestamp_ns)")
    engines.duck.execute(
        f"INSERT INTO {name} VALUES (1, '2024-03-05 07:08:09.123456789'), (2, '1969-12-31 23:59:59.999999999')"
    )
    engines.duck.execute(f"INSERT INTO {name} SELECT i, NULL FROM range(10, 40) r(i)")

    read = engines.catalog.load_table(f"{namespace}.t").scan().to_arrow()

    assert sorted_rows(read) == sorted_rows(engines.duck.sql(f"FROM {name}").to_arrow_table())
    with pytest.raises(Exception, match="timestamp_ns"):
        engines.spark.table(name).collect()
