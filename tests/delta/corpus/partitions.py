"""Partitioned tables: values that the log holds and the files lack."""

from tests.delta.corpus.registry import Making, by_spark


@by_spark("partitions by string: null, empty, special characters, other scripts")
def by_string(t: Making) -> None:
    t.create("n INT, p STRING", "PARTITIONED BY (p)")
    t.insert("1, NULL", "2, ''", "3, 'a/b'", "4, 'a=b'", "5, '50%'", "6, 'a b'")
    t.insert("7, 'ünï🦆'", "8, 'a:b#c?d'", "9, 'it''s \"quoted\"'", "10, 'a\\\\b'", "11, '%20'", "12, '1'")
    t.insert("13, '__HIVE_DEFAULT_PARTITION__'", "14, 'null'", "15, '*[x]{y}'")
    t.sql("DELETE FROM {t} WHERE p = 'a b'")


@by_spark("partitions by every kind of number and by boolean")
def by_number(t: Making) -> None:
    t.create("n INT, b TINYINT, s SMALLINT, i INT, l BIGINT, d DECIMAL(12,3), yes BOOLEAN",
             "PARTITIONED BY (b, s, i, l, d, yes)")  # fmt: skip
    t.insert("1, -128, -32768, -2147483648, -9223372036854775808, -0.001, true")
    t.insert("2, 127, 32767, 2147483647, 9223372036854775807, 123456789.000, false", "3" + ", NULL" * 6)


@by_spark("partitions by float and double")
def by_float(t: Making) -> None:
    t.create("n INT, f FLOAT, d DOUBLE", "PARTITIONED BY (f, d)")
    t.insert("1, float(1.5), double(1e300)", "2, float(0.1), double(-0.1)", "3, NULL, NULL")


@by_spark("partitions by date")
def by_date(t: Making) -> None:
    t.create("n INT, p DATE", "PARTITIONED BY (p)")
    t.insert("1, DATE'1969-12-31'", "2, DATE'2024-02-29'", "3, NULL")
    t.sql("DELETE FROM {t} WHERE p = DATE'2024-02-29'")


@by_spark("partitions by timestamp, with and without time zone")
def by_timestamp(t: Making) -> None:
    t.create("n INT, at TIMESTAMP, ntz TIMESTAMP_NTZ", "PARTITIONED BY (at, ntz)")
    t.insert("1, TIMESTAMP'2024-02-29 12:34:56.789123', TIMESTAMP_NTZ'2024-02-29 12:34:56'",
             "2, TIMESTAMP'1969-12-31 23:59:59', NULL",
             "3, NULL, TIMESTAMP_NTZ'1969-12-31 00:00:00.000001'")  # fmt: skip
    t.conf(spark__databricks__delta__write__utcTimestampPartitionValues="false")
    t.insert("4, TIMESTAMP'2024-06-01 01:02:03', TIMESTAMP_NTZ'2024-06-01 01:02:03'")


@by_spark("partitions by binary")
def by_binary(t: Making) -> None:
    t.create("n INT, p BINARY", "PARTITIONED BY (p)")
    t.insert("1, X'6162'", "2, NULL")


@by_spark("partition columns that stand first, two levels")
def partitions_first(t: Making) -> None:
    t.create("p INT, q STRING, n INT, m STRING", "PARTITIONED BY (p, q)")
    t.insert("1, 'a', 1, 'x'", "1, 'b', 2, 'y'", "2, 'a', 3, NULL")
    t.sql("UPDATE {t} SET m = 'z' WHERE p = 1", "DELETE FROM {t} WHERE q = 'b'")


@by_spark("partitions under column mapping, whose folders say nothing")
def partitions_mapped(t: Making) -> None:
    t.create("n INT, p STRING, d DATE", "PARTITIONED BY (p, d)", columnMapping_mode="name")
    t.insert("1, 'x', DATE'2024-01-01'", "2, NULL, NULL", "3, 'a b', DATE'2024-01-02'")
    t.sql("ALTER TABLE {t} RENAME COLUMN p TO part")
    t.insert("4, 'y', DATE'2024-01-03'")
    t.sql("DELETE FROM {t} WHERE part = 'x'")


@by_spark("another partitioning by REPLACE TABLE")
def repartitioned(t: Making) -> None:
    t.create("n INT, p STRING, q INT", "PARTITIONED BY (p)")
    t.insert("1, 'x', 1", "2, 'y', 2")
    t.sql("REPLACE TABLE {t} (n INT, p STRING, q INT) USING delta PARTITIONED BY (q)")
    t.insert("3, 'x', 1", "4, NULL, NULL")
    t.sql("REPLACE TABLE {t} USING delta AS SELECT 5 AS n, 'z' AS p, 3 AS q")


@by_spark("partitions overwritten dynamically")
def overwritten_partitions(t: Making) -> None:
    t.create("n INT, p STRING", "PARTITIONED BY (p)")
    t.insert("1, 'x'", "2, 'y'")
    t.conf(spark__sql__sources__partitionOverwriteMode="dynamic")
    t.sql("INSERT OVERWRITE {t} VALUES (3, 'y'), (4, 'z')")


@by_spark("parts of a table overwritten, by partition and by rows (replaceWhere)")
def replaced_where(t: Making) -> None:
    t.create("n INT, p STRING", "PARTITIONED BY (p)")
    t.insert("1, 'x'", "2, 'y'", "3, 'y'")
    t.sql(
        "INSERT INTO {t} REPLACE WHERE p = 'y' VALUES (4, 'y')", "INSERT INTO {t} REPLACE WHERE n < 2 VALUES (0, 'w')"
    )
