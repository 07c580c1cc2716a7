"""PURE. Build the ChangeSet of a commit, with DuckLake's rows of the files that join main."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from sys import maxsize
from typing import Final

from duckicelake.bridge import definitions
from duckicelake.bridge.commit.increments import Absorbed, Base, Increment, KnownFiles, LakeCopy, MainUpdate
from duckicelake.bridge.data_files import find_writable_partition_type, parse_kept_metrics, to_data_file
from duckicelake.bridge.definitions import DeclaredDefinition
from duckicelake.bridge.project import build_target, to_snapshot_row
from duckicelake.bridge.values.columns import find_returning_columns
from duckicelake.bridge.values.partitions import has_buckets, to_partition_values
from duckicelake.bridge.values.statistics import LakeStats, find_truncation, widen_table_stats
from duckicelake.bridge.values.types import find_outgrown_columns
from duckicelake.errors import InvalidRequestError, format_count
from duckicelake.iceberg.manifest.entry import DataFile
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import StructType
from duckicelake.lake.additions import InlinedFile, InlinedRows, NewDataFile
from duckicelake.lake.changes import ChangeSet, Creation, DefinitionChange, LakeStep, TableStats
from duckicelake.lake.model import MAX_INLINED_COLUMNS, ColumnStats, PartitionKey
from duckicelake.lake.state import FileRow, PackedStats, TableRow
from duckicelake.properties import INLINED_ROWS, build_options

_TOO_MANY = 2**63
MAX_PLAIN_FILES: Final = 500
"""Files of a commit whose statistics wait uncompressed. To deflate those of one file, and to inflate them twice, takes
a hundredth of a small commit; those of 100,000 files would take most of the memory."""


class DataFiles:
    """Files as Iceberg knows them, made one at a time: there may be very many."""

    def __init__(self, target: TableMetadata) -> None:
        self._target = target
        self._types: dict[int, StructType] = {}

    def get(self, file: FileRow) -> DataFile:
        """Return the file with its partition and metrics."""
        type_ = self._types.get(file.spec_id)
        if type_ is None:
            type_ = find_writable_partition_type(self._target.spec(file.spec_id), self._target.schemas)[1]
            self._types[file.spec_id] = type_
        return to_data_file(file, type_)


def undeclare_buckets(
    target: TableMetadata,
    files: Sequence[FileRow],
    definition: DefinitionChange,
    declared: tuple[PartitionKey, ...],
) -> tuple[DefinitionChange, tuple[PartitionKey, ...]]:
    """Take bucket keys back from DuckLake if a file is registered that has no value for them."""
    if not (declared and has_buckets(declared)):
        return definition, declared
    as_iceberg = DataFiles(target)
    if any(_find_partition_values(target, declared, file, as_iceberg.get(file)) is None for file in files):
        plain = tuple(key for key in declared if not has_buckets([key]))
        return replace(definition, partition_keys=plain), plain
    return definition, declared


def _find_partition_values(
    target: TableMetadata, declared: tuple[PartitionKey, ...], row: FileRow, file: DataFile
) -> tuple[str | None, ...] | None:
    spec = next(spec for spec in target.partition_specs if spec.spec_id == row.spec_id)
    return to_partition_values(spec, target.current_schema, declared, file.partition)


def build_data_file_rows(
    base: Base, target: TableMetadata, move: MainUpdate, declared: tuple[PartitionKey, ...]
) -> tuple[tuple[NewDataFile, ...], TableStats | None]:
    """Return DuckLake's rows of the registered data files, and the table-wide statistics with them."""
    before = records, next_row_id, size = base.stats or (0, 0, 0)
    next_row_id = max(next_row_id, move.least_row_id)
    rows: list[NewDataFile] = []
    facts = _LakeFacts(target, move.known, declared, deflates=len(move.registered) > MAX_PLAIN_FILES)
    for row in move.registered:
        start = next_row_id if row.first_row_id is None else row.first_row_id
        stats, values = facts.get(row)
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
    next_row_id = _skip_branch_row_ids(target, next_row_id)
    is_widened = bool(rows) or (move.known is not None and base.stats is not None)
    if not is_widened and next_row_id == before[1]:
        return (), None
    if max(next_row_id, size) >= _TOO_MANY:
        raise InvalidRequestError(
            f"the table would have had {format_count(next_row_id, 'row')} in {size} bytes, more than can be counted"
        )
    columns = _widen_columns(base, target, move, rows) if is_widened else {}
    return tuple(rows), TableStats(records, next_row_id, size, columns)


def _skip_branch_row_ids(target: TableMetadata, next_row_id: int) -> int:
    """Return the next row id of a table whose branches use up row ids, too."""
    is_numbered = target.format_version >= ROW_LINEAGE_VERSION
    return max(next_row_id, target.next_row_id or 0) if is_numbered else next_row_id


