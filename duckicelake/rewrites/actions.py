"""Tasks that rewrite a table's files, group by group; each is a commit of its own that changes no row."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from duckicelake.bridge.data_files import parse_column_metrics
from duckicelake.bridge.values.columns import to_columns
from duckicelake.bridge.values.flush_layout import build_copy_stats, map_leaf_paths
from duckicelake.bridge.values.statistics import LakeMetrics
from duckicelake.catalog.commit.apply import TableCommit
from duckicelake.catalog.commit.replaced_files import AddedFile, ReplacedFiles, read_deleted_positions
from duckicelake.catalog.commit.run import OutdatedPlanError, commit_all, retry_on_conflict
from duckicelake.catalog.commit.workspace import Workspace
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.snapshot_upload import SnapshotUpload, build_snapshot
from duckicelake.catalog.scan_explanation import find_matching_files
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.table.reclaim import discard_on_error
from duckicelake.catalog.upkeep_tasks import TaskControl, UpkeepSource
from duckicelake.errors import (
    CommitFailedError,
    DamagedTableError,
    QueryMemoryError,
    UnavailableError,
    format_count,
)
from duckicelake.iceberg.identifiers import format_full_name
from duckicelake.iceberg.manifest.entry import DataFile, FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.requirements import AssertRefSnapshotId
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.snapshot import MAIN, Snapshot
from duckicelake.iceberg.updates import AddSnapshot, SetSnapshotRef
from duckicelake.lake.model import ColumnStats
from duckicelake.maintenance.layout import RowOrder
from duckicelake.maintenance.task import DUCKLAKE_SNAPSHOT, TaskOutcome, UpkeepTask
from duckicelake.parquet.copy import ROW_ID_FIELD_ID, SEQUENCE_NUMBER_FIELD_ID
from duckicelake.rewrites.catalog_copy import describe_copy
from duckicelake.rewrites.member_files import UnreadableFiles, find_damaged, read_member_files
from duckicelake.rewrites.partitions import FilePlace, PresentPartitions, find_present_partitions
from duckicelake.rewrites.processes import open_process
from duckicelake.rewrites.row_order import has_order
from duckicelake.rewrites.rows import (
    NewFile,
    ProcessFailedError,
    RewriteProcess,
    is_short_of_disk,
)
from duckicelake.rewrites.selection import FilePaths, MemberFile, RewriteGroup, choose_groups, count_files
from duckicelake.rewrites.source import RewrittenTable

_ROUNDS: Final = 3
"""Of choosing files: others may remove some while they are rewritten, by copy-on-write."""


def compact(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
    """Merge small files, and rewrite those that lost many rows. Raises what `load_current_table` and commits do."""
    return Rewrite(services, task, control).run()


def sort(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
    """Rewrite all files, their rows in the policy's order. Raises as `compact`."""
    return Rewrite(services, task, control, is_whole=True).run()


