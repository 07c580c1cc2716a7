"""Run the server, in this process or in workers, and print its address with snippets for clients."""

import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.syntax import Syntax
from uvicorn.config import STARTUP_FAILURE

from duckicelake import __version__
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.warehouse import prepare_lake
from duckicelake.cli.console import snippets
from duckicelake.cli.console.snippets import build_lake_secret
from duckicelake.cli.serve import process
from duckicelake.cli.serve.address import bind, find_uri, listen, note_database_server, note_server
from duckicelake.cli.serve.background_tasks import (
    load_feature_services,
    run_background_tasks,
    run_warehouse_tasks,
)
from duckicelake.cli.serve.edge import build_config, build_edge, check_certificate
from duckicelake.cli.serve.process import (
    FAILOVER_WARNING,
    GRACE_SECONDS,
    DeadlineServer,
    ServerRenewal,
    ShutdownDeadline,
    end_on_hangup,
    end_on_signals,
    ignore_signals,
    is_transient,
)
from duckicelake.cli.serve.supervisor import Supervisor
from duckicelake.cli.wiring.authentication import (
    add_keys,
    build_authentication,
    check_openness,
    list_warnings,
    settle_logins,
)
from duckicelake.cli.wiring.location import build_policy, keep_postgres
from duckicelake.cli.wiring.services import build_warehouse_wiring, open_services, open_tracer, warn_of_others
from duckicelake.errors import CatalogError, StartupError
from duckicelake.extras import import_installed
from duckicelake.lake.ducklake.database import build_attach_source
from duckicelake.lake.ducklake.dropped import set_retention
from duckicelake.lake.setup.format import require_known
from duckicelake.server.api import App
from duckicelake.server.app import create_app
from duckicelake.server.protocol.connections import DRAIN, raise_descriptor_limit
from duckicelake.server.telemetry.logs import forward_standard_logging, make_logger
from duckicelake.server.telemetry.shared_files import SHARED_FOLDER_VARIABLE
from duckicelake.settings.model import Settings
from duckicelake.settings.sources import (
    forget_secret_files,
    list_effective_settings,
    load_sources,
    read_settings,
    save_sources,
)

if TYPE_CHECKING:
    from duckicelake.tracing.spans import OtelTracer

_SOURCES_FILE: Final = "sources.json"
"""In the folder that workers share: where each setting came from."""
_EXIT_SECONDS = 3.0
"""For clean-up of a worker after its deadline; its parent waits a little longer."""
WORKER_FACTORY = "duckicelake.cli.serve.server:create"


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
    import_installed()
    settings = load_sources(read_settings(), Path(os.environ[SHARED_FOLDER_VARIABLE]) / _SOURCES_FILE)
    DRAIN.allow(settings.drain_seconds)
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
        authentication=build_authentication(settings, services.database),
        metrics_public=settings.metrics_public,
        tracer=spans,
        wiring=build_warehouse_wiring(
            settings, partial(run_warehouse_tasks, settings), spans.statement if spans else None
        ),
        makes_lineage=settings.lineage != "off",
        settings=list_effective_settings(settings),
    )
    deadline.cut_off_by(app.warehouses.wiring.databases.cut_off)
    resources.enter_context(run_background_tasks(settings, app.state.context.services))
    resources.callback(app.warehouses.close)
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
    DRAIN.allow(0)
    os.kill(os.getpid(), signal.SIGTERM)


NO_LOGINS_NOTE: Final = (
    "Clients need no login: everyone who reaches this address may do everything. Logins: docs/security.md"
)


def announce(settings: Settings, address: str, *, embedded: bool) -> None:
    """Print the address, and snippets of code for clients of an embedded lake."""
    console = Console(highlight=False, soft_wrap=True)
    with console:  # one write: whoever sees the URI sees the whole banner
        console.print(f"[bold]duckicelake[/bold] {__version__} serves [bold]{address}[/bold]")
        console.print(f"warehouse {build_policy(settings).warehouse}")
        console.print(f"console   {address}/ui")
        console.print(f"lineage   {address}/ui/lineage\n")
        console.print((snippets.build_login_hint(address) if settings.has_logins else NO_LOGINS_NOTE) + "\n")
        # The URL of an external database has a password, which must not be logged: `duckicelake info` prints it.
        if embedded and settings.database_url is not None:
            secret = build_lake_secret(settings, build_policy(settings).data_path)
            duckdb = snippets.build_duckdb_snippet(build_attach_source(settings.database_url), secret)
            _print_snippets(console, address, duckdb, with_login=settings.has_logins)


def _print_snippets(console: Console, address: str, duckdb: str, *, with_login: bool) -> None:
    for title, code, language in (
        ("Spark", snippets.build_spark_snippet(address, with_login=with_login), "bash"),
        ("PyIceberg", snippets.build_pyiceberg_snippet(address, with_login=with_login), "python"),
        ("DuckDB", duckdb, "sql"),
    ):
        console.print(f"[bold]{title}[/bold]")
        console.print(_highlight(code, language) if console.is_terminal else code + "\n", markup=False)


def _highlight(code: str, language: str) -> Syntax:
    """Highlight code in the terminal's own colours, which are readable on light and dark backgrounds."""
    return Syntax(code, language, theme="ansi_light", background_color="default")


_PAUSE_SECONDS: Final = 1.0


