"""Compaction by the server: the same rows and row ids on both sides, in fewer files, whatever happens beside it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import StaticTable

from duckicelake.catalog import tables
from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.lake.ducklake import maintenance
from duckicelake.maintenance.policy import parse_policy
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.rewrites.actions import compact, sort
from duckicelake.upkeep.planner import find_due
from tests.support.row_lineage import lineage
from tests.support.seams import Interrupted

Act = Callable[[Catalog, duckdb.DuckDBPyConnection], None]
TARGET = 128 * 1024 * 1024
ROWS = "SELECT id, name, rowid FROM lake.main.t ORDER BY ALL"


@dataclass(slots=True)
class Control:
    """A task's control that stops nothing; `before` is called whenever the task asks whether it may go on."""

    before: Callable[[], object] = lambda: None
    memory_bytes: int = 512 * 1024 * 1024
    scratch_bytes: int = 4 * 1024**3
    share: float = 1.0
    counts: dict[str, int] = field(default_factory=dict)

    def check(self) -> None:
        self.before()

    def report(self, counts: dict[str, int]) -> None:
        self.counts |= counts


def run(
    services: Services,
    folder: Path,
    action: Callable[..., TaskOutcome] = compact,
    before: Callable[[], object] = lambda: None,
    policy: Mapping[str, str] | None = None,
) -> TaskOutcome:
    task = UpkeepTask(action.__name__, ("main",), "t", "asked for", parse_policy(policy or {}), TARGET)
    return action(services, task, Control(before))


def make_table(catalog: Catalog, ducklake: duckdb.DuckDBPyConnection) -> None:
    """Files of both sides, rows deleted by both, a column that came later and one that was renamed."""
    rows = pa.table({"id": pa.array(range(10), pa.int64()), "name": pa.array(["x"] * 10)})
    table = catalog.create_table("main.t", rows.schema)
    for _ in range(3):
        table.append(rows)
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    for number in range(3):
        ducklake.execute(f"INSERT INTO lake.main.t SELECT range + {number} * 100, 'y' FROM range(50)")
    catalog.load_table("main.t").delete("id = 3")
    ducklake.execute("UPDATE lake.main.t SET name = 'u' WHERE id = 107")
    ducklake.execute("DELETE FROM lake.main.t WHERE id = 5")


def list_files(ducklake: duckdb.DuckDBPyConnection) -> int:
    return len(ducklake.execute("FROM ducklake_list_files('lake', 't')").fetchall())


def read_iceberg(catalog: Catalog) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = catalog.load_table("main.t").scan().to_arrow().to_pylist()
    return sorted(rows, key=str)


def read_unsorted(services: Services, done: TaskOutcome) -> int:
    """Read the bytes that count as unsorted once a sort is in the list of jobs."""
    with services.database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO duckicelake_job (id, kind, schema_name, table_name, principal, engine, parameters, "
            "lease_until, ended, result, counts, snapshot_ids) VALUES (gen_random_uuid(), 'sort', 'main', 't', 'p', "
            "'e', '{}', clock_timestamp(), clock_timestamp(), 'done', %(counts)s::json, %(ids)s)",
            {"counts": json.dumps(done.counts), "ids": list(done.snapshot_ids)},
        )
        ((table_id, *_),) = maintenance.read_table_ids(cursor, "main", "t", 0, None)
        ((row, _),) = maintenance.read_statistics(cursor, [table_id], {})
    return row.unsorted_bytes


