"""Evolution of columns by either side: both read the rows of before alike, and nothing else is lost."""

from datetime import date, datetime, time
from decimal import Decimal
from math import inf, isnan
from uuid import UUID

import pyarrow as pa
import pytest

from duckicelake.errors import UnsupportedError
from tests.lake.iceberg_client import append, commit, evolve, field, fields_of, new_table, retype, struct
from tests.support.lakes import assert_same_rows

DAY = date(1969, 12, 30)
# (type of before, type of after, DuckDB's literal, a file's array, the value after)
PROMOTIONS = {
    ("int", "long"): ("-7", pa.array([-7], pa.int32()), -7),
    ("float", "double"): ("0.5", pa.array([0.5], pa.float32()), 0.5),
    ("decimal(9, 2)", "decimal(30, 2)"): ("1.25", pa.array([Decimal("1.25")], pa.decimal128(9, 2)), Decimal("1.25")),
    ("date", "timestamp"): ("'1969-12-30'", pa.array([DAY]), datetime(1969, 12, 30)),
    ("date", "timestamp_ns"): ("'1969-12-30'", pa.array([DAY]), datetime(1969, 12, 30)),
}
NEW = {"long": "5000000000", "double": "1e300", "decimal(30, 2)": "1234567890123.25",
       "timestamp": "'2024-03-05 07:08:09.123456'", "timestamp_ns": "'2024-03-05 07:08:09.123456789'"}  # fmt: skip


@pytest.mark.parametrize("promotion", PROMOTIONS, ids="-".join)
def test_column_that_an_iceberg_client_promotes_is_read_right_by_duckdb(lake, promotion):
    before, after = promotion
    literal, array, value = PROMOTIONS[promotion]
    new_table(lake, field(2, "c", before, doc="documented"), field(3, "s", struct(field(4, "x", before))))
    row = f"{literal}, {{'x': {literal}}}"
    if before == "date":  # DuckDB can't read the text that it writes for days in structs
        lake.run("CALL lake.set_option('data_inlining_row_limit', 0)")
    lake.run(f"INSERT INTO t VALUES (1, {row})", f"INSERT INTO t SELECT i, {row} FROM range(10, 30) r(i)")
    append(lake, {"id": pa.array([2]), "c": array})

    retype(lake, "c", after)
    retype(lake, "s", struct(field(4, "x", after)))

    later = f"{NEW[after]}, {{'x': {NEW[after]}}}"
    lake.run(f"INSERT INTO t VALUES (3, {later})", f"INSERT INTO t SELECT i, {later} FROM range(50, 70) r(i)")
    duck = lake.duck.execute("SELECT id, c, s.x FROM t WHERE id IN (1, 2, 10) ORDER BY id").fetchall()
    assert duck == [(1, value, value), (2, value, None), (10, value, value)]
    assert lake.one(f"SELECT count(*) FROM t WHERE c = {NEW[after]}") == (21,)
    assert lake.one(f"SELECT count(*) FROM t WHERE c = {literal}") == (22,)
    assert lake.one("SELECT min(c) = (SELECT c FROM t WHERE id = 1), count(c) FROM t") == (True, 43)
    if before != "date":  # PyIceberg has no such promotion
        assert_same_rows(lake)
    lake.run("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')")
    assert lake.one("SELECT count(*), count(c), count(s.x) FROM t") == (43, 43, 42)
    assert fields_of(lake)["c"] == field(2, "c", after, doc="documented")


ALTERATIONS = {
    ("TINYINT", "SMALLINT"): "int", ("SMALLINT", "INTEGER"): "int", ("UTINYINT", "BIGINT"): "long",
    ("INTEGER", "BIGINT"): "long", ("FLOAT", "DOUBLE"): "double", ("DECIMAL(5,2)", "DECIMAL(20,2)"): "decimal(20, 2)",
    ("VARCHAR", "JSON"): "string", ("TIMESTAMP_S", "TIMESTAMP"): "timestamp",
}  # fmt: skip
LITERALS = {"VARCHAR": "'{\"a\": 1}'", "TIMESTAMP_S": "'2024-03-05 07:08:09'", "DATE": "'2024-03-05'",
            "TIMESTAMP": "'2024-03-05 07:08:09'"}  # fmt: skip


