"""The tasks that read no data file: few position delete files, and few manifests, for readers, who open each."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from duckicelake.bridge.commit.uploads import EMPTY_MANIFEST_COUNTS, ENTRIES_PROCESSED
from duckicelake.bridge.main_diff import DELETION_VECTOR
from duckicelake.bridge.manifest_lists import ListedManifest, find_small_manifests, parse_packing
from duckicelake.catalog.commit.replaced_files import ReplacedFiles
from duckicelake.catalog.commit.run import retry_on_conflict
from duckicelake.catalog.commit.workspace import Workspace
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.upkeep_tasks import TaskControl
from duckicelake.iceberg.identifiers import format_full_name
from duckicelake.iceberg.manifest.entry import FileContent, ManifestContent
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION
from duckicelake.lake.state import FileRow
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.rewrites.actions import commit_replaced


@dataclass(frozen=True, slots=True)
class _ListedFiles:
    """What main lists. space: reads the files of manifests."""

    version: TableVersion
    space: Workspace
    manifests: Sequence[ListedManifest]


def rewrite_deletes(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
    """Merge the position delete files of each partition into one, and remove those of data files that have left.

    From format version 3 on a data file has one deletion vector, of which nothing is to be merged; files from before an
    upgrade become vectors. Raises what commits do.
    """

    def attempt(listed: _ListedFiles, is_alone: bool) -> TaskOutcome:
        replaced = _find_replaced(listed)
        if not (replaced.merged or replaced.dangling):
            return TaskOutcome("unchanged", "no data file has position delete files that could become fewer")
        snapshot_id = commit_replaced(services, task, listed.version, replaced, is_alone=is_alone)
        counts = {"data files with deletes": len(replaced.merged), "removed delete files": len(replaced.dangling)}
        return TaskOutcome("done", None, (snapshot_id,), counts)

    return _run(services, task, control, attempt)


def pack_manifests(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
    """Make few manifests of those with fewer than 1,000 files, of each content and partition spec by itself.

    Their files are in the order of partitions then. What a client laid out stays. Raises what commits do.
    """

    def attempt(listed: _ListedFiles, is_alone: bool) -> TaskOutcome:
        version = listed.version
        groups = find_small_manifests(listed.manifests, parse_packing(version.metadata.properties))
        if not groups:
            return TaskOutcome("unchanged", "no fewer manifests would come of it")
        files = sum(manifest.live_count for group in groups for manifest in group)
        control.report({"files in manifests": files})
        replaced = ReplacedFiles({}, packed=frozenset(one.manifest_id for group in groups for one in group))
        summary = EMPTY_MANIFEST_COUNTS | {ENTRIES_PROCESSED: str(files)}
        snapshot_id = commit_replaced(services, task, version, replaced, summary=summary, is_alone=is_alone)
        counts = {"rewritten manifests": len(replaced.packed), "files in manifests": files}
        return TaskOutcome("done", None, (snapshot_id,), counts)

    return _run(services, task, control, attempt)


def _run(
    services: Services,
    task: UpkeepTask,
    control: TaskControl,
    attempt: Callable[[_ListedFiles, bool], TaskOutcome],
) -> TaskOutcome:
    """Try until no other writer was faster, each time with what main lists by then."""

    def load_and_try(is_alone: bool) -> TaskOutcome:
        control.check()
        version = load_current_table(services, task.namespace, task.table)
        current = version.state.current()
        space = Workspace(services, version.row.table_id, version.known)
        manifests = space.list_manifests(current.manifest_ids if current else ())
        return attempt(_ListedFiles(version, space, manifests), is_alone)

    return retry_on_conflict(services, format_full_name(task.namespace, task.table), load_and_try)


def _find_replaced(listed: _ListedFiles) -> ReplacedFiles:
    """Find what position delete files are about, and files that left.

    They are files of partitions in which one has several; from format version 3 on, all.
    """
    space, manifests = listed.space, listed.manifests
    deletes = space.files(space.live(one for one in manifests if one.content == ManifestContent.DELETES))
    plain = {file_id for file_id, file in deletes.items() if _is_plain(file)}
    live = space.find_among(manifests, space.targets_of(plain))
    rows = [row for row in space.deletions_of(live) if row.delete_file_id in plain]
    counts = Counter(row.data_file_id for row in rows)
    has_vectors = listed.version.metadata.format_version >= ROW_LINEAGE_VERSION
    merged = frozenset(counts) if has_vectors else _select_partitions(space.files(live), counts)
    return ReplacedFiles({}, merged=merged, dangling=frozenset(plain - {row.delete_file_id for row in rows}))


def _is_plain(file: FileRow) -> bool:
    return file.content == FileContent.POSITION_DELETES and file.file_format != DELETION_VECTOR


def _select_partitions(files: Mapping[int, FileRow], counts: Mapping[int, int]) -> frozenset[int]:
    places = {file_id: (file.spec_id, str(file.partition)) for file_id, file in files.items()}
    wanted = {places[file_id] for file_id, count in counts.items() if count > 1}
    return frozenset(file_id for file_id in counts if places[file_id] in wanted)
