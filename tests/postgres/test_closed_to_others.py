"""The embedded Postgres is for its lake's owner alone: its folders, its socket, its rules, its environment."""

import os
import pwd
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from duckicelake.postgres.embedded import EmbeddedPostgres, build_embedded_url
from duckicelake.postgres.install import find_account, find_programs, find_socket_folder
from duckicelake.storage.local import LocalStore
from tests.support.clusters import place_cluster

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
CONNECT = "import psycopg, sys; psycopg.connect(sys.argv[1])"


@pytest.fixture
def parent() -> Iterator[Path]:
    """A closed folder whose path is short enough for sockets, which pytest's aren't."""
    with tempfile.TemporaryDirectory(prefix="closed-") as folder:
        yield Path(folder)


@pytest.fixture
def lake(parent: Path) -> Path:
    place_cluster(parent / "lake")
    return parent / "lake"


@pytest.fixture
def long_lake(parent: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One whose path is too long for a socket, with a temporary folder that everybody may write."""
    folder = parent / ("long" * 30)
    place_cluster(folder)
    with tempfile.TemporaryDirectory(prefix="shared-", dir="/tmp") as shared:
        Path(shared).chmod(0o1777)
        monkeypatch.setattr(tempfile, "tempdir", shared)
        yield folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_are_closed_and_those_above_stay_as_they_are(parent: Path) -> None:
    before = [(folder, mode(folder)) for folder in parent.parents]
    with EmbeddedPostgres(parent / "made" / "lake"):
        store = LocalStore(parent / "made" / "lake" / "warehouse")
        store.check()
        lake = parent / "made" / "lake"
        assert [mode(path) for path in (lake, lake / "postgres", lake / "warehouse")] == [0o700] * 3
        assert mode(lake / "postgres" / ".s.PGSQL.5432") == 0o700
    assert mode(parent) == 0o700
    assert [(folder, mode(folder)) for folder in parent.parents] == before


def test_folder_that_was_there_keeps_its_mode(lake: Path) -> None:
    lake.chmod(0o755)
    EmbeddedPostgres(lake).stop()
    assert mode(lake) == 0o755


def test_long_path_has_its_socket_in_a_closed_folder_that_goes_again(long_lake: Path) -> None:
    with EmbeddedPostgres(long_lake) as postgres:
        sockets = find_socket_folder(long_lake / "postgres")
        assert sockets.parent == Path(tempfile.gettempdir())
        assert mode(sockets) == 0o700
        assert mode(sockets / ".s.PGSQL.5432") == 0o700
        assert build_embedded_url(long_lake) == postgres.url
        psycopg.connect(postgres.url).close()
        assert [path.name for path in sockets.parent.iterdir()] == [sockets.name], "and no lock file"
    assert list(sockets.parent.iterdir()) == []


def test_folder_that_others_have_opened_or_taken_is_left_for_another(long_lake: Path) -> None:
    EmbeddedPostgres(long_lake).stop()
    taken = find_socket_folder(long_lake / "postgres")
    for take in (lambda: taken.mkdir(0o777), lambda: taken.symlink_to(long_lake)):
        (long_lake / ".socket").write_text(str(taken))
        take()
        with EmbeddedPostgres(long_lake) as postgres:
            assert find_socket_folder(long_lake / "postgres") != taken
            psycopg.connect(postgres.url).close()
        taken.unlink() if taken.is_symlink() else taken.rmdir()


def test_environment_holds_no_secret_of_the_server(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKICELAKE_OAUTH_CLIENTS", "etl:a-secret-of-a-client|*")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-s3")
    with EmbeddedPostgres(lake) as postgres, psycopg.connect(postgres.url) as connection:
        connection.execute("CREATE TEMP TABLE seen (line text)")
        connection.execute("COPY seen FROM PROGRAM 'env'")
        lines = [line for (line,) in connection.execute("SELECT line FROM seen").fetchall()]
    assert any(line.startswith("PATH=") for line in lines)
    assert not [line for line in lines if "secret" in line or "DUCKICELAKE" in line or "AWS" in line]


@ROOT_ONLY
def test_other_users_can_not_connect_even_where_they_reach_the_socket(long_lake: Path) -> None:
    """Opened by hand, the socket is still guarded by the rules."""
    nobody = pwd.getpwnam("nobody")

    def connect(url: str) -> str:
        command = [sys.executable, "-c", CONNECT, url]
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        ended = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, **user)  # type: ignore[call-overload]
        assert ended.returncode != 0
        return ended.stderr

    with EmbeddedPostgres(long_lake) as postgres:
        assert "Permission denied" in connect(postgres.url)
        sockets = find_socket_folder(long_lake / "postgres")
        sockets.chmod(0o755)
        (sockets / ".s.PGSQL.5432").chmod(0o777)
        for role in ("postgres", "nobody"):
            assert "Peer authentication failed" in connect(postgres.url.replace("//postgres:", f"//{role}:"))


def test_postgres_that_let_everybody_in_is_started_anew(lake: Path) -> None:
    """As a server of an earlier version left it that was killed."""
    data = lake / "postgres"
    (data / "pg_hba.conf").write_text("local all all trust\n")
    account = find_account(data)
    user = {} if account.other is None else {"user": account.other[0], "group": account.other[1], "extra_groups": []}
    place = "/proc/self/cwd" if account.other else str(data)
    command = [str(find_programs(data, account) / "postgres"), "-D", place, "-h", "", "-k", place]
    left = subprocess.Popen(command, cwd=data, stderr=subprocess.DEVNULL, **user)  # type: ignore[call-overload]
    while "ready" not in ((data / "postmaster.pid").read_text() if (data / "postmaster.pid").exists() else ""):
        assert left.poll() is None
    with EmbeddedPostgres(lake) as postgres, psycopg.connect(postgres.url) as connection:
        assert left.wait(60) is not None
        rules = connection.execute("SELECT DISTINCT auth_method FROM pg_hba_file_rules").fetchall()
    assert rules == [("peer",)]


@ROOT_ONLY
def test_programs_in_a_folder_of_roots_are_copied_to_where_postgres_reads_them(
    lake: Path, parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = find_programs(lake / "postgres", find_account(lake / "postgres")).parent
    hidden = parent / "site-packages"
    hidden.mkdir(0o700)
    package, libraries = wheel.parent, wheel.parent.with_name(f"{wheel.parent.name}.libs")
    (hidden / package.name).mkdir()
    (hidden / package.name / wheel.name).symlink_to(wheel)
    (hidden / libraries.name).symlink_to(libraries)
    found = type("Found", (), {"submodule_search_locations": [str(hidden / package.name)]})
    monkeypatch.setattr("duckicelake.postgres.install.find_spec", lambda _: found)
    with EmbeddedPostgres(lake) as postgres, psycopg.connect(postgres.url) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
        copies = list(Path(tempfile.gettempdir()).glob("duckicelake-postgres-*"))
        assert len(copies) == 1
    assert mode(hidden) == 0o700
    assert not copies[0].exists()
