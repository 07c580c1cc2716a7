"""From settings to what the use cases need: the one place where the parts are put together."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import uuid4

import typer

from duckicelake.catalog import warehouse
from duckicelake.catalog.commits.turns import Lanes
from duckicelake.catalog.lineage.reads import ReadLog
from duckicelake.catalog.loads.cache import TableCache
from duckicelake.catalog.services import Services
from duckicelake.cli.assembly.places import policy_of, warehouse_of
from duckicelake.cli.assembly.postgres import postgres_advice
from duckicelake.cli.assembly.vending import access_of, check_signing, s3_of
from duckicelake.errors import BadInput, CatalogError, InvalidRequest, InvalidSettings, Unavailable
from duckicelake.lake.contents import read_contents
from duckicelake.lake.format import prepare, session_settings
from duckicelake.lake.identity import RunningServer
from duckicelake.lake.ownership import record_zones
from duckicelake.lake.postgres.database import POOL_SIZE, Database
from duckicelake.lake.postgres.traced import Around
from duckicelake.pipeline.policy import policy_of as maintained_by
from duckicelake.settings import Settings
from duckicelake.storage.objects import ObjectStore
from duckicelake.storage.policy import canonical, is_within
from duckicelake.storage.s3 import S3Options
from duckicelake.storage.stores import open_store

_ALL_CONNECTIONS = 80
"""What the workers of one server share; Postgres takes 100 by default and DuckDB needs some."""


def s3_options(settings: Settings) -> S3Options:
    secret, token = settings.s3_secret_access_key, settings.s3_session_token
    return S3Options(
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        path_style=settings.s3_path_style,
        access_key_id=settings.s3_access_key_id,
        secret_access_key=secret.get_secret_value() if secret else None,
        session_token=token.get_secret_value() if token else None,
        profile=settings.s3_profile,
        connect_timeout=settings.s3_connect_timeout,
        read_timeout=settings.s3_read_timeout,
        max_attempts=settings.s3_max_attempts,
        max_connections=settings.s3_max_connections,
    )


def store_of(settings: Settings) -> ObjectStore:
    """The store of the warehouse and the allowed locations; close it after use. Raises InvalidSettings."""
    return open_store(warehouse_of(settings), *settings.allowed_locations, s3=s3_options(settings))


@contextmanager
def open_services(
    settings: Settings, traced: Around | None = None, left: Callable[[], None] = lambda: None
) -> Iterator[Services]:
    """Connections to database and store, closed after the block. Raises Unavailable if either doesn't answer.

    traced: gives a block for each statement of SQL. left: as for `Database`, by default the next use raises FailedOver.
    """
    assert settings.database_url is not None
    store = store_of(settings)
    logging.getLogger("psycopg.pool").setLevel(
        logging.CRITICAL
    )  # what it would say, the error that we raise says better
    connections = settings.pool_size or max(2, min(POOL_SIZE, _ALL_CONNECTIONS // settings.workers))
    patience = settings.statement_seconds, settings.pool_seconds
    database = Database(settings.database_url, connections, *patience, traced, left, session_settings())
    try:
        _check_warehouse(store, warehouse_of(settings))
        _check_database(database)
        cache = TableCache(settings.cache_max, settings.cache_max_bytes)
        locations = (warehouse_of(settings), *settings.allowed_locations)
        access = access_of(settings, locations, s3_options(settings), now_ms)
        check_signing(access, s3_of(store, locations))
        appends = Lanes(keepers=connections // 4)
        policy, ids = policy_of(settings), settings.snapshot_ids
        yield Services(
            database,
            store,
            policy,
            ids,
            now_ms,
            cache,
            appends=appends,
            access=access,
            maintenance=_maintenance_of(settings),
            reads=ReadLog(timedelta(seconds=settings.lineage_window)),
        )
    finally:
        database.close()
        store.close()


def _maintenance_of(settings: Settings) -> dict[str, str]:
    """What holds for tables that don't say otherwise; InvalidSettings before a job stumbles on it."""
    properties = dict(each.split("=", 1) for each in settings.maintenance)
    try:
        maintained_by(properties)
    except BadInput as error:
        raise InvalidSettings(f"DUCKICELAKE_MAINTENANCE can't be used: {error}") from error
    return properties


def _check_database(database: Database) -> None:
    try:
        database.check()
        database.check_sessions()
    except Unavailable as error:
        raise Unavailable(f"{error}; {postgres_advice(error)}") from error


def _check_warehouse(store: ObjectStore, root: str) -> None:
    try:
        store.check()
    except CatalogError as error:
        place = "a bucket that the server's key" if root.startswith("s3") else "a folder that this user"
        raise InvalidSettings(
            f"the warehouse {root} can't be used ({error}): "
            f"make it {place} can write, or set DUCKICELAKE_WAREHOUSE to another"
        ) from error


def prepare_lake(services: Services, *, creates: bool = False) -> str:
    """Adopt the DuckLake catalog, or create one if there is none and `creates` is true; return its DATA_PATH.

    See whose the warehouse is, too (`catalog.warehouse`). Raises StartupError if there is no lake to adopt,
    InvalidSettings if DuckDB's cleanup of that folder could find the Iceberg tables' files in it, and if other servers
    of the lake have other settings.
    """
    policy = services.policy
    data_path = prepare(services.database, policy.data_path, creates=creates)
    _check_reached(services.store, data_path)
    is_ours = canonical(data_path) == canonical(policy.data_path)
    for zone in (policy.data_zone, *policy.allowed):
        if is_within(zone, data_path) or (is_within(data_path, zone) and not is_ours):
            raise InvalidSettings(
                f"{zone}, where Iceberg tables may live, overlaps the lake's DATA_PATH {data_path}, "
                "where DuckDB deletes what it doesn't know: choose a warehouse outside of it, and allowed_locations too"
            )
    with services.database.transaction() as cursor:
        running_server(services).check(cursor)
    if warehouse.settle(services).refusal is None:
        with services.database.transaction() as cursor:
            record_zones(cursor, map(canonical, (data_path, policy.data_zone, *policy.allowed)))
    return data_path


def warn_of_others(services: Services) -> None:
    """Print on stderr which tables of others a new lake will lie beside."""
    with services.database.reading() as cursor:
        contents = read_contents(cursor)
    if contents.lake is None and contents.others:
        typer.echo(f"the lake is made in schema {contents.schema} beside what is there: {contents.named}", err=True)


def running_server(services: Services) -> RunningServer:
    """Describe this process as a server of the lake, with the settings that all of them must share."""
    shared = {"warehouse": canonical(services.policy.warehouse), "snapshot_ids": services.snapshot_ids}
    return RunningServer(uuid4(), shared)


def _check_reached(store: ObjectStore, data_path: str) -> None:
    try:
        store.exists(f"{data_path}x")
    except InvalidRequest as error:
        raise InvalidSettings(
            f"DuckDB's files are in {data_path}, where this server doesn't read ({error}): "
            "choose a warehouse there, too, or an allowed location"
        ) from error


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