@dataclass(slots=True)
class Rewrite:
    """One task while it runs. is_whole: whether it leaves no file out that was there before, as a sort does.

    damage: files that can't be read are left out, and the others rewritten. order_keys: the columns of a sort's order,
    by ids, as names change.
    """

    services: Services
    task: UpkeepTask
    control: TaskControl
    is_whole: bool = False
    order_keys: list[dict[str, Any]] = field(default_factory=list)
    snapshot_ids: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(
        default_factory=lambda: {"rewritten files": 0, "added files": 0, "rewritten bytes": 0}
    )
    damage: UnreadableFiles = field(default_factory=UnreadableFiles)
    rounds: int = 0

    def run(self) -> TaskOutcome:
        """Rewrite group by group. Raises what `load_current_table` and commits do."""
        has_wide_rows = False
        while True:
            try:
                return self._run(has_wide_rows=has_wide_rows)
            except QueryMemoryError as error:
                if has_wide_rows or is_short_of_disk(error):
                    raise
                has_wide_rows = True

    def _run(self, *, has_wide_rows: bool) -> TaskOutcome:
        task = self.task
        skipped: list[RewriteGroup] = []
        with open_process(
            self.services, self.control, task.namespace, task.table, has_wide_rows=has_wide_rows
        ) as process:
            version, groups = self._choose(process)
            if not (groups or self.snapshot_ids):  # what was committed before memory ran out counts
                self.damage.check()
                return self.explain_no_groups(version)
            self.control.report(count_files(groups))
            while True:
                whole_upto, damages = version.lake_snapshot, len(self.damage.reasons)
                skipped = self._rewrite_groups(process, version, groups)
                self.rounds += len(self.damage.reasons) == damages
                if not skipped or self.rounds >= _ROUNDS:
                    break
                version, groups = self._choose(process)
            self.counts["skipped groups"] = len(skipped)
        done = bool(self.snapshot_ids)
        if not done:
            self.damage.check()
        if self.is_whole and done and not skipped and self.task.where is None:
            # what others append meanwhile is left out; files of the task's own snapshots are as they should be, too
            self.counts[DUCKLAKE_SNAPSHOT] = whole_upto
        message = self.damage.explain() if done else "others changed the same files each time; the next run tries again"
        result: Literal["done", "skipped"] = "done" if done else "skipped"
        return TaskOutcome(result, message, tuple(self.snapshot_ids), dict(self.counts), self.parameters)

    def choose_groups(
        self, process: RewriteProcess, table: RewrittenTable, files: Sequence[MemberFile], paths: FilePaths
    ) -> list[RewriteGroup]:
        """Choose what to rewrite of some files. paths: of all files of the table."""
        del process
        if self.is_whole and self.task.policy.order is not None:
            self.order_keys = _identify_keys(table.metadata, self.task.policy.order)
        return choose_groups(files, self.task.policy, self.task.target_size, paths, is_sort=self.is_whole)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What the job turned out to be about."""
        return {"order-keys": self.order_keys} if self.order_keys else {}

    def explain_no_groups(self, version: TableVersion) -> TaskOutcome:
        """Say what came of the task if there is nothing to rewrite."""
        del version
        return TaskOutcome("unchanged", "no files are worth it any more")

    def _choose(self, process: RewriteProcess) -> tuple[TableVersion, list[RewriteGroup]]:
        """Have the process read the table as it is, but for files that DuckDB can't open; choose what to rewrite."""
        while True:
            hidden = len(self.damage.hidden)
            chosen = self._choose_once(process)
            if len(self.damage.hidden) == hidden:
                return chosen
            self.control.check()

    def _choose_once(self, process: RewriteProcess) -> tuple[TableVersion, list[RewriteGroup]]:
        version = load_current_table(self.services, self.task.namespace, self.task.table)
        files = read_member_files(self.services, version)
        hidden = [file.row.ducklake_id for file in files if file.path in self.damage.hidden]
        ids = [ducklake_id for ducklake_id in hidden if ducklake_id is not None]
        process.read_copy(describe_copy(self.services, version, ids))
        paths = FilePaths(files)
        files = [file for file in files if file.row.added_snapshot_id not in self.snapshot_ids]
        if self.task.where is not None:
            wanted = find_matching_files(self.services, version, self.task.where)
            files = [file for file in files if file.row.file_id in wanted]
        groups = self.choose_groups(process, self._describe(version), self.damage.leave_out(files), paths)
        return version, [self._keep_apart(group) for group in groups]

    def _keep_apart(self, group: RewriteGroup) -> RewriteGroup:
        """Have DuckDB open no damaged file whose path lies between those of the group."""
        return replace(group, is_dense=group.is_dense and not self.damage.paths)

    def _describe(self, version: TableVersion) -> RewrittenTable:
        task = self.task
        return RewrittenTable(task.namespace, task.table, version.metadata, version.lake_snapshot, task.policy.codec)

    def _rewrite_groups(
        self, process: RewriteProcess, version: TableVersion, groups: Sequence[RewriteGroup]
    ) -> list[RewriteGroup]:
        """Rewrite groups, up to one with a file that DuckDB can't open; return those that aren't committed."""
        skipped: list[RewriteGroup] = []
        for number, group in enumerate(groups):
            hidden = len(self.damage.hidden)
            if not self._rewrite_group(process, version, group):
                skipped.append(group)
            if len(self.damage.hidden) > hidden:
                return [*skipped, *groups[number + 1 :]]
        return skipped

    def _rewrite_group(self, process: RewriteProcess, version: TableVersion, group: RewriteGroup) -> bool:
        """Rewrite a group; return whether it is committed, as no file of it was removed meanwhile."""
        self.control.check()
        table = self._describe(version)
        try:
            written = self._write_group(process, table, group)
        except (UnavailableError, ProcessFailedError) as error:
            self.damage.add(
                find_damaged(self.services, process, table, group.files, version, self.damage.hidden), error
            )
            return False
        upload = SnapshotUpload(self.services, version.metadata)
        try:
            _check_rows(group, sum(file.rows for file, _ in written))
            with discard_on_error(self.services, upload.paths):
                files = {
                    str(file.path): AddedFile(_add_file(upload, table, file), place.spec_id, place.partition)
                    for file, place in written
                    if file.rows
                }
                self.snapshot_ids.append(self._commit(_Replacement(process, table, group, files)))
        except _FilesGoneError:
            return False
        finally:
            _remove_files(file for file, _ in written)
        self.counts["rewritten files"] += len(group.files)
        self.counts["rewritten bytes"] += group.size
        self.counts["added files"] += len(files)
        self.control.report(self.counts)
        return True

    def _write_group(
        self, process: RewriteProcess, table: RewrittenTable, group: RewriteGroup
    ) -> list[tuple[NewFile, FilePlace]]:
        """Write the rows of a group; return the files and where they belong."""
        order = self.task.policy.order
        if order is not None and self.task.kind != "sort" and not has_order(table.metadata, order):
            order = None  # a sort says what is wrong, and small files are merged meanwhile
        partitions = None if self.is_whole else _find_partitions(process, table, group)
        written = process.write_group(table, group, order, partitions)
        places = [_find_place(file, table, group, partitions) for file in written]
        if None in places:  # as of infinite days among nulls: the files stay in the partition that they had
            _remove_files(written)
            written = process.write_group(table, group, order)
            places = [_find_place(file, table, group, None) for file in written]
        return [(file, place) for file, place in zip(written, places, strict=True) if place is not None]

    def _commit(self, replacement: "_Replacement") -> int:
        """Commit a group on main as it is then. Raises _FilesGoneError, UnavailableError."""
        namespace, name = self.task.namespace, self.task.table

        def attempt(is_alone: bool) -> int:
            self.control.check()
            version = load_current_table(self.services, namespace, name)
            replaced = replacement.build(self.services, version)
            return commit_replaced(self.services, self.task, version, replaced, is_alone=is_alone)

        return retry_on_conflict(self.services, format_full_name(namespace, name), attempt)


