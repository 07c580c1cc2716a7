"""Tables of every type, with the values at its edges."""

from tests.delta.corpus.registry import Making, by_spark

PRIMITIVES = """
    n INT, a_boolean BOOLEAN, a_byte TINYINT, a_short SMALLINT, an_int INT, a_long BIGINT, a_float FLOAT,
    a_double DOUBLE, small DECIMAL(9,2), middle DECIMAL(18,4), large DECIMAL(38,10), a_string STRING,
    a_binary BINARY, a_date DATE, a_timestamp TIMESTAMP
"""


@by_spark("all primitive types with the values at their edges")
def primitives(t: Making) -> None:
    t.create(PRIMITIVES)
    t.insert(
        "1, true, -128, -32768, -2147483648, -9223372036854775808, float(1.5), double(1e300), -9999999.99, "
        "-99999999999999.9999, -9999999999999999999999999999.9999999999, '', X'', DATE'0001-01-01', "
        "TIMESTAMP'1582-10-15 00:00:00'",
        "2, false, 127, 32767, 2147483647, 9223372036854775807, float(-0.25), double(-2.5), 9999999.99, "
        "99999999999999.9999, 9999999999999999999999999999.9999999999, 'it''s ünïcode 🦆\\n\\t\\0', X'00FF275C', "
        "DATE'9999-12-31', TIMESTAMP'9999-12-31 23:59:59.999999'",
    )
    t.insert("3" + ", NULL" * 14)
    t.insert("4, true, 0, 0, 0, 0, float(0), double(0), 0, 0, 0, 'x', X'00', DATE'1969-12-31', "
             "TIMESTAMP'1969-12-31 23:59:59.999999'")  # fmt: skip


@by_spark("NaN, infinities and negative zero, of which statistics must not lie")
def floats(t: Making) -> None:
    t.create("n INT, f FLOAT, d DOUBLE")
    t.insert("1, float('NaN'), double('NaN')")
    t.insert("2, float('Infinity'), double('-Infinity')", "3, float('-0.0'), double('-0.0')")
    t.insert("4, float('NaN'), double(1)", "5, float(1), double('NaN')", "6, NULL, NULL")


@by_spark("timestamps finer than the milliseconds of Delta's statistics, and strings longer than their 32 characters")
def cut_statistics(t: Making) -> None:
    t.create("n INT, at TIMESTAMP, s STRING")
    t.insert("1, TIMESTAMP'2024-02-29 12:34:56.789999', concat(repeat('y', 40), 'é')")
    t.insert("2, TIMESTAMP'2024-02-29 12:34:56.789001', concat(repeat('y', 40), 'z')", "3, NULL, repeat('🦆', 50)")


@by_spark("timestamps without time zone")
def timestamps_ntz(t: Making) -> None:
    t.create("n INT, at TIMESTAMP_NTZ")
    t.insert("1, TIMESTAMP_NTZ'2024-02-29 12:34:56.789123'", "2, TIMESTAMP_NTZ'0001-01-01 00:00:00'")
    t.insert("3, NULL", "4, TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'")


@by_spark("nested types, NULL at every level")
def nested(t: Making) -> None:
    t.create("n INT, s STRUCT<a: INT, deep: STRUCT<b: STRING, c: ARRAY<INT>>>, "
             "list ARRAY<STRUCT<x: INT, y: STRING>>, m MAP<STRING, STRUCT<v: DECIMAL(9,2)>>, "
             "lists ARRAY<ARRAY<BIGINT>>, maps ARRAY<MAP<INT, DATE>>")  # fmt: skip
    t.insert(
        "1, struct(1, struct('x', array(1, NULL, 3))), array(struct(1, 'a'), NULL, struct(NULL, NULL)), "
        "map('k', struct(1.50), 'l', NULL), array(array(1L, NULL), array(), NULL), array(map(1, DATE'2024-02-29'))"
    )
    t.insert("2, NULL, NULL, NULL, NULL, NULL")
    t.insert("3, struct(NULL, NULL), array(), map(), array(), array(map())",
             "4, struct(4, struct(NULL, NULL)), array(struct(4, 'd')), map('', struct(NULL)), NULL, NULL")  # fmt: skip


@by_spark("columns that are NOT NULL, nested ones included")
def not_null(t: Making) -> None:
    t.create("n INT NOT NULL, s STRUCT<a: INT NOT NULL, b: STRING> NOT NULL, plain STRING")
    t.insert("1, struct(1, 'x'), NULL", "2, struct(2, NULL), 'y'")
    t.sql("ALTER TABLE {t} ALTER COLUMN n DROP NOT NULL")
    t.insert("NULL, struct(3, 'z'), 'z'")


@by_spark("char and varchar")
def char_varchar(t: Making) -> None:
    t.create("n INT, c CHAR(5), v VARCHAR(5)")
    t.insert("1, 'ab', 'ab'", "2, 'abcde', 'abcde'", "3, NULL, ''")
    t.sql("ALTER TABLE {t} CHANGE COLUMN v TYPE STRING")
    t.insert("4, 'x', 'longer than five'")


@by_spark("variant")
def variant(t: Making) -> None:
    t.create("n INT, v VARIANT")
    t.insert("1, parse_json('{\"a\": [1, null, 2.5]}')", "2, parse_json('null')", "3, NULL")


@by_spark("comments on table and columns, names with spaces, dots, other scripts")
def names(t: Making) -> None:
    t.create("`a b` INT COMMENT 'with a space', `ünï.cödé` STRING, `名前` STRUCT<`x y`: INT, `it's`: STRING>",
             "COMMENT 'what ''it'' is'", columnMapping_mode="name")  # fmt: skip
    t.insert("1, 'a', struct(1, 'b')", "2, NULL, NULL")


@by_spark("a table's folder with a space, a percent sign and other scripts")
def folder_of_any_name(t: Making) -> None:
    t.root = t.root / "a b%20ü"
    t.create("n INT, p STRING", "PARTITIONED BY (p)")
    t.insert("1, 'x y'", "2, 'ü%'")