@pytest.mark.parametrize("change", ALTERATIONS, ids="-".join)
def test_column_that_duckdb_widens_as_iceberg_may_is_read_right_by_iceberg(lake, change):
    before, after = change
    literal = LITERALS.get(before, "5")
    lake.run(f"CREATE TABLE t (id BIGINT, c {before})", f"INSERT INTO t VALUES (1, {literal})",
             f"INSERT INTO t SELECT i, {literal} FROM range(10, 30) r(i)")  # fmt: skip
    lake.metadata()

    lake.run(f"ALTER TABLE t ALTER COLUMN c TYPE {after}", f"INSERT INTO t VALUES (2, {literal})")

    assert fields_of(lake)["c"]["type"] == ALTERATIONS[change]
    if after != "JSON":  # DuckDB then reads the file's texts as JSON, PyIceberg as what they are
        assert_same_rows(lake)
    lake.run("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')")
    assert lake.one("SELECT count(DISTINCT c) FROM t") == (1,)


@pytest.mark.parametrize(("before", "after"), [
    ("INTEGER", "DOUBLE"), ("BIGINT", "DOUBLE"), ("INTEGER", "DECIMAL(18,2)"), ("DECIMAL(5,2)", "DECIMAL(20,3)"),
    ("BOOLEAN", "INTEGER"), ("DATE", "TIMESTAMP"), ("DATE", "TIMESTAMP_NS"), ("DATE", "TIMESTAMPTZ"),
    ("TIMESTAMP", "TIMESTAMPTZ"), ("TIMESTAMP", "TIMESTAMP_NS"),
    ("INTEGER", "VARIANT"),
])  # fmt: skip
def test_column_that_duckdb_changes_as_iceberg_may_not_is_refused_by_name(lake, before, after):
    literal = LITERALS.get(before, "1")
    lake.run(
        f"CREATE TABLE t (id BIGINT, s STRUCT(c {before}))",
        f"INSERT INTO t SELECT i, {{'c': {literal}}} FROM range(20) r(i)",
    )
    lake.metadata()

    lake.run(f"ALTER TABLE t ALTER COLUMN s TYPE STRUCT(c {after})")

    with pytest.raises(UnsupportedError, match=r"Column s\.c was changed by DuckDB"):
        lake.metadata()


def test_column_of_a_table_without_rows_may_become_anything(lake):
    lake.run("CREATE TABLE t (id INTEGER, day DATE)", "ALTER TABLE t ALTER COLUMN day TYPE TIMESTAMPTZ")
    assert fields_of(lake)["day"]["type"] == "timestamptz"
    lake.run("ALTER TABLE t ALTER COLUMN id TYPE DOUBLE", "INSERT INTO t VALUES (1.5, NULL)")
    assert_same_rows(lake)
    lake.run(
        "ALTER TABLE t ADD COLUMN c INTEGER", "INSERT INTO t VALUES (2.5, NULL, 1)", "ALTER TABLE t ALTER c TYPE DOUBLE"
    )
    with pytest.raises(UnsupportedError, match="Column c was changed by DuckDB from int to double"):
        lake.metadata()


def nested(inner):
    """A struct, a list of it and a map to it."""
    of = {"type": "list", "element-id": 20, "element": struct(*inner(30)), "element-required": False}
    to = {
        "type": "map",
        "key-id": 21,
        "key": "string",
        "value-id": 22,
        "value": struct(*inner(40)),
        "value-required": True,
    }
    return [field(2, "s", struct(*inner(10)), doc="a struct"), field(3, "l", of), field(4, "m", to)]


def rows(*keys):
    inner = "{" + ", ".join(f"'{key}': i" for key in keys) + "}"
    return f"SELECT i, {inner}, [{inner}], map {{'k': {inner}}} FROM range(%s) r(i)"


def test_fields_inside_structs_lists_and_maps_that_an_iceberg_client_changes_are_read_right(lake):
    new_table(
        lake, *nested(lambda n: [field(n, "a", "int"), field(n + 1, "b", "int"), field(n + 2, "c", "int")]), version=2
    )
    lake.run("INSERT INTO t " + rows("a", "b", "c") % 3, "INSERT INTO t " + rows("a", "b", "c") % 20)

    def changed(n):  # moved, renamed, promoted and documented; one dropped, one added
        return [field(n + 2, "c", "int", doc="moved"), field(n + 5, "new", "string"), field(n, "renamed", "long")]

    evolve(lake, lambda known: [known[0], *nested(changed)])

    assert lake.one("SELECT s, l[1], m['k'] FROM t WHERE id = 2 LIMIT 1") == ({"renamed": 2, "c": 2, "new": None},) * 3
    by_name = rows("renamed", "c", "new").replace("'new': i", "'new': 'x'")
    lake.run("INSERT INTO t " + by_name % 3, "INSERT INTO t " + by_name % 20)
    assert_same_fields(lake)
    assert [*fields_of(lake).values()] == nested(changed)


