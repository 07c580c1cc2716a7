"""A worker is killed at each step of a task, of each kind: nothing is lost or doubled, and the next one goes on."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.warehouse import settle
from duckicelake.delta.import_.importer import DeltaImport, import_table
from duckicelake.iceberg.manifest.entry import ManifestContent
from duckicelake.lake.ducklake import maintenance
from duckicelake.maintenance.policy import parse_policy
from duckicelake.maintenance.task import UpkeepTask
from duckicelake.materialized_views.view_rows import MaterializedQuery, Schedule
from duckicelake.materialized_views.views import NewView, create_view
from duckicelake.query.processes import QueryLimits
from duckicelake.upkeep import queue
from duckicelake.upkeep.actions import list_kinds
from duckicelake.upkeep.queue import DueTask, QueuedTask, TaskFilter
from tests.catalog.commit.test_crashes import MOST_STEPS, assert_whole_catalog
from tests.support.client import (
    NS,
    Client,
    Draft,
    assert_whole,
    data_files,
    delete,
    duckdb_rows,
    live,
    local,
    pyiceberg_rows,
    set_properties,
)
from tests.support.killed_process import Ending, Work, mortal
from tests.support.seams import fresh

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]
ROWS = "SELECT rowid, id, name FROM lake.ns.t ORDER BY ALL"
DAYS_AGO = time.time() - 10 * 24 * 3600
VIEW_LIMITS = QueryLimits(1, 256 * 1024**2, 256 * 1024**2, 60.0, 0)
Duck = duckdb.DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of task. begin: runs first. prepare: gives the table a reason for it. is_done: whether that is gone."""

    prepare: Callable[[Client, Duck, int], object]
    is_done: Callable[[Client, Duck], bool]
    policies: Mapping[str, str] = field(default_factory=dict)
    table: str = "t"
    begin: Callable[[Services], object] = lambda _: None


def insert_rows(_: Client, duck: Duck, step: int) -> None:
    duck.execute("CALL lake.set_option('data_inlining_row_limit', 1000)")
    duck.execute(f"INSERT INTO lake.ns.t SELECT {100 * step} + range, 'n' FROM range(5)")
    duck.execute(f"DELETE FROM lake.ns.t WHERE id = {100 * step}")


def insert_files(_: Client, duck: Duck, step: int) -> None:
    duck.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    for number in range(2):
        duck.execute(f"INSERT INTO lake.ns.t SELECT {100 * step} + range * 2 + {number}, 'n' FROM range(20)")
    duck.execute(f"DELETE FROM lake.ns.t WHERE id = {100 * step}")


def append_rows(client: Client, _: Duck, step: int) -> None:
    Client(fresh(client.services)).append((step, "n"))


def leave_file(client: Client, _: Duck, step: int) -> None:
    path = local(f"{client.metadata()['location']}/data/orphan-{step}.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"left")
    os.utime(path, (DAYS_AGO, DAYS_AGO))


def delete_rows(client: Client, _: Duck, step: int) -> None:
    """Append a file, and delete rows of it by two delete files."""
    current = Client(fresh(client.services))
    current.append(*((100 * step + number, "n") for number in range(5)))
    path = data_files(current.metadata())[-1]
    for position in range(2):
        current.commit(delete(current.metadata(), (path, position)))


def make_view(services: Services) -> None:
    query = MaterializedQuery("SELECT id, name FROM t", NS, {})
    create_view(services, NewView(NS, "mv", query, Schedule(), {}), VIEW_LIMITS)


def has_no_rows_in_postgres(client: Client, _: Duck) -> bool:
    with client.services.database.transaction() as cursor:
        ((table_id, *_names),) = maintenance.read_table_ids(cursor, "ns", "t", 0, None)
        ((_table_id, inlined),) = maintenance.read_statistics(cursor, [table_id], {})
    return inlined.rows == 0


def has_one_file(client: Client, _: Duck) -> bool:
    return len(data_files(client.metadata())) == 1


def is_in_order(client: Client, duck: Duck) -> bool:
    lines = "SELECT id > lag(id) OVER (ORDER BY filename, file_row_number) AS is_wrong FROM lake.ns.t"
    return has_one_file(client, duck) and not duck.sql(f"SELECT 1 FROM ({lines}) WHERE is_wrong").fetchall()


def has_one_snapshot(client: Client, _: Duck) -> bool:
    return len(client.metadata()["snapshots"]) == 1


def has_no_orphan(client: Client, _: Duck) -> bool:
    return not list(local(client.metadata()["location"]).rglob("orphan-*"))


def has_statistics(client: Client, _: Duck) -> bool:
    metadata = client.metadata()
    return metadata["current-snapshot-id"] in {file["snapshot-id"] for file in metadata["statistics"]}


def has_one_delete_file(client: Client, _: Duck) -> bool:
    lines = Draft(client.metadata()).parent_manifests
    return sum(len(live(line)) for line in lines if line.content is ManifestContent.DELETES) == 1


def ask_for_filters(services: Services) -> None:
    Client(services).commit(set_properties(**{"write.parquet.bloom-filter-enabled.column.id": "true"}))


def has_filters(client: Client, duck: Duck) -> bool:
    files = [str(local(path)) for path in data_files(client.metadata())]
    query = "SELECT bool_and(bloom_filter_offset IS NOT NULL) FROM parquet_metadata($files) WHERE path_in_schema = 'id'"
    return bool(duck.execute(query, {"files": files}).fetchall()[0][0])


def leave_manifests(services: Services) -> None:
    """Have commits pack no manifests."""
    Client(services).commit(set_properties(**{"commit.manifest-merge.enabled": "false"}))


def has_one_manifest(client: Client, _: Duck) -> bool:
    return len(Draft(client.metadata()).parent_manifests) == 1


def follow_delta_table(services: Services) -> None:
    root = find_delta_root(services)
    write_deltalake(str(root), delta_rows(-1))
    import_table(services, DeltaImport(str(root), NS, "followed", following=True))


def append_version(client: Client, _: Duck, step: int) -> None:
    write_deltalake(str(find_delta_root(client.services)), delta_rows(step), mode="append")


def find_delta_root(services: Services) -> Path:
    return Path(services.policy.warehouse) / "delta" / "followed"


def delta_rows(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "name": ["n"]})


