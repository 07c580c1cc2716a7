"""The commit rule of CHECK constraints: commits are checked by the metrics of their files, and no file is read."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from duckicelake.bridge.commit.increments import Increment
from duckicelake.catalog.commit.workspace import Workspace
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.hooks import CommitRule, RowCheck
from duckicelake.catalog.context.services import Services
from duckicelake.constraints.definition import (
    Constraint,
    copy_marks,
    parse_constraint,
    read_constraints,
    split_checkable,
)
from duckicelake.constraints.duckdb_check import check_row_constraints
from duckicelake.constraints.metrics_check import find_unproven
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake.state import FileRow
from duckicelake.properties import UNVERIFIED_HERE_KEY, add_unverified, read_constraint_texts


@dataclass(frozen=True, slots=True)
class _ConstrainedCommit:
    """A commit to a table, None if it is created, with its constraints before and after, by name."""

    services: Services
    table: TableVersion | None
    target: TableMetadata
    before: Mapping[str, str]
    after: Mapping[str, str]

    @property
    def new(self) -> list[str]:
        """The constraints that are new or changed."""
        return [name for name, text in self.after.items() if self.before.get(name) != text]


def check_constraints(
    services: Services, table: TableVersion | None, target: TableMetadata, increments: list[Increment]
) -> tuple[TableMetadata, list[Increment]]:
    """Check a commit, and mark the constraints that it leaves unverified.

    InvalidRequestError: the commit violates a constraint (the message names constraint, file and bound), or a new
    constraint and the schema don't fit.
    """
    before, after = (
        read_constraint_texts(table.metadata.properties) if table else {},
        read_constraint_texts(target.properties),
    )
    if not before and not after:
        return target, increments
    commit = _ConstrainedCommit(services, table, target, before, after)
    _check_definitions(commit)
    properties = copy_marks(target.properties, after.keys() - commit.new)
    steps, new_ids = [], {file.file_id for increment in increments for file in increment.side.files}
    for increment in increments:
        step, names = _judge_increment(commit, increment, new_ids)
        steps.append(step)
        if increment.move is not None and names:
            properties = add_unverified(properties, names, _find_snapshot_id(increment, target))
    properties = add_unverified(properties, _find_unproven_rows(commit, steps), target.current_snapshot_id or 0)
    if properties != target.properties:
        target = target.replace_fields(properties=properties)
    if table is None or before == after:
        return target, steps
    return target, [replace(steps[0], redefines=True), *steps[1:]] if steps else [Increment(redefines=True)]


def find_unverified_natively(metadata: TableMetadata, added: Sequence[FileRow]) -> list[str]:
    """Find the constraints that the metrics of DuckDB's files don't prove."""
    if not read_constraint_texts(metadata.properties):
        return []
    constraints, broken = split_checkable(metadata.properties, metadata.schema())
    data = [file for file in added if file.content == FileContent.DATA]
    return [*broken, *find_unproven(constraints, data, metadata.properties)] if data else []


def _check_definitions(commit: _ConstrainedCommit) -> None:
    """Check that new constraints can be checked, and that the schema has the columns of old ones; InvalidRequestError.

    Raises InvalidRequestError.
    """
    table, schema = commit.table, commit.target.schema()
    for name in commit.new:
        parse_constraint(name, commit.after[name], schema)
    if table is None or table.metadata.schema() is schema:
        return
    _, broken_before = split_checkable(table.metadata.properties, table.metadata.schema())
    _, broken = split_checkable(commit.target.properties, schema)
    for name, problem in broken.items():
        if name not in broken_before:
            raise InvalidRequestError(f"The table's columns can't become these: {problem}")


def _judge_increment(
    commit: _ConstrainedCommit, increment: Increment, new_ids: AbstractSet[int]
) -> tuple[Increment, list[str]]:
    """Add the names of unverified constraints to the summaries of the increment's snapshots."""
    move = increment.move
    snapshots = [snapshot.snapshot for snapshot in increment.snapshots]
    is_rewrite = move.rewrites if move is not None else any(snapshot.operation == "replace" for snapshot in snapshots)
    new = [file for file in increment.side.files if file.content == FileContent.DATA]
    back = [file for file in move.registered if file.file_id not in new_ids] if move is not None else []
    if move is not None and move.absorbed is not None:
        checked = {absorbed.file.file_id for absorbed in move.absorbed.files}
        new = [file for file in new if file.file_id not in checked]
    if is_rewrite or not (new or back):
        return increment, []
    names = find_unproven(
        _read_constraints(commit), (*new, *back), commit.target.properties, {file.file_id for file in new}
    )
    if not names:
        return increment, []
    marked = tuple(
        replace(snapshot, snapshot=_mark_snapshot(snapshot.snapshot, names)) for snapshot in increment.snapshots
    )
    return replace(increment, snapshots=marked), names


def _read_constraints(commit: _ConstrainedCommit) -> tuple[Constraint, ...]:
    return read_constraints(commit.target.properties, commit.target.schema())


def _mark_snapshot(snapshot: Snapshot, names: Sequence[str]) -> Snapshot:
    return snapshot.replace_fields(summary={**snapshot.summary, UNVERIFIED_HERE_KEY: ",".join(names)})


def _find_snapshot_id(increment: Increment, target: TableMetadata) -> int:
    snapshots = increment.snapshots
    return snapshots[-1].snapshot.snapshot_id if snapshots else target.current_snapshot_id or 0


def _find_unproven_rows(commit: _ConstrainedCommit, increments: Sequence[Increment]) -> list[str]:
    """Find new constraints that the metrics of existing rows don't prove.

    InvalidRequestError: the metrics refute one.
    """
    table = commit.table
    current = table.state.current() if table is not None else None
    if table is None or current is None or not commit.new:
        return []
    space = Workspace(commit.services, table.row.table_id, table.known)
    live = space.live(manifest for manifest in space.list_manifests(current.manifest_ids) if manifest.content == 0)
    ended = {
        file_id for increment in increments if increment.move is not None for file_id in increment.move.ended_files
    }
    files = space.files(live - ended)
    deleted = {row.data_file_id for row in space.deletions_of(files)} | space.read_inlined_deletes(
        files.values()
    ).keys()
    constraints = [constraint for constraint in _read_constraints(commit) if constraint.name in commit.new]
    return find_unproven(constraints, files.values(), commit.target.properties, files.keys() - deleted)


class ConstraintRule(CommitRule):
    """Rows make every CHECK constraint of their table TRUE, or the table says which are unverified."""

    feature = "constraints"

    def check_definition(self, target: TableMetadata, base: TableMetadata | None) -> None:
        """Raise InvalidRequestError if a new table has a constraint that can't be checked.

        `check_commit` checks other changes.
        """
        if base is None:
            read_constraints(target.properties, target.schema())

    def check_commit(
        self, services: Services, table: TableVersion | None, target: TableMetadata, increments: list[Increment]
    ) -> tuple[TableMetadata, list[Increment]]:
        """Check the commit by `check_constraints`."""
        return check_constraints(services, table, target, increments)

    def build_row_check(self, properties: Mapping[str, str], schema: Schema) -> RowCheck | None:
        """Build the check of rows by DuckDB. InvalidRequestError if a constraint can't be checked any more."""
        constraints = read_constraints(properties, schema)
        return partial(check_row_constraints, constraints) if constraints else None

    def find_unverified(self, metadata: TableMetadata, added: Sequence[FileRow]) -> list[str]:
        """Name the constraints that the metrics of the files don't prove."""
        return find_unverified_natively(metadata, added)


RULE: Final = ConstraintRule()
