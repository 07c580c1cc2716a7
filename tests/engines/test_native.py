"""Everything that DuckDB does natively is served: after each statement Spark and PyIceberg read what DuckDB reads."""

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest
from pyiceberg.exceptions import NoSuchTableError

from tests.engines.engines import Engines, number_of, sorted_rows

pytestmark = [pytest.mark.engine, pytest.mark.spark]

FILES = "SELECT i AS id, 'n' || i AS name, i % 7 AS amount FROM range({}, {}) r(i)"
MERGE = "CALL ducklake_merge_adjacent_files('lake', '{table}', schema => '{namespace}')"
FLUSH = "CALL ducklake_flush_inlined_data('lake', schema_name => '{namespace}', table_name => '{table}')"
REWRITE = "CALL ducklake_rewrite_data_files('lake', '{table}', schema => '{namespace}', delete_threshold => 0.01)"
UPSERT = (
    "MERGE INTO {t} t USING (VALUES (7::bigint), (41)) AS s(id) ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET amount = 0 WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'merged', 0)"
)
DATED = "SELECT i, 'n' || i % 4, TIMESTAMP '1969-11-30 12:00:00' + to_days(i::int * 9) FROM range(24) r(i)"

STATEMENTS = {
    "inlined_rows": (
        "CREATE TABLE {t} (id bigint, name varchar, amount int)",
        "INSERT INTO {t} VALUES (1, 'a', 1), (2, NULL, 2), (3, '', NULL)",
        "UPDATE {t} SET amount = amount + 1 WHERE id <> 2",
        "BEGIN; INSERT INTO {t} VALUES (4, 'd', 4); UPDATE {t} SET name = 'x' WHERE id IN (1, 4); COMMIT",
        "DELETE FROM {t} WHERE id = 2",
        FLUSH,
        "DELETE FROM {t} WHERE id = 1",
        "INSERT INTO {t} VALUES (5, 'e', 5)",
        "DELETE FROM {t}",
    ),
    "files_and_deletes": (
        f"CREATE TABLE {{t}} AS {FILES.format(0, 40)}",
        f"INSERT INTO {{t}} {FILES.format(40, 80)}",
        "DELETE FROM {t} WHERE id IN (1, 41)",
        "DELETE FROM {t} WHERE id % 3 = 0",
        "DELETE FROM {t} WHERE id % 4 = 0",
        "UPDATE {t} SET name = 'new' WHERE id IN (5, 45)",
        "UPDATE {t} SET amount = -1 WHERE id > 30 AND id < 60",
        "DELETE FROM {t} WHERE id < 40",
        REWRITE,
        UPSERT,
        "TRUNCATE {t}",
    ),
    "merged_files_of_several_snapshots": (
        f"CREATE TABLE {{t}} AS {FILES.format(0, 20)}",
        f"INSERT INTO {{t}} {FILES.format(20, 40)}; INSERT INTO {{t}} {FILES.format(40, 60)}; {MERGE}",
        "DELETE FROM {t} WHERE id % 10 = 0",
        f"INSERT INTO {{t}} {FILES.format(60, 80)}",
        f"INSERT INTO {{t}} VALUES (100, 'inlined', 0); {FLUSH}; {MERGE}; {REWRITE}",
        "CHECKPOINT lake",
    ),
    "nested_columns": (  # without null lists of structs, which PyIceberg reads as empty ones
        "CREATE TABLE {t} (id bigint, s struct(a int, b varchar), l struct(x int)[], m map(varchar, int))",
        "INSERT INTO {t} VALUES (1, {'a': 1, 'b': 'x'}, [{'x': 1}, NULL], MAP {'k': 1}), (2, NULL, [], NULL)",
        "INSERT INTO {t} SELECT i + 10, {'a': i, 'b': 'y'}, [{'x': i}], MAP {'k': i} FROM range(20) r(i)",
        "ALTER TABLE {t} ADD COLUMN s.c bigint",
        "INSERT INTO {t} VALUES (3, {'a': 3, 'b': 'z', 'c': 5000000000}, [], MAP {})",
        "ALTER TABLE {t} RENAME COLUMN s.a TO z",
        "ALTER TABLE {t} DROP COLUMN s.b",
        "ALTER TABLE {t} ADD COLUMN l.element.y varchar",
        "UPDATE {t} SET s = {'z': 0, 'c': 1} WHERE id IN (1, 11)",
        "INSERT INTO {t} VALUES (4, {'z': 4, 'c': NULL}, [{'x': 1, 'y': 'new'}], NULL)",
        FLUSH,
    ),
    "columns": (
        "CREATE TABLE {t} (id bigint, name varchar, amount int)",
        f"INSERT INTO {{t}} {FILES.format(0, 20)}",
        "ALTER TABLE {t} ADD COLUMN note varchar DEFAULT 'none'",
        "ALTER TABLE {t} ALTER COLUMN amount SET DATA TYPE bigint",
        "INSERT INTO {t} (id, amount) VALUES (100, 5000000000)",
        "ALTER TABLE {t} RENAME COLUMN name TO label",
        "ALTER TABLE {t} ALTER COLUMN note SET DEFAULT 'changed'",
        "INSERT INTO {t} (id, label) VALUES (101, 'l')",
        "ALTER TABLE {t} ALTER COLUMN id SET NOT NULL",
        "ALTER TABLE {t} DROP COLUMN amount",
        "ALTER TABLE {t} ADD COLUMN amount double",
        "UPDATE {t} SET amount = 0.5 WHERE id < 3",
        "COMMENT ON TABLE {t} IS 'a table'",
        "COMMENT ON COLUMN {t}.label IS 'a column'",
    ),
    "partitions_and_order": (
        "CREATE TABLE {t} (id bigint, name varchar, moment timestamp)",
        "ALTER TABLE {t} SET PARTITIONED BY (year(moment), month(moment), bucket(3, name))",
        f"INSERT INTO {{t}} {DATED}",
        "INSERT INTO {t} VALUES (100, NULL, NULL), (101, 'n1', TIMESTAMP '1970-01-01 00:00:00')",
        "ALTER TABLE {t} SET SORTED BY (name DESC NULLS FIRST, id ASC)",
        FLUSH,
        "ALTER TABLE {t} SET PARTITIONED BY (name)",
        "INSERT INTO {t} SELECT i, 'm' || i % 2, NULL FROM range(200, 220) r(i)",
        "DELETE FROM {t} WHERE name = 'm1'",
        "ALTER TABLE {t} RESET PARTITIONED BY",
        "ALTER TABLE {t} RESET SORTED BY",
        "INSERT INTO {t} SELECT i, 'o', NULL FROM range(300, 320) r(i)",
    ),
}


