"""Whoever renames columns or repartitions a table: all engines can bind all of its specs to its schema."""

import pytest

from duckicelake.errors import InvalidRequestError
from tests.lake.iceberg_client import add, commit, evolve, field, new_table
from tests.support.lakes import assert_same_rows

ROWS = "INSERT INTO t SELECT range, 'n' || range % 3 FROM range(20)"


def fields_of(lake):
    return [
        [(each.field_id, each.name, str(each.transform)) for each in spec.fields]
        for spec in lake.metadata().partition_specs
    ]


def assert_bound(lake):
    """As Java's library: no field has the name of a column that isn't its source, or of a field with another id."""
    metadata = lake.metadata()
    columns = metadata.schema().names()
    fields = [each for spec in metadata.partition_specs for each in spec.fields]
    assert all(columns.get(each.name, each.source_id) == each.source_id for each in fields)
    assert len({each.name for each in fields}) == len({each.field_id for each in fields})
    assert_same_rows(lake)


@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize(
    ("statements", "names"),
    [
        (
            ["ALTER TABLE t SET PARTITIONED BY (name)", ROWS, "ALTER TABLE t RENAME COLUMN name TO label",
             "ALTER TABLE t ADD COLUMN name varchar", "INSERT INTO t SELECT range, 'l', 'x' FROM range(20)",
             "ALTER TABLE t SET PARTITIONED BY (name)", "INSERT INTO t SELECT range, 'l', 'y' FROM range(20)"],
            ["name_1000", "name"],
        ),
        (
            ["ALTER TABLE t SET PARTITIONED BY (bucket(4, id))", ROWS,
             "ALTER TABLE t SET PARTITIONED BY (bucket(8, id))", ROWS, "DELETE FROM t WHERE id = 3"],
            ["id_bucket", "id_bucket_8"],
        ),
        (
            ["ALTER TABLE t SET PARTITIONED BY (bucket(4, id))", ROWS, "ALTER TABLE t ADD COLUMN id_bucket int",
             "INSERT INTO t SELECT range, 'l', 7 FROM range(20)"],
            ["id_bucket_4"],
        ),
        (
            ["ALTER TABLE t SET PARTITIONED BY (name)", ROWS, "ALTER TABLE t RESET PARTITIONED BY",
             "ALTER TABLE t DROP COLUMN name", "ALTER TABLE t ADD COLUMN name int"],
            ["name_1000"],
        ),
    ],
)  # fmt: skip
def test_partition_fields_of_duckdb_have_names_of_their_own(lake, statements, names, is_watched):
    lake.run("CREATE TABLE t (id bigint, name varchar)")
    for statement in statements:
        lake.run(statement)
        if is_watched:
            assert_bound(lake)

    assert_bound(lake)
    assert [name for fields in fields_of(lake) for _, name, _ in fields] == names


def test_a_client_can_not_add_a_column_by_a_partition_fields_name(lake):
    new_table(lake, version=2)
    spec = {"fields": [{"source-id": 1, "name": "id_bucket", "transform": "bucket[4]"}]}
    commit(lake, {"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": -1})

    with pytest.raises(InvalidRequestError, match="sourced from different field in schema: id_bucket"):
        add(lake, field(2, "id_bucket", "int"))

    add(lake, field(2, "other", "int"))
    with pytest.raises(InvalidRequestError, match="sourced from different field in schema: id_bucket"):
        evolve(lake, lambda known: [known[0], {**known[1], "name": "id_bucket"}])


def test_version_1_keeps_void_fields_when_duckdb_repartitions(lake):
    new_table(lake, field(2, "name", "string"), version=1)

    for key in ("name", "bucket(4, id), name", "bucket(8, id)", "name"):
        lake.run(f"ALTER TABLE t SET PARTITIONED BY ({key})", ROWS)
        assert_bound(lake)
    lake.run("ALTER TABLE t RESET PARTITIONED BY", ROWS)
    assert_bound(lake)

    metadata = lake.metadata()
    assert metadata.format_version == 1
    assert fields_of(lake) == [
        [],
        [(1000, "name", "identity")],
        [(1000, "name", "identity"), (1001, "id_bucket", "bucket[4]")],
        [(1000, "name", "void"), (1001, "id_bucket", "void"), (1002, "id_bucket_8", "bucket[8]")],
        [(1000, "name", "identity"), (1001, "id_bucket", "void"), (1002, "id_bucket_8", "void")],
        [(1000, "name", "void"), (1001, "id_bucket", "void"), (1002, "id_bucket_8", "void")],
    ]
    assert metadata.default_spec_id == 5
