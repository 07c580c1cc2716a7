"""PURE. From (base, target, the new snapshots and moves of main between them) to a ChangeSet: the commit as rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import maxsize

from duckicelake.bridge import definitions
from duckicelake.bridge.absorbing import Absorbed
from duckicelake.bridge.definitions import Declared
from duckicelake.bridge.entries import data_file, writable_partition_type
from duckicelake.bridge.narrow import outgrown
from duckicelake.bridge.partitions import has_buckets, values_of
from duckicelake.bridge.project import snapshot_row, target_of
from duckicelake.bridge.realise import AnyFile
from duckicelake.bridge.returning import returning
from duckicelake.bridge.stats import file_stats, truncation, widen
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.manifest import DataFile
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.iceberg.types import StructType
from duckicelake.lake.changes import (
    ChangeSet,
    Creation,
    DefinitionChange,
    InlinedFile,
    InlinedRows,
    LakeStep,
    NewDataFile,
    NewDeleteFile,
    NewFile,
    PackedStats,
    SideFiles,
    TableStats,
)
from duckicelake.lake.model import ColumnStats, InlinedKey, NameMap, PartitionKey

_TOO_MANY = 2**63


@dataclass(frozen=True, slots=True)
class Base:
    """The state a commit is computed from; `metadata` is None for a table to be created.

    `declared` are DuckLake's partition keys, `narrow` its types of columns that are wider in Iceberg, `stats` its
    (record count, next row id, size in bytes), and `holds_files` says whether main has data files. `row_ids` are
    (file id, first row id) of files that get theirs with this commit.
    """

    table_id: int | None = None
    version: int = 0
    caught_up_to: int = 0
    metadata: TableMetadata | None = None
    declared: tuple[PartitionKey, ...] = ()
    narrow: Mapping[int, str] = field(default_factory=dict)
    holds_files: bool = False
    stats: tuple[int, int, int] | None = None
    column_stats: Mapping[int, ColumnStats] = field(default_factory=dict)
    row_ids: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LakeCopy:
    """A file that DuckLake has in the place of one of Iceberg's; `path` is relative to the table's DuckLake folder.

    path_is_relative: or else it is absolute, in another table's.
    """

    file_id: int
    path: str
    file_size_bytes: int
    path_is_relative: bool = True


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """Registered files as DuckLake's rows have them, by file id: they needn't be made of what Iceberg knows of them.

    widening: what all of these hold together by column, exactly; with None the column loses its table-wide row, and
    one that isn't in it keeps what it has.
    """

    stats: Mapping[int, PackedStats]
    partition_values: Mapping[int, tuple[str | None, ...] | None]
    widening: Mapping[int, ColumnStats | None]


@dataclass(frozen=True, slots=True)
class Move:
    """Main's move as DuckLake makes it, what is DuckLake's alone written; `rewrites` if it shows the same rows.

    `name_maps` are by file id. known: of all registered files or none.
    """

    ended_files: tuple[int, ...] = ()
    ended_rows: tuple[InlinedKey, ...] = ()
    registered: tuple[AnyFile, ...] = ()
    copies: tuple[LakeCopy, ...] = ()
    name_maps: Mapping[int, NameMap] = field(default_factory=dict)
    delete_files: tuple[NewDeleteFile, ...] = ()
    absorbed: Absorbed | None = None
    rewrites: bool = False
    known: KnownFiles | None = None


@dataclass(frozen=True, slots=True)
class NewList:
    """A new snapshot, with the manifests that it lists."""

    snapshot: Snapshot
    manifest_ids: tuple[int, ...]
    proposed_id: int | None = None


@dataclass(frozen=True, slots=True)
class Increment:
    """One step of a commit: snapshots with the rows that they bring, and main's move, None where it stays.

    `ducklake_id` is the DuckLake snapshot that the step must become, None: any. If it `redefines` the table, rows that
    were prepared for what it was are prepared anew.
    """

    snapshots: tuple[NewList, ...] = ()
    side: SideFiles = field(default_factory=SideFiles)
    move: Move | None = None
    ducklake_id: int | None = None
    redefines: bool = False


def change_set(
    base: Base, target: TableMetadata, increments: Sequence[Increment], creation: Creation | None = None
) -> ChangeSet:
    """The commit of `target` over `base` in these increments; the first one changes the definition, too."""
    return change_and_after(base, target, increments, creation)[0]


def change_and_after(
    base: Base, target: TableMetadata, increments: Sequence[Increment], creation: Creation | None = None
) -> tuple[ChangeSet, Base]:
    """The same, and the base of a change that follows it in one transaction, but for numbers that writing gives."""
    definition = _definition(base, target, increments)
    if not increments and (definition or creation or _row_ids_left(base, target)):
        increments = [Increment()]
    steps: list[LakeStep] = []
    state = base
    for increment in increments:
        step, state = _step(state, target, increment, definition)
        steps.append(step if steps else replace(step, creation=creation))
        definition = DefinitionChange(columns_after=definition.columns_after)
    moved = [index for index, increment in enumerate(increments) if increment.move is not None]
    holds_files = base.holds_files or any(increments[index].move.registered for index in moved)  # type: ignore[union-attr]
    change = ChangeSet(
        table_id=base.table_id,
        base_version=base.version,
        caught_up_to=base.caught_up_to,
        steps=tuple(steps),
        target=target_of(base.metadata, target),
        main_step=moved[-1] if moved else None,
        row_ids=base.row_ids,
    )
    return change, replace(state, metadata=target, holds_files=holds_files, row_ids=())


def _row_ids_left(base: Base, target: TableMetadata) -> bool:
    """Whether Iceberg has given row ids that DuckLake would give again."""
    return target.format_version >= ROW_LINEAGE_VERSION and (target.next_row_id or 0) > (base.stats or (0, 0, 0))[1]


def _definition(base: Base, target: TableMetadata, increments: Sequence[Increment]) -> DefinitionChange:
    if base.metadata is None:
        return definitions.creation(target)
    moves = (increment.move for increment in increments if increment.move is not None)
    as_iceberg = _DataFiles(target)
    files = (as_iceberg.of(file) for move in moves for file in move.registered) if base.narrow else ()
    declared = Declared(base.declared, base.narrow, outgrown(base.narrow, files, target.schema().leaves()))
    return definitions.change(base.metadata, target, declared, holds_files=base.holds_files)


def _step(
    base: Base, target: TableMetadata, increment: Increment, definition: DefinitionChange
) -> tuple[LakeStep, Base]:
    """The step of one increment, and the base of the next."""
    move = increment.move or Move()
    declared = base.declared if definition.partition_keys is None else definition.partition_keys
    definition, declared = _undeclare_buckets(target, move.registered, definition, declared)
    data_files, stats = _data_files(base, target, move, declared)
    if base.stats is not None and (gone := returning(base.metadata, target, base.column_stats)):
        stats = stats or TableStats(*base.stats, {})
        stats = replace(stats, columns={**stats.columns, **dict.fromkeys(gone)})
    data_files = _with_copies(data_files, move.copies)
    inlined = None
    if move.absorbed is not None:
        inlined, stats = _inlined(base, target, move.absorbed)
    step = LakeStep(
        ducklake_id=increment.ducklake_id,
        kinds=_kinds(move, definition, is_new=base.metadata is None),
        definition=definition,
        ended_files=move.ended_files,
        ended_rows=move.ended_rows,
        data_files=data_files,
        delete_files=move.delete_files,
        inlined=inlined,
        stats=stats,
        divides_files=increment.redefines or _keeps_older_numbers(move, target),
        snapshots=tuple(snapshot_row(new.snapshot, new.manifest_ids, new.proposed_id) for new in increment.snapshots),
        side=increment.side,
    )
    after = replace(base, metadata=target, declared=declared)
    if stats is None:
        return step, after
    columns = {key: row for key, row in {**base.column_stats, **stats.columns}.items() if row is not None}
    totals = (stats.record_count, stats.next_row_id, stats.file_size_bytes)
    return step, replace(after, stats=totals, column_stats=columns)


def _keeps_older_numbers(move: Move, target: TableMetadata) -> bool:
    """Whether rows of its files may name older snapshots: in files that come back, or rewrite rows in version 3."""
    rewrites = target.format_version >= ROW_LINEAGE_VERSION and bool(move.ended_files or move.ended_rows)
    return bool(move.registered) and (rewrites or any(not isinstance(file, NewFile) for file in move.registered))


class _DataFiles:
    """Files as Iceberg knows them, made one at a time: there may be very many."""

    def __init__(self, target: TableMetadata) -> None:
        self._target = target
        self._types: dict[int, StructType] = {}

    def of(self, file: AnyFile) -> DataFile:
        type_ = self._types.get(file.spec_id)
        if type_ is None:
            type_ = writable_partition_type(self._target.spec(file.spec_id), self._target.schemas)[1]
            self._types[file.spec_id] = type_
        return data_file(file, type_)


def _undeclare_buckets(
    target: TableMetadata,
    files: Sequence[AnyFile],
    definition: DefinitionChange,
    declared: tuple[PartitionKey, ...],
) -> tuple[DefinitionChange, tuple[PartitionKey, ...]]:
    """Take bucket keys back from DuckLake if a file is registered that has no value for them."""
    as_iceberg = _DataFiles(target)
    if has_buckets(declared) and any(_values(target, declared, each, as_iceberg.of(each)) is None for each in files):
        plain = tuple(key for key in declared if not has_buckets([key]))
        return replace(definition, partition_keys=plain), plain
    return definition, declared


def _values(
    target: TableMetadata, declared: tuple[PartitionKey, ...], row: AnyFile, file: DataFile
) -> tuple[str | None, ...] | None:
    spec = next(spec for spec in target.partition_specs if spec.spec_id == row.spec_id)
    return values_of(spec, target.schema(), declared, file.partition) if declared else None


def _data_files(
    base: Base, target: TableMetadata, move: Move, declared: tuple[PartitionKey, ...]
) -> tuple[tuple[NewDataFile, ...], TableStats | None]:
    """DuckLake's rows of the registered data files, and the table-wide statistics with them."""
    leaves = target.schema().leaves()
    records, next_row_id, size = base.stats or (0, 0, 0)
    rows: list[NewDataFile] = []
    facts = _Facts(target, move.known, declared)
    for row in move.registered:
        start = next_row_id if row.first_row_id is None else row.first_row_id
        stats, values = facts.of(row)
        rows.append(
            NewDataFile(
                file_id=row.file_id,
                path=row.path,
                record_count=row.record_count,
                file_size_bytes=row.file_size_in_bytes,
                row_id_start=start,
                stats=stats,
                partition_values=values,
                name_map=move.name_maps.get(row.file_id),
            )
        )
        next_row_id = max(next_row_id, start + row.record_count)
        records += row.record_count
        size += row.file_size_in_bytes
    if target.format_version >= ROW_LINEAGE_VERSION:
        next_row_id = max(next_row_id, target.next_row_id or 0)  # branches use up row ids, too
    is_widened = bool(rows) or (move.known is not None and base.stats is not None)
    if not is_widened and next_row_id == (base.stats or (0, 0, 0))[1]:
        return (), None
    if max(next_row_id, size) >= _TOO_MANY:
        raise InvalidRequest(f"the table would have had {next_row_id} rows in {size} bytes, more than can be counted")
    existing = base.column_stats if base.stats is not None else None
    held: Iterable[Iterable[ColumnStats]] = (row.stats for row in rows)
    if move.known is not None:
        widening = move.known.widening
        held, leaves = [[row for row in widening.values() if row]], {i: leaves[i] for i in leaves if i in widening}
    columns = widen(existing, held, leaves, truncation(target.properties)) if is_widened else {}
    return tuple(rows), TableStats(records, next_row_id, size, columns)


