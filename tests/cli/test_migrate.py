"""`duckicelake migrate`, with DuckDB 2.0's migration as SQL through the ATTACH that it prints.

Whatever happens, writers go on, and nothing that was acknowledged is lost.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import httpx
import psycopg
import pytest

from duckicelake.server.app import create_app
from tests.support.commands import invoke
from tests.support.ducklake_11 import migrate_by_sql, migration_statements
from tests.support.lakes import Lake, assert_same_rows
from tests.support.servers import running
from tests.support.waits import wait_until

T = "/v1/namespaces/main/tables/t"
HELD_GATES = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid::bigint = 1718449251"
VERSION = "SELECT value FROM ducklake_metadata WHERE key = 'version'"


class Command:
    """A running `duckicelake migrate --json`."""

    def __init__(self, settings: dict[str, str], *options: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DUCKICELAKE_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "duckicelake.cli.main", "migrate", "--json", *options],
            env=environment | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.steps: list[dict[str, Any]] = []

    def read_until(self, step: str) -> dict[str, Any]:
        """The first object of a step; all before it are kept."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.steps.append(json.loads(line))
            if self.steps[-1]["step"] == step:
                return self.steps[-1]
        pytest.fail(f"no {step} in {self.steps}: {self.process.stderr and self.process.stderr.read()}")

    def end(self) -> int:
        """Its exit code, with the rest of its output read."""
        output, self.errors = self.process.communicate(timeout=60)
        self.steps += map(json.loads, output.splitlines())
        return self.process.returncode

    def texts(self, step: str) -> list[str]:
        return [found["text"] for found in self.steps if found["step"] == step]


