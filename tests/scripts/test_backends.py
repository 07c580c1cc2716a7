"""`scripts/backends`: a Postgres and a MinIO that outlive the command that started them."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from scripts.backends_job.minio import MinioServer, program
from scripts.backends_job.postgres import Postgres, find_programs, running_postgres
from scripts.backends_job.processes import BackendError, Process, birth, free_port, is_free
from scripts.backends_job.stack import down, status, up
from scripts.backends_job.users import User, closed_folder, unprivileged


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's folder: as root, Postgres runs as another user, and pytest closes its folder to others."""
    path = Path(tempfile.mkdtemp(prefix="duckicelake-backends-"))
    yield path
    down(path)
    shutil.rmtree(path)


def test_up_twice_is_up_once_and_down_keeps_data_ports_and_passwords(folder: Path) -> None:
    first = up(folder)
    with psycopg.connect(first.database_url) as connection:
        connection.execute("CREATE TABLE kept (x int)")
    client = first.minio.client()
    client.put_object(Bucket=first.bucket, Key="kept", Body=b"1")
    assert up(folder) == first
    assert down(folder) == ["postgres", "minio"]
    assert down(folder) == []
    assert set(status(folder).values()) == {"doesn't run"}
    assert up(folder) == first
    with psycopg.connect(first.database_url) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    assert client.get_object(Bucket=first.bucket, Key="kept")["Body"].read() == b"1"
    client.close()
    assert all(report.startswith("runs on 127.0.0.1:") for report in status(folder).values())


def test_two_that_ask_at_once_get_the_same_servers(folder: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: up(folder), range(2))
    assert one == other


def test_only_who_started_them_reads_the_passwords(folder: Path) -> None:
    MinioServer(folder).up()
    assert (folder / "minio.json").stat().st_mode & 0o077 == 0


def test_port_asked_for_is_taken_or_named(folder: Path) -> None:
    port = free_port()
    server = MinioServer(folder)
    assert server.up(port).port == port
    with pytest.raises(BackendError, match=f"minio runs on port {port}, not {port + 1}"):
        server.up(port + 1)
    with pytest.raises(BackendError, match=f"port {port}, asked for postgres, is taken"):
        Postgres(folder).up(port)
    assert not is_free(port)


def test_stranger_with_the_pid_of_a_dead_server_is_left_alone(folder: Path) -> None:
    server = MinioServer(folder)
    state = server.up()
    server.down()
    with subprocess.Popen(["sleep", "60"]) as stranger:
        server._remember(replace(state, pid=stranger.pid))
        assert not server.down()
        assert stranger.poll() is None
        assert Process(stranger.pid, birth(stranger.pid) or "").runs()
        stranger.kill()


def test_server_that_can_not_start_says_what_it_printed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "minio").write_text("not a folder")
    monkeypatch.setattr(MinioServer, "prepare", lambda *_: (["/bin/sh", "-c", "echo no disk here; exit 1"], {}))
    start = time.monotonic()
    with pytest.raises(BackendError, match=r"minio did not start; it printed:\nno disk here"):
        MinioServer(folder).up()
    assert time.monotonic() - start < 20


def test_postgres_of_ones_own_takes_settings_and_wants_a_password(folder: Path) -> None:
    with running_postgres(folder, ("fsync=off",)) as url:
        with psycopg.connect(url) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("off",)
            assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(url.replace("duckicelake:", "duckicelake:wrong"))
    assert status(folder)["postgres"] == "doesn't run"


def test_postgres_of_the_wheel_does_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))
    assert find_programs().parent.name == "pginstall"


def test_folder_that_postgres_can_not_enter_is_named(folder: Path) -> None:
    user = unprivileged()
    if user is None:
        pytest.skip("only root runs Postgres as somebody else")
    closed = folder / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0o700)
    folder.chmod(0o755)
    assert closed_folder(closed / "inner", user) == closed
    with pytest.raises(BackendError, match=rf"{user.name}, who can't enter {closed}: open it with chmod"):
        Postgres(closed / "inner").up()


def test_minio_without_go_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BackendError, match=r"MinIO, .*Put it on the PATH, or install Go"):
        program()


def test_failed_build_of_minio_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_go(tmp_path, monkeypatch, "exit 1")
    with pytest.raises(BackendError, match=r"building failed.*github\.com/minio/minio@v"):
        program()


def test_minio_is_built_once_however_many_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_go(tmp_path, monkeypatch, 'echo built >>"$HOME/builds"\n/bin/sleep 0.2\n: >"$GOBIN/minio"')
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: program(), range(4)))) == 1
    assert (tmp_path / "builds").read_text() == "built\n"


def only_go(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A machine with an empty home, and nothing on its PATH but a `go` that is this shell script."""
    go = folder / "bin" / "go"
    go.parent.mkdir()
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PATH", str(go.parent))


def test_ordinary_user_needs_no_other() -> None:
    nobody = unprivileged()
    assert nobody is None or nobody.uid != 0
    assert User("root", 0, 0).can_enter(Path("/"))
