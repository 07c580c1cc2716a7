"""What upkeep has done to all files of a table holds whatever the table is called since, and for no other table."""

from collections.abc import Callable

import duckdb
import pytest

from duckicelake.catalog.tables import drop_table, rename_table
from duckicelake.catalog.warehouse import settle
from duckicelake.iceberg.rest import RenameTableRequest
from duckicelake.maintenance.policy import AUTOMATIC
from duckicelake.upkeep.worker import Worker
from tests.support.client import NS, Client
from tests.upkeep.test_queue import LIMITS, make_ready, plan, set_policies, tasks

KINDS = {"sort", "bloom-filters", "remove-orphans"}
PROPERTIES = {
    AUTOMATIC: ",".join(sorted(KINDS)),
    "maintenance.sort.order": "id",
    "maintenance.orphans.enabled": "true",
    "write.parquet.bloom-filter-enabled.column.name": "true",
}
Rename = Callable[[Client, duckdb.DuckDBPyConnection], None]


def rename_by_iceberg(client: Client, _: duckdb.DuckDBPyConnection) -> None:
    request = {"source": {"namespace": NS, "name": "t"}, "destination": {"namespace": NS, "name": "renamed"}}
    rename_table(client.services, RenameTableRequest.model_validate(request))


def rename_by_duckdb(_: Client, duck: duckdb.DuckDBPyConnection) -> None:
    duck.execute("ALTER TABLE lake.ns.t RENAME TO renamed")


def work(client: Client) -> set[str]:
    """Do all that is due; the kinds of what was."""
    plan(client.services)
    make_ready(client.services)
    while Worker(LIMITS).work(client.services):
        pass
    done = {task.kind for task in tasks(client.services) if task.state == "done"}
    assert done == {task.kind for task in tasks(client.services)}, tasks(client.services)
    with client.services.database.transaction() as cursor:
        cursor.execute("DELETE FROM duckicelake_upkeep_task")
    return done


def fill(client: Client, duck: duckdb.DuckDBPyConnection) -> None:
    client.create(properties=PROPERTIES)
    duck.execute("INSERT INTO lake.ns.t SELECT 1000 - range, 'x' || range FROM range(1000)")


@pytest.fixture
def sorted_lake(client: Client, ducklake: duckdb.DuckDBPyConnection) -> Client:
    """A lake with a table to whose files all three kinds were done."""
    settle(client.services)
    set_policies(client.services, {AUTOMATIC: "none"})
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    fill(client, ducklake)
    assert work(client) >= {"sort", "remove-orphans"}
    work(client)
    assert work(client) == set()
    return client


@pytest.mark.parametrize("rename", [rename_by_iceberg, rename_by_duckdb])
def test_nothing_is_done_anew_after_a_rename(
    sorted_lake: Client, ducklake: duckdb.DuckDBPyConnection, rename: Rename
) -> None:
    rename(sorted_lake, ducklake)
    assert work(sorted_lake) == set()


def test_table_of_a_former_name_is_another_one(sorted_lake: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    rename_by_iceberg(sorted_lake, ducklake)
    fill(sorted_lake, ducklake)
    assert work(sorted_lake) >= {"sort", "remove-orphans"}
    drop_table(sorted_lake.services, NS, "t", purge=False)
    fill(sorted_lake, ducklake)
    assert work(sorted_lake) >= {"sort", "remove-orphans"}


def test_job_of_an_older_server_counts_by_the_name(sorted_lake: Client) -> None:
    with sorted_lake.services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_job SET table_id = NULL")
    assert work(sorted_lake) == set()
