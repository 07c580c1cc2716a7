"""Expiry by the server: old branches, tags and snapshots leave a table, and files go with DuckDB's cleanup.

Iceberg's engines delete the files themselves, by what one table's metadata says; so they refuse tables that share
files. The server goes by the rows of all tables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from duckicelake.catalog.commit.apply import TableCommit
from duckicelake.catalog.commit.guards import lift_quietly
from duckicelake.catalog.commit.run import OutdatedPlanError, commit_all, retry_on_conflict
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace, format_full_name
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.retention import Retention, find_expirable, get_ref_age
from duckicelake.iceberg.updates import RemoveSnapshotRef, RemoveSnapshots
from duckicelake.lake.changes import WrittenCommit
from duckicelake.lake.ducklake.snapshots import read_clock
from duckicelake.lake.side_tables import locations
from duckicelake.postgres.queries import Transaction
from duckicelake.properties import is_gc_disabled


@dataclass(frozen=True, slots=True)
class Expired:
    """How many snapshots left, or would leave, and how many the table lists then.

    keeps_files: the table says `gc.enabled=false` by itself, so that no file of its goes. refs: branches and tags that
    left, or would.
    """

    snapshots: int
    left: int
    keeps_files: bool
    refs: tuple[str, ...] = ()


def expire_snapshots(
    services: Services,
    namespace: Namespace,
    name: str,
    before_ms: int,
    kept: int = 1,
    *,
    ref_age_ms: int | None = None,
    protected_ms: int | None = None,
    is_dry_run: bool = False,
) -> Expired:
    """Expire branches and tags older than they may be, and snapshots of before a moment, in epoch ms, that none keeps.

    A branch that says how long it keeps its snapshots goes by that. ref_age_ms: of branches and tags that say none;
    else the table's property counts. protected_ms: what is younger stays, whatever a branch says. Raises
    NoSuchTableError, InvalidRequestError.
    """
    if kept < 1:
        raise InvalidRequestError(f"At least one snapshot is kept (got {kept})")
    with services.database.statement(only_reads=True) as cursor:
        now_ms = read_clock(cursor)
    retention = Retention(now_ms, before_ms, kept, ref_age_ms, protected_ms)

    def attempt(is_alone: bool) -> Expired:
        return _expire(services, namespace, name, retention, is_dry_run=is_dry_run, is_alone=is_alone)

    called = format_full_name(namespace, name)
    expired = services.run_once(lambda: retry_on_conflict(services, called, attempt), _restore_answer)
    if not is_dry_run:
        lift_quietly(services)
    return expired


def _restore_answer(saved: Mapping[str, Any]) -> Expired:
    """Return what a request of the same key was answered."""
    return Expired(**{**saved, "refs": tuple(saved.get("refs", ()))})


def _expire(
    services: Services, namespace: Namespace, name: str, retention: Retention, *, is_dry_run: bool, is_alone: bool
) -> Expired:
    """Expire once; raise OutdatedPlanError if a tag, or main, may be on one that nothing kept when it was chosen."""
    table = load_current_table(services, namespace, name)
    ref_age = get_ref_age(table.metadata) if retention.ref_age_ms is None else retention.ref_age_ms
    gone = find_expirable(table.metadata, replace(retention, ref_age_ms=ref_age))
    with services.database.reading() as cursor:
        keeps = is_gc_disabled(table.metadata.properties) and not locations.is_guarded_by_us(cursor, table.row.table_id)
    left = len(table.metadata.snapshots) - len(gone.snapshots)
    expired = Expired(len(gone.snapshots), left, keeps, gone.refs)
    if is_dry_run:
        return expired
    if not (gone.snapshots or gone.refs):
        services.settle_unchanged([build_touched(namespace, name)], asdict(expired))
        return expired

    detail = {"snapshots": len(gone.snapshots)} | ({"refs": list(gone.refs)} if gone.refs else {})

    def settle(cursor: Transaction, written: Sequence[WrittenCommit]) -> None:
        if any(commit.change.base_version != table.row.version for commit in written):
            raise OutdatedPlanError
        services.settle(cursor, [build_touched(namespace, name, detail)], asdict(expired))

    removed = RemoveSnapshots(snapshot_ids=gone.snapshots)
    updates = (*(RemoveSnapshotRef(ref_name=ref) for ref in gone.refs), *((removed,) if gone.snapshots else ()))
    request = CommitTableRequest(requirements=(), updates=updates)
    commit_all(services, [TableCommit(namespace, name, request)], settle, is_alone=is_alone)
    return expired
