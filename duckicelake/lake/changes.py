"""PURE. A commit as a value, its predicted result, and its shift to later snapshot ids."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from duckicelake.lake.additions import InlinedRows, NewDataFile, NewDeleteFile, NewSnapshot, SideFiles
from duckicelake.lake.model import Column, ColumnStats, InlinedKey, NameMap, PartitionKey, SortKey


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """A change of what the table is: columns to end and to begin, keys to replace (None: leave as they are)."""

    ended_columns: tuple[int, ...] = ()
    new_columns: tuple[Column, ...] = ()
    hidden_columns: tuple[Column, ...] = ()
    comments: Mapping[int, str | None] = field(default_factory=dict)
    table_comment: tuple[str | None] | None = None
    partition_keys: tuple[PartitionKey, ...] | None = None
    sort_keys: tuple[SortKey, ...] | None = None
    columns_after: tuple[Column, ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything changes that DuckLake can see."""
        columns = self.ended_columns or self.new_columns or self.hidden_columns or self.comments
        keys = self.partition_keys is not None or self.sort_keys is not None
        return bool(columns) or keys or self.table_comment is not None

    @property
    def catalog_ids(self) -> int:
        """How many ids it takes from `next_catalog_id`."""
        return (self.partition_keys is not None) + bool(self.sort_keys)


@dataclass(frozen=True, slots=True)
class TableStats:
    """A `ducklake_table_stats` row with its column rows; a column with None has no row."""

    record_count: int
    next_row_id: int
    file_size_bytes: int
    columns: Mapping[int, ColumnStats | None]


@dataclass(frozen=True, slots=True)
class Creation:
    """A new `ducklake_table` row; its columns and keys come as the same step's definition.

    recorded_schema: what DuckLake calls the schema; None before the schema was looked up.
    """

    schema_name: str
    table_name: str
    table_uuid: str
    recorded_schema: str | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """Files that only listed snapshots still need, and until when (epoch ms) these may stay listed."""

    file_ids: tuple[int, ...]
    until_ms: int


@dataclass(frozen=True, slots=True)
class LakeStep:
    """One DuckLake snapshot of one table: what it changes natively, and the Iceberg snapshots that it makes, if any.

    `ducklake_id` is the DuckLake snapshot id that the step was computed for: a native one's, or the one that must be
    assigned because Iceberg's numbers say it; None: any. `ended_files` are ids of `duckicelake_file`; a file may end
    and be registered again by the same step. If it `divides_files`, DuckDB must not merge its files with older ones.
    """

    ducklake_id: int | None = None
    creation: Creation | None = None
    kinds: tuple[str, ...] = ()
    definition: DefinitionChange = field(default_factory=DefinitionChange)
    ended_files: tuple[int, ...] = ()
    ended_rows: tuple[InlinedKey, ...] = ()
    data_files: tuple[NewDataFile, ...] = ()
    delete_files: tuple[NewDeleteFile, ...] = ()
    inlined: InlinedRows | None = None
    stats: TableStats | None = None
    divides_files: bool = False
    snapshots: tuple[NewSnapshot, ...] = ()
    hold: Hold | None = None
    side: SideFiles = field(default_factory=SideFiles)

    @property
    def has_new_inlined_table(self) -> bool:
        """Whether it makes a table of inlined rows: clients of DuckDB look for it once the schema changes."""
        return self.inlined is not None and self.inlined.into.version is not None

    @property
    def name_maps(self) -> tuple[NameMap, ...]:
        """The maps of its data files, each once."""
        return tuple(dict.fromkeys(file.name_map for file in self.data_files if file.name_map is not None))

    @property
    def file_ids(self) -> int:
        """How many ids it takes from `next_file_id`; at least one where statistics or columns that have some change.

        DuckDB caches statistics by it, and ones of another type than the column's it would widen to unknown.
        """
        least = 1 if self.stats or self.definition.ended_columns else 0
        return max(len(self.data_files) + len(self.delete_files) + len(self.name_maps), least)

    @property
    def catalog_ids(self) -> int:
        """How many ids it takes from `next_catalog_id`."""
        return self.definition.catalog_ids + (self.creation is not None)

    @property
    def changes_schema(self) -> bool:
        """Whether DuckDB's clients must read the schema again."""
        is_changed = self.creation is not None or bool(self.definition)
        return is_changed or self.divides_files or self.has_new_inlined_table


