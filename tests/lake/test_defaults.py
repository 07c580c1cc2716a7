"""Default values of either side are the other's: for rows of before, and for rows that name no value."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pytest

from duckicelake.errors import UnsupportedError
from tests.lake.iceberg_client import add, evolve, field, fields_of, new_table, struct
from tests.support.lakes import assert_same_rows

LONG_DECIMAL = "1234567890123456789012345678.0123456789"
# Iceberg type: (JSON default, DuckDB's type, DuckDB's literal, the value in Python)
DEFAULTS = {
    "boolean": (True, "BOOLEAN", "'true'", True),
    "int": (-7, "INTEGER", "-7", -7),
    "long": (2**63 - 1, "BIGINT", "'9223372036854775807'", 2**63 - 1),
    "float": (0.5, "FLOAT", "0.5", 0.5),
    "double": (1e300, "DOUBLE", "1e300", 1e300),
    "decimal(9, 2)": ("-1234567.80", "DECIMAL(9,2)", "-1234567.8", Decimal("-1234567.80")),
    "decimal(38, 10)": (LONG_DECIMAL, "DECIMAL(38,10)", f"'{LONG_DECIMAL}'", Decimal(LONG_DECIMAL)),
    "date": ("1969-12-31", "DATE", "'1969-12-31'", date(1969, 12, 31)),
    "time": ("23:59:59.500000", "TIME", "'23:59:59.5'", time(23, 59, 59, 500000)),
    "timestamp": ("2024-02-29T01:02:03.500000", "TIMESTAMP", "'2024-02-29 01:02:03.5'",
                  datetime(2024, 2, 29, 1, 2, 3, 500000)),
    "timestamptz": ("2024-02-29T01:02:03.000004+00:00", "TIMESTAMPTZ", "'2024-02-29 06:32:03.000004+05:30'",
                    datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)),
    "string": ("it's ü \"🦆\"", "VARCHAR", "'it''s ü \"🦆\"'", "it's ü \"🦆\""),
    "uuid": ("00000000-0000-0000-0000-0000000000ff", "UUID", "'00000000-0000-0000-0000-0000000000ff'", UUID(int=255)),
    "binary": ("00ff275c61", "BLOB", "'\\x00\\xFF\\x27\\x5Ca'", b"\x00\xff'\\a"),
}  # fmt: skip
MORE_STRINGS = ["", "NULL", "null", "'NULL'", "CAST('a' AS VARCHAR)", "now()", " "]


def with_default(field_id, name, kind, initial, write):
    return field(field_id, name, kind, initial_default=initial, write_default=write)


def python(lake, column, where):
    (value,) = lake.one(f'SELECT "{column}" FROM t WHERE {where}')
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def test_default_that_an_iceberg_client_gives_is_duckdbs_too(lake):
    new_table(lake)
    lake.run("SET TimeZone = 'Asia/Kolkata'", "INSERT INTO t VALUES (1)", "INSERT INTO t FROM range(10, 40)")
    given = [(kind, kind, value) for kind, (value, *_) in DEFAULTS.items()]
    given += [(f"s{index}", "string", text) for index, text in enumerate(MORE_STRINGS)]
    add(lake, *(with_default(i, name, kind, value, value) for i, (name, kind, value) in enumerate(given, 2)))
    added = fields_of(lake)

    lake.run("INSERT INTO t (id) VALUES (2)", "INSERT INTO t (id) FROM range(50, 80)")

    expected = {kind: value for kind, (*_, value) in DEFAULTS.items()} | {
        f"s{i}": text for i, text in enumerate(MORE_STRINGS)
    }
    lake.run("SET TimeZone = 'UTC'")
    for name, value in expected.items():
        assert [python(lake, name, f"id = {i}") for i in (1, 10, 2, 50)] == [value] * 4, name
    assert_same_rows(lake)
    lake.run("CALL ducklake_flush_inlined_data('lake')", "UPDATE t SET id = id + 1000 WHERE id IN (1, 11)")
    lake.run("CALL ducklake_merge_adjacent_files('lake')", "ALTER TABLE t ADD COLUMN later INTEGER")
    assert_same_rows(lake)
    assert [*fields_of(lake).items()][:-1] == [*added.items()]


def test_default_that_duckdb_gives_is_an_iceberg_clients_too(lake):
    lake.run("SET TimeZone = 'Asia/Kolkata'", "CREATE TABLE t (id BIGINT)")
    lake.run("INSERT INTO t VALUES (1)", "INSERT INTO t FROM range(10, 40)")
    for kind, (_, sql, literal, _) in DEFAULTS.items():
        lake.run(f'ALTER TABLE t ADD COLUMN "{kind}" {sql} DEFAULT {literal}')

    for kind, found in fields_of(lake).items():
        value, *_, expected = DEFAULTS[kind]
        assert (found["initial-default"], found["write-default"]) == (value, value)
        assert python(lake, kind, "id = 1") == expected
    lake.run("SET TimeZone = 'UTC'")
    assert_same_rows(lake)


@pytest.mark.parametrize(("sql", "default", "value"), [
    ("BOOLEAN", "true", True), ("BOOLEAN", "'f'", False), ("BOOLEAN", "1", True),
    ("DATE", "DATE '2024-02-29'", "2024-02-29"), ("DATE", "current_date", None),
    ("TIMESTAMP", "TIMESTAMP '2024-02-29 01:02:03'", "2024-02-29T01:02:03"),
    ("TIMESTAMPTZ", "TIMESTAMPTZ '2024-02-29 01:02:03+02'", "2024-02-28T23:02:03+00:00"),
    ("TIMESTAMPTZ", "'2024-02-29 01:02:03'", None), ("DOUBLE", "1.5::DOUBLE", 1.5), ("DOUBLE", "'nan'", None),
    ("BLOB", "'\\x00ab'::BLOB", "006162"), ("UUID", "uuid()", None), ("INTEGER", "1 + 1", None),
    ("INTEGER", "7.5", None), ("INTEGER", "NULL::INTEGER", None),
    ("VARCHAR", "'it''s'::VARCHAR", "it's"), ("VARCHAR", "upper('x')", None), ("VARCHAR", "'5'::INTEGER", None),
    ("TIME", "TIME '01:02:03'", "01:02:03"), ("DECIMAL(9,2)", "1.5::DECIMAL(9,2)", "1.50"),
    ("DECIMAL(9,2)", "1.555", None), ("JSON", "'{}'", "{}"), ("BIGINT", "NULL", None),
    ("GEOMETRY", "'POINT(1 2)'::GEOMETRY", None), ("GEOMETRY", "'POINT(1 2)'", None),
])  # fmt: skip
def test_write_default_of_a_new_table_is_reported_where_it_is_a_value(lake, sql, default, value):
    lake.run(f"CREATE TABLE t (id BIGINT, c {sql} DEFAULT {default})", "INSERT INTO t (id) VALUES (1)")

    found = fields_of(lake)["c"]

    assert found.get("write-default") == value
    assert "initial-default" not in found
    if sql != "GEOMETRY":  # PyIceberg reads none
        assert_same_rows(lake)


def test_write_default_that_duckdb_sets_or_drops_is_followed_and_the_initial_one_stays(lake):
    new_table(lake)
    lake.run("INSERT INTO t FROM range(20)")
    add(lake, with_default(2, "c", "int", 7, 7), with_default(3, "d", "string", "NULL", "NULL"))

    lake.run("ALTER TABLE t ALTER COLUMN c SET DEFAULT 9", "INSERT INTO t (id) VALUES (100)")
    assert fields_of(lake) == {
        "c": with_default(2, "c", "int", 7, 9), "d": with_default(3, "d", "string", "NULL", "NULL")
    }  # fmt: skip
    lake.run("ALTER TABLE t ALTER COLUMN c DROP DEFAULT", "ALTER TABLE t RENAME COLUMN c TO e")

    assert fields_of(lake)["e"] == field(2, "e", "int", initial_default=7)
    assert_same_rows(lake)
    assert lake.one("SELECT count(*) FILTER (e = 7), count(*) FILTER (e = 9), count(*) FILTER (d = 'NULL') FROM t") == (
        20, 1, 21,
    )  # fmt: skip


def test_defaults_inside_structs_lists_and_maps_are_read_and_survive(lake):
    new_table(lake, field(2, "s", struct(field(3, "x", "int"), field(4, "y", "string"))))
    lake.run(
        "INSERT INTO t VALUES (1, {'x': 1, 'y': 'a'})", "INSERT INTO t SELECT i, {'x': i, 'y': 'b'} FROM range(30) r(i)"
    )
    inner = with_default(10, "z", "date", "2024-02-29", "2020-01-01")
    evolve(lake, lambda known: [known[0], {**known[1], "type": struct(*known[1]["type"]["fields"], inner)}])

    assert lake.one("SELECT DISTINCT s.z FROM t") == (date(2024, 2, 29),)
    assert_same_rows(lake)
    lake.run("ALTER TABLE t ADD COLUMN s.w BIGINT DEFAULT 5", "ALTER TABLE t RENAME COLUMN s.x TO xx")
    assert_same_rows(lake)
    assert fields_of(lake)["s"]["type"]["fields"] == [
        field(3, "xx", "int"), field(4, "y", "string"), inner, with_default(11, "w", "long", 5, 5)
    ]  # fmt: skip


def test_defaults_of_structs_and_lists_are_kept_where_no_row_needs_them(lake):
    numbers = {"type": "list", "element-id": 5, "element": "int", "element-required": False}
    inside = struct(with_default(3, "x", "int", 7, None))
    given = [with_default(2, "s", inside, {}, {}), with_default(4, "l", numbers, [1, 2], [3])]
    new_table(lake, *given)
    before = fields_of(lake)
    assert [each["write-default"] for each in before.values()] == [{}, [3]]

    lake.run(
        "INSERT INTO t VALUES (1, {'x': 1}, [1])", "ALTER TABLE t ADD COLUMN c INTEGER", "COMMENT ON TABLE t IS 'x'"
    )

    assert {name: each for name, each in fields_of(lake).items() if name != "c"} == before
    more = struct(field(21, "x", "int"))
    with pytest.raises(UnsupportedError, match="'more' has an initial default"):
        add(lake, with_default(20, "more", more, {}, None))
    add(lake, field(20, "more", more, write_default={}))
    assert fields_of(lake)["more"]["write-default"] == {}
    assert lake.one("SELECT s.x, l, more FROM t") == (1, [1], None)


@pytest.mark.parametrize(("sql", "literal"), [
    ("DOUBLE", "'nan'"), ("FLOAT", "'-inf'"), ("DATE", "'infinity'"), ("GEOMETRY", "'POINT(1 2)'"), ("VARIANT", "1"),
])  # fmt: skip
def test_default_for_rows_of_before_that_iceberg_cannot_say_is_refused_by_name(lake, sql, literal):
    lake.run("CREATE TABLE t (id BIGINT)", "INSERT INTO t FROM range(20)")
    lake.metadata()
    lake.run(f"ALTER TABLE t ADD COLUMN odd {sql} DEFAULT {literal}")

    with pytest.raises(UnsupportedError, match="odd"):
        lake.metadata()


def test_default_with_a_nul_is_refused_as_postgres_has_no_text_for_it(lake):
    new_table(lake)
    with pytest.raises(UnsupportedError, match="initial default of c"):
        add(lake, with_default(2, "c", "string", "a\0b", None))


@pytest.mark.parametrize("kind", ["timestamp_ns", "timestamptz_ns", "fixed[2]"])
def test_defaults_of_types_that_differ_between_the_sides_are_kept_exactly(lake, kind):
    zone = "+00:00" if kind == "timestamptz_ns" else ""
    value = "00ff" if kind == "fixed[2]" else f"2024-02-29T01:02:03.123456789{zone}"
    new_table(lake)
    lake.run("SET TimeZone = 'UTC'", "INSERT INTO t FROM range(20)")
    add(lake, with_default(2, "c", kind, value, value))

    read = b"\0\xff" if kind == "fixed[2]" else datetime(2024, 2, 29, 1, 2, 3, 123456, tzinfo=UTC if zone else None)
    lake.run("INSERT INTO t (id) VALUES (100)", "ALTER TABLE t ADD COLUMN other INTEGER")

    assert lake.one("SELECT DISTINCT c FROM t") == (read,)
    assert fields_of(lake)["c"] == with_default(2, "c", kind, value, value)
