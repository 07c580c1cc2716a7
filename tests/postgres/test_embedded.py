import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

from duckicelake.errors import InvalidSettingsError, LakeInUseError, StartupError
from duckicelake.postgres.embedded import EmbeddedPostgres

HOLD_UNTIL_STDIN_CLOSES = """
import sys
from pathlib import Path
from duckicelake.postgres.embedded import EmbeddedPostgres
with EmbeddedPostgres(Path(sys.argv[1])):
    print("started", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp(prefix="duckicelake-embedded-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_rows_survive_a_stop_and_a_start(folder):
    with EmbeddedPostgres(folder) as first, psycopg.connect(first.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS n")

    with EmbeddedPostgres(folder) as second, psycopg.connect(second.url) as connection:
        assert connection.execute("SELECT n FROM kept").fetchall() == [(7,)]


def test_a_lake_held_by_another_process_is_refused_naming_it(folder):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_UNTIL_STDIN_CLOSES, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        assert holder.stdout.readline() == b"started\n"
        with pytest.raises(LakeInUseError, match=f"process {holder.pid}"):
            EmbeddedPostgres(folder)
    finally:
        holder.communicate(timeout=60)

    EmbeddedPostgres(folder).stop()


def test_a_lake_whose_server_was_killed_is_taken_over(folder):
    killed = subprocess.Popen(
        [sys.executable, "-c", HOLD_UNTIL_STDIN_CLOSES, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert killed.stdout.readline() == b"started\n"
    killed.kill()
    killed.communicate(timeout=60)

    with EmbeddedPostgres(folder) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("left", ["{pid}\n", "{pid}\n/a\n1\n5432\n/a\n\n1 2\nstarting\n"])
def test_what_a_start_that_was_killed_left_is_no_hindrance(folder, left):
    with EmbeddedPostgres(folder):
        pass
    ended = subprocess.Popen(["true"])
    ended.wait()
    (folder / "postgres" / "postmaster.pid").write_text(left.format(pid=ended.pid))

    with EmbeddedPostgres(folder) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_postgres_that_does_not_start_is_reported_with_the_end_of_its_log(folder):
    with EmbeddedPostgres(folder):
        pass
    with (folder / "postgres" / "postgresql.conf").open("a") as settings:
        settings.write("no_such_setting = 1\n")

    with pytest.raises(StartupError, match=r"its log, .*/log, ends with: .*contains errors"):
        EmbeddedPostgres(folder)


def test_stopping_twice_does_nothing(folder):
    server = EmbeddedPostgres(folder)
    server.stop()
    server.stop()


def test_folder_that_is_a_file_says_to_choose_another(tmp_path: Path) -> None:
    (tmp_path / "lake").touch()
    with pytest.raises(InvalidSettingsError, match="choose a folder that this user can write"):
        EmbeddedPostgres(tmp_path / "lake")


def test_an_installation_without_postgres_names_the_setting_before_it_makes_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("duckicelake.postgres.install.find_spec", lambda _: None)
    with pytest.raises(StartupError, match=r"no Postgres is embedded.*set DUCKICELAKE_DATABASE_URL"):
        EmbeddedPostgres(tmp_path / "lake")
    assert not (tmp_path / "lake").exists()