@pytest.mark.parametrize("statements", STATEMENTS.values(), ids=STATEMENTS.keys())
def test_statements_of_duckdb_are_served(engines: Engines, namespace: str, statements: Sequence[str]) -> None:
    for statement in statements:
        run(engines, namespace, "t", statement)
        assert_served(engines, f"{namespace}.t")


def test_settings_are_reported_in_icebergs_words(engines: Engines, namespace: str) -> None:
    for statement in STATEMENTS["partitions_and_order"][:5]:
        run(engines, namespace, "t", statement)
    run(engines, namespace, "t", "COMMENT ON TABLE {t} IS 'it''s'; COMMENT ON COLUMN {t}.name IS 'who'")
    table = engines.catalog.load_table(f"{namespace}.t")
    # Iceberg calls a year beside a month of the same column redundant and refuses it.
    assert [str(field.transform) for field in table.spec().fields] == ["month", "bucket[3]"]
    order = [(field.source_id, field.direction.value, field.null_order.value) for field in table.sort_order().fields]
    assert order == [(2, "desc", "nulls-first"), (1, "asc", "nulls-last")]
    assert table.schema().find_field("name").doc == "who"
    assert table.properties["comment"] == "it's"
    described = engines.spark.sql(f"DESCRIBE TABLE EXTENDED lake.{namespace}.t").collect()
    assert ("name", "string", "who") in {tuple(row) for row in described}