def assert_same_fields(lake):
    """The same rows on both sides, fields of structs by their names: those of DuckDB are ordered by their ids."""

    def sorted_inside(value):
        if isinstance(value, dict):
            return sorted((key, sorted_inside(each)) for key, each in value.items())
        return [sorted_inside(each) for each in value] if isinstance(value, list | tuple) else value

    tables = [lake.static().scan().to_arrow(), lake.duck.sql("FROM t").to_arrow_table()]
    found = [sorted((sorted_inside(row) for row in table.to_pylist()), key=repr) for table in tables]
    assert found[0] == found[1]


def test_fields_inside_structs_lists_and_maps_that_duckdb_changes_keep_the_rest(lake):
    def given(n):
        return [
            field(n + 2, "c", "int", doc="last id first"),
            field(n, "a", "int") | {"required": True},
            field(n + 1, "b", "int"),
        ]

    new_table(lake, *nested(given), version=2)
    lake.run("INSERT INTO t " + rows("a", "b", "c") % 3, "INSERT INTO t " + rows("a", "b", "c") % 20)

    for parent in ("s", "l.element", "m.value"):
        lake.run(f"ALTER TABLE t ADD COLUMN {parent}.new VARCHAR", f"ALTER TABLE t RENAME COLUMN {parent}.b TO renamed")
    lake.run("ALTER TABLE t DROP COLUMN s.a", "ALTER TABLE t ADD COLUMN other INTEGER")

    fields = fields_of(lake)
    assert fields["s"]["doc"] == "a struct"
    assert fields["s"]["type"]["fields"] == [given(10)[0], field(11, "renamed", "int"), field(43, "new", "string")]
    assert fields["l"]["type"]["element"]["fields"][:2] == given(30)[:2]
    value = fields["m"]["type"]
    assert value["value-required"] is True
    assert [each["name"] for each in value["value"]["fields"]] == ["c", "a", "renamed", "new"]
    assert_same_fields(lake)


def test_what_ducklake_lacks_survives_what_duckdb_does_to_other_columns(lake):
    fields = [
        field(5, "b", "fixed[3]", doc="first"),
        field(3, "key", "string") | {"required": True},
        field(4, "c", "int"),
    ]
    new_table(lake, *fields, version=2)
    schema = lake.metadata().schema().to_json()
    known = {each["name"]: each for each in schema["fields"]}
    ordered = [known[name] for name in ("key", "c", "b", "id")]
    commit(
        lake,
        {"action": "add-schema", "schema": {**schema, "fields": ordered, "identifier-field-ids": [known["key"]["id"]]}},
        {"action": "set-current-schema", "schema-id": -1},
    )

    lake.run("ALTER TABLE t DROP COLUMN c", "ALTER TABLE t ADD COLUMN d DATE", "COMMENT ON COLUMN t.d IS 'a day'")

    after = lake.metadata().schema()
    assert [each.name for each in after.fields] == ["key", "b", "id", "d"]
    assert after.to_json()["fields"][:3] == [known["key"], known["b"], known["id"]]
    assert after.identifier_field_ids == (known["key"]["id"],)
    assert after.fields[3].doc == "a day"
    lake.run("ALTER TABLE t ALTER COLUMN key DROP NOT NULL")
    assert lake.metadata().schema().identifier_field_ids == ()


def test_required_column_becomes_optional_on_both_sides(lake):
    new_table(lake, field(2, "c", "int") | {"required": True}, version=2)
    lake.run("INSERT INTO t VALUES (1, 5)")

    evolve(lake, lambda known: [known[0], known[1] | {"required": False}])

    lake.run("INSERT INTO t VALUES (2, NULL)")
    assert_same_rows(lake)
    assert lake.one("SELECT count(*) FROM t WHERE c IS NULL") == (1,)


