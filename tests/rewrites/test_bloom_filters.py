"""Files that are there get the Bloom filters that a table asks for, once, and no other file is written for them."""

import os
from pathlib import Path

import pytest

from duckicelake.catalog import namespaces
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.maintenance.policy import AUTOMATIC
from duckicelake.rewrites.catalog_copy import describe_copy
from duckicelake.rewrites.member_files import find_damaged_footer, read_member_files
from duckicelake.rewrites.processes import open_process
from duckicelake.rewrites.source import RewrittenTable
from duckicelake.upkeep.planner import find_due
from duckicelake.upkeep.worker import Worker
from tests.rewrites.test_histories import Control, Duck, append, assert_sound, duck, history
from tests.support.client import NS, Client, duckdb_rows, local, pyiceberg_rows, set_properties
from tests.support.seams import fresh
from tests.upkeep.test_queue import LIMITS, jobs, make_ready, plan, set_policies, tasks

__all__ = ["duck"]
ASKED = "write.parquet.bloom-filter-enabled.column."


def insert_file(duck: Duck, start: int, rows: int = 1000) -> None:
    """Insert a file; DuckDB gives a filter to the column of one value, and none to that of many."""
    duck.execute(f"INSERT INTO lake.ns.t SELECT {start} + range, 'n' FROM range({rows})")


def list_filtered(duck: Duck, column: str = "id") -> list[bool]:
    listed = duck.execute("SELECT data_file FROM ducklake_list_files('lake', 't', schema => 'ns')").fetchall()
    query = (
        "SELECT bool_and(bloom_filter_offset IS NOT NULL) FROM parquet_metadata($files) "
        "WHERE path_in_schema = $column GROUP BY file_name"
    )
    found = duck.execute(query, {"files": [file for (file,) in listed], "column": column}).fetchall()
    return sorted(is_filtered for (is_filtered,) in found)


def work(services: Services) -> dict[str, int] | None:
    """Plan, and do the task if there is one; return what it counted."""
    plan(services)
    make_ready(services)
    if not Worker(LIMITS).work(services):
        return None
    (task,) = tasks(services)
    assert (task.kind, task.state) == ("bloom-filters", "done"), task.message
    return dict(task.counts)


@pytest.mark.parametrize("version", ["2", "3"])
def test_files_get_filters_once(services: Services, client: Client, duck: Duck, version: str) -> None:
    set_policies(services, {AUTOMATIC: "bloom-filters"})
    client.create(properties={"format-version": version, "write.target-file-size-bytes": "5000"})
    for number in range(3):
        insert_file(duck, 1000 * number)
    append(client, version, *((3000 + number, "n") for number in range(1000)))
    duck.execute("DELETE FROM lake.ns.t WHERE id = 7")
    assert work(services) is None, "the table asks for none"
    client.commit(set_properties(**{f"{ASKED}id": "true", f"{ASKED}name": "false"}))
    assert list_filtered(duck) == [False] * 4
    before, rows = history(duck), duckdb_rows(duck)
    counts = work(services)
    assert counts is not None
    assert counts["rewritten files"] == 4
    assert list_filtered(duck) == [True] * len(list_filtered(duck))
    after = history(duck)
    assert {key: after[key] for key in before} == before
    assert duckdb_rows(duck) == pyiceberg_rows(Client(fresh(services)).load()) == rows
    assert work(services) is None
    insert_file(duck, 5000, 10)
    assert work(services) is None, "too little has come"
    insert_file(duck, 6000, 4000)
    counts = work(services)
    assert counts is not None
    assert counts["rewritten files"] == 2
    assert work(services) is None
    assert_sound(services)


def test_damaged_footer_keeps_no_filter_from_other_files(services: Services, client: Client, duck: Duck) -> None:
    set_policies(services, {AUTOMATIC: "bloom-filters"})
    client.create(properties={f"{ASKED}id": "true"})
    for number in range(4):
        insert_file(duck, 1000 * number)
    rows = duckdb_rows(duck)
    version = load_current_table(services, NS, "t")
    path = local(read_member_files(services, version)[1].path)
    data = path.read_bytes()
    path.write_bytes(data[:-8] + bytes(8))
    counts = work(services)
    assert counts is not None
    assert counts["rewritten files"] == 3
    (task,) = tasks(services)
    assert path.name in str(task.message)
    path.write_bytes(data)
    assert duckdb_rows(duck) == rows
    assert sorted(list_filtered(duck)) == [False, True]


def test_files_that_have_filters_are_read_once_and_not_written(services: Services, client: Client, duck: Duck) -> None:
    set_policies(services, {AUTOMATIC: "bloom-filters"})
    client.create(properties={f"{ASKED}name": "true"})
    insert_file(duck, 0)
    snapshots = len(client.metadata()["snapshots"])
    assert list_filtered(duck, "name") == [True]
    counts = work(services)
    assert counts is not None
    assert "rewritten files" not in counts
    assert work(services) is None
    assert len(Client(fresh(services)).metadata()["snapshots"]) == snapshots


def test_files_get_filters_of_columns_that_the_last_task_was_not_asked_for(
    services: Services, client: Client, duck: Duck
) -> None:
    set_policies(services, {AUTOMATIC: "bloom-filters"})
    client.create(properties={f"{ASKED}name": "true"})
    insert_file(duck, 0)
    assert work(services) is not None
    assert work(services) is None
    client.commit(set_properties(**{f"{ASKED}id": " True "}))
    counts = work(services)
    assert counts is not None
    assert counts["rewritten files"] == 1
    assert list_filtered(duck) == [True]
    client.commit(set_properties(**{f"{ASKED}name": "false"}))
    assert work(services) is None, "the last task was for both"