@dataclass(frozen=True, slots=True)
class TableTarget:
    """The `duckicelake_table` row after the commit, and the rows that leave or join its history.

    The snapshot log loses its oldest `log_dropped` entries, then `log_added` (snapshot id, epoch ms) follow.
    """

    location: str
    format_version: int
    last_sequence_number: int
    next_row_id: int
    last_updated_ms: int
    current_snapshot_id: int | None
    metadata: dict[str, Any]
    removed_snapshots: tuple[int, ...] = ()
    log_dropped: int = 0
    log_added: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A `duckicelake_artifact` row; `facts` are what manifest lists repeat of a manifest."""

    kind: str
    object_id: int
    path: str
    length: int
    sha256: bytes
    timestamp_ms: int
    facts: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """What was written for the version that a commit makes, its metadata.json included.

    It is of use only if the steps become these DuckLake snapshots, or, without steps, if this is the newest one.
    """

    snapshots: tuple[int, ...]
    caught_up_to: int
    files: tuple[WrittenFile, ...]


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """One commit to one table, valid only against the base version and `caught_up_to` that it was computed from.

    `table_id` is None for a table that the first step creates; `main_step` is the step that realises main, None where
    main stays. `row_ids` are (file id, first row id) of old files that had none. Up to `checked_upto` it is known that
    DuckDB didn't change the table. `files`: what was written for it already. `options`: DuckLake's options that the
    table gets; None removes one.
    """

    table_id: int | None
    base_version: int
    caught_up_to: int
    steps: tuple[LakeStep, ...]
    target: TableTarget
    main_step: int | None = None
    row_ids: tuple[tuple[int, int], ...] = ()
    checked_upto: int = 0
    files: VersionFiles | None = None
    options: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WrittenCommit:
    """What a ChangeSet got when it was written: the table's id, and the DuckLake snapshot of each step.

    `caught_up_to` is the newest DuckLake snapshot that the table's row takes in. `change` has the numbers that it came
    to have, where they are later than those it was computed for. `has_files`: those of the change are recorded.
    """

    table_id: int
    snapshots: tuple[int, ...]
    caught_up_to: int
    change: ChangeSet
    has_files: bool = False


@dataclass(frozen=True, slots=True)
class CatchUpProgress:
    """How far a table is caught up: a DuckLake snapshot, an expiry epoch, and the delete files that were read."""

    upto: int
    epoch: int
    seen_deletes: tuple[int, ...] = ()


def predict_commit(table_id: int, change: ChangeSet) -> WrittenCommit:
    """Return what a change becomes if no commit comes before it: its snapshots follow the one it was checked up to."""
    first = change.checked_upto + 1
    snapshots = tuple(range(first, first + len(change.steps)))
    return WrittenCommit(table_id, snapshots, change.checked_upto + len(snapshots), change)


def is_as_predicted(written: WrittenCommit) -> bool:
    """Return whether no commit came between the moment up to which a change was checked and its own."""
    return written.caught_up_to == written.change.checked_upto + len(written.snapshots)


def shift_snapshot_ids(change: ChangeSet, later: int) -> ChangeSet | None:
    """Return the change for snapshot ids that are higher by `later`; None if it must be computed again.

    It must be where a file was written for it, and where Iceberg's snapshot ids are DuckLake's.
    """
    if not all(map(_can_shift, change.steps)):
        return None
    numbers = {step.ducklake_id: step.ducklake_id + later for step in change.steps if step.ducklake_id is not None}
    last = change.target.last_sequence_number
    return replace(
        change,
        steps=tuple(_shift_step(step, numbers) for step in change.steps),
        target=replace(change.target, last_sequence_number=numbers.get(last, last)),
    )


def _can_shift(step: LakeStep) -> bool:
    """Return whether the step adds files as the client wrote them, in a snapshot with the client's id."""
    written = any(file.path_is_relative for file in step.data_files) or step.side.deletions or step.side.virtual_files
    changes = step.creation or step.definition or step.ended_files or step.ended_rows or step.delete_files
    numbers = [snapshot.sequence_number for snapshot in step.snapshots if snapshot.proposed_id is None]
    return not (written or changes) and numbers == [step.ducklake_id]


def _shift_step(step: LakeStep, numbers: Mapping[int, int]) -> LakeStep:
    assert step.ducklake_id is not None
    return replace(
        step,
        ducklake_id=numbers[step.ducklake_id],
        snapshots=tuple(
            replace(snapshot, sequence_number=numbers[snapshot.sequence_number]) for snapshot in step.snapshots
        ),
        side=_shift_side_files(step.side, numbers),
    )


def _shift_side_files(side: SideFiles, numbers: Mapping[int, int]) -> SideFiles:
    files = tuple(
        file._replace(
            sequence_number=numbers.get(file.sequence_number, file.sequence_number),
            file_sequence_number=numbers.get(file.file_sequence_number, file.file_sequence_number),
        )
        for file in side.files
    )
    manifests = tuple(
        replace(
            manifest,
            sequence_number=numbers.get(manifest.sequence_number, manifest.sequence_number),
            min_sequence_number=numbers.get(manifest.min_sequence_number, manifest.min_sequence_number),
        )
        for manifest in side.manifests
    )
    return replace(side, files=files, manifests=manifests)
