"""What is done to the server while clients use it: kills in a random order, and the plans of the proxies."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from time import sleep
from typing import Any, Final

import psutil  # type: ignore[import-untyped]
import psycopg

from scripts.history_job.client import Session, now
from scripts.history_job.history import Anomaly
from scripts.history_job.proxy import Fate, Plan, Request, Spoil
from scripts.history_job.served import Served

_BACKENDS: Final = (
    "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() "
    "ORDER BY state = 'active' DESC, random()"
)
_API_SPOILS: Final = (
    Spoil.NEVER_SENT,
    Spoil.HALF_SENT,
    Spoil.HUNG_UP,
    Spoil.LOST,
    Spoil.LOST,
    Spoil.CUT,
    Spoil.TWICE,
    Spoil.TWICE,
    Spoil.LATE,
    Spoil.LATE_ANSWER,
)
_STORE_SPOILS: Final = (
    Spoil.UNAVAILABLE,
    Spoil.UNAVAILABLE,
    Spoil.NEVER_SENT,
    Spoil.LOST,
    Spoil.CUT,
    Spoil.LATE,
    Spoil.LATE_ANSWER,
)


_AWAY: Final = (psycopg.OperationalError, psycopg.InterfaceError, psutil.Error, ProcessLookupError, FileNotFoundError)
"""What a fault meets whose victim has just ended, or Postgres with it. A wrong statement is none of it."""


@dataclass(slots=True)
class Faults:
    """Until `ended` is set, something fails after every so many operations, once the last failure is got over.

    `has_local_files`: their disk can be full. `others`: more faults, by name.
    """

    served: Served
    session: Session
    random: Random
    ended: threading.Event
    every: int
    has_local_files: bool
    others: Mapping[str, Callable[[], None]] = field(default_factory=dict)

    def run(self) -> None:
        try:
            for name, fail in self._deck():
                if not self._wait():
                    return
                with suppress(*_AWAY):
                    self.session.history.faults.append((now(), name))
                    fail()
        except Exception as error:  # noqa: BLE001 - whatever it is, the check must not pass
            self.session.history.anomalies.append(Anomaly("check failed", f"the run was ended by this: {error!r}"))
            self.ended.set()

    def _wait(self) -> bool:
        """Until enough has happened since the last failure; False if it's over. The server may only end by our hand."""
        self.served.wait_until_ready()
        until = self.session.attempted + self.every * (0.5 + self.random.random())
        while self.session.attempted < until:
            if self.ended.wait(0.02):
                return False
            if self.served.ended():
                text = f"the server ended by itself; its last words: {self.served.last_words()}"
                self.session.history.anomalies.append(Anomaly("server ended", text))
                self._kill_server()
        return True

    def _deck(self) -> Iterator[tuple[str, Callable[[], None]]]:
        cards: dict[str, Callable[[], None]] = {
            "worker killed": self._kill_worker,
            "all workers killed": self._kill_all_workers,
            "backend terminated": self._terminate_backend,
            "backend killed": self._kill_backend,
            "worker frozen": self._freeze_worker,
            "Postgres frozen": self._freeze_postgres,
            "server killed": self._kill_server,
            "server and Postgres killed": self._kill_everything,
        }
        if self.has_local_files:
            cards["disk full"] = self._fill_disk
        cards |= self.others
        while True:
            names = list(cards)
            self.random.shuffle(names)
            yield from ((name, cards[name]) for name in names)

    def _kill_worker(self) -> None:
        workers = self.served.workers()
        self._kill(self.random.choice(workers), is_server=len(workers) == 1)

    def _kill_all_workers(self) -> None:
        workers = self.served.workers()
        for worker in workers:
            self._kill(worker, is_server=len(workers) == 1)

    def _kill(self, worker: Any, *, is_server: bool) -> None:
        assert self.served.process is not None
        if is_server and worker.pid == self.served.process.pid:
            self._kill_server()
        else:
            worker.kill()

    def _terminate_backend(self) -> None:
        with psycopg.connect(self.served.database_url, autocommit=True, connect_timeout=5) as connection:
            pids = [pid for (pid,) in connection.execute(_BACKENDS).fetchall()]
            for pid in pids if self.random.random() < 0.3 else pids[:1]:
                connection.execute("SELECT pg_terminate_backend(%s)", [pid])

    def _kill_backend(self) -> None:
        """Postgres then ends all other backends, too, and recovers."""
        with psycopg.connect(self.served.database_url, autocommit=True, connect_timeout=5) as connection:
            victim = connection.execute(_BACKENDS).fetchone()
            if victim is not None:
                os.kill(victim[0], signal.SIGKILL)

    def _freeze_worker(self) -> None:
        worker = self.random.choice(self.served.workers())
        with frozen([worker]):
            sleep(1.5 * self.random.random())

    def _freeze_postgres(self) -> None:
        """Longer, at times, than the server waits for an answer on its line for loads."""
        postmaster = self.served.postmaster()
        with frozen([postmaster, *postmaster.children()]):
            sleep(3 * self.random.random())

    def _kill_server(self) -> None:
        self.served.kill(with_postgres=False)
        sleep(0.3 * self.random.random())
        self.served.start()

    def _kill_everything(self) -> None:
        self.served.kill(with_postgres=True)
        sleep(0.3 * self.random.random())
        self.served.start()

    def _fill_disk(self) -> None:
        self.served.fill_disk(0.1 + 0.4 * self.random.random())


@contextmanager
def frozen(processes: Sequence[psutil.Process]) -> Iterator[None]:
    """The processes stand still while the block runs."""
    try:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def api_plan(seed: int, share: float, is_over: threading.Event) -> Plan:
    """What becomes of clients' requests, by their numbers, so that a seed does the same to the same request."""

    def plan(request: Request) -> Fate:
        headers = {name.lower(): value for name, value in request.headers.items()}
        number = headers.get("x-history") or f"{request.method} {now()}"
        random = Random(f"{seed}/{number}")
        if is_over.is_set() or random.random() >= share:
            return Fate()
        spoil = random.choice(_API_SPOILS)
        if spoil is Spoil.TWICE and "idempotency-key" not in headers:
            spoil = Spoil.LOST
        if spoil in (Spoil.HALF_SENT, Spoil.HUNG_UP) and request.method == "GET":
            spoil = Spoil.LATE
        return Fate(spoil, random.random() * 0.3)

    return plan


def store_plan(seed: int, share: float, is_over: threading.Event) -> Plan:
    """What becomes of the server's requests to its store: most of the time little, and everything in a bad while."""

    def plan(request: Request) -> Fate:
        random = Random(f"{seed}/{request.method} {request.path} {now()}")
        is_bad_while = now() // 10**9 % 7 == 0
        if is_over.is_set() or random.random() >= (0.5 if is_bad_while else share):
            return Fate()
        return Fate(random.choice(_STORE_SPOILS), random.random() * 0.3)

    return plan
