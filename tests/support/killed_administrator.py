"""Processes that create, drop, rename and move warehouses, and are killed with SIGKILL at their k-th lasting step.

These are the COMMITs of all databases, before and after, and what is done to the file system.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

from duckicelake.catalog.context.idempotency import Once
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services, read_clock_ms
from duckicelake.catalog.warehouse_places import NewWarehouse
from duckicelake.catalog.warehouse_registry import create_warehouse, move_warehouse, rename_warehouse
from duckicelake.catalog.warehouse_removal import drop_warehouse
from duckicelake.cli.wiring.location import build_policy
from duckicelake.cli.wiring.services import build_warehouse_wiring, open_lake_store
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.database import Database
from duckicelake.settings.model import Settings
from duckicelake.settings.sources import read_settings
from tests.support.killed_process import FINGERPRINT, Work, light_fuse, serve_in_children
from tests.support.seams import Fuse


def administer(services: Services, settings: Settings, work: Work) -> Any:
    """Do one work, by its key if it has one."""
    wiring, name = build_warehouse_wiring(settings), work.name
    if work.key is not None:
        services = replace(services, once=Once(UUID(work.key), FINGERPRINT))
    match work.act:
        case "create":
            return create_warehouse(services, wiring, NewWarehouse(name, **work.body))
        case "drop":
            return drop_warehouse(services, wiring, name, forces=True, keeps_lake=work.body["keeps_lake"])
        case "rename":
            return rename_warehouse(services, name, work.body["name"])
        case "move":
            return move_warehouse(services, wiring, name, work.body["url"])
    raise ValueError(work.act)


def main() -> None:
    settings = read_settings({})
    assert settings.database_url is not None

    def serve(work: Work, log: int) -> None:
        database = open_lake_database(str(settings.database_url), 4)
        services = Services(
            database,
            open_lake_store(settings),
            build_policy(settings),
            "client",
            read_clock_ms,
            rights=RightsCache.of_first(database),
        )
        watch_commits(light_fuse(work, log))
        administer(services, settings, work)
        os._exit(0)

    serve_in_children(serve)


def watch_commits(fuse: Fuse) -> None:
    """Let a fuse see the transactions of every database."""
    transact = Database.transaction

    @contextmanager
    def transaction(self: Database, *, pipelined: bool = False) -> Iterator[Any]:
        with transact(self, pipelined=pipelined) as cursor:
            yield cursor
            fuse.burn("before COMMIT")
        fuse.burn("after COMMIT")

    Database.transaction = transaction  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
