"""Commits that rewrite: DML without deletion vectors, maintenance, overwriting, restoring, cloning, converting."""

from tests.delta.corpus.registry import Making, by_spark


@by_spark("DELETE, UPDATE and MERGE that rewrite files")
def rewritten(t: Making) -> None:
    t.create("n INT, v STRING")
    t.insert("1, 'a'", "2, 'b'", "3, NULL")
    t.insert("4, 'd'", "5, 'e'")
    t.sql("DELETE FROM {t} WHERE n = 1", "UPDATE {t} SET v = 'x' WHERE n IN (2, 4)",
          "MERGE INTO {t} t USING (SELECT 5 AS n, 'm' AS v UNION ALL SELECT 6, 'new') s ON t.n = s.n "
          "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.n = 3 "
          "THEN DELETE")  # fmt: skip


@by_spark("OPTIMIZE")
def optimized(t: Making) -> None:
    t.create("n INT, v STRING")
    for n in range(4):
        t.insert(f"{n}, 'v{n}'")
    t.sql("OPTIMIZE {t}")
    t.insert("9, 'after'")


@by_spark("OPTIMIZE … ZORDER BY, of a partitioned table")
def z_ordered(t: Making) -> None:
    t.create("n INT, m INT, p STRING", "PARTITIONED BY (p)")
    t.insert("1, 9, 'x'", "2, 8, 'y'")
    t.insert("3, 7, 'x'", "4, 6, 'y'")
    t.sql("OPTIMIZE {t} ZORDER BY (n, m)")


@by_spark("RESTORE, twice")
def restored(t: Making) -> None:
    t.create("n INT")
    t.insert("1")
    t.insert("2")
    t.sql("DELETE FROM {t}", "RESTORE TABLE {t} TO VERSION AS OF 2", "RESTORE TABLE {t} TO VERSION AS OF 1")
    t.insert("3")


@by_spark("RESTORE to another schema")
def schema_restored(t: Making) -> None:
    t.create("n INT")
    t.insert("1")
    t.sql("ALTER TABLE {t} ADD COLUMN v STRING")
    t.insert("2, 'b'")
    t.sql("RESTORE TABLE {t} TO VERSION AS OF 1")
    t.insert("3")


@by_spark("VACUUM, after which older versions can't be read")
def vacuumed(t: Making) -> None:
    t.create("n INT, v STRING")
    t.insert("1, 'a'", "2, 'b'")
    t.insert("3, 'c'")
    t.sql("UPDATE {t} SET v = 'x' WHERE n = 1", "VACUUM {t} RETAIN 0 HOURS")
    t.insert("4, 'd'")


@by_spark("INSERT OVERWRITE of everything, and TRUNCATE")
def overwritten(t: Making) -> None:
    t.create("n INT, v STRING")
    t.insert("1, 'a'")
    t.sql("INSERT OVERWRITE {t} VALUES (2, 'b')", "DELETE FROM {t}")
    t.insert("3, 'c'")


@by_spark("REPLACE TABLE with other columns, CREATE OR REPLACE … AS SELECT")
def replaced(t: Making) -> None:
    t.create("n INT, v STRING", "COMMENT 'first'")
    t.insert("1, 'a'")
    t.sql("REPLACE TABLE {t} (v INT NOT NULL, w DATE) USING delta", "INSERT INTO {t} VALUES (2, NULL)",
          "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 'x' AS n, 3L AS v")  # fmt: skip


@by_spark("a shallow clone, whose files lie in another table's folder")
def shallow_clone(t: Making) -> None:
    source = t.beside("source of all")
    t.session.sql(f"CREATE TABLE delta.`{source}` (n INT, p STRING) USING delta PARTITIONED BY (p) "
                  "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")  # fmt: skip
    t.session.sql(f"INSERT INTO delta.`{source}` VALUES (1, 'x y'), (2, 'x y'), (3, 'z')")
    t.session.sql(f"DELETE FROM delta.`{source}` WHERE n = 1")
    t.sql(f"CREATE TABLE {{t}} SHALLOW CLONE delta.`{source}`")
    t.insert("4, 'own'")
    t.sql("DELETE FROM {t} WHERE n = 3")


@by_spark("Parquet files converted in place")
def converted(t: Making) -> None:
    t.session.sql("SELECT 1 AS n, 'x' AS v UNION ALL SELECT 2, NULL").write.parquet(str(t.root))
    t.session.sql(f"CONVERT TO DELTA parquet.`{t.root}`")
    t.insert("3, 'z'")


@by_spark("partitioned Parquet files converted in place, without statistics")
def converted_partitioned(t: Making) -> None:
    frame = t.session.sql("SELECT 1 AS n, 'x y' AS p UNION ALL SELECT 2, 'z' UNION ALL SELECT 3, NULL")
    frame.write.partitionBy("p").parquet(str(t.root))
    t.session.sql(f"CONVERT TO DELTA parquet.`{t.root}` NO STATISTICS PARTITIONED BY (p STRING)")
    t.insert("4, 'w'")
