"""Looks at views read the snapshots since their refresh, and not all that the lake has."""

import json
from typing import Any, LiteralString

import psycopg
import pytest

from duckicelake.materialized_views import view_rows
from duckicelake.materialized_views.view_rows import KIND, Schedule
from duckicelake.materialized_views.views import schedule_view
from tests.materialized_views.conftest import Views

SNAPSHOTS = 100_000
MAX_BLOCKS = 400
"""That a look reads. The changes of all snapshots take 1,000 and more."""

_ADD_SNAPSHOTS = """
WITH newest AS (SELECT * FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1), made AS (
    INSERT INTO ducklake_snapshot
    SELECT newest.snapshot_id + i, newest.snapshot_time, schema_version, next_catalog_id, next_file_id
    FROM newest, generate_series(1, %(snapshots)s) i
    RETURNING snapshot_id)
INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made)
SELECT snapshot_id, 'inserted_into_table:' || %(table_id)s || ',inlined_insert:' || %(table_id)s FROM made
"""


@pytest.fixture
def views(views: Views) -> Views:
    """A lake with views of `t` and `u`, and many snapshots of `u`."""
    views.lake.run("CREATE TABLE t (k INT)", "INSERT INTO t VALUES (1)", "CREATE TABLE u (k INT)")
    views.create("quiet", "SELECT k FROM {t}")
    views.create("busy", "SELECT k FROM {u}")
    with psycopg.connect(views.services.database.url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        ((table_id,),) = connection.execute("SELECT table_id FROM ducklake_table WHERE table_name = 'u'").fetchall()
        connection.execute(_ADD_SNAPSHOTS, {"snapshots": SNAPSHOTS, "table_id": table_id})
        connection.execute("VACUUM ANALYZE ducklake_snapshot")
        connection.execute("VACUUM ANALYZE ducklake_snapshot_changes")
    return views


def put_back(views: Views, name: str, snapshots: int) -> None:
    """Let a view be so many snapshots behind, and refreshed when its source changes."""
    schedule_view(views.services, ("main",), name, Schedule(None, on_change=True))
    with views.services.database.transaction() as cursor:
        cursor.execute(
            "UPDATE duckicelake_materialized_view SET "
            "snapshot_id = (SELECT max(snapshot_id) FROM ducklake_snapshot) - %s WHERE on_change",
            [snapshots],
        )


def assert_few_blocks(views: Views) -> None:
    """Each look reads few blocks."""
    looks: list[tuple[LiteralString, dict[str, Any]]] = [
        (view_rows._SQL.due, {"change_seconds": 0, "failure_seconds": 0}),
        (view_rows._SQL.scheduled, {"schemas": ["main"] * 2, "tables": ["quiet", "busy"], "kind": KIND}),
        (view_rows._SQL.skip_unchanged, {"snapshots": 40}),
    ]
    for query, parameters in looks:
        with views.services.database.transaction() as cursor:
            ((found,),) = cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", parameters).fetchall()
        plan = found[0]["Plan"]
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < MAX_BLOCKS, json.dumps(plan, indent=1)


@pytest.mark.parametrize("behind", [0, 50])
def test_looks_read_the_snapshots_since_the_refresh(views: Views, behind: int) -> None:
    put_back(views, "quiet", behind)
    assert_few_blocks(views)


def test_looks_end_at_the_first_change_of_a_source(views: Views) -> None:
    put_back(views, "busy", SNAPSHOTS - 10)
    assert_few_blocks(views)
