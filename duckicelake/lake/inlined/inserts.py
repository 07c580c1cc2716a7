"""Insert the batches of many callers in one DuckLake snapshot, as DuckDB does (`ducklake-facts.md` §6)."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial

from psycopg import Cursor, sql

from duckicelake.errors import CatalogError, TxnAlreadyAppliedError
from duckicelake.lake.additions import InlinedFile, InlinedRows, NewDataFile, NewVirtualFile
from duckicelake.lake.conflicts import RepeatedRequestError, StaleBaseError
from duckicelake.lake.ducklake import data_files, definition, native
from duckicelake.lake.ducklake.snapshots import (
    ROWS_CHECKED_JSON,
    SnapshotClaim,
    SnapshotCounters,
    claim_snapshot,
    record_changes,
)
from duckicelake.lake.inlined.batches import PackedRows, RowBatch, WrittenRows
from duckicelake.lake.inlined.last_commit import CommittedState, LastCommit, claim_next_snapshot
from duckicelake.lake.inlined.targets import LockedState, LockedTable, TableGain, query_locked_state, write_gains
from duckicelake.lake.model import ColumnStats, Extent, InlinedKey
from duckicelake.lake.side_tables import idempotency
from duckicelake.lake.side_tables.audit import build_signature
from duckicelake.lake.txn import TxnApp
from duckicelake.postgres.pipeline import execute_writes, flush_pipeline
from duckicelake.postgres.queries import Row


class RowsGroup:
    """Batches for one or many tables that get one snapshot, under `lock_writers`, best in a pipeline."""

    def __init__(self, cursor: Cursor[Row], batches: Sequence[RowBatch], last: LastCommit) -> None:
        """Take the snapshot id, and check that every batch holds for its table as it is now.

        last: this process's last commit; if its state serves, no wait comes before COMMIT.
        """
        self._cursor = cursor
        self._last = last
        file_ids = max(1, sum(len(batch.files) for batch in batches))
        wanted = SnapshotClaim(schema_change=any(batch.has_new_table for batch in batches), file_ids=file_ids)
        self._prepacked: dict[int, tuple[list[RowBatch], PackedRows]] = {}
        left = last.take_for_rows(batches)
        self._claiming = None if left is None else claim_next_snapshot(cursor, wanted, left, batches)
        if left is None:
            self._claimed, self._before, asked = claim_snapshot(cursor, wanted, partial(self._ask, batches))
            self._now = asked()
        else:
            self._claimed, self._now, self._before = wanted.apply_to(left.snapshot)[1], left.now(), left.snapshot
        self._next_file_id = self._before.next_file_id
        self._new_txn_versions: dict[TxnApp, int] = {}
        self._admitted: set[int] = set()
        self._outcomes = [self._admit(batch) for batch in batches]

    def _ask(self, batches: Sequence[RowBatch]) -> Callable[[], LockedState]:
        """Ask for the tables' state, and pack the rows that are most likely written while Postgres answers."""
        asked = query_locked_state(self._cursor, batches)
        flush_pipeline(self._cursor)
        if not self._prepacked:
            for table_id, group in _group_by_table(batch for batch in batches if not batch.files).items():
                alike = [batch for batch in group if batch.target is group[0].target]
                self._prepacked[table_id] = alike, _pack_batches(alike)
        return asked

    def write(self) -> list[WrittenRows | StaleBaseError | CatalogError | RepeatedRequestError]:
        """Write all but the rows; return the outcome of each batch. Raises the reason if none can be written."""
        admitted = [outcome for outcome in self._outcomes if isinstance(outcome, RowBatch)]
        if not admitted:
            raise next(outcome for outcome in self._outcomes if not isinstance(outcome, RowBatch))
        self._by_table = _group_by_table(admitted)
        written = {
            id(batch): rows for batches in self._by_table.values() for batch, rows in self._place_batches(batches)
        }
        idempotency.record_txns(self._cursor, self._new_txn_versions, self._claimed.snapshot_id)
        self._sign(admitted)
        return [written[id(outcome)] if isinstance(outcome, RowBatch) else outcome for outcome in self._outcomes]

    def finish(self) -> None:
        """Write the rows, packed while Postgres runs the earlier statements."""
        flush_pipeline(self._cursor)
        self._gains = [self._write_table(batches) for batches in self._by_table.values()]
        flush_pipeline(self._cursor)
        write_gains(self._cursor, self._gains)

    def _sign(self, batches: Sequence[RowBatch]) -> None:
        """Record what the snapshot has changed, and who changed it."""
        at, signature = self._claimed.snapshot_id, build_signature([batch.origin for batch in batches])
        author, message = signature.author, signature.message
        tokens = _build_change_tokens(self._by_table)
        record_changes(self._cursor, at, tokens, author=author, message=message, extra_info=ROWS_CHECKED_JSON)

    def remember_snapshot(self) -> None:
        """Remember the state of the lake after this group."""
        row = self._claiming.fetchone() if self._claiming is not None else None
        snapshot = self._claimed if row is None else SnapshotCounters(*row[:5])
        tables = {gain.state.table_id: gain.after for gain in self._gains}
        self._last.put(self._before, CommittedState(snapshot, tables, self._now.txn_versions), tables)

    def _admit(self, batch: RowBatch) -> RowBatch | StaleBaseError | CatalogError | RepeatedRequestError:
        if batch.key in self._now.keys:
            return RepeatedRequestError()
        problem = self._now.tables[batch.table_id].find_problem(batch, self._before) or self._find_touch(batch)
        if problem is not None:
            return StaleBaseError(problem)
        if batch.txn is not None:
            app = batch.txn.get_app(batch.table_id)
            latest = self._now.txn_versions.get(app)
            if latest is not None and batch.txn.version <= latest:
                return TxnAlreadyAppliedError(batch.txn.describe_applied(latest))
            self._now.txn_versions[app] = self._new_txn_versions[app] = batch.txn.version
        if batch.key is not None:
            self._now.keys.add(batch.key)
        self._admitted.add(batch.table_id)
        return batch

    def _find_touch(self, batch: RowBatch) -> str | None:
        """Return how another writer touched the table of a batch that must be the only writer, if so."""
        after, upto = batch.untouched_since, self._before.snapshot_id
        if after is None:
            return None
        if batch.table_id in self._admitted or native.read_changes(self._cursor, batch.table_id, after, upto):
            return f"table {batch.table_id} was touched after DuckLake snapshot {after}"
        return None

    def _get_packed(self, batches: list[RowBatch]) -> PackedRows:
        expected, packed = self._prepacked.get(batches[0].table_id, ([], None))
        return (
            packed
            if packed is not None and list(map(id, expected)) == list(map(id, batches))
            else _pack_batches(batches)
        )

    def _place_batches(self, batches: Sequence[RowBatch]) -> list[tuple[RowBatch, WrittenRows]]:
        """Give row ids to the batches, inlined rows before files, so that their row ids are contiguous."""
        row_id, placed = self._now.tables[batches[0].table_id].sizes[1], []
        for batch in sorted(batches, key=lambda batch: bool(batch.files)):
            placed.append((batch, WrittenRows(self._claimed.snapshot_id, row_id, batch.count)))
            row_id += batch.count
        return placed

    def _write_table(self, batches: Sequence[RowBatch]) -> TableGain:
        state, inlined = self._now.tables[batches[0].table_id], [batch for batch in batches if not batch.files]
        packed = self._get_packed(inlined) if inlined else None
        if packed is not None:
            self._insert(state, inlined[0], packed)
        for batch, placed in self._place_batches(batches):
            numbered = _number_files(batch, placed.first_row_id)
            writes = data_files.build_data_files(
                batch.table_id, numbered, self._next_file_id, self._claimed.snapshot_id
            )
            execute_writes(self._cursor, writes)
            self._next_file_id += len(numbered)
        return TableGain(state, batches, _collect_stats(batches, packed))

    def _insert(self, state: LockedTable, first: RowBatch, packed: PackedRows) -> None:
        target = first.target
        assert target.inlined is not None
        if first.has_new_table:
            columns, version = target.definition.columns, target.inlined.version
            definition.make_inlined_table(self._cursor, first.table_id, columns, version)
        arrays = [f"{{{values}}}" for values in packed.columns]
        query = build_insert(target.inlined.name, target.inlined.types)
        self._cursor.execute(query, [state.sizes[1] - 1, self._claimed.snapshot_id, *arrays])


