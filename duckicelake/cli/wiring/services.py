"""Open what a server and commands need: database, store, services, tracer."""

import getpass
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import typer

from duckicelake import __version__
from duckicelake.catalog import warehouse
from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.caller import ANY_PRINCIPAL, Caller
from duckicelake.catalog.context.combiner import CombiningQueues
from duckicelake.catalog.context.hooks import open_read_observer
from duckicelake.catalog.context.registry_link import RegistryLink
from duckicelake.catalog.context.rights import GovernanceWatch, RightsCache
from duckicelake.catalog.context.scan_cache import ScanCache
from duckicelake.catalog.context.services import Services, read_clock_ms
from duckicelake.catalog.warehouses import FIRST_WAREHOUSE_NAME, Warehouse, WarehouseWiring, confine_services
from duckicelake.cli.console.command import find_chosen_warehouse
from duckicelake.cli.wiring.chosen_lake import ReachedLake, reach_lake
from duckicelake.cli.wiring.location import (
    advise_on_postgres,
    build_policy,
    find_warehouse,
    find_warehouse_roots,
    reach_postgres,
)
from duckicelake.cli.wiring.profile_settings import build_profile_rules, build_warehouse_databases, open_profile
from duckicelake.cli.wiring.storage_access import build_storage_access, check_signing
from duckicelake.cli.wiring.store_options import build_store_options
from duckicelake.errors import (
    BadInputError,
    CatalogError,
    InvalidRequestError,
    InvalidSettingsError,
    StartupError,
    UnavailableError,
)
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.format import (
    build_session_settings,
    check_reachable,
    read_contents,
    require_known,
)
from duckicelake.lake.setup.migrations import is_up_to_date
from duckicelake.maintenance.policy import parse_policy as maintained_by
from duckicelake.postgres.database import POOL_CONNECTIONS, Database
from duckicelake.postgres.pipeline import TraceBlock
from duckicelake.settings.model import Settings
from duckicelake.storage.confined import confine
from duckicelake.storage.protocol import ObjectStore
from duckicelake.storage.registry import find_bucket_store, open_store
from duckicelake.storage.s3 import S3Store

if TYPE_CHECKING:
    from duckicelake.server.auth.opa import OpaDecisions
    from duckicelake.tracing.spans import OtelTracer

RunTasks = Callable[[Warehouse, Services], AbstractContextManager[object]]
_ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@contextmanager
def open_tracer(endpoint: str | None, environment: Mapping[str, str] = os.environ) -> "Iterator[OtelTracer | None]":
    """Yield a tracer for the collector that the endpoint or OpenTelemetry's variables name; None if neither names one.

    The remaining spans are sent after the block.

    Raises:
        InvalidSettingsError: the libraries of the extra `otel` aren't installed.

    """
    variable = next((name for name in _ENDPOINT_VARIABLES if environment.get(name)), None)
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or not (endpoint or variable):
        yield None
        return
    spans = _load_tracer(endpoint, "DUCKICELAKE_OTLP_ENDPOINT" if endpoint else str(variable))
    try:
        yield spans
    finally:
        spans.close()


def _load_tracer(endpoint: str | None, asked_by: str) -> "OtelTracer":
    try:
        from duckicelake.tracing.spans import OtelTracer
    except ModuleNotFoundError as missing:
        raise InvalidSettingsError(
            f"{asked_by} asks for traces, but {missing.name} isn't installed: install duckicelake[otel], "
            "or unset the variable"
        ) from missing
    return OtelTracer(endpoint)


_MAX_CONNECTIONS = 80
"""Max connections of all workers of a server: Postgres takes 100 by default, and DuckDB needs some."""


def open_lake_store(settings: Settings) -> ObjectStore:
    """Open the store of the warehouses and the allowed locations; close it after use. Raises InvalidSettingsError."""
    places = (find_warehouse(settings), *settings.allowed_locations, *find_warehouse_roots(settings))
    return open_store(*places, options=build_store_options(settings))


