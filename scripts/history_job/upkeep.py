"""Upkeep beside the clients: the servers' own workers, and `duckicelake work` as another machine runs it."""

import socket
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from subprocess import DEVNULL, STDOUT
from time import sleep
from typing import Any, Final

import httpx
import psutil  # type: ignore[import-untyped]
import psycopg

from scripts.demo_job.server import PROGRAM, own_environment, stop
from scripts.history_job.history import Anomaly
from scripts.history_job.served import Served, spawned_by

SETTINGS: Final[Mapping[str, str]] = {
    "DUCKICELAKE_UPKEEP_WORKERS": "1",
    "DUCKICELAKE_UPKEEP_SECONDS": "0.5",
    "DUCKICELAKE_UPKEEP_MEMORY_BYTES": str(192 * 1024**2),
}
_POLICIES: Final[Mapping[str, str]] = {
    "maintenance.automatic": "flush,sort,compact,bloom-filters,rewrite-deletes,pack-manifests,statistics,expire",
    "maintenance.flush.min-rows": "3",
    "maintenance.compaction.min-files": "2",
    "maintenance.compaction.delete-ratio": "0.1",
    "maintenance.delete-files.min-excess": "1",
    "maintenance.manifests.min-small": "4",
    "maintenance.statistics.every": "1m",
}
"""Under which tables are due after a few operations. Snapshots expire and files get Bloom filters by properties of some
tables.
"""
_ZOMBIE_SECONDS: Final = 4.0
"""For which a worker stands still whose lease has ended: others take its task meanwhile."""


@dataclass(slots=True)
class Machine:
    """`duckicelake work` on the lake's Postgres."""

    served: Served
    processes: int
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        settings = {
            "DUCKICELAKE_WAREHOUSE": str(self.served.folder / "warehouse"),
            **self.served.settings,
            "DUCKICELAKE_DATABASE_URL": self.served.database_url,
        }
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(
                [PROGRAM, "work", "--processes", str(self.processes)],
                env=own_environment(settings),
                stdin=DEVNULL,
                stdout=stream,
                stderr=STDOUT,
                start_new_session=True,
            )

    def workers(self) -> list[psutil.Process]:
        assert self.process is not None
        with suppress(psutil.Error):
            first = psutil.Process(self.process.pid)
            return [first, *spawned_by(first)]
        return []

    def wait_for(self, worker: psutil.Process) -> None:
        """Wait until a worker that was killed has ended, whoever is its parent."""
        if self.process is not None and worker.pid == self.process.pid:
            self.process.wait()
        else:
            psutil.wait_procs([worker], 10)

    def restart_if_killed(self) -> None:
        """Start the command again, as systemd would, once a kill has hit its first process, or it found no Postgres."""
        if self.process is not None and self.process.poll() is not None:
            self.start()

    def judge_end(self) -> Iterator[Anomaly]:
        if self.process is not None and self.process.poll() not in (None, -9, 2):
            text = f"`duckicelake work` ended with {self.process.poll()}: {self.log.read_text()[-2000:]}"
            yield Anomaly("worker ended", text)


@contextmanager
def working(machine: Machine) -> Iterator[Machine]:
    """Let the machine work while the block runs."""
    machine.start()
    try:
        yield machine
    finally:
        if machine.process is not None:
            stop(machine.process)


def set_policies(uri: str) -> None:
    """Have the lake keep itself, at once."""
    httpx.put(f"{uri}/pipeline/v1/policies", json={"policies": dict(_POLICIES)}).raise_for_status()


@dataclass(slots=True)
class UpkeepFaults:
    """What is done to workers of upkeep."""

    machine: Machine
    servers: Sequence[Served]
    random: Random

    def kill_one(self) -> None:
        """Kill -9 a worker; its leases end at once, so that its task is taken again."""
        worker = self._choose()
        if worker is not None:
            worker.kill()
            self.machine.wait_for(worker)
            self._end_leases(worker.pid)
        self.machine.restart_if_killed()

    def outlive_lease(self) -> None:
        """Let a worker go on with a task that others have taken meanwhile."""
        worker = self._choose()
        if worker is None:
            return
        with suppress(psutil.NoSuchProcess):
            worker.suspend()
            try:
                self._end_leases(worker.pid)
                sleep(_ZOMBIE_SECONDS * self.random.random())
            finally:
                worker.resume()

    def _choose(self) -> psutil.Process | None:
        """Choose a worker, if one is at work one of those."""
        with psycopg.connect(self.machine.served.database_url, autocommit=True, connect_timeout=5) as connection:
            rows = connection.execute("SELECT worker FROM duckicelake_upkeep_task WHERE state = 'running'").fetchall()
        busy = {int(name.rpartition(":")[2]) for (name,) in rows if name}
        workers = [*self.machine.workers(), *(each for served in self.servers for each in served.upkeep_workers())]
        chosen = [worker for worker in workers if worker.pid in busy] or workers
        return self.random.choice(chosen) if chosen else None

    def _end_leases(self, pid: int) -> None:
        name = f"{socket.gethostname()}:{pid}"
        with psycopg.connect(self.machine.served.database_url, autocommit=True, connect_timeout=5) as connection:
            connection.execute(
                "WITH ended AS ("
                "UPDATE duckicelake_upkeep_task SET lease_until = clock_timestamp() - interval '1 second' "
                "WHERE worker = %s AND state = 'running' RETURNING claim) "
                "UPDATE duckicelake_job j SET lease_until = clock_timestamp() - interval '1 second' "
                "FROM ended WHERE j.id = ended.claim AND j.ended IS NULL",
                [name],
            )


def count_tasks(database_url: str) -> tuple[dict[str, Any], list[Anomaly]]:
    """Count what workers did, by kind and result; tasks that failed or are blocked are wrong here."""
    with closing(psycopg.connect(database_url)) as connection:
        jobs = connection.execute("SELECT kind, result FROM duckicelake_job").fetchall()
        bad = connection.execute(
            "SELECT kind, state, message FROM duckicelake_upkeep_task WHERE state IN ('failed', 'blocked')"
        ).fetchall()
    counts = Counter(f"{kind} {result}" for kind, result in jobs)
    facts = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    return {"jobs of upkeep": facts}, [
        Anomaly("task stuck", f"{kind} is {state}: {message}") for kind, state, message in bad
    ]
