"""What Iceberg has no word for is refused while it lasts, and folds into the next step that it has a word for."""

from contextlib import suppress

import pytest

from duckicelake.errors import UnsupportedError
from tests.lake.iceberg_client import commit, field, new_table, struct
from tests.support.lakes import assert_same_rows

NESTED = "{'a': 1}, [1], MAP {'k': 1}"
FILES = "INSERT INTO t SELECT range, 1 FROM range(30)"
TO_DOUBLE = "ALTER TABLE t ALTER x TYPE DOUBLE"
HEALED = {
    "int128 of a sum": (
        "CREATE TABLE t AS SELECT 1 x, sum(range) s FROM range(9)",
        "ALTER TABLE t ADD COLUMN z INT DEFAULT 5",
        "INSERT INTO t VALUES (2, 3, 4)",
        "ALTER TABLE t DROP COLUMN s",
    ),
    "int128 in a struct": (
        "CREATE TABLE t AS SELECT 1 x, {'a': 1, 'b': 3::hugeint} s",
        "INSERT INTO t VALUES (2, {'a': 2, 'b': 3})",
        "ALTER TABLE t DROP COLUMN s.b",
    ),
    "int128 for a while": (
        "CREATE TABLE t (x int)",
        "INSERT INTO t VALUES (1)",
        "ALTER TABLE t ADD COLUMN s HUGEINT",
        "INSERT INTO t VALUES (2, 3)",
        "DELETE FROM t WHERE x = 1",
        FILES,
        "DELETE FROM t WHERE x = 7",
        "ALTER TABLE t DROP COLUMN s",
        "INSERT INTO t VALUES (4)",
    ),
    "interval dropped while empty": (
        "CREATE TABLE t (x int, i INTERVAL)",
        "ALTER TABLE t DROP COLUMN i",
        "INSERT INTO t VALUES (1)",
    ),
    "interval and timetz in files": (
        "CREATE TABLE t AS SELECT range x, INTERVAL 1 DAY i, '10:00:00+01'::TIMETZ c, 3::UHUGEINT u FROM range(20)",
        "INSERT INTO t VALUES (1, INTERVAL 1 HOUR, '10:00:00+01', 3)",
        "ALTER TABLE t DROP COLUMN i",
        "ALTER TABLE t DROP COLUMN c",
        "ALTER TABLE t DROP COLUMN u",
    ),
    "int to double, updated": ("CREATE TABLE t (x int, y int)", FILES, TO_DOUBLE, "UPDATE t SET x = x + 0.5"),
    "int to double, rewritten": (
        "CREATE TABLE t (x int, y int)",
        FILES,
        TO_DOUBLE,
        "INSERT INTO t VALUES (0.5, 3)",
        "DELETE FROM t WHERE x = 3",
        "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)",
    ),
    "date to timestamp, rewritten": (
        "CREATE TABLE t (x int, d DATE)",
        "INSERT INTO t SELECT range, DATE '1969-12-30' + range::int FROM range(30)",
        "ALTER TABLE t ALTER d TYPE TIMESTAMP",
        "DELETE FROM t WHERE x = 3",
        "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)",
    ),
    "int to double, deleted": (
        "CREATE TABLE t (x int, y int)",
        FILES,
        TO_DOUBLE,
        "DELETE FROM t",
        "INSERT INTO t VALUES (0.5, 3)",
    ),
    "inlined int to double, flushed": (
        "CREATE TABLE t (x int, y int)",
        "INSERT INTO t VALUES (1, 2), (3, 4)",
        TO_DOUBLE,
        "INSERT INTO t VALUES (0.5, 3)",
        "CALL ducklake_flush_inlined_data('lake')",
    ),
    "added and changed beside int128": (
        "CREATE TABLE t (y int, s HUGEINT)",
        "ALTER TABLE t ADD COLUMN x int",
        "INSERT INTO t SELECT range, 1, range FROM range(30)",
        TO_DOUBLE,
        "ALTER TABLE t DROP COLUMN s",
    ),
    "names with dots": (
        "CREATE TABLE t (st STRUCT(a int), l int[], m MAP(varchar, int))",
        f"INSERT INTO t VALUES ({NESTED})",
        'ALTER TABLE t ADD COLUMN "st.a" int',
        'ALTER TABLE t ADD COLUMN "l.element" int',
        f"INSERT INTO t VALUES ({NESTED}, 2, 3)",
        'ALTER TABLE t ADD COLUMN "M.key" int',
        f"INSERT INTO t SELECT {NESTED}, 5, 6, range FROM range(20)",
        'ALTER TABLE t RENAME COLUMN "st.a" TO sta',
        'ALTER TABLE t RENAME COLUMN "l.element" TO le',
        'ALTER TABLE t DROP COLUMN "M.key"',
    ),
    "created with a dot": (
        'CREATE TABLE t (m MAP(varchar, int), "m.value" int)',
        "INSERT INTO t VALUES (MAP {'k': 1}, 2)",
        'ALTER TABLE t RENAME COLUMN "m.value" TO mv',
    ),
}