class _Facts:
    """DuckLake's statistics and partition values of files, where they aren't known made of what Iceberg knows."""

    def __init__(self, target: TableMetadata, known: KnownFiles | None, declared: tuple[PartitionKey, ...]) -> None:
        self._target = target
        self._known = known
        self._declared = declared
        self._leaves = target.schema().leaves()
        self._as_iceberg = _DataFiles(target)

    def of(self, row: AnyFile) -> tuple[PackedStats, tuple[str | None, ...] | None]:
        if self._known is not None:
            return self._known.stats[row.file_id], self._known.partition_values[row.file_id]
        file = self._as_iceberg.of(row)
        return PackedStats(file_stats(file, self._leaves)), _values(self._target, self._declared, row, file)


def _inlined(base: Base, target: TableMetadata, absorbed: Absorbed) -> tuple[InlinedRows, TableStats]:
    """The rows with the ids that they get, and the table-wide statistics with them."""
    records, next_row_id, size = base.stats or (0, 0, 0)
    files: list[InlinedFile] = []
    for each in absorbed.files:
        start = next_row_id if each.file.first_row_id is None else each.file.first_row_id
        files.append(InlinedFile(each.file.file_id, start, each.file.record_count, each.values))
        next_row_id = max(next_row_id, start + each.file.record_count)
        records += each.file.record_count
    if target.format_version >= ROW_LINEAGE_VERSION:
        next_row_id = max(next_row_id, target.next_row_id or 0)
    existing = base.column_stats if base.stats is not None else None
    columns = widen(existing, [each.stats for each in absorbed.files], target.schema().leaves(), maxsize)
    return InlinedRows(absorbed.into, tuple(files)), TableStats(records, next_row_id, size, columns)


