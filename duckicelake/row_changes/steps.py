"""Find the snapshots that changed rows of a table, and the columns that it had at each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from duckicelake.bridge.values.columns import to_schema
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.time_travel import resolve_snapshot
from duckicelake.errors import (
    ConflictError,
    ExpiredError,
    InvalidRequestError,
    NoSuchTableError,
    NotFoundError,
    UnsupportedError,
)
from duckicelake.iceberg.schema import Schema
from duckicelake.lake.ducklake import native
from duckicelake.lake.model import ADDITION_KINDS, REMOVAL_KINDS, Column, LakeChange
from duckicelake.postgres.queries import Transaction, load_queries
from duckicelake.query.queries import find_main_number, parse_moment
from duckicelake.row_changes.position import RowChangePosition, find_position
from duckicelake.row_changes.statements import ROW_ID, SNAPSHOT

_SQL = load_queries("row_changes", "steps")
_MERGES: Final = frozenset({"merge_adjacent", "compacted_table"})
_MAX_RUN: Final = 500
"""Snapshots that one query reads: a run of such as only added rows."""


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """A range of a table's history.

    begin: behind which it begins. upto: the last snapshot of it. newest: that of the lake.
    """

    begin: RowChangePosition
    upto: int
    newest: int


@dataclass(frozen=True, slots=True)
class StepSnapshots:
    """Snapshots with the same columns of the table that one query can read.

    is_rearranged: files left the table, or came back to it.
    """

    snapshots: Sequence[int]
    has_additions: bool
    has_removals: bool
    is_rearranged: bool = False


@dataclass(frozen=True, slots=True)
class TableAtSnapshot:
    """The name and the columns of a table at a snapshot."""

    schema_name: str
    name: str
    columns: Sequence[Column]
    schema: Schema


@dataclass(slots=True)
class ChangeHistory:
    """The history of one table, in one transaction. table: as Iceberg's clients see it."""

    services: Services
    cursor: Transaction
    table: TableVersion
    full_name: str
    uuid: str
    created_at: int

    @classmethod
    def find(cls, services: Services, cursor: Transaction, table: TableVersion, full_name: str) -> "ChangeHistory":
        """Find a table's history. Raises NoSuchTableError for one that has just been dropped."""
        row = cursor.execute(_SQL.table, {"table_id": table.row.table_id}).fetchone()
        if row is None:
            raise NoSuchTableError(f"Table does not exist: {full_name}")
        return cls(services, cursor, table, full_name, str(row[0]), int(row[1]))

    def find_range(self, since: str | None, until: str | None) -> ChangeRange:
        """Find a range that requests name: by positions, DuckLake's numbers, Iceberg's ids, times, branches or tags.

        since: None for the table's beginning. until: None for the newest snapshot.

        Raises InvalidRequestError, NotFoundError, ExpiredError.
        """
        newest = native.read_newest_snapshot(self.cursor)
        begin = RowChangePosition(self.created_at - 1) if since is None else self._find_begin(since, newest)
        upto = newest if until is None else self._find_number(until, newest)
        if begin.snapshot_id > newest:
            raise InvalidRequestError(f"The lake has no snapshot {begin.snapshot_id} yet: its newest is {newest}")
        if begin.snapshot_id > upto:
            raise InvalidRequestError(
                f"from={since} comes after to={until}: changes are listed from the older snapshot to the newer one"
            )
        self._check_kept(begin.complete_id, upto)
        return ChangeRange(begin, upto, newest)

    def list_steps(self, found: ChangeRange) -> Iterator[StepSnapshots]:
        """List the snapshots of a range that changed rows, oldest first; those that only added rows together."""
        after = max(found.begin.complete_id, self.created_at - 1)
        run: list[int] = []
        parameters = {"table_id": self.table.row.table_id, "after": after, "upto": found.upto}
        rearranged = {row[0] for row in self.cursor.execute(_SQL.rearranged, parameters).fetchall()} - {self.created_at}
        for change in native.read_changes(self.cursor, self.table.row.table_id, after, found.upto):
            is_addition = change.snapshot_id not in rearranged and bool(change.kinds) and change.only_adds
            if run and (not is_addition or len(run) == _MAX_RUN):
                yield StepSnapshots(tuple(run), has_additions=True, has_removals=False)
                run = []
            if is_addition:
                run.append(change.snapshot_id)
            elif change.kinds & (ADDITION_KINDS | REMOVAL_KINDS):
                yield _build_step(change, is_rearranged=change.snapshot_id in rearranged)
        if run:
            yield StepSnapshots(tuple(run), has_additions=True, has_removals=False)

    def find_table(self, snapshot_id: int) -> TableAtSnapshot:
        """Find the table at a snapshot. Raises UnsupportedError for columns that hide DuckLake's own."""
        definition = native.read_definition(self.cursor, self.table.row.table_id, snapshot_id)
        if definition is None:
            raise NotFoundError(f"Table {self.full_name} did not exist at snapshot {snapshot_id}")
        schema = to_schema(definition.columns, 0)
        hidden = next((one.name for one in schema.fields if one.name.lower() in {ROW_ID, SNAPSHOT}), None)
        if hidden is not None:
            raise UnsupportedError(
                "queries", f"Column {hidden} of {self.full_name} has the name of one that DuckDB's changes have"
            )
        return TableAtSnapshot(definition.schema_name, definition.table_name, definition.columns, schema)

    def _find_begin(self, text: str, newest: int) -> RowChangePosition:
        return find_position(text) or RowChangePosition(self._find_number(text, newest))

    def _find_number(self, text: str, newest: int) -> int:
        """Find DuckLake's number of what a text names."""
        moment = parse_moment(text)
        if isinstance(moment, int) and moment <= newest:
            return moment
        if isinstance(moment, datetime):
            row = self.cursor.execute(_SQL.at_time, {"time": moment}).fetchone()
            if row is None or row[0] is None:
                raise ExpiredError(f"DuckLake keeps no snapshot of {text} or before")
            return int(row[0])
        number = find_main_number(self.table, resolve_snapshot(self.services, self.table, text))
        if number is None:
            raise InvalidRequestError(f"{text} is of a branch: only changes of main are known")
        return number

    def _check_kept(self, after: int, upto: int) -> None:
        """Check that all snapshots of a range are there. Raises ExpiredError."""
        (oldest,) = self.cursor.execute(_SQL.oldest_kept, {"upto": upto}).fetchone() or (None,)
        needed = max(after, self.created_at)
        if oldest is None or needed < oldest:
            advice = "no older one is known" if oldest is None else f"the oldest from that is known is {oldest}"
            raise ExpiredError(f"Changes of {self.full_name} after snapshot {after} have expired: {advice}")


def check_order(cursor: Transaction, table_id: int, full_name: str, begin: RowChangePosition) -> None:
    """Check that a snapshot's changes have the order that they had when some of them were read.

    Merges by DuckDB 1.5.5 give other row ids to rows that updates wrote, and the order is that of row ids. Whoever
    calls this has let DuckDB begin to read, so that no merge comes between. Raises ConflictError.
    """
    newest = native.read_newest_snapshot(cursor)
    seen = begin.snapshot_id if begin.seen is None else begin.seen
    if seen < newest and any(one.kinds & _MERGES for one in native.read_changes(cursor, table_id, seen, newest)):
        raise ConflictError(
            f"DuckDB has merged files of {full_name} after snapshot {seen}, and the changes of snapshot "
            f"{begin.snapshot_id} may have another order now: read them from their beginning, "
            f"from={begin.snapshot_id - 1}"
        )


def _build_step(change: LakeChange, *, is_rearranged: bool) -> StepSnapshots:
    return StepSnapshots(
        (change.snapshot_id,),
        has_additions=bool(change.kinds & ADDITION_KINDS),
        has_removals=bool(change.kinds & REMOVAL_KINDS),
        is_rearranged=is_rearranged,
    )
