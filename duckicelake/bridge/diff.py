"""PURE. From (base, target, what the client uploaded) to a ChangeSet: the commit as rows (design, "A commit walks")."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from duckicelake.bridge import definitions
from duckicelake.bridge.manifests import ListedManifest, ListOwner, ManifestList, next_list
from duckicelake.bridge.partitions import has_buckets, values_of
from duckicelake.bridge.project import DUCKLAKE_ID, target_of
from duckicelake.bridge.stats import file_stats, truncation, widen
from duckicelake.bridge.uploads import Upload
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.manifest import (
    FileContent,
)
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.changes import (
    ChangeSet,
    Creation,
    DefinitionChange,
    LakeStep,
    NewDataFile,
    NewDeleteFile,
    NewDeletion,
    NewFile,
    NewSnapshot,
    SideFiles,
    TableStats,
)
from duckicelake.lake.model import ColumnStats, InlinedKey, PartitionKey

_TOO_MANY = 2**63


@dataclass(frozen=True, slots=True)
class Base:
    """The state a commit is computed from; `metadata` is None for a table to be created."""

    table_id: int | None = None
    version: int = 0
    caught_up_to: int = 0
    metadata: TableMetadata | None = None
    declared: tuple[PartitionKey, ...] = ()
    manifests: tuple[ListedManifest, ...] = ()
    stats: tuple[int, int, int] | None = None
    column_stats: Mapping[int, ColumnStats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deletes:
    """What the added and removed files of a snapshot mean to rows that DuckLake keeps elsewhere.

    `deletions` are the positions in added delete files, `delete_files` the same for DuckLake, one for each data file;
    `ended_rows` the inlined rows that leave with a virtual file or a position in one.
    """

    deletions: tuple[NewDeletion, ...] = ()
    delete_files: tuple[NewDeleteFile, ...] = ()
    ended_rows: tuple[InlinedKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Increment:
    """One new snapshot of main, ready to become a step: its upload with ids given to its files, and its deletes."""

    upload: Upload
    files: tuple[NewFile, ...]
    deletes: Deletes
    proposed_id: int | None = None
    ducklake_id: int | None = None


def change_set(
    base: Base,
    target: TableMetadata,
    increments: Sequence[Increment],
    manifest_ids: Iterator[int],
    creation: Creation | None = None,
) -> ChangeSet:
    """The commit of `target` over `base`, which brings these new snapshots of main."""
    steps: list[LakeStep] = []
    state = base
    for increment in increments:
        definition = DefinitionChange() if steps else _definition(base, target)
        step, state = _step(state, target, increment, definition, manifest_ids)
        steps.append(step)
    definition = DefinitionChange() if steps else _definition(base, target)
    if definition or (creation and not steps):
        steps.append(LakeStep(kinds=() if creation else ("altered_table",), definition=definition))
    if creation:
        steps[0] = replace(steps[0], creation=creation)
    return ChangeSet(
        table_id=base.table_id,
        base_version=base.version,
        caught_up_to=base.caught_up_to,
        steps=tuple(steps),
        target=target_of(base.metadata, target),
        moves_main=bool(increments),
    )


def _definition(base: Base, target: TableMetadata) -> DefinitionChange:
    if base.metadata is None:
        return definitions.creation(target)
    holds_files = any(manifest.content == 0 and manifest.live_count for manifest in base.manifests)
    return definitions.change(base.metadata, target, base.declared, holds_files=holds_files)


def _step(
    base: Base, target: TableMetadata, increment: Increment, definition: DefinitionChange, manifest_ids: Iterator[int]
) -> tuple[LakeStep, Base]:
    """The step of one increment, and the base of the next."""
    declared = base.declared if definition.partition_keys is None else definition.partition_keys
    definition, declared = _undeclare_buckets(target, increment, definition, declared)
    data_files, stats = _data_files(base, target, increment, declared)
    manifests = _manifests(base, target, increment, manifest_ids)
    step = LakeStep(
        ducklake_id=increment.ducklake_id,
        kinds=_kinds(increment, definition, is_new=base.metadata is None),
        definition=definition,
        ended_data_files=_ended_data_files(increment),
        ended_rows=increment.deletes.ended_rows,
        data_files=data_files,
        delete_files=increment.deletes.delete_files,
        stats=stats,
        snapshot=_snapshot(increment, tuple(m.manifest_id for m in manifests.listed)),
        side=SideFiles(files=increment.files, deletions=increment.deletes.deletions, manifests=manifests.new),
    )
    after = base
    if stats is not None:
        columns = {key: row for key, row in {**base.column_stats, **stats.columns}.items() if row is not None}
        after = replace(
            base, stats=(stats.record_count, stats.next_row_id, stats.file_size_bytes), column_stats=columns
        )
    return step, replace(after, metadata=target, declared=declared, manifests=manifests.listed)


def _ended_data_files(increment: Increment) -> tuple[int, ...]:
    rows = (row for row in increment.upload.removed if row.content == FileContent.DATA)
    return tuple(row.ducklake_id for row in rows if row.ducklake_id is not None)


def _undeclare_buckets(
    target: TableMetadata, increment: Increment, definition: DefinitionChange, declared: tuple[PartitionKey, ...]
) -> tuple[DefinitionChange, tuple[PartitionKey, ...]]:
    """Take bucket keys back from DuckLake if a file is added that has no value for them."""
    if not has_buckets(declared):
        return definition, declared
    specs = {spec.spec_id: spec for spec in target.partition_specs}
    for file, spec_id, _ in increment.upload.added:
        if file.content is FileContent.DATA and (
            values_of(specs[spec_id], target.schema(), declared, file.partition) is None
        ):
            plain = tuple(key for key in declared if not has_buckets([key]))
            return replace(definition, partition_keys=plain), plain
    return definition, declared


def _data_files(
    base: Base, target: TableMetadata, increment: Increment, declared: tuple[PartitionKey, ...]
) -> tuple[tuple[NewDataFile, ...], TableStats | None]:
    """DuckLake's rows of the added data files, and the table-wide statistics with them."""
    specs = {spec.spec_id: spec for spec in target.partition_specs}
    leaves = target.schema().leaves()
    records, next_row_id, size = base.stats or (0, 0, 0)
    rows: list[NewDataFile] = []
    for new, (file, spec_id, _) in zip(increment.files, increment.upload.added, strict=True):
        if file.content is not FileContent.DATA:
            continue
        values = values_of(specs[spec_id], target.schema(), declared, file.partition) if declared else None
        rows.append(
            NewDataFile(
                file_id=new.file_id,
                path=file.file_path,
                record_count=file.record_count,
                file_size_bytes=file.file_size_in_bytes,
                row_id_start=next_row_id,
                stats=file_stats(file, leaves),
                partition_values=values,
            )
        )
        next_row_id += file.record_count
        records += file.record_count
        size += file.file_size_in_bytes
    if not rows:
        return (), None
    if max(next_row_id, size) >= _TOO_MANY:
        raise InvalidRequest(f"the table would have had {next_row_id} rows in {size} bytes, more than can be counted")
    existing = base.column_stats if base.stats is not None else None
    columns = widen(existing, [row.stats for row in rows], leaves, truncation(target.properties))
    return tuple(rows), TableStats(records, next_row_id, size, columns)