def build_warehouse_wiring(
    settings: Settings, run_tasks: RunTasks | None = None, traced: TraceBlock | None = None
) -> WarehouseWiring:
    """Build what makes the services of warehouses beside the first.

    run_tasks: of a server. traced: as in `Database`.
    """
    share = settings.open_warehouses  # of a worker's cache: as many warehouses may be open
    options, window = build_store_options(settings), timedelta(seconds=settings.lineage_window)
    rules = build_profile_rules(settings)
    return WarehouseWiring(
        find_warehouse_roots(settings),
        lambda location: build_storage_access(settings, (location,), options),
        rules,
        partial(open_profile, settings, rules),
        build_warehouse_databases(settings, traced),
        lambda: TableCache(max(1, settings.cache_max // share), settings.cache_max_bytes // share),
        lambda: ScanCache(settings.scan_cache_max_bytes // share),
        lambda: open_read_observer(window),
        run_tasks or (lambda *_: nullcontext()),
        check_policies,
    )


@contextmanager
def open_services(
    settings: Settings, traced: TraceBlock | None = None, left: Callable[[], None] = lambda: None
) -> Iterator[Services]:
    """Open database and store, and close them after the block. Raises UnavailableError if either doesn't answer.

    traced: makes a context for each SQL statement. left: called after a failover, as in `Database`; by default the next
    use raises FailoverError.
    """
    assert settings.database_url is not None
    store = open_lake_store(settings)
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # the error raised here says more
    connections = settings.pool_size or max(2, min(POOL_CONNECTIONS, _MAX_CONNECTIONS // settings.workers))
    timeouts = settings.statement_seconds, settings.pool_seconds
    outside = build_outside(settings)
    database = open_lake_database(settings.database_url, connections, *timeouts, traced, left, build_session_settings())
    try:
        _check_warehouse(store, find_warehouse(settings))
        _check_database(database)
        cache = TableCache(settings.cache_max, settings.cache_max_bytes)
        locations = (find_warehouse(settings), *settings.allowed_locations)
        access = build_storage_access(settings, locations, build_store_options(settings))
        check_signing(access, find_bucket_store(store, locations, S3Store))
        appends = CombiningQueues(keepers=connections // 4)
        policy, ids = build_policy(settings), settings.snapshot_ids
        yield Services(
            database,
            confine(store, policy),
            policy,
            ids,
            read_clock_ms,
            cache,
            appends=appends,
            scans=ScanCache(settings.scan_cache_max_bytes),
            access=access,
            maintenance=_parse_maintenance(settings),
            reads=open_read_observer(timedelta(seconds=settings.lineage_window)),
            rights=RightsCache.of_first(database, outside),
            trino_catalog=settings.trino_catalog,
        )
    finally:
        database.close()
        store.close()
        if outside is not None:
            outside.close()


def build_outside(settings: Settings) -> "OpaDecisions | None":
    """Build what asks the service of the settings for decisions; None without one. Raises InvalidSettingsError."""
    if settings.opa_url is None:
        return None
    from duckicelake.server.auth.opa import OpaDecisions, OpaOptions

    token = settings.opa_token
    options = OpaOptions(
        settings.opa_url,
        None if token is None else token.get_secret_value(),
        settings.opa_seconds,
        settings.opa_cache_seconds,
        settings.opa_cache_max,
    )
    return OpaDecisions(options)


def check_policies(policies: Mapping[str, str]) -> None:
    """Raise InvalidRequestError for policies of maintenance that can't be."""
    try:
        maintained_by(policies)
    except BadInputError as error:
        raise InvalidRequestError(f"The policies of maintenance can't be: {error}") from error


def _parse_maintenance(settings: Settings) -> dict[str, str]:
    """Parse the policy of tables without one of their own. Raises InvalidSettingsError now, not in a job."""
    properties = dict(text.split("=", 1) for text in settings.maintenance)
    try:
        maintained_by(properties)
    except BadInputError as error:
        raise InvalidSettingsError(f"DUCKICELAKE_MAINTENANCE can't be used: {error}") from error
    return properties


def _check_database(database: Database) -> None:
    try:
        database.check()
        database.check_sessions()
    except UnavailableError as error:
        raise UnavailableError(f"{error}; {advise_on_postgres(error)}") from error


def _check_warehouse(store: ObjectStore, root: str) -> None:
    try:
        store.check()
    except CatalogError as error:
        place = (
            "a bucket that the server's key"
            if "://" in root and not root.startswith("file:")
            else "a folder that this user"
        )
        raise InvalidSettingsError(
            f"the warehouse {root} can't be used ({error}): "
            f"make it {place} can write, or set DUCKICELAKE_WAREHOUSE to another"
        ) from error


def warn_of_others(services: Services) -> None:
    """Print on stderr which other tables a new lake will share its schema with."""
    with services.database.reading() as cursor:
        contents = read_contents(cursor)
    if contents.lake is None and contents.others:
        typer.echo(f"the lake is created in schema {contents.schema}, beside other tables: {contents.named}", err=True)


def build_operator(operation: str) -> Caller:
    """Build the caller of a command: `cli:` and the operating system's login, with all rights, and the machine."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # in a container, without an entry for the user
        name = f"uid {os.getuid()}"
    client = {"user-agent": f"duckicelake-cli/{__version__}"}
    return Caller(replace(ANY_PRINCIPAL, name=f"cli:{name}"), socket.gethostname(), operation=operation, client=client)


@contextmanager
def open_lake(settings: Settings, operation: str = "") -> Iterator[Services]:
    """Open the services of a lake that a server of this version has prepared: the first, or that of --warehouse.

    Raises StartupError, NoSuchWarehouseError, UnavailableError.

    If the warehouse belongs to another lake, writes raise UnavailableError.

    operation: name of the command in the audit trail: that of the route that does the same.
    """
    with reach_lake(settings) as reached, open_services(reached.settings) as opened:
        services = opened if reached.chosen is None else confine_services(opened, reached.chosen.row)
        with services.database.reading() as cursor:
            check_reachable(read_contents(cursor))
            if not is_up_to_date(cursor):
                raise StartupError("the lake was prepared by another version: start this version of the server once")
        require_known(services.database)
        warehouse.look(services)
        with open_rights(services, reached) as rights:
            yield replace(services, caller=build_operator(operation), rights=rights)


def adopt_place(settings: Settings) -> list[str]:
    """Take the DATA_PATH of the lake of --warehouse for the registry; return what changed, as sentences."""
    from duckicelake.catalog.warehouse_registry import adopt_data_path

    name = find_chosen_warehouse()
    if name is None or name == FIRST_WAREHOUSE_NAME:
        return []
    with reach_postgres(settings) as url:
        complete = settings.model_copy(update={"database_url": url, "warehouse": find_warehouse(settings)})
        with open_services(complete) as services:
            own = replace(services, caller=build_operator("adopt"))
            return adopt_data_path(own, build_warehouse_wiring(complete), name)


@contextmanager
def open_rights(services: Services, reached: ReachedLake) -> Iterator[RightsCache | None]:
    """Open the rights of the lake that a command works on, with its way to the registry, if that is elsewhere."""
    chosen = reached.chosen
    if chosen is None:
        yield services.rights
    elif chosen.row.database_url is None:
        yield RightsCache(services.database, GovernanceWatch(services.database), chosen.place)
    else:
        with closing(open_lake_database(chosen.registry_url, 1, session_settings=build_session_settings())) as registry:
            link = RegistryLink.build(registry, chosen.row.warehouse_id)
            yield RightsCache.of_first(registry).elsewhere(services.database, link, chosen.row.name)
