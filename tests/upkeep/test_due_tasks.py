"""What the planner takes for due is worth it: a compaction that does nothing would be due again after each change."""

import random
from dataclasses import replace

import duckdb
import pytest

from duckicelake.maintenance.policy import AUTOMATIC
from duckicelake.upkeep.planner import request_tasks
from duckicelake.upkeep.worker import Worker
from tests.support.client import NS, Client, duckdb_rows, set_properties
from tests.support.seams import fresh
from tests.upkeep.test_queue import LIMITS, make_ready, only, plan, set_policies, tasks

ORDER = "maintenance.sort.order"
ROUNDS = 12


@pytest.mark.parametrize("seed", range(4))
def test_compaction_that_is_due_leaves_fewer_files(
    client: Client, ducklake: duckdb.DuckDBPyConnection, seed: int
) -> None:
    chance = random.Random(seed)
    set_policies(client.services, {AUTOMATIC: "compact", "maintenance.compaction.min-files": "2"})
    client.create()
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    largest = chance.choice([5, 200, 3000])
    for _ in range(8):
        rows = chance.randint(largest // 3, largest)
        ducklake.execute(f"INSERT INTO lake.ns.t SELECT range, md5(random()::VARCHAR) FROM range({rows})")
    before, sizes = duckdb_rows(ducklake), list_sizes(ducklake)
    for factor in (1.1, 1.5, 1.9, 2.5, 6.0):
        target = round(factor * max(sizes))
        client.commit(set_properties(**{"write.target-file-size-bytes": str(target)}))
        for _ in range(ROUNDS):
            files = list_sizes(ducklake)
            plan(client.services)
            make_ready(client.services)
            if not Worker(LIMITS).work(client.services):
                break
            assert only(client.services).state == "done"
            assert len(list_sizes(ducklake)) < len(files), (factor, target, files)
        else:
            raise AssertionError(f"still due after {ROUNDS} times: {files}")
        assert duckdb_rows(ducklake) == before
    assert len(list_sizes(ducklake)) < len(sizes)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("STRUCT(x INTEGER)", "{'x': 1}"),
        ("INTEGER[]", "[1]"),
        ("MAP(VARCHAR, INTEGER)", "MAP {'a': 1}"),
        ("VARIANT", "1::VARIANT"),
    ],
)
def test_statistics_are_due_only_where_a_column_has_single_values(
    client: Client, ducklake: duckdb.DuckDBPyConnection, type_: str, value: str
) -> None:
    services = client.services
    set_policies(services, {AUTOMATIC: "statistics"})
    client.create("u")
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute(f"CREATE TABLE lake.ns.t (value {type_})")
    ducklake.execute(f"INSERT INTO lake.ns.t VALUES ({value})")
    assert plan(services) == 0
    assert request_tasks(services, NS, "t", ("statistics",)) == []
    ducklake.execute("ALTER TABLE lake.ns.t ADD COLUMN id INTEGER")
    assert plan(services) == 1
    assert Worker(LIMITS).work(services)
    assert (only(services).state, only(services).counts["columns"]) == ("done", 1)


