"""Fields are required only where each row has a value, whatever DuckDB lets pass though it is NOT NULL."""

from pathlib import Path

import duckdb
import pytest
from pyiceberg.expressions import IsNull
from pyiceberg.table import StaticTable

from duckicelake.catalog.context.services import Services
from tests.support.client import Client, Json, new_client
from tests.support.lakes import Lake, iceberg_rows
from tests.support.seams import fresh

FLUSH = "CALL ducklake_flush_inlined_data('lake')"


@pytest.fixture
def lake(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Lake:
    return Lake(services, ducklake)


def required(lake: Lake) -> set[str]:
    schema = lake.metadata().schema()
    names = schema.full_names()
    return {
        names[id_]
        for id_, field in schema.map_fields_by_id().items()
        if field.required and not names[id_].endswith("key")
    }


def nulls(lake: Lake, column: str) -> tuple[int, int]:
    """How many rows PyIceberg finds by IS NULL, and how many DuckDB reads; it finds fewer by that itself."""
    found = lake.static().scan(row_filter=IsNull(column)).to_arrow().num_rows
    return found, lake.duck.sql("FROM t").to_arrow_table()[column].null_count


def add(lake: Lake, select: str, name: str = "f.parquet") -> None:
    path = Path(lake.services.policy.warehouse, "ducklake", "main", "t", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    lake.run(f"COPY (SELECT {select}) TO '{path}'")
    lake.run(f"CALL ducklake_add_data_files('lake', 't', '{path}', allow_missing => true)")


def test_columns_are_required_where_duckdb_checks_them(lake: Lake) -> None:
    lake.run(
        "CREATE TABLE t (id INT NOT NULL, s STRUCT(x INT) NOT NULL, l INT[] NOT NULL, m MAP(INT, INT) NOT NULL, "
        "j JSON NOT NULL, v VARCHAR)"
    )
    assert required(lake) == {"id", "j"}
    lake.run("INSERT INTO t VALUES (1, NULL, NULL, NULL, '1', NULL)")
    lake.run("INSERT INTO t SELECT range, NULL, NULL, NULL, '2', NULL FROM range(20)")
    assert nulls(lake, "s") == (21, 21)
    assert required(lake) == {"id", "j"}
    assert iceberg_rows(lake.static()) == lake.duck_rows()


@pytest.mark.parametrize("select", ["1::INT AS id, NULL::VARCHAR AS v", "1::INT AS id"], ids=["null", "missing"])
def test_added_files_make_columns_optional(lake: Lake, select: str) -> None:
    lake.run("CREATE TABLE t (id INT NOT NULL, v VARCHAR NOT NULL)", "INSERT INTO t VALUES (0, 'x')")
    assert required(lake) == {"id", "v"}
    before = lake.metadata().current_schema_id
    add(lake, select)
    assert required(lake) == {"id"}
    assert nulls(lake, "v") == (1, 1)
    assert [snapshot.schema_id for snapshot in lake.metadata().snapshots] == [before, lake.metadata().current_schema_id]
    lake.run("INSERT INTO t VALUES (2, 'y')", "ALTER TABLE t ADD COLUMN w INT")
    assert required(lake) == {"id"}
    assert nulls(lake, "v") == (1, 1)


def test_added_files_without_nulls_leave_columns_required(lake: Lake) -> None:
    lake.run("CREATE TABLE t (id INT NOT NULL, v VARCHAR NOT NULL)")
    add(lake, "1::INT AS id, 'x' AS v")
    assert required(lake) == {"id", "v"}


def test_set_not_null_requires_what_live_files_prove(lake: Lake) -> None:
    lake.run("CREATE TABLE t (id INT, v VARCHAR)", "INSERT INTO t SELECT range, 'x' FROM range(20)")
    add(lake, "1::INT AS id")
    lake.metadata()
    lake.run("ALTER TABLE t ALTER v SET NOT NULL", "ALTER TABLE t ALTER id SET NOT NULL")
    assert required(lake) == {"id"}
    assert nulls(lake, "v") == (1, 1)
    assert len(lake.metadata().schemas) == 2


def test_set_not_null_in_the_window_of_the_rows(lake: Lake) -> None:
    lake.run("CREATE TABLE t (id INT, v VARCHAR)", "INSERT INTO t SELECT range, 'x' FROM range(20)")
    add(lake, "1::INT AS id")
    lake.run(
        "ALTER TABLE t ALTER v SET NOT NULL", "ALTER TABLE t ALTER id SET NOT NULL", "INSERT INTO t VALUES (7, 'y')"
    )
    assert required(lake) == {"id"}


INNER = {"type": "struct", "fields": [{"id": 4, "name": "x", "type": "int", "required": True}]}
LIST = {"type": "list", "element-id": 5, "element": "int", "element-required": True}
SCHEMA: Json = {
    "type": "struct",
    "schema-id": 0,
    "identifier-field-ids": [1, 4],
    "fields": [
        {"id": 1, "name": "id", "type": "int", "required": True},
        {"id": 2, "name": "s", "type": INNER, "required": True},
        {"id": 3, "name": "l", "type": LIST, "required": True},
    ],
}
CASES = {
    "good rows": ("VALUES (1, {'x': 1}, [1])", {"id", "s", "s.x", "l", "l.element"}),
    "good rows in a file": ("SELECT 1, {'x': 1}, [1] FROM range(20)", {"id", "s", "s.x", "l", "l.element"}),
    "null struct": ("VALUES (1, NULL, [1])", {"id", "l", "l.element"}),
    "null in a struct": ("VALUES (1, {'x': NULL}, [1])", {"id", "l", "l.element"}),
    "null struct in a file": ("SELECT 1, NULL, [1] FROM range(20)", {"id", "l", "l.element"}),
    "null list": ("VALUES (1, {'x': 1}, NULL)", {"id", "s", "s.x"}),
    "null in a list in a file": ("SELECT 1, {'x': 1}, [1, NULL] FROM range(20)", {"id", "s", "s.x"}),
}


def test_fields_that_clients_required_stay_so_until_duckdb_breaks_it(
    services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client = new_client(services)
    for number, (select, _) in enumerate(CASES.values()):
        client.create(f"t{number}", schema=SCHEMA)
        ducklake.execute(f"INSERT INTO lake.ns.t{number} {select}")
    for number, (case, (_, left)) in enumerate(CASES.items()):
        answer = Client(fresh(services)).load(f"t{number}")
        table = StaticTable.from_metadata(answer["metadata-location"])
        names = {id_: table.schema().find_column_name(id_) for id_ in range(1, 6)}
        assert {names[id_] for id_ in names if table.schema().find_field(id_).required} == left, case
        assert set(table.schema().identifier_field_ids) == ({1, 4} if "s.x" in left else {1}), case
        rows = ducklake.sql(f"FROM lake.ns.t{number}").to_arrow_table().to_pylist()
        assert table.scan().to_arrow().to_pylist() == rows, case
