"""Spark answers and deletes by metrics alone where they let it: what it does then is what the rows say."""

import pyarrow as pa
import pytest

from tests.engines.engines import Engines

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

WRITERS = ("files", "inlined", "spark", "pyiceberg")


def in_files(engines: Engines, namespace: str) -> None:
    """Have DuckDB write files of the table, however few rows there are."""
    engines.duck.execute(
        f"CALL lake.set_option('data_inlining_row_limit', 0, schema => '{namespace}', table_name => 't')"
    )


def write_nan(engines: Engines, name: str, writer: str) -> None:
    rows = {"id": [1, 2, 3], "x": [float("nan"), 7.0, 1.0]}
    if writer == "pyiceberg":
        table = engines.catalog.load_table(name)
        table.append(pa.table(rows, schema=table.schema().as_arrow()))
    elif writer == "spark":
        values = "VALUES (1, double('NaN')), (2, 7D), (3, 1D) AS v(id, x)"
        engines.spark.sql(f"INSERT INTO lake.{name} SELECT /*+ COALESCE(1) */ * FROM {values}")
    else:
        engines.duck.execute(f"INSERT INTO lake.{name} VALUES (1, 'NaN'), (2, 7), (3, 1)")


def ids(engines: Engines, name: str) -> dict[str, list[int]]:
    return {engine: sorted(table["id"].to_pylist()) for engine, table in engines.read(name).items()}


@pytest.mark.parametrize("writer", WRITERS)
def test_nan_is_neither_skipped_nor_deleted(engines: Engines, namespace: str, writer: str) -> None:
    name = f"{namespace}.t"
    engines.duck.execute(f"CREATE TABLE lake.{name} (id int, x double)")
    if writer == "files":
        in_files(engines, namespace)
    write_nan(engines, name, writer)

    (found,) = engines.spark.sql(f"SELECT string(max(x)), min(x), count(x), count(*) FROM lake.{name}").collect()
    assert tuple(found) == ("NaN", 1.0, 3, 3)
    greater = "x > 10" if writer != "pyiceberg" else "x + 0 > 10"  # Spark skips its row groups (MISSING.md)
    assert [row.id for row in engines.spark.sql(f"SELECT id FROM lake.{name} WHERE {greater}").collect()] == [1]

    engines.spark.sql(f"DELETE FROM lake.{name} WHERE x <= 10")

    assert ids(engines, name) == {key: [1] for key in ("Spark", "PyIceberg", "DuckDB")}


@pytest.mark.parametrize("writer", ["files", "inlined"])
def test_nan_in_partitions_is_found(engines: Engines, namespace: str, writer: str) -> None:
    name = f"{namespace}.t"
    engines.duck.execute(f"CREATE TABLE lake.{name} (id int, x double)")
    engines.duck.execute(f"ALTER TABLE lake.{name} SET PARTITIONED BY (x)")
    if writer == "files":
        in_files(engines, namespace)
    engines.duck.execute(f"INSERT INTO lake.{name} VALUES (1, 'NaN'), (2, 7), (3, 1)")

    assert [row.id for row in engines.spark.sql(f"SELECT id FROM lake.{name} WHERE x > 10").collect()] == [1]


def test_either_zero_finds_both(engines: Engines, namespace: str) -> None:
    name = f"{namespace}.t"
    engines.duck.execute(f"CREATE TABLE lake.{name} (id int, x double)")
    in_files(engines, namespace)
    engines.duck.execute(f"INSERT INTO lake.{name} VALUES (1, -0.0), (2, -0.0)")
    wanted = {"x >= 0": 2, "x = 0": 2, "x < 0": 0, "x = double('-0.0')": 2}

    assert {where: engines.spark.table(f"lake.{name}").where(where).count() for where in wanted} == wanted


def test_uuids_on_both_sides_of_the_sign_are_found_past_the_row_groups(engines: Engines, namespace: str) -> None:
    name = f"{namespace}.t"
    engines.duck.execute(f"CREATE TABLE lake.{name} (u uuid)")
    in_files(engines, namespace)
    low, high = "7fffffff-0000-4000-8000-000000000000", "80000000-0000-4000-8000-000000000000"
    engines.duck.execute(f"INSERT INTO lake.{name} VALUES ('{low}'), ('{high}')")

    for value in (low, high):
        assert engines.spark.table(f"lake.{name}").where(f"lower(u) = '{value}'").count() == 1


@pytest.mark.parametrize("rows", ["inlined", "files"])
def test_metadata_tables_show_all_types(engines: Engines, namespace: str, rows: str) -> None:
    name = f"{namespace}.t"
    engines.duck.execute(
        f"CREATE TABLE lake.{name} (i int, x double, u uuid, d decimal(9, 2), s varchar, b blob, t timestamp, "
        "day date, p struct(f float, i bigint), l double[], m map(varchar, uuid))"
    )
    if rows == "files":
        in_files(engines, namespace)
    engines.duck.execute(
        f"INSERT INTO lake.{name} VALUES (1, 1, uuid(), 1, 'a', 'a', now()::timestamp, today(), {{'f': 1, 'i': 2}}, "
        "[1], MAP {'a': uuid()})"
    )
    for metadata in ("files", "entries", "all_files", "all_entries", "manifests", "partitions"):
        assert engines.spark.sql(f"SELECT * FROM lake.{name}.{metadata}").collect(), metadata