@pytest.fixture
def settings(database_url: str, warehouse: Path, lake: Lake) -> dict[str, str]:
    lake.run("CREATE TABLE t (i BIGINT, s VARCHAR)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    return {"DUCKICELAKE_DATABASE_URL": database_url, "DUCKICELAKE_WAREHOUSE": str(warehouse)}


@pytest.fixture
def started(settings: dict[str, str]) -> Iterator[Any]:
    """Starts the command; what is left at the end is killed."""
    running_commands: list[Command] = []

    def start(*options: str) -> Command:
        running_commands.append(Command(settings, *options))
        return running_commands[-1]

    yield start
    for command in running_commands:
        with suppress(ProcessLookupError):
            command.process.kill()
        command.process.communicate()


def attach_as_duckdb_2(statement: str) -> psycopg.Connection:
    """A session as DuckDB's by the printed statement."""
    found = re.fullmatch(r"ATTACH 'ducklake:postgres:(.*)' AS \"lake\" \(AUTOMATIC_MIGRATION TRUE\);", statement)
    assert found is not None
    return psycopg.connect(found[1].replace("''", "'"))


def migrate_as_duckdb_2(statement: str) -> None:
    with attach_as_duckdb_2(statement) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for text in migration_statements(connection):
            connection.execute(text)


@contextmanager
def serving(lake: Lake) -> Iterator[httpx.Client]:
    with running(create_app(lake.services)) as url, httpx.Client(base_url=url, timeout=30) as client:
        yield client


def assert_writable(lake: Lake) -> None:
    """DuckDB and REST clients write, and the guard is closed."""
    lake.run("INSERT INTO t VALUES (100, 'x')")
    with serving(lake) as http:
        assert http.post(f"{T}/rows", json=[{"i": 101, "s": "y"}]).status_code == 200
    with (
        psycopg.connect(lake.services.database.url) as connection,
        pytest.raises(psycopg.errors.RaiseException, match="without AUTOMATIC_MIGRATION"),
    ):
        connection.execute("UPDATE ducklake_metadata SET value = '1.1' WHERE key = 'version'")


def test_check_says_that_the_migration_would_succeed(settings, lake):
    result = invoke("migrate", "--check", **settings)

    assert result.exit_code == 0, result.output
    assert "DuckDB 2 can migrate the lake" in result.output
    assert "FAIL" not in result.output
    assert lake.sql(VERSION) == [("1.0",)]
    assert lake.sql("SELECT * FROM duckicelake_format_change") == []


OBSTACLES = {
    "user's column": (
        "ALTER TABLE ducklake_inlined_data_1_1 ADD COLUMN _ducklake_row_id bigint",
        "main.t: ducklake_inlined_data_1_1 has the user's columns _ducklake_row_id",
        "rename them, and flush",
    ),
    "other columns": (
        "ALTER TABLE ducklake_inlined_data_1_1 RENAME COLUMN end_snapshot TO ended",
        "main.t: ducklake_inlined_data_1_1 begins with the columns row_id, begin_snapshot, ended",
        "RENAME COLUMN",
    ),
    "lost table": (
        "DROP TABLE ducklake_inlined_data_1_1",
        "main.t: ducklake_inlined_data_1_1 is registered, but isn't there",
        "DELETE FROM ducklake_inlined_data_tables WHERE table_name = 'ducklake_inlined_data_1_1'",
    ),
    "dropped table": (
        (
            "UPDATE ducklake_table SET end_snapshot = 2 WHERE table_name = 't';"
            "ALTER TABLE ducklake_inlined_data_1_1 RENAME COLUMN row_id TO number"
        ),
        "main.t: ducklake_inlined_data_1_1 begins with",
        "its table is dropped: expire the snapshots",
    ),
    "half migrated": (
        "ALTER TABLE ducklake_delete_file ADD COLUMN row_group_count bigint",
        "there already, so that the migration can't make it: ducklake_delete_file.row_group_count",
        "half migrated",
    ),
    "another's table": (
        "CREATE ROLE {role}; ALTER TABLE ducklake_data_file OWNER TO {role}",
        "ducklake_data_file",
        "duckicelake grants",
    ),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_check_names_what_stands_in_the_way_and_what_to_do(settings, lake, database_url, name):
    statement, detail, advice = OBSTACLES[name]
    role = f"stranger_{os.getpid()}_{time.monotonic_ns()}"
    with psycopg.connect(database_url) as connection:
        connection.execute(statement.format(role=role))
    try:
        for options in (["--check"], []):
            result = invoke("migrate", *options, **settings)

            assert result.exit_code == 1, result.output
            (line,) = [line for line in result.output.splitlines() if line.startswith("FAIL")]
            assert detail in line
            assert advice in result.output
            assert "the migration would fail, and change nothing" in result.output
    finally:
        if "{role}" in statement:
            with psycopg.connect(database_url) as connection:
                connection.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_duckdb_that_attaches_by_the_printed_statement_may_change_the_version_and_no_one_else(started, lake, attach):
    command = started()
    statement = command.read_until("attach")["statement"]
    change = "UPDATE __ducklake_metadata_lake.ducklake_metadata SET value = '1.1' WHERE key = 'version'"
    other = attach()
    with pytest.raises(duckdb.Error, match="without AUTOMATIC_MIGRATION"):
        other.execute(change)
    other.execute("USE memory; DETACH lake")

    other.execute(statement)
    other.execute(change)

    assert command.read_until("result")["format"] == "1.1"
    assert command.end() == 1  # nothing else of the migration was done
    assert "not as in DuckLake 1.1: ducklake_data_file, ducklake_delete_file, ducklake_view_column_tag" in "".join(
        command.texts("verify")
    )


@pytest.mark.commands
def test_an_attach_of_a_command_that_has_ended_is_refused(started, lake):
    command = started("--timeout", "1")
    statement = command.read_until("attach")["statement"]

    assert command.end() == 3
    with pytest.raises(psycopg.errors.RaiseException, match="came too late"):
        migrate_as_duckdb_2(statement)
    assert command.texts("timeout")
    assert_writable(lake)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_attach_that_is_under_way_when_the_command_ends_is_undone(started, lake, sent):
    command = started()
    with attach_as_duckdb_2(command.read_until("attach")["statement"]) as migrating:
        migrating.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        *first, last = migration_statements(migrating)
        for text in first:
            migrating.execute(text)
        command.process.send_signal(sent)
        command.end()
        wait_until(lambda: lake.sql(HELD_GATES) == [(0,)])  # Postgres notices a killed client a little later

        with pytest.raises(psycopg.Error, match=r"came too late|could not serialize"):
            migrating.execute(last)

    assert lake.sql(VERSION) == [("1.0",)]
    assert_writable(lake)


@pytest.mark.commands
@pytest.mark.parametrize("step", ["backup", "drain", "attach"])
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9), (signal.SIGTERM, -15)])
def test_a_command_that_is_stopped_leaves_the_lake_as_it_was(started, lake, database_url, step, sent, code):
    command = started()
    if step == "drain":
        with psycopg.connect(database_url) as writer:
            writer.execute("UPDATE ducklake_table_stats SET record_count = record_count")
            command.read_until(step)
            command.process.send_signal(sent)
            assert command.end() == code
    else:
        command.read_until(step)
        command.process.send_signal(sent)
        assert command.end() == code

    assert lake.sql(VERSION) == [("1.0",)]
    assert_writable(lake)


@pytest.mark.commands
def test_a_second_command_is_refused_while_one_runs(started, lake):
    first = started()
    first.read_until("attach")
    second = started()

    assert second.end() == 2
    assert "another `duckicelake migrate` is at it (pid " in second.errors
    first.process.send_signal(signal.SIGINT)
    assert first.end() == 130
    assert_writable(lake)


