"""Operation sequences for the law of `test_interleaved.py`. The fixture's name is the scenario."""

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tests.engines.engines import Step, append, arrow, duck, pyiceberg, spark

CREATE = "CREATE TABLE {t} (id bigint, name string, amount int)"
SMALL = "INSERT INTO {t} VALUES (1, 'one', 10), (2, 'two', 20), (3, NULL, 30)"
MORE = "INSERT INTO {t} VALUES (4, 'vier', 40), (5, '', NULL)"
BIG = "INSERT INTO {t} SELECT id + 100, concat('n', CAST(id AS string)), CAST(id % 7 AS int) FROM range(40) AS r(id)"
FLUSH = duck("CALL ducklake_flush_inlined_data('lake', schema_name => '{namespace}', table_name => '{table}')", "")
MERGE_FILES = duck("CALL ducklake_merge_adjacent_files('lake')", "")
MERGE_ON_READ = (
    "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read', 'write.merge.mode'='merge-on-read'"
)
COLUMNS = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "name", StringType()), NestedField(3, "amount", IntegerType())
)


def overwrite_odd(table: Table) -> None:
    table.overwrite(arrow(table, [(3, "three", 33), (9, "nine", 99)]), overwrite_filter="id = 3 or id = 5")


def add_column_note(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("note", StringType())


def widen_amount(table: Table) -> None:
    with table.update_schema() as update:
        update.update_column("amount", LongType())


def upsert(table: Table) -> None:
    table.upsert(arrow(table, [(1, "uno", 11), (77, "new", 7)]), join_cols=["id"])


SEQUENCES: dict[str, tuple[Step, ...]] = {
    "spark_creates_and_duckdb_makes_small_changes": (
        spark(CREATE),
        spark(SMALL),
        duck("UPDATE {t} SET name = 'ZWEI' WHERE id = 2"),
        spark(MORE),
        duck("DELETE FROM {t} WHERE id = 1"),
        duck("INSERT INTO {t} VALUES (6, 'it''s', 60), (7, 'üñí', 70)"),
        spark("UPDATE {t} SET amount = 0 WHERE id >= 6"),
        spark("DELETE FROM {t} WHERE id = 2"),
        append((8, "acht", 80)),
        duck("DELETE FROM {t} WHERE id IN (5, 6, 8)"),
    ),
    "duckdb_creates_and_inlines_and_the_others_change_the_inlined_rows": (
        duck(CREATE),
        duck(SMALL),
        append((4, "four", None)),
        duck("UPDATE {t} SET amount = amount + 1 WHERE id < 3"),
        spark("DELETE FROM {t} WHERE id = 1"),
        duck("INSERT INTO {t} VALUES (1, 'again', 1)"),
        spark("UPDATE {t} SET name = 'both' WHERE id IN (1, 4)"),
        pyiceberg(lambda table: table.delete("id = 2"), "DELETE FROM {t} WHERE id = 2"),
        duck("DELETE FROM {t} WHERE id = 4"),
    ),
    "inlined_rows_updated_twice_and_deleted_before_anyone_reads": (
        duck(CREATE),
        duck(
            "BEGIN; INSERT INTO {t} VALUES (1, 'a', 1), (2, 'b', 2); UPDATE {t} SET amount = 5 WHERE id = 1; COMMIT",
            "INSERT INTO {t} VALUES (1, 'a', 5), (2, 'b', 2)",
        ),
        duck("UPDATE {t} SET amount = 6; UPDATE {t} SET amount = 7 WHERE id = 2; DELETE FROM {t} WHERE id = 1"),
        spark(SMALL),
        duck("UPDATE {t} SET amount = -1; DELETE FROM {t} WHERE name = 'b'"),
    ),
    "big_changes_from_both_sides": (
        spark(CREATE),
        spark(BIG),
        duck(BIG.replace("+ 100", "+ 200")),
        duck("DELETE FROM {t} WHERE id % 2 = 0"),
        spark("DELETE FROM {t} WHERE id % 3 = 0"),
        duck("UPDATE {t} SET name = 'many' WHERE amount > 1"),
        spark("UPDATE {t} SET amount = 1000 WHERE id > 220"),
        append(*((number, "p", 1) for number in range(300, 330))),
        duck("DELETE FROM {t} WHERE id > 310"),
        duck("DELETE FROM {t} WHERE id < 1000"),
        spark(SMALL),
    ),
    "spark_deletes_by_position_and_duckdb_in_the_same_files": (
        spark(f"{CREATE} TBLPROPERTIES ({MERGE_ON_READ})", CREATE),
        spark(BIG),
        spark("DELETE FROM {t} WHERE id IN (101, 103)"),
        duck("DELETE FROM {t} WHERE id IN (102, 104)"),
        spark("DELETE FROM {t} WHERE id IN (105, 106)"),
        duck("DELETE FROM {t} WHERE id BETWEEN 107 AND 125"),
        spark("UPDATE {t} SET amount = -5 WHERE id BETWEEN 126 AND 128"),
        duck("UPDATE {t} SET amount = -6 WHERE id IN (127, 130)"),
        FLUSH,
        spark("DELETE FROM {t} WHERE id = 131"),
        append((1, "one", 1)),
    ),
    "spark_merges_by_position": (
        spark(f"{CREATE} TBLPROPERTIES ({MERGE_ON_READ})", CREATE),
        duck(SMALL),
        spark(
            "MERGE INTO {t} t USING (SELECT * FROM VALUES (2L, 'TWO', 2), (9L, 'NINE', 9) AS s(id, name, amount)) s"
            " ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            "UPDATE {t} SET name = 'TWO', amount = 2 WHERE id = 2; INSERT INTO {t} VALUES (9, 'NINE', 9)",
        ),
        duck("UPDATE {t} SET amount = 0 WHERE id IN (1, 9)"),
    ),
    "overwrites_and_truncation": (
        spark(CREATE),
        spark(SMALL),
        spark(MORE),
        pyiceberg(
            overwrite_odd, "DELETE FROM {t} WHERE id IN (3, 5); INSERT INTO {t} VALUES (3,'three',33), (9,'nine',99)"
        ),
        duck("INSERT INTO {t} VALUES (10, 'inlined', 0)"),
        spark(SMALL.replace("INTO", "OVERWRITE"), f"DELETE FROM {{t}}; {SMALL}"),
        duck("DELETE FROM {t} WHERE id = 1"),
        spark("TRUNCATE TABLE {t}", "DELETE FROM {t}"),
        duck(MORE),
        pyiceberg(
            lambda table: table.overwrite(arrow(table, [(1, "x", 1)])),
            "DELETE FROM {t}; INSERT INTO {t} VALUES (1,'x',1)",
        ),
        pyiceberg(upsert, "DELETE FROM {t} WHERE id = 1; INSERT INTO {t} VALUES (1, 'uno', 11), (77, 'new', 7)"),
    ),
    "spark_rewrites_files": (
        spark(CREATE),
        spark(SMALL),
        spark(MORE),
        duck("DELETE FROM {t} WHERE id = 2"),
        duck("INSERT INTO {t} VALUES (11, 'inlined', 0)"),
        spark("CALL lake.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))", ""),
        duck("UPDATE {t} SET name = 'after' WHERE id IN (1, 11)"),
        spark("CALL lake.system.rewrite_manifests(table => '{t}')", ""),
        spark("DELETE FROM {t} WHERE id = 4"),
    ),
    "duckdb_flushes_and_merges_files": (
        duck(CREATE),
        duck(SMALL),
        duck("DELETE FROM {t} WHERE id = 2"),
        FLUSH,
        duck(MORE),
        duck("UPDATE {t} SET amount = 1 WHERE id IN (1, 5)"),
        FLUSH,
        duck(BIG),
        duck(BIG.replace("+ 100", "+ 200")),
        MERGE_FILES,
        spark("DELETE FROM {t} WHERE id IN (1, 101)"),
        duck("DELETE FROM {t} WHERE id IN (102, 201)"),
        append((500, "late", 5)),
        FLUSH,
    ),
    "columns_change_natively": (
        spark(CREATE),
        spark(SMALL),
        duck("ALTER TABLE {t} ADD COLUMN note string"),
        duck("INSERT INTO {t} VALUES (4, 'four', 40, 'noted')"),
        spark("INSERT INTO {t} VALUES (5, 'five', 50, 'by spark')"),
        duck("ALTER TABLE {t} RENAME COLUMN name TO label"),
        append((6, "six", 60, None)),
        duck("ALTER TABLE {t} ALTER COLUMN amount SET DATA TYPE bigint"),
        duck("INSERT INTO {t} VALUES (7, 'seven', 5000000000, 'wide')"),
        duck("ALTER TABLE {t} DROP COLUMN note"),
        spark("UPDATE {t} SET label = 'last' WHERE id > 4"),
    ),
    "columns_change_through_iceberg": (
        duck(CREATE),
        duck(SMALL),
        spark("ALTER TABLE {t} ADD COLUMN extra double"),
        duck("INSERT INTO {t} VALUES (4, 'four', 40, 4.5)"),
        pyiceberg(add_column_note, "ALTER TABLE {t} ADD COLUMN note string"),
        duck("INSERT INTO {t} VALUES (5, 'five', 50, NULL, 'noted')"),
        spark("ALTER TABLE {t} RENAME COLUMN name TO label"),
        duck("UPDATE {t} SET label = 'renamed' WHERE id IN (1, 5)"),
        pyiceberg(widen_amount, "ALTER TABLE {t} ALTER COLUMN amount SET DATA TYPE bigint"),
        duck("INSERT INTO {t} VALUES (6, 'six', 6000000000, 0.5, NULL)"),
        spark("ALTER TABLE {t} DROP COLUMN extra"),
        spark("INSERT INTO {t} VALUES (7, 'seven', 70, 'x')"),
        duck("DELETE FROM {t} WHERE id IN (2, 7)"),
    ),
    "duckdb_partitions_and_unpartitions": (
        duck(CREATE),
        duck(BIG),
        duck("ALTER TABLE {t} SET PARTITIONED BY (bucket(4, id))", ""),
        duck(BIG.replace("+ 100", "+ 200")),
        spark(SMALL),
        duck(MORE),
        spark("DELETE FROM {t} WHERE id IN (1, 105, 210)"),
        duck("ALTER TABLE {t} SET PARTITIONED BY (name)", ""),
        duck("INSERT INTO {t} VALUES (50, 'n1', 1), (51, 'new', 2)"),
        append((52, "n1", 3), (53, None, 4)),
        duck("ALTER TABLE {t} RESET PARTITIONED BY", ""),
        duck(BIG.replace("+ 100", "+ 300")),
        spark("UPDATE {t} SET amount = 0 WHERE name = 'n1'"),
    ),
    "spark_partitions_by_bucket": (
        spark(f"{CREATE} PARTITIONED BY (bucket(4, id))", CREATE),
        spark(BIG),
        duck(SMALL),
        duck(BIG.replace("+ 100", "+ 200")),
        duck("DELETE FROM {t} WHERE id % 5 = 0"),
        spark("DELETE FROM {t} WHERE id = 3"),
        spark("ALTER TABLE {t} ADD PARTITION FIELD truncate(1, name)", ""),
        spark(MORE),
        duck("UPDATE {t} SET amount = 9 WHERE id IN (4, 101)"),
        spark("ALTER TABLE {t} DROP PARTITION FIELD bucket(4, id)", ""),
        spark(BIG.replace("+ 100", "+ 300")),
        duck("DELETE FROM {t} WHERE id > 330"),
    ),
    "spark_partitions_by_identity": (
        spark(f"{CREATE} PARTITIONED BY (amount)", CREATE),
        spark(BIG),
        duck(SMALL),
        append((4, "four", 2), (5, "five", None)),
        duck("UPDATE {t} SET amount = 3 WHERE amount = 2"),
        pyiceberg(lambda table: table.delete("amount = 4"), "DELETE FROM {t} WHERE amount = 4"),
        spark("DELETE FROM {t} WHERE amount = 3"),
        duck("DELETE FROM {t} WHERE amount IS NULL"),
    ),
    "pyiceberg_drops_one_file_and_rewrites_another_of_the_same_manifest": (
        spark(f"{CREATE} PARTITIONED BY (amount)", CREATE),
        append((1, "a", 1), (2, "b", 2), (3, "c", 2), (4, "d", 3)),
        pyiceberg(lambda table: table.delete("id <= 2"), "DELETE FROM {t} WHERE id <= 2"),
        duck("DELETE FROM {t} WHERE id = 3"),
        pyiceberg(lambda table: table.delete("id <= 4"), "DELETE FROM {t} WHERE id <= 4"),
    ),
    "spark_sorts_writes_and_sets_properties": (
        spark(CREATE),
        spark(BIG),
        spark("ALTER TABLE {t} WRITE ORDERED BY name DESC, id", ""),
        spark("ALTER TABLE {t} SET TBLPROPERTIES ('colour' = 'red', 'write.parquet.compression-codec' = 'snappy')", ""),
        spark(SMALL),
        spark("ALTER TABLE {t} UNSET TBLPROPERTIES ('colour')", ""),
        duck(MORE),
        spark("COMMENT ON TABLE {t} IS 'ordered'", ""),
        duck("COMMENT ON COLUMN {t}.name IS 'a name'", ""),
        append((90, "ninety", 9)),
    ),
}
