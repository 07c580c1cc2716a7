"""Tables of more columns than a table of inlined rows can have in Postgres: their rows are in files, whoever writes."""

import json
from typing import Any

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from duckicelake.lake.ducklake.definition import MAX_INLINED_COLUMNS
from tests.conftest import Attach
from tests.support.client import NS, Client
from tests.support.lakes import Lake

FULL, WIDE = MAX_INLINED_COLUMNS, MAX_INLINED_COLUMNS + 1
INLINED = "SELECT table_name FROM ducklake_inlined_data_tables"


def schema(columns: int, schema_id: int = 0) -> dict[str, Any]:
    fields = [{"id": i, "name": f"c{i}", "type": "long", "required": False} for i in range(1, columns + 1)]
    return {"type": "struct", "schema-id": schema_id, "fields": fields}


def post(services: Services, *rows: dict[str, int]) -> None:
    append_rows(services, PostedRows(NS, "t", json.dumps(rows).encode(), "application/json"))


def assert_same(lake: Lake, *rows: tuple[int | None, ...]) -> None:
    """Both sides read these of the first column and the last two that there may be."""
    names = ("c1", f"c{FULL}", f"c{WIDE}")[: len(rows[0])]
    found = lake.static(namespace="ns").scan(selected_fields=names).to_arrow().to_pylist()
    assert sorted(tuple(row[name] for name in names) for row in found) == list(rows)
    assert lake.duck.execute(f"SELECT {', '.join(names)} FROM lake.ns.t ORDER BY 1").fetchall() == list(rows)


def test_rows_of_as_many_columns_as_postgres_takes_are_inlined(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create(schema=schema(FULL))
    post(services, {"c1": 1, f"c{FULL}": 10})
    ducklake.execute("INSERT INTO lake.ns.t (c1) VALUES (2)")
    assert ducklake.execute("FROM ducklake_list_files('lake', 't', schema => 'ns')").fetchall() == []
    assert_same(Lake(services, ducklake), (1, 10), (2, None))


def test_rows_of_more_columns_are_in_files(services: Services, client: Client, attach: Attach) -> None:
    client.create(schema=schema(WIDE))
    lake = Lake(services, attach())
    post(services, {"c1": 1, f"c{WIDE}": 10})
    lake.run("INSERT INTO lake.ns.t (c1) VALUES (2)", f"UPDATE lake.ns.t SET c{FULL} = 5 WHERE c1 = 1")
    assert lake.sql(INLINED) == []
    assert_same(lake, (1, 5, 10), (2, None, None))
    lake.run("DELETE FROM lake.ns.t WHERE c1 = 2", "CHECKPOINT lake")
    assert_same(lake, (1, 5, 10))


@pytest.mark.parametrize("option", [None, *(pytest.param(one, marks=pytest.mark.model) for one in ("0", "1000"))])
def test_inlined_rows_of_a_table_that_gets_wide_stay(
    services: Services, client: Client, attach: Attach, option: str | None
) -> None:
    client.create(schema=schema(FULL))
    before = Lake(services, attach())
    if option is not None:
        before.run(f"CALL lake.set_option('data_inlining_row_limit', {option}, schema => 'ns', table_name => 't')")
    post(services, {"c1": 1, f"c{FULL}": 10})
    updates = [
        {"action": "add-schema", "schema": schema(WIDE)},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    client.commit({"requirements": [], "updates": updates})
    lake = Lake(services, attach())
    post(services, {"c1": 2, f"c{WIDE}": 20})
    lake.run("INSERT INTO lake.ns.t (c1) VALUES (3)")
    limits = lake.sql("SELECT value, scope FROM ducklake_metadata WHERE key = 'data_inlining_row_limit'")
    assert limits == [("0", "table")]
    rows = [(1, 10, None), (2, None, 20), (3, None, None)]
    assert_same(lake, *rows)
    lake.run("CALL ducklake_flush_inlined_data('lake')")
    assert_same(lake, *rows)
    lake.run("DELETE FROM lake.ns.t WHERE c1 = 1")
    assert_same(lake, *rows[1:])
