"""The list of jobs beside tasks that run each second: it stays short by table, and failures are counted by time."""

import json
from collections.abc import Callable
from typing import Final
from uuid import UUID, uuid4

import duckdb
import httpx
import pytest
from fastapi import FastAPI

from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.jobs import BeginJob, EndJob, Kind, Result, begin_job, end_job, list_jobs
from duckicelake.server.app import create_app
from duckicelake.upkeep import queue
from tests.support.commands import run_here
from tests.upkeep.test_large_queues import count_rows_read

JOBS = 20_000
FOLLOW: Final = "follow-delta"


@pytest.fixture(autouse=True)
def duck(services: Services, ducklake: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """DuckDB on a lake with two tables."""
    for name in ("t", "u"):
        ducklake.execute(f"CREATE TABLE lake.main.{name} (id INTEGER)")
    return ducklake


def run_job(services: Services, result: Result, kind: Kind = "follow-delta", table: str = "t") -> UUID:
    begun = BeginJob(id=uuid4(), kind=kind, lease_seconds=60, engine="duckicelake upkeep on h:1")
    begin_job(services, ("main",), table, begun)
    send_end(services, begun.id, result, table)
    return begun.id


def send_end(services: Services, job_id: UUID, result: Result, table: str = "t") -> None:
    end_job(services, ("main",), table, job_id, EndJob(result=result, message=None))


def read_results(services: Services, kind: Kind = "follow-delta", table: str = "t") -> list[str]:
    return [job.result for job in list_jobs(services, PageRequest(), kind=kind, namespace=("main",), table=table).items]


def test_versions_that_came_leave_few_jobs(services: Services) -> None:
    run_job(services, "failed")
    for _ in range(12):
        run_job(services, "done")
        run_job(services, "unchanged")
    run_job(services, "done", table="u")
    assert read_results(services) == ["unchanged"] + 10 * ["done"] + ["failed"]
    assert read_results(services, table="u") == ["done"]


@pytest.mark.parametrize("kind", ["follow-delta", "refresh"])
@pytest.mark.parametrize("result", ["done", "unchanged"])
def test_end_whose_answer_was_lost_is_taken_again(services: Services, kind: Kind, result: Result) -> None:
    run_job(services, "done", kind)
    job_id = run_job(services, result, kind)
    before = read_results(services, kind)
    for _ in range(2):
        send_end(services, job_id, result)
        assert read_results(services, kind) == before == [result, "done"]


@pytest.mark.parametrize("kind", ["follow-delta", "refresh"])
def test_jobs_are_thinned_by_table_whatever_it_is_called(
    services: Services, duck: duckdb.DuckDBPyConnection, kind: Kind
) -> None:
    for _ in range(8):
        run_job(services, "done", kind)
    duck.execute("ALTER TABLE lake.main.t RENAME TO renamed")
    for _ in range(8):
        run_job(services, "done", kind, "renamed")
    assert read_results(services, kind, "renamed") == 8 * ["done"]
    assert read_results(services, kind) == 2 * ["done"]


@pytest.mark.parametrize("kind", ["follow-delta", "refresh"])
def test_table_of_a_dropped_ones_name_takes_none_of_its_jobs(
    services: Services, duck: duckdb.DuckDBPyConnection, kind: Kind
) -> None:
    for _ in range(3):
        run_job(services, "done", kind)
    duck.execute("DROP TABLE lake.main.t")
    duck.execute("CREATE TABLE lake.main.t (id INTEGER)")
    for _ in range(12):
        run_job(services, "done", kind)
    assert read_results(services, kind) == 13 * ["done"]


def test_refreshes_that_did_nothing_are_listed(services: Services) -> None:
    for _ in range(6):
        run_job(services, "done", "refresh")
        run_job(services, "unchanged", "refresh")
    assert read_results(services, "refresh") == 5 * ["unchanged", "done"]


@pytest.mark.commands
def test_versions_that_came_hide_no_other_job_of_a_lake(
    services: Services, serve: Callable[[FastAPI], httpx.Client]
) -> None:
    run_job(services, "done", "flush")
    run_job(services, "failed")
    run_job(services, "done")
    run_job(services, "unchanged")
    uri = str(serve(create_app(services)).base_url)

    def read_history(*options: str) -> list[tuple[str, str]]:
        jobs = json.loads(run_here("upkeep", "history", *options, "--json", "--uri", uri).stdout)["jobs"]
        return [(job["kind"], job["result"]) for job in jobs]

    assert read_history() == [(FOLLOW, "failed"), ("flush", "done")]
    assert read_history("--only", FOLLOW) == [(FOLLOW, result) for result in ("unchanged", "done", "failed")]
    assert read_history("--only", "flush", "--only", "compact") == [("flush", "done")]


@pytest.mark.parametrize("kind", ["flush", "compact", "sort", "ingest"])
def test_jobs_that_do_not_run_each_second_are_kept(services: Services, kind: Kind) -> None:
    for _ in range(12):
        run_job(services, "done", kind)
        run_job(services, "unchanged", kind)
    assert read_results(services, kind) == 12 * ["unchanged", "done"]


def test_failures_of_an_hour_are_counted_however_many_jobs_there_were_since(services: Services) -> None:
    run_job(services, "failed", "flush")
    run_job(services, "failed", "compact")
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_job SET ended = ended - interval '61 minutes' WHERE kind = 'compact'")
        cursor.execute(
            "INSERT INTO duckicelake_job (id, kind, schema_name, table_name, principal, engine, parameters, "
            "lease_until, ended, result) SELECT gen_random_uuid(), 'follow-delta', 'main', 't' || i, 'p', "
            "'duckicelake upkeep on h:1', '{}', now(), now(), 'done' FROM generate_series(1, %s) i",
            [JOBS],
        )
        cursor.execute(
            "INSERT INTO duckicelake_job (id, kind, schema_name, table_name, lease, principal, engine, parameters, "
            "lease_until) SELECT gen_random_uuid(), 'sort', 'main', 'killed' || i, 'maintenance', 'p', "
            "'duckicelake upkeep on h:1', '{}', now() - i * interval '50 minutes' FROM generate_series(-1, 2) i"
        )
        cursor.execute("SELECT pg_stat_force_next_flush()")
    with services.database.statement() as cursor:
        cursor.execute("ANALYZE duckicelake_job")
        before = count_rows_read(services, "duckicelake_job")
        assert queue.count_failures(cursor) == {"flush": 1, "sort": 2}
        cursor.execute("SELECT pg_stat_force_next_flush()")
    assert count_rows_read(services, "duckicelake_job") == before