def _manifests(base: Base, target: TableMetadata, increment: Increment, manifest_ids: Iterator[int]) -> ManifestList:
    snapshot = increment.upload.snapshot
    owner = ListOwner(
        snapshot.snapshot_id,
        snapshot.sequence_number,
        target.current_schema_id if snapshot.schema_id is None else snapshot.schema_id,
    )
    removed = {row.file_id for row in increment.upload.removed}
    if snapshot.parent_snapshot_id is None and sum(manifest.live_count for manifest in base.manifests) == len(removed):
        return next_list((), increment.files, set(), owner, manifest_ids)  # a replaced table starts afresh
    return next_list(base.manifests, increment.files, removed, owner, manifest_ids)


def _snapshot(increment: Increment, manifest_ids: tuple[int, ...]) -> NewSnapshot:
    snapshot = increment.upload.snapshot
    return NewSnapshot(
        snapshot_id=snapshot.snapshot_id,
        proposed_id=increment.proposed_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        sequence_number=snapshot.sequence_number,
        timestamp_ms=snapshot.timestamp_ms,
        schema_id=snapshot.schema_id,
        summary={key: value for key, value in snapshot.summary.items() if key != DUCKLAKE_ID},
        manifest_ids=manifest_ids,
        first_row_id=snapshot.first_row_id,
        added_rows=snapshot.added_rows,
        key_id=snapshot.key_id,
    )


def _kinds(increment: Increment, definition: DefinitionChange, *, is_new: bool) -> tuple[str, ...]:
    """The words of `changes_made` (design §6.7), by which DuckDB detects conflicts."""
    upload, deletes = increment.upload, increment.deletes
    adds = any(file.content is FileContent.DATA for file, _, _ in upload.added)
    removes = bool(upload.removed or deletes.delete_files or deletes.ended_rows)
    kinds = ["altered_table"] if definition and not is_new else []
    if upload.snapshot.operation == "replace" and not deletes.ended_rows and not _adds_rows(upload):
        return (*kinds, "rewrite_delete")
    kinds += ["inserted_into_table"] if adds else []
    kinds += ["deleted_from_table"] if removes else []
    kinds += ["inlined_delete"] if deletes.ended_rows else []
    return tuple(kinds)


def _adds_rows(upload: Upload) -> bool:
    """Whether more rows come than go, so that it can't be the rewrite that the client calls it."""
    added = sum(file.record_count for file, _, _ in upload.added if file.content is FileContent.DATA)
    return added > sum(row.record_count for row in upload.removed if row.content == FileContent.DATA)