def test_packing_that_is_due_leaves_fewer_manifests(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    services = client.services
    set_policies(services, {AUTOMATIC: "pack-manifests", "maintenance.manifests.min-small": "3"})
    client.create(properties={"commit.manifest-merge.enabled": "false"})
    for number in range(6):
        client.append((number, "n"))
    before = duckdb_rows(ducklake)
    assert plan(services) == 1
    assert Worker(LIMITS).work(services)
    assert (only(services).state, only(services).counts["rewritten manifests"]) == ("done", 6)
    plan(services)
    make_ready(services)
    assert not Worker(LIMITS).work(services)
    assert duckdb_rows(ducklake) == before


def test_changed_order_is_due_once(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    services = client.services
    set_policies(services, {AUTOMATIC: "sort"})
    client.create()
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute("INSERT INTO lake.ns.t SELECT 1000 - range, 'x' || range % 10 FROM range(1000)")
    before, snapshots = duckdb_rows(ducklake), len(client.metadata()["snapshots"])
    done = 0
    for order in ("id", "name, id DESC", "zorder(id, name)", "", "zorder(id, name)", "id"):
        client.commit(set_properties(**{"maintenance.sort.order": order}))
        done += (is_due := order != "" and (done, order) != (3, "zorder(id, name)"))
        for is_first in (True, False):
            plan(services)
            make_ready(services)
            assert Worker(LIMITS).work(services) == (is_due and is_first), order
            assert all(task.state == "done" for task in tasks(services)), tasks(services)
        assert len(Client(fresh(services)).metadata()["snapshots"]) == snapshots + done
    assert ducklake.sql("SELECT id FROM lake.ns.t").fetchall() == [(number,) for number in range(1, 1001)]
    assert duckdb_rows(ducklake) == before


def test_renamed_columns_are_still_sorted_and_one_of_the_same_name_is_not(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    services = client.services
    set_policies(services, {AUTOMATIC: "sort"})
    client.create(properties={"maintenance.sort.order": "name DESC, id NULLS LAST"})
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute("INSERT INTO lake.ns.t SELECT range, 'x' || range FROM range(100)")
    renamed = "ALTER TABLE lake.ns.t RENAME name TO label"
    added = ("ALTER TABLE lake.ns.t DROP label", "ALTER TABLE lake.ns.t ADD COLUMN label VARCHAR")
    for statements, order, is_due in (
        ((), "name DESC, id NULLS LAST", True),
        ((), "NAME desc, ID nulls last", False),
        ((renamed,), "label DESC, id NULLS LAST", False),
        ((), "zorder(label, id)", True),
        (("ALTER TABLE lake.ns.t RENAME id TO number",), "zorder(label, number)", False),
        (added, "zorder(label, number)", True),
    ):
        for statement in statements:
            ducklake.execute(statement)
        Client(fresh(services)).commit(set_properties(**{"maintenance.sort.order": order}))
        for is_first in (True, False):
            plan(services)
            make_ready(services)
            assert Worker(LIMITS).work(services) == (is_due and is_first), order
            assert all(task.state == "done" for task in tasks(services)), tasks(services)


def test_servers_with_two_orders_do_not_sort_in_turns(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    """What the settings of one server ask for is no change of the table's order."""
    servers = [replace(client.services, maintenance={AUTOMATIC: "sort", ORDER: order}) for order in ("id", "name")]
    client.create()
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute("INSERT INTO lake.ns.t SELECT 100 - range, 'x' || range FROM range(100)")
    worked = []
    for services in servers * 2:
        plan(services)
        make_ready(services)
        worked.append(Worker(LIMITS).work(services))
    assert worked == [True, False, False, False]
    client.commit(set_properties(**{ORDER: "name"}))
    plan(servers[0])
    assert [task.state for task in tasks(servers[0])] == ["queued"]


def list_sizes(ducklake: duckdb.DuckDBPyConnection) -> list[int]:
    query = "SELECT data_file_size_bytes FROM ducklake_list_files('lake', 't', schema => 'ns')"
    return [size for (size,) in ducklake.execute(query).fetchall()]


@pytest.mark.parametrize("threshold", ["0", "0.3", "0.95", "1"])
def test_file_that_lost_rows_is_due_once_by_each_threshold_that_ducklake_takes(
    client: Client, ducklake: duckdb.DuckDBPyConnection, threshold: str
) -> None:
    set_policies(client.services, {AUTOMATIC: "compact"})
    client.create()
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute(f"CALL lake.set_option('rewrite_delete_threshold', {threshold})")
    ducklake.execute("INSERT INTO lake.ns.t SELECT range, 'x' FROM range(100)")
    ducklake.execute("DELETE FROM lake.ns.t WHERE id < 93")
    before = duckdb_rows(ducklake)
    assert plan(client.services) == 1
    assert Worker(LIMITS).work(client.services)
    assert (only(client.services).state, only(client.services).counts["rewritten files"]) == ("done", 1)
    plan(client.services)
    make_ready(client.services)
    assert not Worker(LIMITS).work(client.services)
    assert duckdb_rows(ducklake) == before
