"""The parent of several workers: it waits neither for a sign of life of one that has ended, nor for ever at the end."""

import time
from typing import Final

from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

_LOOK_SECONDS: Final = 0.1
_GRACE_SECONDS: Final = 30.0
"""For what a worker has under way in the background when its requests are over; killed, it leaves nothing half done."""


class Supervisor(Multiprocess):
    """Starts workers, and others in the place of those that have ended or are stuck, until SIGTERM or SIGINT.

    uvicorn's own waits all the time that a sign of life may take for that of a worker which was killed after it was
    asked, as this process has both ends of the line; and it hears no signal meanwhile, nor while a worker starts.
    """

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

    def join_all(self, grace: float = _GRACE_SECONDS) -> None:
        """Wait for workers to end; one that hasn't when it should have, as it hangs or is stopped, is killed."""
        until = time.monotonic() + (self.config.timeout_graceful_shutdown or 0) + grace
        for worker in self.processes:
            worker.process.join(max(0.0, until - time.monotonic()))
            if worker.process.is_alive():
                worker.kill()
            worker.join()

    def _is_to_end(self) -> bool:
        return self.should_exit.is_set() or bool(self.signal_queue)