def _with_copies(files: Sequence[NewDataFile], copies: Sequence[LakeCopy]) -> tuple[NewDataFile, ...]:
    by_file = {copy.file_id: copy for copy in copies}
    if not by_file:
        return tuple(files)
    return tuple(
        file._replace(path=copy.path, path_is_relative=copy.path_is_relative, file_size_bytes=copy.file_size_bytes)
        if (copy := by_file.get(file.file_id))
        else file
        for file in files
    )


def _kinds(move: Move, definition: DefinitionChange, *, is_new: bool) -> tuple[str, ...]:
    """The words of `changes_made` (design §6.7), by which DuckDB detects conflicts.

    A rewrite lets DuckDB's inserts pass. But for `inline_flush` it would also let those deletes pass that DuckDB notes
    in Postgres, of rows in files that are gone: they would be lost, and its updates doubled.
    """
    kinds = ["altered_table"] if definition and not is_new else []
    if move.rewrites:
        kinds += ["rewrite_delete"] if move.ended_files else []
        return (*kinds, "inline_flush") if move.ended_files or move.ended_rows or move.registered else tuple(kinds)
    kinds += ["inserted_into_table"] if move.registered else []
    kinds += ["inlined_insert"] if move.absorbed else []
    kinds += ["deleted_from_table"] if move.ended_files or move.delete_files or move.ended_rows else []
    kinds += ["inlined_delete"] if move.ended_rows else []
    return tuple(kinds)
