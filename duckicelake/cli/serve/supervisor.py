"""The process that starts workers, and replaces those that end."""

import signal
import socket
import time
from typing import Final

from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from duckicelake.cli.serve.process import GRACE_SECONDS, ShutdownDeadline, leave_terminal

_POLL_SECONDS: Final = 0.1
_PARENT_SECONDS: Final = 3.0
"""Part of the grace period for this process, after its workers have ended."""


class Supervisor(Multiprocess):
    """Starts workers, and replaces those that have ended or hang, until SIGTERM, SIGINT or SIGHUP.

    uvicorn's Multiprocess waits for the whole health check timeout on a worker that was killed after the ping, because
    the parent holds both ends of the pipe. It also handles no signals during the wait, or while a worker starts.
    """

    def __init__(
        self,
        config: Config,
        sockets: list[socket.socket],
        deadline: ShutdownDeadline | None = None,
        drain_seconds: float = 0.0,
    ) -> None:
        """deadline: starts when the workers must end. drain_seconds: for which they go on after SIGTERM."""
        self._ignores_hangup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        super().__init__(config, sockets)
        self._deadline = deadline
        self._drain_seconds = drain_seconds
        self._grace = (deadline.grace if deadline else GRACE_SECONDS) - _PARENT_SECONDS

    def handle_int(self) -> None:
        """End without a drain: the terminal sends SIGINT to the workers, too."""
        self._drain_seconds = 0.0
        super().handle_int()

    def handle_hup(self) -> None:
        """End as after SIGTERM, because the terminal has closed. uvicorn would replace all workers."""
        if not self._ignores_hangup:
            leave_terminal()
            self.handle_term()

    def terminate_all(self) -> None:
        """End the workers. The port is theirs alone from now on: else it would take connections that none serves."""
        for listener in self.sockets:
            listener.close()
        if self._drain_seconds:
            super().terminate_all()
            self._wait_for_drain()
        if self._deadline is not None:
            self._deadline.start()
        super().terminate_all()

    def _wait_for_drain(self) -> None:
        """Wait until the time is up, all workers have ended, or another signal comes."""
        until = time.monotonic() + self._drain_seconds
        while time.monotonic() < until and not self.signal_queue:
            if not any(worker.process.is_alive() for worker in self.processes):
                return
            time.sleep(_POLL_SECONDS)

    def keep_subprocess_alive(self) -> None:
        for index, worker in enumerate(self.processes):
            if self.is_well(worker, self.config.timeout_worker_healthcheck):
                continue
            worker.kill()
            worker.join()
            if worker.exitcode == STARTUP_FAILURE:
                self.should_exit.set()
            if self._is_to_end():
                return
            self.processes[index] = Process(self.config, self.sockets)
            self.processes[index].start()

    def is_well(self, worker: Process, seconds: float) -> bool:
        """Return whether the worker answers the ping in time; also True if the supervisor is about to end."""
        until = time.monotonic() + seconds
        try:
            worker.parent_conn.send(b"ping")
            while not worker.parent_conn.poll(_POLL_SECONDS):
                if self._is_to_end():
                    return True
                if not worker.process.is_alive() or time.monotonic() > until:
                    return False
            worker.parent_conn.recv()
        except (OSError, EOFError):
            return False
        return worker.process.is_alive()

    def join_all(self, grace: float | None = None) -> None:
        """Wait for workers to end, and kill those that haven't ended in time.

        Args:
            grace: seconds for background work of a worker after its requests. A killed worker leaves no partial commit.

        """
        allowed = self._grace if grace is None else grace
        until = time.monotonic() + (self.config.timeout_graceful_shutdown or 0) + allowed
        for worker in self.processes:
            worker.process.join(max(0.0, until - time.monotonic()))
            if worker.process.is_alive():
                worker.kill()
            worker.join()

    def _is_to_end(self) -> bool:
        return self.should_exit.is_set() or bool(self.signal_queue)