def _identify_keys(metadata: TableMetadata, order: RowOrder) -> list[dict[str, Any]]:
    """Return the keys of an order by the ids of their columns; one without a column fails once rows are sorted."""
    ids = {column.name.lower(): column.id for column in metadata.schema().fields}
    return [
        {"column-id": ids.get(key.part.name.lower()), "suffix": str(key).removeprefix(key.part.name)}
        for key in order.keys
    ]


def commit_replaced(
    services: Services,
    task: UpkeepTask,
    version: TableVersion,
    replaced: ReplacedFiles,
    *,
    summary: Mapping[str, str] = MappingProxyType({}),
    is_alone: bool = False,
) -> int:
    """Commit on a version of the table; return the new snapshot's id. OutdatedPlanError: main isn't that version's now.

    is_alone: the caller holds the commit queue, as after some conflicts: writers in a row don't keep a rewrite waiting
    for ever. summary: of the snapshot, beside what every one has.
    """
    snapshot, request = _build_request(services, version, replaced, summary)
    commit = TableCommit(task.namespace, task.table, request, replaced=replaced)
    try:
        commit_all(services, [commit], is_alone=is_alone)
    except CommitFailedError as error:  # others committed meanwhile: what they deleted is carried over next time
        raise OutdatedPlanError from error
    return snapshot.snapshot_id


def _check_rows(group: RewriteGroup, written: int) -> None:
    """Raise DamagedTableError if DuckDB has read more or fewer rows than the catalog counts: none may be lost."""
    if written != group.rows:
        raise DamagedTableError(
            f"DuckDB reads {format_count(written, 'row')} in {format_count(len(group.files), 'file')} from "
            f"{group.files[0].path} on, and the catalog counts {format_count(group.rows, 'row')}: nothing was "
            "rewritten. `duckicelake doctor` says which file is damaged"
        )


class _FilesGoneError(Exception):
    """Others removed files of a group, or rows that aren't found again in the new ones: the group is chosen again."""


@dataclass(frozen=True, slots=True)
class _Replacement:
    """A group whose rows are in new files, by the paths at which they were written."""

    process: RewriteProcess
    table: RewrittenTable
    group: RewriteGroup
    files: Mapping[str, AddedFile]

    def build(self, services: Services, version: TableVersion) -> ReplacedFiles:
        """Return what is to be committed on this version. Rows deleted meanwhile are deleted in the new files."""
        current = version.state.current()
        space = Workspace(services, version.row.table_id, version.known)
        listed = space.list_manifests(current.manifest_ids if current else ())
        members = {file.row.file_id: file for file in self.group.files}
        if space.find_among(listed, members) != members.keys():
            raise _FilesGoneError
        deleted = read_deleted_positions(space, listed, members.keys())
        removed = {file_id: deleted.get(file_id, frozenset()) for file_id in members}
        gone = self._carry({file_id: now - members[file_id].deleted for file_id, now in removed.items()}, members)
        return ReplacedFiles(
            removed, [replace(file, gone=gone.get(path, frozenset())) for path, file in self.files.items()]
        )

    def _carry(
        self, newly: Mapping[int, frozenset[int]], members: Mapping[int, MemberFile]
    ) -> Mapping[str, frozenset[int]]:
        """Find the rows at newly deleted positions in the new files. _FilesGoneError unless it is as many rows."""
        row_ids = [
            row_id
            for file_id, positions in newly.items()
            if positions
            for row_id in self.process.find_row_ids(self.table, members[file_id], sorted(positions))
        ]
        found = self.process.find_positions([Path(path) for path in self.files], row_ids) if row_ids else {}
        if sum(map(len, found.values())) != len(row_ids):
            raise _FilesGoneError
        return found