def test_files_from_before_a_column_got_its_name_get_filters(services: Services, client: Client, duck: Duck) -> None:
    set_policies(services, {AUTOMATIC: "bloom-filters"})
    client.create(properties={f"{ASKED}number": "true"})
    insert_file(duck, 0)
    duck.execute("ALTER TABLE lake.ns.t RENAME COLUMN id TO number")
    counts = work(services)
    assert counts is not None
    assert counts["rewritten files"] == 1
    assert list_filtered(duck, "number") == [True]


def test_job_notes_the_columns_that_have_filters_after_it(services: Services, client: Client, duck: Duck) -> None:
    set_policies(services, {AUTOMATIC: "bloom-filters"})
    client.create(properties={f"{ASKED}id": "true", f"{ASKED}nope": "true"})
    insert_file(duck, 0)
    plan(services)
    client.commit(set_properties(**{f"{ASKED}id": "false", f"{ASKED}name": "true"}))
    insert_file(duck, 1000)
    assert Worker(LIMITS).work(services)
    assert [job.parameters["columns"] for job in jobs(services)] == [["name"]]
    assert work(services) is None, "the job was for the columns that the table asked for by then"
    client.commit(set_properties(**{f"{ASKED}id": "true"}))
    assert work(services) is not None, "no job was for it"
    assert next(job.parameters["columns"] for job in jobs(services)) == ["id", "name"]
    assert list_filtered(duck) == [True]
    duck.execute("ALTER TABLE lake.ns.t RENAME COLUMN id TO number")
    client.commit(set_properties(**{f"{ASKED}number": "true"}))
    assert work(services) is None, "the column has another name, and filters"
    duck.execute("ALTER TABLE lake.ns.t ADD COLUMN nope INTEGER")
    assert work(services) is not None, "the table asks for a column that it has now"


@pytest.mark.parametrize("is_renamed", [False, True])
def test_file_without_field_ids_is_looked_at_by_the_names_of_its_time(
    services: Services, client: Client, duck: Duck, is_renamed: bool
) -> None:
    set_policies(services, {AUTOMATIC: "bloom-filters"})
    client.create(properties={f"{ASKED}number": "true", f"{ASKED}id": "true"})
    folder = local(client.metadata()["location"]) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for name, column in (("without", "range"), ("with", "range % 7")):
        duck.execute(f"COPY (SELECT {column} AS id, 'n' AS name FROM range(5000)) TO '{folder}/{name}.parquet'")
        duck.execute(f"CALL ducklake_add_data_files('lake', 't', '{folder}/{name}.parquet', schema => 'ns')")
    assert list_filtered(duck) == [False, True]
    if is_renamed:
        duck.execute("ALTER TABLE lake.ns.t RENAME COLUMN id TO number")
    counts = work(services)
    assert counts is not None
    assert counts["rewritten files"] == 1
    assert list_filtered(duck, "number") == ([True] if is_renamed else [])
    assert work(services) is None
    assert_sound(services)


@pytest.mark.parametrize(
    ("column", "type_"),
    [
        ("nope", "BIGINT"),
        ("x", "BOOLEAN"),
        ("x", "BIGINT[]"),
        ("x", "DECIMAL(19, 2)"),
        ("x", "VARIANT"),
        ("x", "GEOMETRY"),
    ],
)
def test_columns_that_can_have_none_block_the_task(
    services: Services, client: Client, duck: Duck, column: str, type_: str
) -> None:
    set_policies(services, {AUTOMATIC: "bloom-filters"})
    client.create(properties={f"{ASKED}{column}": "true", "format-version": "3"})
    duck.execute(f"ALTER TABLE lake.ns.t ADD COLUMN x {type_}")
    insert = "INSERT INTO lake.ns.t (id, name) SELECT range, 'n' FROM range(1000)"
    duck.execute(insert)
    plan(services)
    assert Worker(LIMITS).work(services)
    (task,) = tasks(services)
    assert (task.state, f"No column of {column} can have a Bloom filter" in str(task.message)) == ("blocked", True), (
        task
    )


def test_failed_read_of_footers_reads_no_values(services: Services, client: Client, duck: Duck) -> None:
    client.create()
    insert_file(duck, 0)
    version = load_current_table(services, NS, "t")
    files = read_member_files(services, version)
    path = Path(files[0].path.removeprefix("file://"))
    data = path.read_bytes()
    path.write_bytes(data[:4] + bytes(len(data) // 3) + data[4 + len(data) // 3 :])
    table = RewrittenTable(NS, "t", version.metadata, version.lake_snapshot, "zstd")
    with open_process(services, Control(), NS, "t") as process:
        process.read_copy(describe_copy(services, version))
        assert process.find_read_error(table, files) is not None
        assert find_damaged_footer(services, process, files) is None
        path.write_bytes(data[:-8] + bytes(8))
        os.utime(path, (1, 1))  # DuckDB keeps what it read of a file that is as old as before
        found = find_damaged_footer(services, process, files)
    assert found is not None
    assert path.name in found.paths[0]


def test_property_of_the_namespace_asks_for_nothing(services: Services, client: Client, duck: Duck) -> None:
    """Writers go by the table's property alone."""
    client.create()
    insert_file(duck, 0)
    namespaces.update_namespace(services, NS, [], {f"{ASKED}id": "true"})
    assert find_due(services, 0, NS, "t", ("bloom-filters",)) == []
