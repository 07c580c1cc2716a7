"""The task that makes few manifests of many small ones, of which each plan of a scan opens every one."""

from duckicelake.bridge.commit.uploads import EMPTY_MANIFEST_COUNTS, ENTRIES_PROCESSED
from duckicelake.bridge.manifest_lists import parse_packing
from duckicelake.bridge.small_manifests import find_small_manifests
from duckicelake.catalog.commit.replaced_files import ReplacedFiles
from duckicelake.catalog.commit.run import retry_on_conflict
from duckicelake.catalog.commit.workspace import Workspace
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.upkeep_tasks import TaskControl
from duckicelake.iceberg.identifiers import format_full_name
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.rewrites.actions import commit_replaced


def pack_manifests(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
    """Make few manifests of those with fewer than 1,000 files, of each content and partition spec by itself.

    Their files are in the order of partitions then. No data file is read, and what a client laid out stays. Raises what
    commits do.
    """

    def attempt(is_alone: bool) -> TaskOutcome:
        control.check()
        version = load_current_table(services, task.namespace, task.table)
        current = version.state.current()
        space = Workspace(services, version.row.table_id, version.known)
        listed = space.list_manifests(current.manifest_ids if current else ())
        groups = find_small_manifests(listed, parse_packing(version.metadata.properties))
        if not groups:
            return TaskOutcome("unchanged", "no fewer manifests would come of it")
        files = sum(manifest.live_count for group in groups for manifest in group)
        control.report({"files in manifests": files})
        replaced = ReplacedFiles({}, packed=frozenset(one.manifest_id for group in groups for one in group))
        snapshot_id = commit_replaced(
            services,
            task,
            version,
            replaced,
            summary=EMPTY_MANIFEST_COUNTS | {ENTRIES_PROCESSED: str(files)},
            is_alone=is_alone,
        )
        counts = {"rewritten manifests": len(replaced.packed), "files in manifests": files}
        return TaskOutcome("done", None, (snapshot_id,), counts)

    return retry_on_conflict(services, format_full_name(task.namespace, task.table), attempt)