def _remove_files(files: Iterable[NewFile]) -> None:
    for file in files:
        file.path.unlink(missing_ok=True)


def _find_partitions(process: RewriteProcess, table: RewrittenTable, group: RewriteGroup) -> PresentPartitions | None:
    """Return the present spec's partitions for a group of an older spec, if no more files come of it than it has."""
    if group.files[0].row.spec_id == table.metadata.default_spec_id:
        return None
    partitions = find_present_partitions(table.metadata)
    if partitions is None or process.count_partitions(table, group, partitions) > len(group.files):
        return None
    return partitions


def _find_place(
    written: NewFile, table: RewrittenTable, group: RewriteGroup, partitions: PresentPartitions | None
) -> FilePlace | None:
    """Return the spec and partition of a file; None if Iceberg has other values than DuckDB divided the rows by."""
    if partitions is not None:
        return partitions.place(written.keys, _build_stats(table, written))
    row = group.files[0].row
    return FilePlace(row.spec_id, row.partition)


def _build_stats(table: RewrittenTable, written: NewFile) -> list[ColumnStats]:
    leaves = map_leaf_paths(to_columns(table.metadata.schema()))
    return [build_copy_stats(leaves[leaf], facts) for leaf, facts in written.stats.items() if leaf in leaves]


def _add_file(upload: SnapshotUpload, table: RewrittenTable, written: NewFile) -> DataFile:
    """Put a written file into the store. Row ids are counted, so that DuckLake needs no copy with them."""
    rows, schema = written.rows, table.metadata.schema()
    metrics = parse_column_metrics(LakeMetrics(schema.leaves()).build_metrics(_build_stats(table, written)))
    own = (ROW_ID_FIELD_ID, SEQUENCE_NUMBER_FIELD_ID) if table.keeps_updates else (ROW_ID_FIELD_ID,)
    for name, count in (("value_counts", rows), ("null_value_counts", 0)):
        metrics[name] = {**(metrics[name] or {}), **dict.fromkeys(own, count)}
    return DataFile(
        content=FileContent.DATA,
        file_path=upload.add_data_file("rows.parquet", written.path),
        file_format="PARQUET",
        partition=(),
        record_count=rows,
        file_size_in_bytes=written.path.stat().st_size,
        **metrics,
    )


def _build_request(
    services: Services, version: TableVersion, replaced: ReplacedFiles, summary: Mapping[str, str]
) -> tuple[Snapshot, CommitTableRequest]:
    metadata = version.metadata
    main = metadata.refs[MAIN]
    rows = sum(added.file.record_count for added in replaced.added)
    parent = metadata.snapshot(main.snapshot_id)
    stated = {"operation": "replace", **summary}
    snapshot = build_snapshot(services, metadata, secrets.randbits(62), parent, stated, rows)
    moved = SetSnapshotRef(ref_name=MAIN, **main.replace_fields(snapshot_id=snapshot.snapshot_id).model_dump())
    requirement = AssertRefSnapshotId(ref=MAIN, snapshot_id=main.snapshot_id)
    return snapshot, CommitTableRequest(requirements=(requirement,), updates=(AddSnapshot(snapshot=snapshot), moved))


UPKEEP: Final = UpkeepSource(
    {
        "compact": f"{__name__}:compact",
        "sort": f"{__name__}:sort",
        "statistics": "duckicelake.rewrites.statistics:compute_statistics",
        "rewrite-deletes": "duckicelake.rewrites.metadata_files:rewrite_deletes",
        "bloom-filters": "duckicelake.rewrites.bloom_filters:build_filters",
        "pack-manifests": "duckicelake.rewrites.metadata_files:pack_manifests",
    }
)
"""The kinds of tasks that workers of upkeep can do by this module."""