def test_moment_of_a_default_follows_its_column_to_timestamps(lake):
    new_table(lake)
    lake.run("INSERT INTO t FROM range(20)")
    evolve(
        lake, lambda known: [*known, field(2, "c", "date", initial_default="2024-02-29", write_default="2024-03-01")]
    )

    moments = {"initial_default": "2024-02-29T00:00:00", "write_default": "2024-03-01T00:00:00"}
    evolve(lake, lambda known: [known[0], field(2, "c", "timestamp", **moments)])
    lake.run("INSERT INTO t (id) VALUES (100)", "ALTER TABLE t ADD COLUMN other INTEGER")

    assert lake.one("SELECT min(c), max(c) FROM t") == (datetime(2024, 2, 29), datetime(2024, 3, 1))
    assert fields_of(lake)["c"] == field(2, "c", "timestamp", **moments)


@pytest.mark.parametrize("alter", ["iceberg", "duckdb"])
def test_rows_that_duckdb_inlines_between_changes_of_columns_keep_all_values(lake, alter):
    def change(name, sql):
        if alter == "duckdb":
            lake.run(f"ALTER TABLE t {sql}")
        else:
            evolve(lake, lambda known: [*known, field(len(known) + 1, name, "int")])

    new_table(lake, version=2)
    change("a", "ADD COLUMN a INTEGER")
    lake.run("INSERT INTO t VALUES (1, 5)")
    change("b", "ADD COLUMN b INTEGER")
    lake.run("INSERT INTO t VALUES (2, 6, 7)")
    change("c", "ADD COLUMN c INTEGER")

    assert sorted(lake.duck.execute("FROM t").fetchall()) == [(1, 5, None, None), (2, 6, 7, None)]
    assert_same_rows(lake)


def test_days_and_times_inside_structs_are_served_as_duckdb_inlined_them(lake):
    """DuckDB itself dies of reading them: it wrote `CAST('1969-12-31' AS VARCHAR)` into the text of the struct."""
    text = "CAST(''x'' AS VARCHAR)"
    lake.run("CREATE TABLE t (id BIGINT, s STRUCT(day DATE, moment TIMESTAMP, text VARCHAR), l STRUCT(day DATE)[])")
    lake.run(
        f"INSERT INTO t VALUES (1, {{'day': '1969-12-31', 'moment': '2024-03-05 07:08:09.5', 'text': '{text}'}}, [])"
    )
    lake.run("INSERT INTO t VALUES (2, {'day': NULL, 'moment': NULL, 'text': 'y'}, [{'day': '1969-12-31'}, NULL])")

    rows = sorted(lake.static().scan().to_arrow().to_pylist(), key=lambda row: row["id"])

    assert rows[0]["s"]["day"] == rows[1]["l"][0]["day"] == date(1969, 12, 31)
    assert rows[0]["s"]["moment"] == datetime(2024, 3, 5, 7, 8, 9, 500000)
    assert rows[1]["s"] == {"day": None, "moment": None, "text": "y"}
    assert rows[1]["l"][1] is None


def test_whatever_else_duckdb_casts_inside_structs_is_served_as_it_was_inlined(lake):
    """`CAST('nan' AS REAL)`, and a blob as a text with backslashes."""
    fields = "f FLOAT, g DOUBLE, clock TIME, key UUID, bytes BLOB, text VARCHAR"
    key = UUID("80000000-0000-0000-0000-00000000000f")
    lake.run(f"CREATE TABLE t (id BIGINT, s STRUCT({fields}, inner_ STRUCT(f FLOAT, bytes BLOB)))")
    lake.run(
        "INSERT INTO t VALUES (1, {'f': '-inf', 'g': 'inf', 'clock': '01:02:03.000004', "
        rf"'key': '{key}', 'bytes': '\xABa\x27\x5C', 'text': 'CAST(''x'' AS UUID) CAST(''', "
        r"'inner_': {'f': '-0.0', 'bytes': '\x00'}}), (2, NULL)"
    )
    lake.run(
        "INSERT INTO t VALUES (3, {'f': 'nan', 'g': 'nan', 'clock': NULL, 'key': NULL, 'bytes': NULL, 'text': NULL, "
        "'inner_': NULL})"
    )

    first, second, third = sorted(lake.static().scan().to_arrow().to_pylist(), key=lambda row: row["id"])

    known = first["s"]
    assert (known["f"], known["g"], known["clock"], known["key"]) == (-inf, inf, time(1, 2, 3, 4), key)
    assert known["bytes"] == b"\xaba'\\"
    assert repr(known["inner_"]) == repr({"f": -0.0, "bytes": b"\0"})
    assert second["s"] is None
    assert isnan(third["s"]["f"])
    assert isnan(third["s"]["g"])