def test_names_are_distinguished_from_tables(engines: Engines, namespace: str) -> None:
    """A renamed table is the same one; a dropped and created one isn't, be it in one transaction."""
    run(engines, namespace, "t", f"CREATE TABLE {{t}} AS {FILES.format(0, 20)}")
    first = engines.catalog.load_table(f"{namespace}.t")
    run(engines, namespace, "t", "INSERT INTO {t} VALUES (100, 'before', 1); ALTER TABLE {t} RENAME TO u")
    renamed = engines.catalog.load_table(f"{namespace}.u")
    assert renamed.metadata.table_uuid == first.metadata.table_uuid
    assert_served(engines, f"{namespace}.u")
    with pytest.raises(NoSuchTableError):
        engines.catalog.load_table(f"{namespace}.t")
    run(engines, namespace, "u", "BEGIN; DROP TABLE {t}; CREATE TABLE {t} (other varchar); COMMIT")
    assert engines.catalog.load_table(f"{namespace}.u").metadata.table_uuid != first.metadata.table_uuid
    assert_served(engines, f"{namespace}.u")
    run(engines, namespace, "u", "DROP TABLE {t}; CREATE TABLE {t} AS SELECT 1 AS one")
    assert_served(engines, f"{namespace}.u")


def test_transaction_over_tables_is_one_number(engines: Engines, namespace: str) -> None:
    run(engines, namespace, "t", f"CREATE TABLE {{t}} AS {FILES.format(0, 20)}")
    run(engines, namespace, "u", f"CREATE TABLE {{t}} AS {FILES.format(0, 30)}")
    engines.duck.execute(
        f"BEGIN; DELETE FROM lake.{namespace}.t WHERE id > 9; INSERT INTO lake.{namespace}.u "
        f"{FILES.format(50, 90)}; CREATE TABLE lake.{namespace}.v AS FROM lake.{namespace}.t; COMMIT"
    )
    tables = [f"{namespace}.{name}" for name in "tuv"]
    newest = [engines.catalog.load_table(name).snapshots()[-1] for name in tables]
    assert len(set(map(number_of, newest))) == 1
    for name in tables:
        assert_served(engines, name)


def test_macros_are_no_ones_business(engines: Engines, namespace: str) -> None:
    run(engines, namespace, "t", "CREATE TABLE {t} AS SELECT 1 AS id")
    run(engines, namespace, "one", "CREATE MACRO {t}(a) AS a + 1")
    run(engines, namespace, "two", "CREATE MACRO {t}() AS TABLE SELECT 2")
    assert_served(engines, f"{namespace}.t")
    assert [name[-1] for name in engines.catalog.list_tables(namespace)] == ["t"]
    run(engines, namespace, "one", "DROP MACRO {t}; DROP MACRO TABLE lake.{namespace}.two")
    assert_served(engines, f"{namespace}.t")


@pytest.mark.usefixtures("lake_in_a_folder")
def test_foreign_files_are_served(engines: Engines, namespace: str, tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 7::bigint AS id, 'x' AS name) TO '{tmp_path}/foreign.parquet'")
    run(engines, namespace, "t", "CREATE TABLE {t} (name varchar, id bigint)")
    engines.duck.execute(
        f"CALL ducklake_add_data_files('lake', 't', '{tmp_path}/foreign.parquet', schema => '{namespace}')"
    )
    assert_served(engines, f"{namespace}.t")
    run(engines, namespace, "t", "ALTER TABLE {t} RENAME COLUMN name TO label; UPDATE {t} SET id = id + 1")
    assert_served(engines, f"{namespace}.t")


