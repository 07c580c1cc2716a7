"""PURE. From (base, target, the new snapshots and moves of main between them) to a ChangeSet: the commit as rows."""

from collections.abc import Sequence
from dataclasses import replace

from duckicelake.bridge import definitions
from duckicelake.bridge.definitions import Declared
from duckicelake.bridge.increments import Base, Increment, Move
from duckicelake.bridge.joining import DataFiles, data_file_rows, inlined_rows, undeclare_buckets, with_copies
from duckicelake.bridge.narrow import outgrown
from duckicelake.bridge.project import snapshot_row, target_of
from duckicelake.bridge.returning import returning
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.lake.additions import NewFile
from duckicelake.lake.changes import ChangeSet, Creation, DefinitionChange, LakeStep, TableStats


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
    as_iceberg = DataFiles(target)
    files = (as_iceberg.of(file) for move in moves for file in move.registered) if base.narrow else ()
    declared = Declared(base.declared, base.narrow, outgrown(base.narrow, files, target.schema().leaves()))
    return definitions.change(base.metadata, target, declared, holds_files=base.holds_files)


def _step(
    base: Base, target: TableMetadata, increment: Increment, definition: DefinitionChange
) -> tuple[LakeStep, Base]:
    """The step of one increment, and the base of the next."""
    move = increment.move or Move()
    declared = base.declared if definition.partition_keys is None else definition.partition_keys
    definition, declared = undeclare_buckets(target, move.registered, definition, declared)
    data_files, stats = data_file_rows(base, target, move, declared)
    if base.stats is not None and (gone := returning(base.metadata, target, base.column_stats)):
        stats = stats or TableStats(*base.stats, {})
        stats = replace(stats, columns={**stats.columns, **dict.fromkeys(gone)})
    data_files = with_copies(data_files, move.copies)
    inlined = None
    if move.absorbed is not None:
        inlined, stats = inlined_rows(base, target, move.absorbed)
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