def _widen_columns(
    base: Base, target: TableMetadata, move: MainUpdate, rows: Sequence[NewDataFile]
) -> dict[int, ColumnStats | None]:
    """Return the table-wide statistics of columns with these files."""
    leaves = target.current_schema.leaves()
    held: Iterable[Iterable[ColumnStats]] = (row.stats for row in rows)
    if move.known is not None:
        widening = move.known.widening
        held, leaves = [[row for row in widening.values() if row]], {i: leaves[i] for i in leaves if i in widening}
    return widen_table_stats(_get_existing(base), held, leaves, find_truncation(target.properties))


def _get_existing(base: Base) -> Mapping[int, ColumnStats] | None:
    """Return the statistics of the columns; None if nothing has been there yet."""
    return base.column_stats if base.stats is not None else None


class _LakeFacts:
    """DuckLake's statistics and partition values of files, where they aren't known made of what Iceberg knows."""

    def __init__(
        self, target: TableMetadata, known: KnownFiles | None, declared: tuple[PartitionKey, ...], *, deflates: bool
    ) -> None:
        """deflates: the statistics wait in memory for those of many other files."""
        self._target = target
        self._deflates = deflates
        self._known = known
        self._declared = declared
        self._stats = target.current_schema.compute_once(_get_lake_stats)
        self._as_iceberg = DataFiles(target)

    def get(self, row: FileRow) -> tuple[PackedStats, tuple[str | None, ...] | None]:
        if self._known is not None:
            return self._known.stats[row.file_id], self._known.partition_values[row.file_id]
        values = (
            _find_partition_values(self._target, self._declared, row, self._as_iceberg.get(row))
            if self._declared
            else None
        )
        stats = PackedStats(self._stats.build_rows(parse_kept_metrics(row)))
        return stats.deflate() if self._deflates else stats, values


def _get_lake_stats(schema: Schema) -> LakeStats:
    return LakeStats(schema.leaves())


def build_inlined_rows(base: Base, target: TableMetadata, absorbed: Absorbed) -> tuple[InlinedRows, TableStats]:
    """Return the rows with the ids that they get, and the table-wide statistics with them."""
    records, next_row_id, size = base.stats or (0, 0, 0)
    files: list[InlinedFile] = []
    for file in absorbed.files:
        start = next_row_id if file.file.first_row_id is None else file.file.first_row_id
        files.append(InlinedFile(file.file.file_id, start, file.file.record_count, file.values))
        next_row_id = max(next_row_id, start + file.file.record_count)
        records += file.file.record_count
    next_row_id = _skip_branch_row_ids(target, next_row_id)
    columns = widen_table_stats(
        _get_existing(base),
        [absorbed_file.stats for absorbed_file in absorbed.files],
        target.current_schema.leaves(),
        maxsize,
    )
    return InlinedRows(absorbed.into, tuple(files)), TableStats(records, next_row_id, size, columns)


def replace_with_copies(files: Sequence[NewDataFile], copies: Sequence[LakeCopy]) -> tuple[NewDataFile, ...]:
    """Return the rows, with DuckLake's copies in the place of files that have one."""
    by_file = {copy.file_id: copy for copy in copies}
    if not by_file:
        return tuple(files)
    return tuple(
        file._replace(path=copy.path, path_is_relative=copy.path_is_relative, file_size_bytes=copy.file_size_bytes)
        if (copy := by_file.get(file.file_id))
        else file
        for file in files
    )


def build_change_set(
    base: Base, target: TableMetadata, increments: Sequence[Increment], creation: Creation | None = None
) -> ChangeSet:
    """Return the commit of `target` over `base` in these increments; the first one changes the definition, too."""
    return build_change_and_next_base(base, target, increments, creation)[0]


def build_change_and_next_base(
    base: Base, target: TableMetadata, increments: Sequence[Increment], creation: Creation | None = None
) -> tuple[ChangeSet, Base]:
    """Build the change, and the base of the next one in its transaction, without numbers that writing gives."""
    target = _limit_inlining(target)
    definition = _build_definition(base, target, increments)
    if not increments and (definition or creation or _has_row_ids_left(base, target)):
        increments = [Increment()]
    steps: list[LakeStep] = []
    state, new = base, {file.file_id for increment in increments for file in increment.side.files}
    for increment in increments:
        step, state = _build_step(state, target, increment, definition, new)
        steps.append(step if steps else replace(step, creation=creation))
        definition = DefinitionChange(columns_after=definition.columns_after)
    moved = [index for index, increment in enumerate(increments) if increment.move is not None]
    holds_files = base.holds_files or any(increments[index].move.registered for index in moved)  # type: ignore[union-attr]
    change = ChangeSet(
        table_id=base.table_id,
        base_version=base.version,
        caught_up_to=base.caught_up_to,
        steps=tuple(steps),
        target=build_target(base.metadata, target),
        main_step=moved[-1] if moved else None,
        row_ids=base.row_ids,
        options=_build_option_changes(base.metadata, target),
    )
    return change, replace(state, metadata=target, holds_files=holds_files, row_ids=())