@pytest.mark.usefixtures("lake_in_a_folder")
def test_files_that_clients_would_misread_are_served(engines: Engines, namespace: str) -> None:
    """Field ids of another table, another type and a column too many; then a file without a NOT NULL column."""
    run(
        engines,
        namespace,
        "t",
        "CREATE TABLE {t} (a bigint NOT NULL, b bigint, s struct(x int) NOT NULL, m timestamp_s)",
    )
    ((root,),) = engines.duck.sql(
        "FROM ducklake_options('lake') SELECT value WHERE option_name = 'data_path'"
    ).fetchall()
    Path(root, namespace, "t").mkdir(parents=True, exist_ok=True)
    moment = "TIMESTAMP '2023-01-02 03:04:05.678'"
    for number, columns in enumerate(
        [
            f"range AS b, range * 100 AS a, {{'x': 1}} AS s, {moment} AS m, 7 AS more FROM range(4)",
            "5::bigint AS b",
        ]
    ):
        path = f"{root}{namespace}/t/{number}.parquet"
        ids = "" if number else "(FIELD_IDS {b: 1, a: 2})"
        engines.duck.execute(f"COPY (SELECT {columns}) TO '{path}' {ids}")
        options = f"schema => '{namespace}', allow_missing => true, ignore_extra_columns => true"
        engines.duck.execute(f"CALL ducklake_add_data_files('lake', 't', '{path}', {options})")
        assert_served(engines, f"{namespace}.t")
    for column in ("a", "s"):
        ((found,),) = engines.spark.sql(f"SELECT count(*) FROM lake.{namespace}.t WHERE {column} IS NULL").collect()
        assert found == 1
    engines.spark.sql(f"DELETE FROM lake.{namespace}.t WHERE b = 2 OR a IS NULL")
    assert_served(engines, f"{namespace}.t")
    assert engines.duck.sql(f"SELECT b FROM lake.{namespace}.t ORDER BY b").fetchall() == [(0,), (1,), (3,)]


def test_a_stream_that_skips_overwrites_and_deletes_reads_what_duckdb_inlines(
    engines: Engines, namespace: str, tmp_path: Path
) -> None:
    run(engines, namespace, "t", "CREATE TABLE {t} AS SELECT 0::BIGINT AS id")
    stream = engines.spark.readStream.format("iceberg")
    for kind in ("overwrite", "delete"):
        stream = stream.option(f"streaming-skip-{kind}-snapshots", "true")
    for number in range(1, 7):
        run(engines, namespace, "t", f"DELETE FROM {{t}} WHERE id < {number}; INSERT INTO {{t}} VALUES ({number})")
        if number % 3 == 0:
            writer = stream.load(f"lake.{namespace}.t").writeStream.option("checkpointLocation", f"{tmp_path}/at")
            rows = writer.format("parquet").option("path", f"{tmp_path}/rows").trigger(availableNow=True).start()
            rows.awaitTermination()
            read = sorted(row.id for row in engines.spark.read.parquet(f"{tmp_path}/rows").collect())
            assert read == list(range(number + 1))


def run(engines: Engines, namespace: str, table: str, statement: str) -> None:
    placed = statement.replace("{t}", f"lake.{namespace}.{table}")
    engines.duck.execute(placed.replace("{namespace}", namespace).replace("{table}", table))


def assert_served(engines: Engines, name: str) -> None:
    """The three engines have the same columns and rows, and as many as they count from metadata."""
    got = engines.read(name)
    expected = got["DuckDB"]
    assert {engine: table.column_names for engine, table in got.items()} == dict.fromkeys(got, expected.column_names)
    rows = {engine: list(map(repr, sorted_rows(table))) for engine, table in got.items()}
    assert rows == dict.fromkeys(got, rows["DuckDB"])
    assert engines.catalog.load_table(name).scan().count() == expected.num_rows
