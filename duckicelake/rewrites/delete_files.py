"""The task that merges position delete files, of which readers open each one that may concern a data file."""

from collections import Counter
from collections.abc import Mapping

from duckicelake.bridge.main_diff import DELETION_VECTOR
from duckicelake.catalog.commit.replaced_files import ReplacedFiles
from duckicelake.catalog.commit.run import retry_on_conflict
from duckicelake.catalog.commit.workspace import Workspace
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.upkeep_tasks import TaskControl
from duckicelake.iceberg.identifiers import format_full_name
from duckicelake.iceberg.manifest.entry import FileContent, ManifestContent
from duckicelake.lake.state import FileRow
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.rewrites.actions import commit_replaced


def rewrite_deletes(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
    """Merge the position delete files of each partition into one, and remove those of data files that have left.

    No data file is read. From format version 3 on a data file has one deletion vector, of which nothing is to be
    merged; those from before an upgrade become vectors where a data file has several. Raises what commits do.
    """

    def attempt(is_alone: bool) -> TaskOutcome:
        control.check()
        version = load_current_table(services, task.namespace, task.table)
        replaced = _find_replaced(services, version)
        if not (replaced.merged or replaced.dangling):
            return TaskOutcome("unchanged", "no data file has several position delete files")
        snapshot_id = commit_replaced(services, task, version, replaced, is_alone=is_alone)
        counts = {"data files with deletes": len(replaced.merged), "removed delete files": len(replaced.dangling)}
        return TaskOutcome("done", None, (snapshot_id,), counts)

    return retry_on_conflict(services, format_full_name(task.namespace, task.table), attempt)


def _find_replaced(services: Services, version: TableVersion) -> ReplacedFiles:
    """Find what position delete files are about: files of partitions in which one has several, and files that left."""
    current = version.state.current()
    space = Workspace(services, version.row.table_id, version.known)
    listed = space.list_manifests(current.manifest_ids if current else ())
    deletes = space.files(space.live(one for one in listed if one.content == ManifestContent.DELETES))
    plain = {file_id for file_id, file in deletes.items() if _is_plain(file)}
    live = space.find_among(listed, space.targets_of(plain))
    rows = [row for row in space.deletions_of(live) if row.delete_file_id in plain]
    counts = Counter(row.data_file_id for row in rows)
    merged = _select_partitions(space.files(live), counts)
    return ReplacedFiles({}, merged=merged, dangling=frozenset(plain - {row.delete_file_id for row in rows}))


def _is_plain(file: FileRow) -> bool:
    return file.content == FileContent.POSITION_DELETES and file.file_format != DELETION_VECTOR


def _select_partitions(files: Mapping[int, FileRow], counts: Mapping[int, int]) -> frozenset[int]:
    places = {file_id: (file.spec_id, str(file.partition)) for file_id, file in files.items()}
    wanted = {places[file_id] for file_id, count in counts.items() if count > 1}
    return frozenset(file_id for file_id in counts if places[file_id] in wanted)
