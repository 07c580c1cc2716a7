"""A lake knows which processes look for its tasks, also after Postgres crashed."""

import os
import signal
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import psycopg

from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.format import prepare_catalog
from duckicelake.postgres.database import Database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.settings.model import Settings
from duckicelake.upkeep import queue
from duckicelake.upkeep.sources import list_presence
from tests.support.waits import wait_until

BOTH = ["upkeep_workers", "delta_sync_seconds"]


def read_presence(database: Database) -> set[str]:
    with database.statement() as cursor:
        return queue.read_presence(cursor)


def change(database: Database, statement: str) -> None:
    with database.transaction() as cursor:
        cursor.execute(statement.encode())


def note(database: Database, *settings: str) -> None:
    with database.statement() as cursor:
        queue.note_presence(cursor, settings)


def has_recovered(url: str) -> bool:
    try:
        with psycopg.connect(url):
            return True
    except psycopg.OperationalError:
        return False


def test_crash_of_postgres_leaves_what_workers_noted() -> None:
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder)) as server:
        with closing(open_lake_database(server.url, pool_size=1)) as database:
            prepare_catalog(database, "/nowhere/", creates=True)
            note(database, *BOTH)
            change(database, "INSERT INTO duckicelake_upkeep_look VALUES ('x', now())")
        with psycopg.connect(server.url) as connection:
            os.kill(connection.info.backend_pid, signal.SIGKILL)
            with suppress(psycopg.OperationalError):
                connection.execute("SELECT")
        wait_until(lambda: has_recovered(server.url))
        with psycopg.connect(server.url) as connection, connection.cursor() as cursor:
            assert queue.read_presence(cursor) == {*BOTH}
            assert not cursor.execute("SELECT FROM duckicelake_upkeep_look").fetchall(), "it did not crash"


def test_process_that_noted_nothing_for_minutes_is_gone(database: Database) -> None:
    assert read_presence(database) == set()
    note(database, *BOTH)
    assert read_presence(database) == {*BOTH}
    change(database, "UPDATE duckicelake_upkeep_presence SET noted = noted - interval '4 minutes'")
    assert read_presence(database) == set()
    note(database, *BOTH[:1])
    assert read_presence(database) == {*BOTH[:1]}


def test_note_of_a_clock_that_was_set_back_is_written_again(database: Database) -> None:
    note(database, *BOTH)
    change(database, "UPDATE duckicelake_upkeep_presence SET noted = 'infinity' WHERE setting = 'upkeep_workers'")
    note(database, *BOTH)
    with database.statement() as cursor:
        rows = cursor.execute("SELECT setting FROM duckicelake_upkeep_presence WHERE noted > now()").fetchall()
    assert rows == []


def test_worker_notes_what_its_settings_have_it_look_for() -> None:
    assert list_presence(Settings(upkeep_workers=0)) == BOTH, "`duckicelake work` on a machine of such a server"
    assert list_presence(Settings(delta_sync_seconds=0)) == BOTH[:1]
