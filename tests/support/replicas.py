"""A Postgres of a test's own to stop, to start and to let another one follow: real clusters on loopback."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from scripts.backends_job.postgres import find_programs, run
from scripts.backends_job.processes import BackendError, free_port
from scripts.backends_job.users import User, unprivileged

SETTINGS = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Postgres in a folder of its own, for whoever comes from this machine."""

    folder: Path
    port: int
    user: User | None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.address}/postgres"

    def start(self) -> None:
        options = " ".join(f"-c {setting}" for setting in (*SETTINGS, f"port={self.port}"))
        self.run(
            "pg_ctl", "-D", str(self.folder / "data"), "-l", str(self.folder / "log"), "-o", options, "-w", "start"
        )

    def stop(self) -> None:
        """As if its machine had lost power."""
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")

    def wait_for(self, primary: "Cluster") -> None:
        """Until it has what the primary has now."""
        with psycopg.connect(primary.url, autocommit=True) as connection:
            row = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
        assert row is not None
        with psycopg.connect(self.url, autocommit=True) as connection:
            while connection.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", row).fetchone() != (True,):
                time.sleep(0.02)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Have none of its processes run in the block, as if its disk stalled: it still takes what it is sent."""
        processes = stop_family(self.processes()[0])
        try:
            yield
        finally:
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

    def processes(self) -> list[int]:
        """The postmaster, then its children."""
        return family_of(int((self.folder / "data" / "postmaster.pid").read_text().split()[0]))

    def promote(self) -> None:
        """Let it follow no longer; return when it takes writes."""
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-w", "promote")

    def follow(self, primary: "Cluster") -> None:
        """Become a hot standby of the primary, without what it had before; for which no one waits yet."""
        data, (host, port) = self.folder / "data", primary.address.split(":")
        if data.exists():
            shutil.rmtree(data)
        self.run("pg_basebackup", "-D", str(data), "-h", host, "-p", port, "-U", "postgres", "-c", "fast", "-R", "-N")
        self.start()

    def set_synchronous(self, names: str) -> None:
        """Have each commit wait for a standby (`*`), or for none (empty)."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'".encode())
            connection.execute("SELECT pg_reload_conf()")

    def run(self, program: str, *arguments: str) -> None:
        run([str(find_programs(self.user) / program), *arguments], self.user, self.folder)


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A new Postgres, with an empty database."""
    with _folder() as cluster:
        options = ("-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
        cluster.run("initdb", "-D", str(cluster.folder / "data"), *options)
        cluster.start()
        yield cluster


@contextmanager
def lagging(primary: Cluster) -> Iterator[Cluster]:
    """A hot standby for which no one waits."""
    with _folder() as standby:
        standby.follow(primary)
        yield standby


@contextmanager
def following(primary: Cluster) -> Iterator[Cluster]:
    """A hot standby that has every commit of the primary's before that is answered."""
    with lagging(primary) as standby:
        primary.set_synchronous("*")
        yield standby


def family_of(postmaster: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    return [postmaster, *map(int, children)]


def stop_family(postmaster: int) -> list[int]:
    """Have a process and its children run no longer, once it can have no more of them; who they are."""
    os.kill(postmaster, signal.SIGSTOP)
    _wait_until_stopped(postmaster)
    family = family_of(postmaster)
    for process in family[1:]:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGSTOP)
    for process in family[1:]:
        _wait_until_stopped(process)
    return family


def _wait_until_stopped(process: int) -> None:
    """A signal is on its way for a while. Nothing more is to be waited for in a process that has ended."""
    until = time.monotonic() + 20
    while (state := _state_of(process)) not in ("T", "Z", None):
        assert time.monotonic() < until, f"process {process} is in state {state}"
        time.sleep(0.001)


def _state_of(process: int) -> str | None:
    """The letter of proc(5); None if there is no such process."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def url_of(clusters: Sequence[Cluster]) -> str:
    """One URL for all of them."""
    return f"postgresql://postgres@{','.join(cluster.address for cluster in clusters)}/postgres"


@contextmanager
def _folder() -> Iterator[Cluster]:
    # Not below pytest's folder: Postgres runs as another user where the tests run as root.
    folder, user = Path(tempfile.mkdtemp(prefix="duckicelake-cluster-")), unprivileged()
    if user is not None:
        shutil.chown(folder, user.uid, user.gid)
    cluster = Cluster(folder, free_port(), user)
    try:
        yield cluster
    finally:
        with suppress(BackendError):  # a test may have stopped it
            cluster.stop()
        shutil.rmtree(folder)