def serve_lake(settings: Settings, announce: Callable[[Settings, str], None], *, creates: bool) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. `announce` gets the settings with the database in them, and the URI.

    creates: whether to make a lake where the database has none.

    Raises StartupError, LakeInUseError and UnavailableError before anything is announced.
    """
    end_on_signals()
    raise_descriptor_limit()
    import_installed()
    settings = add_keys(settings)
    check_openness(settings)  # before anything is made
    build_authentication(settings)  # checks the clients now: a worker's error would come after the banner
    for feature in load_feature_services():
        feature.check(settings)
    if settings.tls_certificate is not None and settings.tls_key is not None:
        check_certificate(settings.tls_certificate, settings.tls_key)
    DRAIN.allow(settings.drain_seconds)
    deadline = ShutdownDeadline(settings.shutdown_seconds, GRACE_SECONDS + settings.lineage_flush_seconds)
    log = make_logger(sys.stderr, settings.log_format)
    with (
        bind(settings.host, settings.port) as listener,
        keep_postgres(settings, log.warning, deadline.remaining, deadline.exit_after) as complete,
    ):
        listen(listener)
        uri = find_uri(listener, is_tls=settings.tls_certificate is not None)
        with (
            note_server(settings.lake, uri)
            if settings.database_url is None
            else note_database_server(settings.database_url, uri)
        ):
            run = _serve_here if settings.workers == 1 else _serve_in_workers
            named = complete.model_copy(update={"lineage_catalog_uri": complete.lineage_catalog_uri or uri})
            run(named, listener, lambda settled: announce(settled, uri), deadline, creates=creates)


def _log_warnings(settings: Settings) -> None:
    for warning in list_warnings(settings):
        make_logger(sys.stderr, settings.log_format).warning(warning, host=settings.host)


def _serve_here(
    settings: Settings,
    listener: socket.socket,
    announce: Callable[[Settings], None],
    deadline: ShutdownDeadline,
    *,
    creates: bool,
) -> None:
    with open_tracer(settings.otlp_endpoint) as spans:
        has_failed_over = _serve_until_failover(settings, listener.dup(), announce, spans, deadline, creates=creates)
        while has_failed_over:
            try:  # no new lake in a Postgres that took over without the lake
                has_failed_over = _serve_until_failover(
                    settings, listener.dup(), lambda _: None, spans, deadline, creates=False
                )
            except CatalogError as error:
                if not is_transient(error):
                    raise
                time.sleep(_PAUSE_SECONDS)


def _serve_until_failover(
    settings: Settings,
    listener: socket.socket,
    announce: Callable[[Settings], None],
    spans: "OtelTracer | None",
    deadline: ShutdownDeadline,
    *,
    creates: bool,
) -> bool:
    """Serve until the server ends; return whether Postgres has failed over."""
    renewal = ServerRenewal(make_logger(sys.stderr, settings.log_format).warning)
    with (
        closing(listener),
        open_services(settings, spans.statement if spans else None, renewal.ask_for) as services,
    ):
        settings = _prepare(settings, services, creates=creates)
        announce(settings)
        app = _build_app(services, settings, spans)
        server = DeadlineServer(build_config(settings, app), deadline)
        deadline.cut_off_by(services.database.cut_off)
        deadline.cut_off_by(app.warehouses.wiring.databases.cut_off)
        renewal.watch(server)
        process.freeze_memory()
        with run_background_tasks(settings, app.state.context.services), closing(app.warehouses):
            server.run([listener])
    return renewal.is_due


def _serve_in_workers(
    settings: Settings,
    listener: socket.socket,
    announce: Callable[[Settings], None],
    deadline: ShutdownDeadline,
    *,
    creates: bool,
) -> None:
    with open_services(settings) as services:
        settings = _prepare(settings, services, creates=creates)
    with tempfile.TemporaryDirectory(prefix="duckicelake-metrics-") as folder:
        save_sources(settings, Path(folder) / _SOURCES_FILE)
        forget_secret_files()
        os.environ.update(settings.as_environment() | {SHARED_FOLDER_VARIABLE: folder})
        announce(settings)
        config = build_config(settings, WORKER_FACTORY, factory=True)
        supervisor = Supervisor(config, [listener], deadline, settings.drain_seconds)
        supervisor.run()
        ignore_signals()
        if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
            raise StartupError("a worker could not start: see its error above")


def _prepare(settings: Settings, services: Services, *, creates: bool) -> Settings:
    """Prepare the lake, and return the settings with whether clients must log in."""
    if creates:
        warn_of_others(services)
    prepare_lake(services, creates=creates)
    if settings.drop_retention_seconds is not None:
        with services.database.transaction() as cursor:
            set_retention(cursor, settings.drop_retention_seconds)
    for feature in load_feature_services():
        feature.prepare(settings, services)
    settled = settle_logins(settings, services)
    _log_warnings(settled)
    return settled


def _build_app(services: Services, settings: Settings, spans: "OtelTracer | None") -> App:
    log = make_logger(sys.stderr, settings.log_format)
    forward_standard_logging(log)
    return create_app(
        services,
        edge=build_edge(settings),
        log=log,
        authentication=build_authentication(settings, services.database),
        metrics_public=settings.metrics_public,
        tracer=spans,
        wiring=build_warehouse_wiring(
            settings, partial(run_warehouse_tasks, settings), spans.statement if spans else None
        ),
        makes_lineage=settings.lineage != "off",
        settings=list_effective_settings(settings),
    )