def has_each_version_once(client: Client, duck: Duck) -> bool:
    delta = DeltaTable(find_delta_root(client.services))
    versions = [int(one["summary"]["delta.version"]) for one in client.metadata("followed")["snapshots"]]
    expected = sorted(delta.to_pyarrow_table().column("id").to_pylist())
    found = [row[0] for row in duck.sql("SELECT id FROM lake.ns.followed ORDER BY id").fetchall()]
    return versions == list(range(delta.version() + 1)) and found == expected


def has_the_rows_of_its_source(_: Client, duck: Duck) -> bool:
    return duckdb_rows(duck, "mv") == duckdb_rows(duck)


KINDS = {
    "flush": Kind(insert_rows, has_no_rows_in_postgres),
    "compact": Kind(insert_files, has_one_file, {"maintenance.compaction.min-files": "2"}),
    "sort": Kind(insert_files, is_in_order, {"maintenance.sort.order": "id DESC"}),
    "expire": Kind(append_rows, has_one_snapshot, {"history.expire.max-snapshot-age-ms": "1"}),
    "remove-orphans": Kind(leave_file, has_no_orphan, {"maintenance.orphans.older-than": "1d"}),
    "statistics": Kind(append_rows, has_statistics),
    "rewrite-deletes": Kind(delete_rows, has_one_delete_file),
    "bloom-filters": Kind(insert_files, has_filters, begin=ask_for_filters),
    "pack-manifests": Kind(append_rows, has_one_manifest, begin=leave_manifests),
    "refresh": Kind(append_rows, has_the_rows_of_its_source, table="mv", begin=make_view),
    "follow-delta": Kind(append_version, has_each_version_once, table="followed", begin=follow_delta_table),
}


def test_each_kind_of_task_is_killed() -> None:
    assert KINDS.keys() == list_kinds()


@pytest.mark.parametrize("name", KINDS)
def test_task_killed_at_any_step_happens_once_in_the_end(
    services: Services, client: Client, ducklake: Duck, name: str
) -> None:
    kind = KINDS[name]
    settle(services)
    client.create()
    client.append((-1, "first"))
    kind.begin(services)
    with services.database.transaction() as cursor:
        queue.write_policies(cursor, kind.policies)
    with mortal(services) as server:
        for step in range(MOST_STEPS):
            kind.prepare(client, ducklake, step)
            before = ducklake.execute(ROWS).fetchall()
            enqueue(services, name, kind)
            ending = server.serve(Work("upkeep", step))
            check_table(services, ducklake, before, ending)
            if ending.answered and find_task(services).state == "done":
                break
            # an advisory lock of the last worker may have outlived it for a moment: then the next one was kept from it
            assert find_task(services).state != "done" or ending.log[-1] == "after COMMIT", ending.log
            end_leases(services)
    assert ending.answered, ending.log
    assert find_task(services).state == "done", ending.log
    assert kind.is_done(Client(fresh(services)), ducklake)
    assert_whole_catalog(services, kept="followed")
    check_table(services, ducklake, before, ending)


def check_table(services: Services, ducklake: Duck, rows: list[tuple[int, int, str]], ending: Ending) -> None:
    """Check that the table has these rows, by the same ids, for DuckDB and for PyIceberg."""
    assert ducklake.execute(ROWS).fetchall() == rows, ending.log
    answer = Client(fresh(services)).load()
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake), ending.log
    assert_whole(answer)


def enqueue(services: Services, name: str, kind: Kind) -> None:
    """Ask for a task, unless a dead worker has it still: then it is taken again."""
    task = UpkeepTask(name, NS, kind.table, "a test", parse_policy(kind.policies), 128 * 2**20)
    with services.database.transaction() as cursor:
        ((table_id, *_names),) = maintenance.read_table_ids(cursor, "ns", kind.table, 0, None)
        queue.enqueue(cursor, [DueTask(table_id, task, "", kind.policies)], requested_by="a test")


def find_task(services: Services) -> QueuedTask:
    with services.database.reading() as cursor:
        (found,) = queue.list_tasks(cursor, TaskFilter(), None)
    return found


def end_leases(services: Services) -> None:
    """Let so much time go by that others may take what a dead worker had."""
    with services.database.transaction() as cursor:
        cursor.execute(
            "UPDATE duckicelake_upkeep_task SET lease_until = clock_timestamp() - interval '1 second', attempts = 0, "
            "available = clock_timestamp() WHERE state <> 'done'"
        )
        cursor.execute("UPDATE duckicelake_job SET lease_until = clock_timestamp() - interval '1 second'")
