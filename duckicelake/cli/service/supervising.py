"""The parent of several workers: it waits neither for a sign of life of one that has ended, nor for ever at the end."""

import signal
import socket
import time
from typing import Final

from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from duckicelake.cli.service.deadline import GRACE_SECONDS, ShutdownDeadline
from duckicelake.cli.signals import leave_terminal

_LOOK_SECONDS: Final = 0.1
_OWN_SECONDS: Final = 3.0
"""Of the grace, for what this process does after its workers."""


class Supervisor(Multiprocess):
    """Starts workers, and others in the place of those that have ended or are stuck, until SIGTERM, SIGINT or SIGHUP.

    uvicorn's own waits all the time that a sign of life may take for that of a worker which was killed after it was
    asked, as this process has both ends of the line; and it hears no signal meanwhile, nor while a worker starts.
    """

    def __init__(self, config: Config, sockets: list[socket.socket], deadline: ShutdownDeadline | None = None) -> None:
        """deadline: begins when workers are to end."""
        self._ignores_hangup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        super().__init__(config, sockets)
        self._deadline = deadline
        self._grace = (deadline.grace if deadline else GRACE_SECONDS) - _OWN_SECONDS

    def handle_hup(self) -> None:
        """End as after SIGTERM: the terminal has closed. uvicorn's own replaces all workers."""
        if not self._ignores_hangup:
            leave_terminal()
            self.handle_term()

    def terminate_all(self) -> None:
        if self._deadline is not None:
            self._deadline.start()
        super().terminate_all()

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
        """Whether it gives a sign of life in time, or nobody needs to know any more."""
        until = time.monotonic() + seconds
        try:
            worker.parent_conn.send(b"ping")
            while not worker.parent_conn.poll(_LOOK_SECONDS):
                if self._is_to_end():
                    return True
                if not worker.process.is_alive() or time.monotonic() > until:
                    return False
            worker.parent_conn.recv()
        except (OSError, EOFError):
            return False
        return worker.process.is_alive()

    def join_all(self, grace: float | None = None) -> None:
        """Wait for workers to end; one that hasn't when it should have, as it hangs or is stopped, is killed.

        grace: seconds for what a worker has under way in the background when its requests are over; killed, it leaves
        nothing half done.
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