@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize("statements", HEALED.values(), ids=HEALED)
def test_a_table_is_served_once_iceberg_has_words_for_it(lake, statements, is_watched):
    refused = 0
    for statement in statements:
        lake.run(statement)
        if is_watched:
            try:
                assert_same_rows(lake)
            except UnsupportedError:
                refused += 1
    if not is_watched:
        lake.run("CALL ducklake_expire_snapshots('lake', older_than => now())")

    assert_same_rows(lake)
    assert bool(refused) is is_watched


def test_a_default_that_came_while_a_table_was_refused_is_read_in_rows_of_before(lake):
    lake.run(
        "CREATE TABLE t AS SELECT 1 x, sum(range) s FROM range(9)",
        "ALTER TABLE t ADD COLUMN z INT DEFAULT 5",
        "ALTER TABLE t DROP COLUMN s",
    )

    assert lake.metadata().schema().fields[1].initial_default == 5


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (('CREATE TABLE t (st STRUCT(a int), "st.a" int)',), r"full name st\.a"),
        (('CREATE TABLE t (l int[], "l.element" int)',), r"full name l\.element"),
        (('CREATE TABLE t (m MAP(varchar, int), "m.key" int)',), r"full name m\.key"),
        (('CREATE TABLE t (m MAP(varchar, int), "M.Value" int)',), "full name"),
        (("CREATE TABLE t (x int, y int)", FILES, TO_DOUBLE, FILES), "Column x was changed by DuckDB"),
        (("CREATE TABLE t (x int, v int)", FILES, "ALTER TABLE t ALTER v TYPE VARIANT", "DELETE FROM t WHERE x = 3",
          "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)"), "Column v was changed by DuckDB"),
        (("CREATE TABLE t (x int, s STRUCT(c int))", FILES.replace(", 1", ", {'c': 1}"),
          "ALTER TABLE t ALTER s TYPE STRUCT(c DOUBLE)", "DELETE FROM t WHERE x = 3",
          "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)"),
         r"Column s\.c was changed by DuckDB"),
    ],
)  # fmt: skip
def test_what_lasts_is_refused_by_name(lake, statements, words):
    for statement in statements:
        lake.run(statement)
        with suppress(UnsupportedError):
            lake.metadata()

    with pytest.raises(UnsupportedError, match=words):
        lake.metadata()


def test_a_field_that_can_no_longer_identify_rows_does_not(lake):
    new_table(lake, field(2, "x", "float"), version=2)
    fields = [field(1, "id", "int", required=True)]
    schema = {**struct(*fields), "identifier-field-ids": [1]}
    commit(lake, {"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1})
    assert lake.metadata().schema().identifier_field_ids == (1,)

    lake.run("ALTER TABLE t ALTER COLUMN id TYPE DOUBLE")

    assert lake.metadata().schema().identifier_field_ids == ()


@pytest.mark.parametrize(
    "key", ["l", "s", "g", "lower(v)", "x + 1", "l DESC, x"],
)  # fmt: skip
def test_orders_of_values_that_iceberg_does_not_sort_are_none(lake, key):
    lake.run(
        'CREATE TABLE t (x int, l int[], s STRUCT(a int), g GEOMETRY, v varchar, "lower(v)" int)',
        "ALTER TABLE t SET SORTED BY (x)",
    )
    assert lake.metadata().sort_order().fields

    lake.run(f"ALTER TABLE t SET SORTED BY ({key})")

    assert lake.metadata().default_sort_order_id == 0
    assert not lake.metadata().sort_order().fields
