"""From settings to what the use cases need: the one place where the parts are put together."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from duckicelake.catalog.cache import TableCache
from duckicelake.catalog.services import Services
from duckicelake.errors import CatalogError, InvalidSettings
from duckicelake.lake.address import check_url
from duckicelake.lake.database import Database
from duckicelake.lake.embedded import EmbeddedPostgres
from duckicelake.lake.format import prepare
from duckicelake.settings import Settings
from duckicelake.storage.objects import ObjectStore, open_store
from duckicelake.storage.policy import LocationPolicy, canonical, is_within

_POOL_SIZE = 8
_ALL_CONNECTIONS = 80
"""What the workers of one server share; Postgres takes 100 by default and DuckDB needs some."""


def warehouse_of(settings: Settings) -> str:
    """The configured warehouse, or the folder `warehouse` in the lake's."""
    return (settings.warehouse or str(Path(settings.lake).resolve() / "warehouse")).rstrip("/")


def policy_of(settings: Settings) -> LocationPolicy:
    return LocationPolicy(warehouse_of(settings), settings.allowed_locations)


@contextmanager
def running_postgres(settings: Settings) -> Iterator[Settings]:
    """Settings with a database in them: the embedded Postgres runs while the block does, if none was configured."""
    if settings.database_url is not None:
        check_url(settings.database_url)
        yield settings
        return
    with EmbeddedPostgres(settings.lake.resolve()) as postgres:
        yield settings.model_copy(update={"database_url": postgres.url, "warehouse": warehouse_of(settings)})


@contextmanager
def open_services(settings: Settings) -> Iterator[Services]:
    """Connections to database and store, closed after the block. Raises Unavailable if either doesn't answer."""
    assert settings.database_url is not None
    store = open_store(warehouse_of(settings))
    _check_warehouse(store, warehouse_of(settings))
    logging.getLogger("psycopg.pool").setLevel(
        logging.CRITICAL
    )  # what it would say, the error that we raise says better
    database = Database(settings.database_url, max(2, min(_POOL_SIZE, _ALL_CONNECTIONS // settings.workers)))
    try:
        database.check()
        cache = TableCache(settings.cache_max)
        yield Services(database, store, policy_of(settings), settings.snapshot_ids, now_ms, cache)
    finally:
        database.close()


def _check_warehouse(store: ObjectStore, warehouse: str) -> None:
    try:
        store.check()
    except CatalogError as error:
        raise InvalidSettings(
            f"the warehouse {warehouse} can't be used ({error}): "
            "make it a folder that this user can write, or set DUCKICELAKE_WAREHOUSE to another"
        ) from error


def prepare_lake(services: Services) -> str:
    """Create or adopt the DuckLake catalog and return its DATA_PATH.

    Raises InvalidSettings if DuckDB's cleanup of that folder could find the Iceberg tables' files in it.
    """
    policy = services.policy
    data_path = prepare(services.database, policy.data_path)
    is_ours = canonical(data_path) == canonical(policy.data_path)
    for zone in (policy.data_zone, *policy.allowed):
        if is_within(zone, data_path) or (is_within(data_path, zone) and not is_ours):
            raise InvalidSettings(
                f"{zone}, where Iceberg tables may live, overlaps the lake's DATA_PATH {data_path}, "
                "where DuckDB deletes what it doesn't know: choose a warehouse outside of it, and allowed_locations too"
            )
    return data_path


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
