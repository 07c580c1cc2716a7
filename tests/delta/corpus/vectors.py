"""Deletion vectors."""

from tests.delta.corpus.registry import Making, by_spark


def _create(t: Making, columns: str = "n INT, v STRING", clauses: str = "", /, **properties: str) -> None:
    t.create(columns, clauses, enableDeletionVectors="true", **properties)


@by_spark("deletion vectors by DELETE, superseded by larger ones until the file goes")
def vectors_of_delete(t: Making) -> None:
    _create(t)
    t.insert("1, 'a'", "2, 'b'", "3, NULL", "4, 'd'")
    t.insert("5, 'e'", "6, 'f'")
    t.sql("DELETE FROM {t} WHERE n IN (1, 6)", "DELETE FROM {t} WHERE n = 2", "DELETE FROM {t} WHERE n < 5")


@by_spark("deletion vectors by UPDATE")
def vectors_of_update(t: Making) -> None:
    _create(t)
    t.insert("1, 'a'", "2, 'b'", "3, NULL", "4, 'd'")
    t.sql("UPDATE {t} SET v = upper(v) WHERE n > 2", "UPDATE {t} SET v = 'again' WHERE n = 4")


@by_spark("deletion vectors by MERGE")
def vectors_of_merge(t: Making) -> None:
    _create(t)
    t.insert("1, 'a'", "2, 'b'", "3, 'c'", "4, 'd'")
    t.sql("MERGE INTO {t} t USING (SELECT * FROM VALUES (1, 'x'), (2, NULL), (9, 'new') s(n, v)) s ON t.n = s.n "
          "WHEN MATCHED AND s.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET * "
          "WHEN NOT MATCHED THEN INSERT *")  # fmt: skip


@by_spark("deletion vectors of a partitioned table")
def vectors_partitioned(t: Making) -> None:
    _create(t, "n INT, p STRING", "PARTITIONED BY (p)")
    t.insert("1, 'x'", "2, 'x'", "3, 'y y'", "4, 'y y'", "5, NULL", "6, NULL")
    t.sql("DELETE FROM {t} WHERE n IN (1, 4, 5)")


@by_spark("deletion vectors under column mapping, partitioned")
def vectors_mapped(t: Making) -> None:
    _create(t, "n INT, p STRING, v STRING", "PARTITIONED BY (p)", columnMapping_mode="name")
    t.insert("1, 'x', 'a'", "2, 'x', 'b'", "3, NULL, 'c'", "4, NULL, 'd'")
    t.sql("ALTER TABLE {t} RENAME COLUMN v TO value", "DELETE FROM {t} WHERE n IN (1, 4)",
          "UPDATE {t} SET value = 'B' WHERE n = 2")  # fmt: skip


@by_spark("deletion vectors that came to a table with rows")
def vectors_later(t: Making) -> None:
    t.create("n INT, v STRING")
    t.insert("1, 'a'", "2, 'b'", "3, 'c'")
    t.sql("DELETE FROM {t} WHERE n = 1", "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
          "DELETE FROM {t} WHERE n = 2")  # fmt: skip


@by_spark("deletion vectors of many positions in many files, of all of a file, taken away by OPTIMIZE")
def vectors_large(t: Making) -> None:
    _create(t, "n BIGINT, v STRING")
    t.sql("INSERT INTO {t} SELECT /*+ REPARTITION(3) */ id, concat('v', id) FROM range(6000)")
    t.sql("DELETE FROM {t} WHERE n % 3 = 0", "DELETE FROM {t} WHERE n BETWEEN 1000 AND 3000",
          "REORG TABLE {t} APPLY (PURGE)")  # fmt: skip


@by_spark("deletion vectors brought back by RESTORE")
def vectors_restored(t: Making) -> None:
    _create(t)
    t.insert("1, 'a'", "2, 'b'", "3, 'c'")
    t.sql("DELETE FROM {t} WHERE n = 1", "DELETE FROM {t} WHERE n = 2", "RESTORE TABLE {t} TO VERSION AS OF 2")