def test_files_that_are_appended_during_a_sort_count_as_unsorted(
    services: Services, catalog: Catalog, ducklake: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    make_table(catalog, ducklake)
    ordered = {"maintenance.sort.order": "id"}
    assert read_unsorted(services, run(services, tmp_path, sort, policy=ordered)) == 0
    appended = [lambda: ducklake.execute("INSERT INTO lake.main.t SELECT range, 'late' FROM range(50)")]
    meanwhile = replace(services, store=Interrupted(services.store, [*appended]))
    left = read_unsorted(services, run(meanwhile, tmp_path, sort, policy=ordered))
    sizes = ducklake.execute("SELECT data_file_size_bytes FROM ducklake_list_files('lake', 't')").fetchall()
    assert len(sizes) == 2
    assert (left,) in sizes


def test_files_that_are_appended_between_the_commits_of_a_sort_count_as_unsorted(
    services: Services, ducklake: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute("CREATE TABLE lake.main.t (id BIGINT, name VARCHAR)")
    ducklake.execute("ALTER TABLE lake.main.t SET PARTITIONED BY (name)")
    for number in range(4):
        ducklake.execute(f"INSERT INTO lake.main.t SELECT range + {number}, 'p' || range % 3 FROM range(30)")
    snapshots = "SELECT count(*) FROM lake.snapshots()"
    before = ducklake.execute(snapshots).fetchall()
    acts: list[Callable[[], object]] = []

    def append_late() -> None:
        if ducklake.execute(snapshots).fetchall() == before:
            acts.append(append_late)
        else:
            ducklake.execute("INSERT INTO lake.main.t SELECT range, 'late' FROM range(50)")

    acts.append(append_late)
    meanwhile = replace(services, store=Interrupted(services.store, acts))
    outcome = run(meanwhile, tmp_path, sort, policy={"maintenance.sort.order": "id"})
    files = ducklake.execute(
        "SELECT data_file_size_bytes, contains(data_file, 'late') FROM ducklake_list_files('lake', 't')"
    ).fetchall()
    assert (len(outcome.snapshot_ids), len(files)) == (3, 4), "the late file came after the first of three commits"
    assert read_unsorted(services, outcome) == sum(size for size, is_late in files if is_late) > 0


@pytest.mark.parametrize("action", [compact, sort], ids=["compact", "sort"])
def test_rows_and_ids_stay_and_files_become_one(
    services: Services,
    catalog: Catalog,
    ducklake: duckdb.DuckDBPyConnection,
    tmp_path: Path,
    action: Callable[..., TaskOutcome],
) -> None:
    make_table(catalog, ducklake)
    before, iceberg, files = ducklake.execute(ROWS).fetchall(), read_iceberg(catalog), list_files(ducklake)
    at = ducklake.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall()[0][0]
    outcome = run(
        services, tmp_path, action, policy={"maintenance.sort.order": "name DESC, id"} if action is sort else {}
    )
    assert (outcome.result, outcome.counts["added files"]) == ("done", 1)
    assert ducklake.execute(ROWS).fetchall() == before
    assert read_iceberg(catalog) == iceberg
    assert (list_files(ducklake), files > 6) == (1, True)
    assert (
        ducklake.execute(f"SELECT id, name, rowid FROM lake.main.t AT (VERSION => {at}) ORDER BY ALL").fetchall()
        == before
    )
    snapshot = catalog.load_table("main.t").current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "replace"
    assert run(services, tmp_path).result == "unchanged", "a kept table has nothing to do"


def rewrite_by_duckdb(catalog: Catalog, ducklake: duckdb.DuckDBPyConnection) -> None:
    """Files that were being rewritten leave, one of them."""
    ducklake.execute("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.01)")


def delete_by_duckdb(catalog: Catalog, ducklake: duckdb.DuckDBPyConnection) -> None:
    ducklake.execute("DELETE FROM lake.main.t WHERE id IN (120, 8)")


def delete_into_postgres(catalog: Catalog, ducklake: duckdb.DuckDBPyConnection) -> None:
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 1000)")
    ducklake.execute("DELETE FROM lake.main.t WHERE id = 120")
    ducklake.execute("UPDATE lake.main.t SET name = 'later' WHERE id = 8")


def append_by_both(catalog: Catalog, ducklake: duckdb.DuckDBPyConnection) -> None:
    rows = [{"id": 900, "name": "new"}]
    httpx.post(
        f"{catalog.properties['uri']}/v1/namespaces/main/tables/t/rows", json=rows, timeout=60
    ).raise_for_status()
    ducklake.execute("INSERT INTO lake.main.t VALUES (901, 'new')")


def change_columns(catalog: Catalog, ducklake: duckdb.DuckDBPyConnection) -> None:
    ducklake.execute("ALTER TABLE lake.main.t ADD COLUMN n INTEGER DEFAULT 7")
    ducklake.execute("DELETE FROM lake.main.t WHERE id = 120")


def do_nothing(catalog: Catalog, ducklake: duckdb.DuckDBPyConnection) -> None:
    pass


BESIDE = [rewrite_by_duckdb, delete_by_duckdb, delete_into_postgres, append_by_both, change_columns, do_nothing]


@pytest.mark.parametrize("beside", BESIDE, ids=lambda act: act.__name__)
@pytest.mark.parametrize("version", [2, 3])
def test_what_others_do_meanwhile_is_carried_over(
    services: Services, ducklake: duckdb.DuckDBPyConnection, catalog: Catalog, tmp_path: Path, beside: Act, version: int
) -> None:
    make_table(catalog, ducklake)
    if version > 2:
        upgrade(services)
    rows: list[list[tuple[Any, ...]]] = []

    def act() -> None:
        if len(rows) == 1:  # the rows are written, and not yet committed
            beside(catalog, ducklake)
        rows.append(ducklake.execute(ROWS).fetchall())

    assert run(services, tmp_path, before=act, policy={"maintenance.compaction.min-files": "2"}).result == "done"
    after = ducklake.execute(ROWS).fetchall()
    assert after == rows[-1]
    assert [(row["id"], row["name"]) for row in read_iceberg(catalog)] == sorted((row[:2] for row in after), key=str)
    assert list_files(ducklake) <= 3


def upgrade(services: Services) -> None:
    """Make the table one of format version 3."""
    update = {"action": "upgrade-format-version", "format-version": 3}
    request = CommitTableRequest.model_validate({"requirements": [], "updates": [update]})
    tables.commit_table(services, ("main",), "t", request)


def test_partitions_and_their_order_stay(
    services: Services, catalog: Catalog, ducklake: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute("CREATE TABLE lake.main.t (id BIGINT, name VARCHAR)")
    ducklake.execute("ALTER TABLE lake.main.t SET PARTITIONED BY (name)")
    for number in range(6):
        ducklake.execute(f"INSERT INTO lake.main.t SELECT range * 7 % 11 + {number}, 'p' || range % 3 FROM range(30)")
    before = ducklake.execute(ROWS).fetchall()
    outcome = run(services, tmp_path, sort, policy={"maintenance.sort.order": "zorder(id, name)"})
    assert (outcome.counts["rewritten files"], outcome.counts["added files"]) == (18, 3)
    assert read_unsorted(services, outcome) == 0
    assert ducklake.execute(ROWS).fetchall() == before
    assert len(read_iceberg(catalog)) == len(before)
    assert len(list(catalog.load_table("main.t").scan("name = 'p1'").plan_files())) == 1
    ((lying, sorted_),) = ducklake.execute(
        "SELECT list(id ORDER BY rowid_), list(id ORDER BY id) FROM "
        "(SELECT id, file_row_number AS rowid_ FROM lake.main.t WHERE name = 'p1')"
    ).fetchall()
    assert lying == sorted_, "with one value of name, the curve is the order of id"


def test_lineage_of_rows_stays(
    services: Services, ducklake: duckdb.DuckDBPyConnection, catalog: Catalog, tmp_path: Path
) -> None:
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute("CREATE TABLE lake.main.t (id BIGINT, name VARCHAR)")
    upgrade(services)
    for number in range(6):
        ducklake.execute(f"INSERT INTO lake.main.t SELECT range, 'x' FROM range({number}, {number} + 10)")
    ducklake.execute("UPDATE lake.main.t SET name = 'v' WHERE id = 9")
    ducklake.execute("DELETE FROM lake.main.t WHERE id = 4")
    before = read_lineage(catalog)
    assert len({updated for _, updated in before}) > 2
    assert run(services, tmp_path).result == "done"
    assert read_lineage(catalog) == before


@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_duckdb_gave_one_row_id_get_their_own(
    services: Services, ducklake: duckdb.DuckDBPyConnection, catalog: Catalog, tmp_path: Path, version: int
) -> None:
    """DuckDB 1.5.5 numbers rows that a transaction inserts and updates from 10^18 on, in each the same."""
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute("CREATE TABLE lake.main.t (id BIGINT, name VARCHAR)")
    if version > 2:
        upgrade(services)
    for first in (0, 100, 200):
        ducklake.execute(f"BEGIN; INSERT INTO lake.main.t SELECT range, 'a' FROM range({first}, {first + 10})")
        ducklake.execute(f"UPDATE lake.main.t SET name = 'b' WHERE id >= {first}; COMMIT")
    ducklake.execute("DELETE FROM lake.main.t WHERE id = 205")
    rewrite_by_duckdb(catalog, ducklake)
    before = [] if version < 3 else [(row_id,) for row_id, _ in read_lineage(catalog)]
    asked: list[None] = []

    def delete() -> None:
        if len(asked) == 1:  # the rows are written, and not yet committed
            ducklake.execute("DELETE FROM lake.main.t WHERE id = 103")
        asked.append(None)

    assert run(services, tmp_path, before=delete, policy={"maintenance.compaction.min-files": "2"}).result == "done"
    rows = ducklake.execute("SELECT id, name, rowid FROM lake.main.t ORDER BY id").fetchall()
    ids = {*range(10), *range(100, 110), *range(200, 210)} - {103, 205}
    assert [row[:2] for row in rows] == [(id_, "b") for id_ in sorted(ids)]
    assert read_iceberg(catalog) == sorted(({"id": id_, "name": name} for id_, name, _ in rows), key=str)
    assert len({row_id for *_, row_id in rows}) == len(rows)
    if version > 2:
        after = [(row_id,) for row_id, _ in read_lineage(catalog)]
        assert after == sorted((row_id,) for *_, row_id in rows)
        assert set(after) < set(before), "no row has another row id than before"


def read_lineage(catalog: Catalog) -> list[tuple[int, int]]:
    return lineage(StaticTable.from_metadata(catalog.load_table("main.t").metadata_location))


def test_bloom_filters_that_the_table_asks_for_are_written(
    services: Services, ducklake: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute("CREATE TABLE lake.main.t (id BIGINT, name VARCHAR)")
    for number in range(3):
        ducklake.execute(f"INSERT INTO lake.main.t SELECT 2 * range, uuid()::VARCHAR FROM range({number}, 3000, 3)")
    properties = {"write.parquet.bloom-filter-enabled.column.id": "true"}
    properties["write.parquet.bloom-filter-fpp.column.id"] = "0.001"
    update = {"action": "set-properties", "updates": properties}
    request = CommitTableRequest.model_validate({"requirements": [], "updates": [update]})
    tables.commit_table(services, ("main",), "t", request)
    assert run(services, tmp_path, policy={"maintenance.compaction.min-files": "2"}).result == "done"
    ((file,),) = ducklake.execute("SELECT data_file FROM ducklake_list_files('lake', 't')").fetchall()
    probe = "SELECT bool_and(bloom_filter_excludes) FROM parquet_bloom_probe($file, 'id', $id)"
    found = [ducklake.execute(probe, {"file": file, "id": id_}).fetchall()[0][0] for id_ in (2000, 2001)]
    assert found == [False, True]


def test_order_that_the_table_does_not_have_is_named(
    services: Services, catalog: Catalog, ducklake: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    make_table(catalog, ducklake)
    with pytest.raises(InvalidRequestError, match="The order names day, which is no column of the table"):
        run(services, tmp_path, sort, policy={"maintenance.sort.order": "day"})


def test_a_lake_that_grew_since_postgres_counted_its_rows_is_compacted_in_linear_work(
    services: Services, warehouse: Path, catalog: Catalog, ducklake: duckdb.DuckDBPyConnection
) -> None:
    """Postgres learns of many new rows a minute later; until then its plans must not read all files for each file."""
    files = 600
    catalog.create_namespace_if_not_exists("main")
    catalog.create_table("main.t", pa.schema([("id", pa.int64()), ("name", pa.string())]))
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0); BEGIN")
    for number in range(files):
        ducklake.execute(f"INSERT INTO lake.main.t VALUES ({number}, 'x')")
    ducklake.execute("COMMIT")
    catalog.load_table("main.t")
    planned = find_due(services, 0, ("main",), "t", ["compact"])
    outcome = run(services, warehouse)
    assert ([item.task.kind for item in planned], outcome.counts["rewritten files"]) == (["compact"], files)
    with services.database.transaction() as cursor:
        cursor.execute("SELECT pg_sleep(1.1)")  # Postgres counts once a second
    with services.database.transaction() as cursor:
        read = dict(
            cursor.execute(
                "SELECT relname, seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables "
                "WHERE relname IN ('ducklake_data_file', 'duckicelake_file')"
            ).fetchall()
        )
    assert all(files < rows < files**2 / 4 for rows in read.values()), read
