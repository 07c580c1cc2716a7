"""One of several worker processes. It gets its settings from the environment, like any server with a database."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial

from uvicorn.config import STARTUP_FAILURE

from duckicelake.cli import memory
from duckicelake.cli.assembly.authenticating import authentication_of
from duckicelake.cli.assembly.opening import open_services
from duckicelake.cli.service.background import in_background
from duckicelake.cli.service.deadline import ShutdownDeadline
from duckicelake.cli.service.edge import edge_of
from duckicelake.cli.service.renewal import FAILED_OVER, may_pass
from duckicelake.cli.signals import end_on_hangup
from duckicelake.errors import CatalogError
from duckicelake.lake.format import require_known
from duckicelake.server.app import create_app
from duckicelake.server.telemetry.logging import forward_standard_logging, make_logger
from duckicelake.settings import read_settings
from duckicelake.tracing.opening import tracing

_EXIT_SECONDS = 3.0
"""For the end of a worker that waits for nothing any more; its parent gives it a little longer."""
FACTORY = "duckicelake.cli.service.worker:create"


def create() -> object:
    """The app of this process. A failure to start that will last ends it with the code after which uvicorn gives up."""
    _end_with_parent()
    end_on_hangup()
    try:
        return _create()
    except CatalogError as error:
        sys.stderr.write(f"duckicelake: {error}\n")
        raise SystemExit(1 if may_pass(error) else STARTUP_FAILURE) from error


def _create() -> object:
    settings = read_settings()
    log = make_logger(sys.stderr, settings.log_format)
    forward_standard_logging(log)
    resources = ExitStack()
    spans = resources.enter_context(tracing(settings.otlp_endpoint))

    def left() -> None:
        log.warning(FAILED_OVER)
        _end()

    services = resources.enter_context(open_services(settings, spans.statement if spans else None, left))
    require_known(services.database)
    deadline = ShutdownDeadline(settings.shutdown_seconds, _EXIT_SECONDS + settings.lineage_flush_seconds)
    deadline.cut_off_by(services.database.cut_off)
    deadline.start_with_signals()
    app = create_app(
        services,
        edge=edge_of(settings),
        log=log,
        authentication=authentication_of(settings),
        metrics_public=settings.metrics_public,
        tracer=spans,
    )
    resources.enter_context(in_background(settings, app.state.context.services))
    app.router.lifespan_context = partial(_closing, resources)
    memory.settle()
    return app


@asynccontextmanager
async def _closing(resources: ExitStack, _: object) -> AsyncIterator[None]:
    """Close after the last answer: uvicorn then lets a worker die of the signal that ended it."""
    yield
    resources.close()


def _end_with_parent() -> None:
    """A supervisor that was killed can't stop its workers, so they watch it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_wait_for, args=(parent,), name="parent-watch", daemon=True).start()


def _wait_for(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    _end()


def _end() -> None:
    """Answer what is under way, then end; the parent, if it lives, starts another in this one's place."""
    os.kill(os.getpid(), signal.SIGTERM)
