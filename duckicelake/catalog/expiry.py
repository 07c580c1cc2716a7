"""Expiry by the server: snapshots leave a table's history, and files go with DuckDB's cleanup that no table needs.

Iceberg's engines delete the files themselves, by what one table's metadata says; so they refuse tables that share
files. The server goes by the rows of all tables.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from duckicelake.catalog.commit.apply import TableCommit
from duckicelake.catalog.commit.guards import lift_quietly
from duckicelake.catalog.commit.run import OutdatedPlanError, commit_all, retry_on_conflict
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace, format_full_name
from duckicelake.iceberg.metadata import find_expirable_snapshots
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.updates import RemoveSnapshots
from duckicelake.lake.changes import WrittenCommit
from duckicelake.lake.side_tables import locations
from duckicelake.postgres.queries import Transaction
from duckicelake.properties import is_gc_disabled


@dataclass(frozen=True, slots=True)
class Expired:
    """How many snapshots left, or would leave, and how many the table lists then.

    keeps_files: the table says `gc.enabled=false` by itself, so that no file of its goes.
    """

    snapshots: int
    left: int
    keeps_files: bool


def expire_snapshots(
    services: Services, namespace: Namespace, name: str, before_ms: int, kept: int = 1, *, is_dry_run: bool = False
) -> Expired:
    """Expire what is older than a moment, in epoch ms, and kept by no branch or tag.

    Raises NoSuchTableError, InvalidRequestError.
    """
    if kept < 1:
        raise InvalidRequestError(f"At least one snapshot is kept (got {kept})")

    def attempt(is_alone: bool) -> Expired:
        return _expire(services, namespace, name, before_ms, kept, is_dry_run=is_dry_run, is_alone=is_alone)

    called = format_full_name(namespace, name)
    expired = services.run_once(lambda: retry_on_conflict(services, called, attempt), lambda result: Expired(**result))
    if not is_dry_run:
        lift_quietly(services)
    return expired


def _expire(
    services: Services, namespace: Namespace, name: str, before_ms: int, kept: int, *, is_dry_run: bool, is_alone: bool
) -> Expired:
    """Expire snapshots; raise StaleBaseError if a tag, or main, may be on one that nothing kept when it was chosen."""
    table = load_current_table(services, namespace, name)
    gone = find_expirable_snapshots(table.metadata, before_ms, kept)
    with services.database.reading() as cursor:
        keeps = is_gc_disabled(table.metadata.properties) and not locations.is_guarded_by_us(cursor, table.row.table_id)
    expired = Expired(len(gone), len(table.metadata.snapshots) - len(gone), keeps)
    if is_dry_run:
        return expired
    if not gone:
        services.settle_unchanged([build_touched(namespace, name)], asdict(expired))
        return expired

    def settle(cursor: Transaction, written: Sequence[WrittenCommit]) -> None:
        if any(commit.change.base_version != table.row.version for commit in written):
            raise OutdatedPlanError
        services.settle(cursor, [build_touched(namespace, name, {"snapshots": len(gone)})], asdict(expired))

    request = CommitTableRequest(requirements=(), updates=(RemoveSnapshots(snapshot_ids=gone),))
    commit_all(services, [TableCommit(namespace, name, request)], settle, is_alone=is_alone)
    return expired
