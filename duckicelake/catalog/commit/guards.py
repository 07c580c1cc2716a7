"""Guards: tables that share files say `gc.enabled=false`, so that no Iceberg engine deletes what another table needs.

Engines then refuse to expire snapshots with their files, to remove orphans and to purge. The server goes on to do all
of that, by what rows name. It remembers which tables it guards, and takes the guard back when they share nothing more.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from duckicelake.catalog.commit.apply import TableCommit, change_over
from duckicelake.catalog.commit.run import commit_all
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.errors import CatalogError, InvalidRequestError, NoSuchTableError
from duckicelake.iceberg.identifiers import Namespace, parse_schema_name, to_schema_name
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.updates import RemoveProperties, SetProperties
from duckicelake.lake.changes import ChangeSet, WrittenCommit
from duckicelake.lake.side_tables import locations, reader
from duckicelake.postgres.queries import Transaction
from duckicelake.properties import GC_DISABLED, GC_ENABLED


def guard_change(services: Services, namespace: Namespace, name: str, cached: TableVersion) -> ChangeSet | None:
    """Return the change by which a table says so; None if it does."""
    request = CommitTableRequest(requirements=(), updates=(SetProperties(updates=dict(GC_DISABLED)),))
    return change_over(services, TableCommit(namespace, name, request), cached, 0)


def shares_files(services: Services, namespace: Namespace, name: str) -> bool:
    """Return whether the server guards the table, if there is one, as it shares files."""
    with services.database.reading() as cursor:
        table_id = reader.find_table_id(cursor, to_schema_name(namespace), name)
        return table_id is not None and locations.is_guarded_by_us(cursor, table_id)


def lift_guards(services: Services) -> list[str]:
    """Take the guards back that the server set for tables which share no files any more; their full names."""
    with services.database.reading() as cursor:
        alone = [
            (id_, schema, name)
            for id_, schema, name in locations.read_guarded_tables(cursor)
            if not locations.is_sharing(cursor, id_)
        ]
    return [f"{schema}.{name}" for table_id, schema, name in alone if _lift(services, table_id, schema, name)]


def lift_quietly(services: Services) -> None:
    """Lift guards after a request; those that are left, the next request lifts."""
    with suppress(CatalogError):
        lift_guards(replace(services, once=None))


def _lift(services: Services, table_id: int, schema: str, name: str) -> bool:
    namespace = parse_schema_name(schema)

    def settle(cursor: Transaction, written: Sequence[WrittenCommit]) -> None:
        locations.remove_guard(cursor, table_id)
        services.settle(
            cursor, [build_touched(namespace, name, {"guard": "lifted"})], [commit.table_id for commit in written]
        )

    request = CommitTableRequest(requirements=(), updates=(RemoveProperties(removals=(GC_ENABLED,)),))
    try:
        commit_all(services, [TableCommit(namespace, name, request)], settle)
    except (NoSuchTableError, InvalidRequestError):  # it has gone, or was cloned meanwhile
        return False
    return True
