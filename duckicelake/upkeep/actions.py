"""What workers can do: the action of each kind of task, and those that the catalog always did itself."""

from functools import cache
from typing import Final

from duckicelake.catalog import gc, warehouse
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.expiry import expire_snapshots
from duckicelake.catalog.flush import flush_unless_busy
from duckicelake.catalog.lake_files import list_lake_files
from duckicelake.catalog.maintenance import read_now_ms
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.upkeep_tasks import TaskAction, TaskControl, UpkeepSource
from duckicelake.errors import InvalidRequestError
from duckicelake.features.registry import load_entry_point, load_hooks
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.storage.policy import canonicalize

ACTIONS: Final[dict[str, str]] = {
    "flush": "duckicelake.upkeep.actions:flush",
    "expire": "duckicelake.upkeep.actions:expire",
    "remove-orphans": "duckicelake.upkeep.actions:remove_orphans",
}
"""By kind, as `module:attribute`: imported when the first task of the kind is taken."""
_ADOPT: Final = ". If the warehouse is this lake's alone, run `duckicelake adopt`, and ask for the task again"


@cache
def list_actions() -> dict[str, str]:
    """List the actions by kind, those of features included."""
    found = dict(ACTIONS)
    for source in load_hooks(UpkeepSource, "upkeep_source"):
        found |= source.actions
    return found


def list_kinds() -> frozenset[str]:
    """List the kinds of tasks that workers can do."""
    return frozenset(list_actions())


def load_action(kind: str) -> TaskAction:
    """Import the action of a kind."""
    action: TaskAction = load_entry_point(object, list_actions()[kind])  # type: ignore[assignment]
    return action


def flush(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
    """Write the table's rows in Postgres to files.

    The table is loaded before, so that what DuckDB did until now is listed, one snapshot for each.
    """
    version = load_current_table(services, task.namespace, task.table)
    control.check()
    flushed = flush_unless_busy(services, task.namespace, task.table, version.row.table_id)
    if flushed is None:
        return TaskOutcome("skipped", "another process flushes the table")
    if flushed.snapshot_id is None:
        return TaskOutcome("unchanged", "no rows are in Postgres any more")
    counts = {
        "rows in Postgres": flushed.rows,
        "deletes in Postgres": flushed.deletes,
        "added files": flushed.files,
    }
    return TaskOutcome("done", None, (), counts)


def expire(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
    """Expire snapshots of before the policy's age, branches and tags by theirs; files go with DuckDB's cleanup."""
    control.check()
    policy, now_ms = task.policy, read_now_ms(services)
    expired = expire_snapshots(
        services,
        task.namespace,
        task.table,
        now_ms - policy.snapshot_age,
        policy.snapshots_kept,
        ref_age_ms=policy.ref_age,
        protected_ms=now_ms - policy.ducklake_age if policy.ducklake_age else None,
    )
    counts = {"expired snapshots": expired.snapshots, "removed branches and tags": len(expired.refs)}
    return TaskOutcome("done" if expired.snapshots or expired.refs else "unchanged", None, (), counts)


def remove_orphans(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
    """Delete files below the table's location that no table needs and that are older than the policy says."""
    standing = warehouse.look(services)
    reason = standing.refusal or standing.doubt
    if reason is not None:
        raise InvalidRequestError(f"Nothing was deleted: {reason}{'' if standing.refusal else _ADOPT}")
    location = canonicalize(load_current_table(services, task.namespace, task.table).metadata.location)
    before_ms = read_now_ms(services) - task.policy.orphan_age
    found = []
    for file in list_lake_files(services, {location}):
        control.check()
        if file.modified_ms < before_ms:
            found.append(file)
    gc.prepare_deletion(services)
    counts = {"files looked at": len(found), "deleted files": 0, "deleted bytes": 0}
    orphans = gc.list_unneeded(services, found)
    control.check()
    gc.delete_orphans(services, orphans)
    counts |= {"deleted files": len(orphans), "deleted bytes": sum(file.size for file in orphans)}
    return TaskOutcome("done" if orphans else "unchanged", None, (), counts)