def test_writers_get_503_and_readers_are_served_until_the_command_ends(started, lake):
    command = started()
    with serving(lake) as http:
        command.read_until("attach")
        assert http.get(T).status_code == 200  # though it writes what it finds in DuckLake's rows

        refused = http.post(f"{T}/rows", json=[{"i": 3, "s": "c"}])
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        assert "DuckLake format is being changed" in refused.json()["error"]["message"]
        assert http.get(T).status_code == 200
        assert http.get("/readyz").status_code == 200
        with pytest.raises(duckdb.Error, match="DuckLake format is being changed"):
            lake.run("INSERT INTO t VALUES (3, 'c')")

        command.process.send_signal(signal.SIGINT)
        assert command.end() == 130
        assert http.post(f"{T}/rows", json=[{"i": 3, "s": "c"}]).status_code == 200
    assert_same_rows(lake)


@pytest.mark.commands
def test_the_drain_waits_for_a_writer_and_names_it_if_it_does_not_end(started, lake, database_url):
    with psycopg.connect(database_url, application_name="etl") as writer:
        writer.execute("UPDATE ducklake_table_stats SET record_count = record_count")

        command = started("--drain", "1")

        assert command.end() == 3
        assert f"still writes: pid {writer.info.backend_pid}" in "".join(command.texts("drain"))
        assert "etl" in "".join(command.texts("drain"))
    assert_writable(lake)


@pytest.mark.commands
def test_end_sessions_ends_writers_that_do_not_end_and_readers_that_are_in_the_way(started, lake, database_url):
    writer = psycopg.connect(database_url, application_name="etl")
    writer.execute("UPDATE ducklake_table_stats SET record_count = record_count")
    command = started("--drain", "1", "--end-sessions")
    statement = command.read_until("attach")["statement"]
    reader = psycopg.connect(database_url, application_name="bi")
    reader.execute("SELECT count(*) FROM ducklake_data_file")

    migrate_as_duckdb_2(statement)

    command.end()
    assert any("the ATTACH waits for" in text and "bi" in text for text in command.texts("wait"))
    for session in (writer, reader):
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 1")


@contextmanager
def posting(url: str, first: int, written: list[int], refusals: list[int]) -> Iterator[None]:
    """Posts rows until the block ends; what is refused is sent again, as the Writer does."""
    is_over = threading.Event()

    def post() -> None:
        with httpx.Client(base_url=url, timeout=30) as client:
            number = first
            while not is_over.is_set():
                answer = client.post(f"{T}/rows", json=[{"i": number, "s": "posted"}])
                if answer.status_code == 200:
                    written.append(number)
                    number += 1
                else:
                    refusals.append(answer.status_code)
                    time.sleep(0.05)

    thread = threading.Thread(target=post)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.commands
def test_a_lake_is_migrated_under_load_and_no_row_is_lost_or_doubled(started, lake, settings):
    written: list[int] = []
    refusals: list[int] = []
    loads: list[int] = []
    with running(create_app(lake.services)) as url, httpx.Client(base_url=url, timeout=30) as client:
        with posting(url, 1_000, written, refusals), posting(url, 5_000, written, refusals):
            wait_until(lambda: len(written) > 20)
            command = started()
            statement = command.read_until("attach")["statement"]
            loads += [client.get(T).status_code for _ in range(5)]
            migrate_as_duckdb_2(statement)
            assert command.end() == 0, command.steps
            before = len(written)
            wait_until(lambda: len(written) > before + 20)
        loads.append(client.get(T).status_code)

    assert set(refusals) == {503}
    assert set(loads) == {200}
    assert lake.sql(VERSION) == [("1.1",)]
    found = lake.static().scan(row_filter="i >= 1000").to_arrow()["i"].to_pylist()
    assert sorted(found) == sorted(written)
    assert any("was attached before" in text for text in command.texts("reattach"))
    again = invoke("migrate", **settings)
    assert again.exit_code == 0
    assert "the lake has DuckLake format 1.1 and is complete" in again.output
    assert lake.sql("SELECT result FROM duckicelake_audit WHERE operation = 'migrate'") == [("ok",)]


def test_a_duckdb_that_was_attached_before_makes_no_table_with_the_names_of_1_0(settings, lake, database_url, attach):
    idle = attach()
    idle.sql("SELECT count(*) FROM t").fetchall()
    with psycopg.connect(database_url) as connection:
        migrate_by_sql(connection)

    for client in (lake.duck, idle):
        with pytest.raises(duckdb.Error, match="DETACH the lake, ATTACH it and try again"):
            client.execute("CREATE TABLE lake.main.late (i BIGINT)")

    assert lake.sql("SELECT table_name FROM ducklake_table WHERE end_snapshot IS NULL") == [("t",)]
    assert lake.sql("SELECT count(*) FROM ducklake_inlined_data_tables") == [(1,)]
    with serving(lake) as http:
        schema = {
            "type": "struct",
            "schema-id": 0,
            "fields": [{"id": 1, "name": "i", "type": "long", "required": False}],
        }
        body = {"name": "served", "schema": schema}
        assert http.post("/v1/namespaces/main/tables", json=body).status_code == 200
