"""Worker processes, and the parent that replaces them."""

import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Final

from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from duckicelake.cli.serve import process
from duckicelake.cli.serve.background_tasks import run_background_tasks
from duckicelake.cli.serve.edge import build_edge
from duckicelake.cli.serve.process import (
    FAILOVER_WARNING,
    GRACE_SECONDS,
    ShutdownDeadline,
    end_on_hangup,
    is_transient,
    leave_terminal,
)
from duckicelake.cli.wiring.authentication import build_authentication
from duckicelake.cli.wiring.services import open_services, open_tracer
from duckicelake.errors import CatalogError
from duckicelake.lake.setup.format import require_known
from duckicelake.server.app import create_app
from duckicelake.server.telemetry.logs import forward_standard_logging, make_logger
from duckicelake.settings.sources import read_settings

_POLL_SECONDS: Final = 0.1
_PARENT_SECONDS: Final = 3.0
"""Part of the grace period for this process, after its workers have ended."""
_EXIT_SECONDS = 3.0
"""For clean-up of a worker after its deadline; its parent waits a little longer."""
WORKER_FACTORY = "duckicelake.cli.serve.workers:create"


class Supervisor(Multiprocess):
    """Starts workers, and replaces those that have ended or hang, until SIGTERM, SIGINT or SIGHUP.

    uvicorn's Multiprocess waits for the whole health check timeout on a worker that was killed after the ping, because
    the parent holds both ends of the pipe. It also handles no signals during the wait, or while a worker starts.
    """

    def __init__(self, config: Config, sockets: list[socket.socket], deadline: ShutdownDeadline | None = None) -> None:
        """deadline: starts when the workers must end."""
        self._ignores_hangup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        super().__init__(config, sockets)
        self._deadline = deadline
        self._grace = (deadline.grace if deadline else GRACE_SECONDS) - _PARENT_SECONDS

    def handle_hup(self) -> None:
        """End as after SIGTERM, because the terminal has closed. uvicorn would replace all workers."""
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


def create() -> object:
    """Build the app of a worker. A lasting failure exits with the code after which uvicorn starts no other worker."""
    _end_with_parent()
    end_on_hangup()
    try:
        return _create_app()
    except CatalogError as error:
        sys.stderr.write(f"duckicelake: {error}\n")
        raise SystemExit(1 if is_transient(error) else STARTUP_FAILURE) from error


def _create_app() -> object:
    settings = read_settings()
    log = make_logger(sys.stderr, settings.log_format)
    forward_standard_logging(log)
    resources = ExitStack()
    spans = resources.enter_context(open_tracer(settings.otlp_endpoint))

    def end_after_failover() -> None:
        log.warning(FAILOVER_WARNING)
        _end()

    services = resources.enter_context(open_services(settings, spans.statement if spans else None, end_after_failover))
    require_known(services.database)
    deadline = ShutdownDeadline(settings.shutdown_seconds, _EXIT_SECONDS + settings.lineage_flush_seconds)
    deadline.cut_off_by(services.database.cut_off)
    deadline.start_with_signals()
    app = create_app(
        services,
        edge=build_edge(settings),
        log=log,
        authentication=build_authentication(settings),
        metrics_public=settings.metrics_public,
        tracer=spans,
    )
    resources.enter_context(run_background_tasks(settings, app.state.context.services))
    app.router.lifespan_context = partial(_close_at_shutdown, resources)
    process.freeze_memory()
    return app


@asynccontextmanager
async def _close_at_shutdown(resources: ExitStack, _: object) -> AsyncIterator[None]:
    """Close resources after the last response: uvicorn then ends the worker by the signal that stopped it."""
    yield
    resources.close()


def _end_with_parent() -> None:
    """End this worker when its supervisor ends: a killed supervisor can't stop its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), name="parent-watch", daemon=True).start()


def _end_after(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    _end()


def _end() -> None:
    """Finish requests under way, then end; the parent, if it is alive, starts another worker."""
    os.kill(os.getpid(), signal.SIGTERM)