def _build_option_changes(base: TableMetadata | None, target: TableMetadata) -> dict[str, str | None]:
    """Return the options of DuckLake that the properties change; None removes one."""
    before, after = {} if base is None else build_options(base.properties), build_options(target.properties)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return {name: after.get(name) for name in sorted(changed)}


def _limit_inlining(target: TableMetadata) -> TableMetadata:
    """Return the metadata, in which too wide a table has the option to inline no rows: DuckDB doesn't count columns."""
    is_wide = len(target.schema().fields) > MAX_INLINED_COLUMNS
    if not is_wide or target.properties.get(INLINED_ROWS) == "0":
        return target
    return target.replace_fields(properties={**target.properties, INLINED_ROWS: "0"})


def _has_row_ids_left(base: Base, target: TableMetadata) -> bool:
    """Return whether Iceberg has given row ids that DuckLake would give again."""
    return target.format_version >= ROW_LINEAGE_VERSION and (target.next_row_id or 0) > (base.stats or (0, 0, 0))[1]


def _build_definition(base: Base, target: TableMetadata, increments: Sequence[Increment]) -> DefinitionChange:
    if base.metadata is None:
        return definitions.build_creation(target, with_epochs=base.has_epoch_keys)
    outgrown = frozenset[int]()
    if base.narrow and base.has_new_values:
        moves, as_iceberg = (increment.move for increment in increments if increment.move), DataFiles(target)
        files = (as_iceberg.get(file) for move in moves for file in move.registered)
        outgrown = find_outgrown_columns(base.narrow, files, target.current_schema.leaves())
    declared = DeclaredDefinition(base.declared, base.narrow, outgrown, with_epochs=base.has_epoch_keys)
    return definitions.build_definition_change(base.metadata, target, declared, holds_files=base.holds_files)


def _build_step(
    base: Base, target: TableMetadata, increment: Increment, definition: DefinitionChange, new: AbstractSet[int]
) -> tuple[LakeStep, Base]:
    """Return the step of one increment, and the base of the next."""
    move = increment.move or MainUpdate()
    declared = base.declared if definition.partition_keys is None else definition.partition_keys
    definition, declared = undeclare_buckets(target, move.registered, definition, declared)
    data_files, stats = build_data_file_rows(base, target, move, declared)
    if base.stats is not None and (gone := find_returning_columns(base.metadata, target, base.column_stats)):
        stats = stats or TableStats(*base.stats, {})
        stats = replace(stats, columns={**stats.columns, **dict.fromkeys(gone)})
    data_files = replace_with_copies(data_files, move.copies)
    inlined = None
    if move.absorbed is not None:
        inlined, stats = build_inlined_rows(base, target, move.absorbed)
    step = LakeStep(
        ducklake_id=increment.ducklake_id,
        kinds=_collect_kinds(move, definition, is_new=base.metadata is None),
        definition=definition,
        ended_files=move.ended_files,
        ended_rows=move.ended_rows,
        data_files=data_files,
        delete_files=move.delete_files,
        inlined=inlined,
        stats=stats,
        divides_files=increment.redefines or _has_older_numbers(move, target, new),
        snapshots=tuple(
            to_snapshot_row(new.snapshot, new.manifest_ids, new.proposed_id) for new in increment.snapshots
        ),
        side=increment.side,
    )
    after = replace(base, metadata=target, declared=declared)
    if stats is None:
        return step, after
    columns = {key: row for key, row in {**base.column_stats, **stats.columns}.items() if row is not None}
    totals = (stats.record_count, stats.next_row_id, stats.file_size_bytes)
    return step, replace(after, stats=totals, column_stats=columns)


def _has_older_numbers(move: MainUpdate, target: TableMetadata, new: AbstractSet[int]) -> bool:
    """Return whether rows of its files may name older snapshots.

    In files that come back, or rewrite rows in version 3.
    """
    rewrites = target.format_version >= ROW_LINEAGE_VERSION and bool(move.ended_files or move.ended_rows)
    return bool(move.registered) and (rewrites or any(file.file_id not in new for file in move.registered))


def _collect_kinds(move: MainUpdate, definition: DefinitionChange, *, is_new: bool) -> tuple[str, ...]:
    """Return the words of `changes_made` (design §6.7), by which DuckDB detects conflicts.

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


def build_next_lake(base: Base, change: ChangeSet, metadata: TableMetadata, row: TableRow) -> Base | None:
    """Build the base of the next commit; None if the table's definition changed and must be read."""
    if any(step.definition for step in change.steps):
        return None
    stats, columns = base.stats, dict(base.column_stats)
    for written in (step.stats for step in change.steps if step.stats is not None):
        stats = (written.record_count, written.next_row_id, written.file_size_bytes)
        columns = {key: row for key, row in {**columns, **written.columns}.items() if row is not None}
    return replace(
        base,
        version=row.version,
        caught_up_to=row.caught_up_to,
        metadata=metadata,
        stats=stats,
        column_stats=columns,
    )
