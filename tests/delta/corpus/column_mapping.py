"""Column mapping: columns that go by physical names or by field ids."""

from tests.delta.corpus.registry import Making, by_spark


@by_spark("column mapping by name from the start")
def mapped_by_name(t: Making) -> None:
    t.create(
        "n INT, s STRUCT<a: INT, b: STRING>, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, INT>", columnMapping_mode="name"
    )
    t.insert("1, struct(1, 'x'), array(struct(1), NULL), map('k', 1)", "2, NULL, NULL, NULL")
    t.sql("ALTER TABLE {t} RENAME COLUMN n TO number", "ALTER TABLE {t} RENAME COLUMN s.a TO first")
    t.insert("3, struct(3, 'z'), array(), map()")


@by_spark("column mapping by id from the start")
def mapped_by_id(t: Making) -> None:
    t.create("n INT, s STRUCT<a: INT, b: STRING>, l ARRAY<INT>", columnMapping_mode="id")
    t.insert("1, struct(1, 'x'), array(1)", "2, NULL, NULL")
    t.sql("ALTER TABLE {t} RENAME COLUMN n TO number", "ALTER TABLE {t} ADD COLUMN late STRING")
    t.insert("3, struct(3, 'z'), array(), 'late'")


@by_spark("column mapping that came to a table with rows")
def mapped_later(t: Making) -> None:
    t.create("n INT, s STRUCT<a: INT, b: STRING>, gone STRING")
    t.insert("1, struct(1, 'x'), 'gone'", "2, NULL, NULL")
    t.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
          "ALTER TABLE {t} RENAME COLUMN n TO number", "ALTER TABLE {t} DROP COLUMN gone",
          "ALTER TABLE {t} DROP COLUMN s.b")  # fmt: skip
    t.insert("3, struct(3)")


@by_spark("a dropped column that comes back with the same name and another type")
def dropped_and_back(t: Making) -> None:
    t.create("n INT, v INT", columnMapping_mode="name")
    t.insert("1, 10")
    t.sql("ALTER TABLE {t} DROP COLUMN v", "ALTER TABLE {t} ADD COLUMN v STRING")
    t.insert("2, 'twenty'")


@by_spark("two columns that exchange their names")
def exchanged_names(t: Making) -> None:
    t.create("a INT, b INT", columnMapping_mode="name")
    t.insert("1, 2")
    t.sql("ALTER TABLE {t} RENAME COLUMN a TO c", "ALTER TABLE {t} RENAME COLUMN b TO a",
          "ALTER TABLE {t} RENAME COLUMN c TO b")  # fmt: skip
    t.insert("3, 4")


@by_spark("columns added, nested ones and in the middle")
def columns_added(t: Making) -> None:
    t.create("n INT, s STRUCT<a: INT>")
    t.insert("1, struct(1)", "2, NULL")
    t.sql("ALTER TABLE {t} ADD COLUMNS (m STRING AFTER n, z DATE)", "ALTER TABLE {t} ADD COLUMN s.b STRING")
    t.insert("3, 'three', struct(3, 'b'), DATE'2024-01-01'")
    t.sql("ALTER TABLE {t} ALTER COLUMN z FIRST")
    t.insert("DATE'2024-01-04', 4, 'four', struct(4, NULL)")


@by_spark("columns that a write brings (mergeSchema)")
def schema_merged(t: Making) -> None:
    t.create("n INT, s STRUCT<a: INT>")
    t.insert("1, struct(1)")
    frame = t.session.sql("SELECT 2 AS n, named_struct('a', 2, 'b', 'x') AS s, 'new' AS more")
    frame.write.format("delta").mode("append").option("mergeSchema", "true").save(str(t.root))


@by_spark("a schema overwritten: the same names with other types")
def schema_overwritten(t: Making) -> None:
    t.create("n INT, v INT, s STRUCT<a: INT>")
    t.insert("1, 10, struct(1)", "2, 20, NULL")
    frame = t.session.sql("SELECT 3 AS n, 'text' AS v, named_struct('a', 'also') AS s, 4 AS fresh")
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(t.root))
    t.insert("4, 'more', struct('text'), 5")


@by_spark("types widened: whole numbers, floats, decimals, dates; at the top and nested")
def widened(t: Making) -> None:
    t.create("b TINYINT, s SMALLINT, f FLOAT, d DECIMAL(5,2), st STRUCT<x: INT>, l ARRAY<SMALLINT>",
             enableTypeWidening="true")  # fmt: skip
    t.insert("1, 100, float(1.5), 1.25, struct(1), array(1S)", "NULL" + ", NULL" * 5)
    t.sql("ALTER TABLE {t} ALTER COLUMN b TYPE SMALLINT", "ALTER TABLE {t} ALTER COLUMN b TYPE INT",
          "ALTER TABLE {t} ALTER COLUMN s TYPE BIGINT", "ALTER TABLE {t} ALTER COLUMN f TYPE DOUBLE",
          "ALTER TABLE {t} ALTER COLUMN d TYPE DECIMAL(12,2)", "ALTER TABLE {t} ALTER COLUMN st.x TYPE BIGINT",
          "ALTER TABLE {t} ALTER COLUMN l.element TYPE INT")  # fmt: skip
    t.insert("100000, 5000000000, 2.5, 1234567890.25, struct(5000000000), array(70000)")


@by_spark("types widened as Iceberg doesn't: dates to timestamps, whole numbers to doubles and decimals, scales")
def widened_beyond_iceberg(t: Making) -> None:
    t.create("n INT, d DATE, i INT, j SMALLINT, k DECIMAL(5,2)", enableTypeWidening="true",
             feature_timestampNtz="supported")  # fmt: skip
    t.insert("1, DATE'2024-02-29', 1, 1, 1.25")
    t.sql("ALTER TABLE {t} ALTER COLUMN d TYPE TIMESTAMP_NTZ", "ALTER TABLE {t} ALTER COLUMN i TYPE DOUBLE",
          "ALTER TABLE {t} ALTER COLUMN j TYPE DECIMAL(12,2)",
          "ALTER TABLE {t} ALTER COLUMN k TYPE DECIMAL(9,4)")  # fmt: skip
    t.insert("2, TIMESTAMP_NTZ'2024-02-29 12:00:00', 2.5, 2.25, 2.0625")