@lru_cache(maxsize=1024)
def build_insert(name: str, types: Sequence[str]) -> str:
    """Build a statement that takes the row id before the first one, the snapshot, and an array for each column."""
    values = sql.SQL(", ").join(sql.SQL(f"%s::{type_}[]") for type_ in types)
    columns = sql.SQL(", ").join(sql.Identifier(f"c{number}") for number in range(len(types)))
    return (
        sql.SQL(
            "INSERT INTO {} SELECT %s::bigint + v.ordinal, %s::bigint, NULL, {} "
            "FROM unnest({}) WITH ORDINALITY AS v ({}, ordinal)"
        )
        .format(sql.Identifier(name), columns, values, columns)
        .as_string(None)
    )


def _number_files(batch: RowBatch, row_id: int) -> list[NewDataFile]:
    """Return the batch's files with their first row ids."""
    numbered = []
    for file in batch.files:
        numbered.append(file._replace(row_id_start=row_id))
        row_id += file.record_count
    return numbered


def _group_by_table(batches: Iterable[RowBatch]) -> dict[int, list[RowBatch]]:
    found: defaultdict[int, list[RowBatch]] = defaultdict(list)
    for batch in batches:
        found[batch.table_id].append(batch)
    return found


def _pack_batches(batches: Sequence[RowBatch]) -> PackedRows:
    return batches[0].pack([batch.rows for batch in batches])


def _collect_stats(batches: Sequence[RowBatch], packed: PackedRows | None) -> list[Sequence[ColumnStats | Extent]]:
    inlined = [] if packed is None else [packed.extents]
    return [*inlined, *(file.stats for batch in batches for file in batch.files)]


def _build_change_tokens(by_table: Mapping[int, Sequence[RowBatch]]) -> list[str]:
    return [
        f"{kind}:{table_id}"
        for table_id, batches in by_table.items()
        for kind in dict.fromkeys("inserted_into_table" if batch.files else "inlined_insert" for batch in batches)
    ]


def insert_absorbed_rows(cursor: Cursor[Row], table_id: int, rows: InlinedRows, at: int) -> Sequence[NewVirtualFile]:
    """Insert a step's inlined rows in this snapshot; return which of them each of its files serves."""
    into = rows.into
    if into.version is not None:
        definition.make_inlined_table(cursor, table_id, into.columns, into.version)
    for file in rows.files:
        arrays = [f"{{{values}}}" for values in file.values]
        cursor.execute(build_insert(into.name, into.types), [file.first_row_id - 1, at, *arrays])
    return [NewVirtualFile(file.file_id, _build_keys(rows.into.name, file, at)) for file in rows.files]


def _build_keys(name: str, file: InlinedFile, at: int) -> tuple[InlinedKey, ...]:
    return tuple(InlinedKey(name, at, file.first_row_id + position) for position in range(file.record_count))
