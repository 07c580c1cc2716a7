"""Writes batches of rows as DuckDB does, those of many callers in one DuckLake snapshot (`ducklake-facts.md` §6).

Up to a limit rows go to a table in Postgres, else they come as files. Iceberg's side tables hear of them as they do of
what DuckDB wrote: when somebody next loads the table.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

from psycopg import Cursor, sql

from duckicelake.errors import AlreadyApplied, CatalogError
from duckicelake.lake import native
from duckicelake.lake.additions import NewDataFile
from duckicelake.lake.audit import signed_by
from duckicelake.lake.changes import TableStats
from duckicelake.lake.idempotency import Repeated
from duckicelake.lake.model import ColumnStats
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.documents import document
from duckicelake.lake.postgres.pipelines import send_off
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.rows import producers
from duckicelake.lake.rows.batches import Packed, RowBatch, WrittenRows
from duckicelake.lake.rows.memory import Left, Memory, claim_next
from duckicelake.lake.rows.producers import Producer
from duckicelake.lake.rows.tables import Now, TableNow, ask
from duckicelake.lake.snapshots import ROWS_CHECKED, Counters, Wanted, claim, record_changes
from duckicelake.lake.writing import definition, files
from duckicelake.lake.writing.files import StaleBase

_SQL = queries("rows")


class Group:
    """Batches for one or many tables that get one snapshot. `lock` is held, and the connection best in a pipeline."""

    def __init__(self, cursor: Cursor[Row], batches: Sequence[RowBatch], memory: Memory) -> None:
        """Take the snapshot id, and check that every batch holds for what its table is now.

        memory: of how the last group has left the lake; if it serves, nothing is waited for before COMMIT.
        """
        self._cursor = cursor
        self._memory = memory
        file_ids = max(1, sum(len(batch.files) for batch in batches))
        wanted = Wanted(schema_change=any(batch.makes_table for batch in batches), file_ids=file_ids)
        self._foreseen: dict[int, tuple[list[RowBatch], Packed]] = {}
        left = memory.take(batches)
        self._claiming = None if left is None else claim_next(cursor, wanted, left, batches)
        if left is None:
            self._claimed, asked = claim(cursor, wanted, partial(self._ask, batches))
            self._now = asked()
        else:
            self._pack(batches)
            self._claimed, self._now = wanted.after(left.snapshot)[1], left.now()
        self._before = wanted.before(self._claimed)
        self._next_file_id = self._before.next_file_id
        self._new_sequences: dict[Producer, int] = {}
        self._admitted: set[int] = set()
        self._outcomes = [self._admit(batch) for batch in batches]

    def _ask(self, batches: Sequence[RowBatch]) -> Callable[[], Now]:
        asked = ask(self._cursor, batches)
        self._pack(batches)
        return asked

    def _pack(self, batches: Sequence[RowBatch]) -> None:
        """Pack the rows that are most likely written, while Postgres begins."""
        send_off(self._cursor)
        if not self._foreseen:
            for table_id, group in _by_table(each for each in batches if not each.files).items():
                alike = [each for each in group if each.target is group[0].target]
                self._foreseen[table_id] = alike, _packed(alike)

    def write(self) -> list[WrittenRows | StaleBase | CatalogError | Repeated]:
        """Write them; in the place of one that can't be written is why. The reason is raised if none can."""
        admitted = [each for each in self._outcomes if isinstance(each, RowBatch)]
        if not admitted:
            raise next(each for each in self._outcomes if not isinstance(each, RowBatch))
        by_table = _by_table(admitted)
        written: dict[int, WrittenRows] = {}
        self._gains = []
        for table_id, group in by_table.items():
            inlined = [batch for batch in group if not batch.files]
            packed = self._packed(inlined) if inlined else None
            self._gains.append(_Gain(self._now.tables[table_id], group, _stats(group, packed)))
            written.update((id(batch), rows) for batch, rows in self._write_table(group, packed))
        _write_stats(self._cursor, self._gains)
        producers.note(self._cursor, self._new_sequences, self._claimed.snapshot_id)
        self._sign(admitted)
        send_off(self._cursor)
        return [written[id(each)] if isinstance(each, RowBatch) else each for each in self._outcomes]

    def _sign(self, batches: Sequence[RowBatch]) -> None:
        """Record what the snapshot has changed, and by whom."""
        at, signature = self._claimed.snapshot_id, signed_by([batch.origin for batch in batches])
        author, message = signature.author, signature.message
        tokens = _tokens(_by_table(batches))
        record_changes(self._cursor, at, tokens, author=author, message=message, extra_info=ROWS_CHECKED)

    def committed(self) -> None:
        """Have it remembered what is known of the lake now."""
        row = self._claiming.fetchone() if self._claiming is not None else None
        snapshot = self._claimed if row is None else Counters(*row[:5])
        tables = {gain.state.table_id: gain.state.after(gain.rows, gain.size, gain.widened) for gain in self._gains}
        self._memory.put(self._before.snapshot_id, Left(snapshot, tables, self._now.sequences))

    def _admit(self, batch: RowBatch) -> RowBatch | StaleBase | CatalogError | Repeated:
        if batch.key in self._now.keys:
            return Repeated()
        problem = self._now.tables[batch.table_id].problem(batch, self._before) or self._touched(batch)
        if problem is not None:
            return StaleBase(problem)
        if batch.producer is not None:
            known = self._now.sequences.get(batch.producer)
            if known is not None and batch.sequence <= known:
                return _applied(batch, known)
            self._now.sequences[batch.producer] = self._new_sequences[batch.producer] = batch.sequence
        if batch.key is not None:
            self._now.keys.add(batch.key)
        self._admitted.add(batch.table_id)
        return batch

    def _touched(self, batch: RowBatch) -> str | None:
        """That others were faster, where a batch holds only for a table that nobody touches."""
        after, upto = batch.untouched_since, self._before.snapshot_id
        if after is None:
            return None
        if batch.table_id in self._admitted or native.changes(self._cursor, batch.table_id, after, upto):
            return f"table {batch.table_id} was touched after DuckLake snapshot {after}"
        return None

    def _packed(self, batches: list[RowBatch]) -> Packed:
        foreseen, packed = self._foreseen.get(batches[0].table_id, ([], None))
        return packed if packed is not None and list(map(id, foreseen)) == list(map(id, batches)) else _packed(batches)

    def _write_table(self, batches: Sequence[RowBatch], packed: Packed | None) -> list[tuple[RowBatch, WrittenRows]]:
        """In the order of the batches, but inlined rows before files, so that their row ids follow each other."""
        state, at = self._now.tables[batches[0].table_id], self._claimed.snapshot_id
        ordered = sorted(batches, key=lambda batch: bool(batch.files))
        if packed is not None:
            self._insert(state, ordered[0], packed)
        row_id, written = state.sizes[1], []
        for batch in ordered:
            written.append((batch, WrittenRows(at, row_id, batch.count)))
            if batch.files:
                self._next_file_id = files.insert_lake_files(
                    self._cursor, batch.table_id, _numbered(batch, row_id), self._next_file_id, at
                )
            row_id += batch.count
        return written

    def _insert(self, state: TableNow, first: RowBatch, packed: Packed) -> None:
        target = first.target
        assert target.inlined is not None
        if first.makes_table:
            columns, version = target.definition.columns, target.inlined.version
            definition.make_inlined_table(self._cursor, first.table_id, columns, version)
        arrays = [f"{{{values}}}" for values in packed.columns]
        query = insert_into(target.inlined.name, target.inlined.types)
        self._cursor.execute(query, [state.sizes[1] - 1, self._claimed.snapshot_id, *arrays])


@lru_cache(maxsize=1024)
def insert_into(name: str, types: Sequence[str]) -> str:
    """A statement that takes the row id before the first one, the snapshot and an array for each column."""
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


def _numbered(batch: RowBatch, row_id: int) -> list[NewDataFile]:
    """The batch's files with the row ids that theirs begin with."""
    numbered = []
    for file in batch.files:
        numbered.append(file._replace(row_id_start=row_id))
        row_id += file.record_count
    return numbered


@dataclass(frozen=True)
class _Gain:
    """What a table gets. stats: exact ones of each part of the rows."""

    state: TableNow
    batches: Sequence[RowBatch]
    stats: Sequence[Sequence[ColumnStats]]

    @property
    def rows(self) -> int:
        return sum(batch.count for batch in self.batches)

    @property
    def size(self) -> int:
        return sum(file.file_size_bytes for batch in self.batches for file in batch.files)

    @cached_property
    def widened(self) -> dict[int, ColumnStats | None]:
        """The table's statistics then."""
        return self.batches[0].widen(self.state.stats, self.stats)


def _write_stats(cursor: Cursor[Row], gains: Sequence[_Gain]) -> None:
    for gain in gains:
        if not gain.state.has_rows:
            stats = TableStats(gain.rows, gain.rows, gain.size, gain.widened)
            files.write_stats(cursor, gain.state.table_id, stats)
    known = [gain for gain in gains if gain.state.has_rows]
    if not known:
        return
    wider, unknown = _changed(known)
    tables = [{"table_id": each.state.table_id, "count": each.rows, "size": each.size} for each in known]
    parameters = {"tables": document(tables), "columns": document(wider)}
    cursor.execute(_SQL.count_rows, parameters)
    if unknown:
        table_ids, column_ids = zip(*unknown, strict=True)
        cursor.execute(_SQL.forget_columns, {"table_ids": list(table_ids), "column_ids": list(column_ids)})


def _changed(gains: Sequence[_Gain]) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    """(the column statistics that have become wider, tables and columns of which none are known any more)."""
    wider: list[dict[str, Any]] = []
    unknown: list[tuple[int, int]] = []
    for gain in gains:
        state = gain.state
        assert state.stats is not None
        for column, row in gain.widened.items():
            if row is None:
                unknown.append((state.table_id, column))
            elif row is not state.stats[column]:
                wider.append({"table_id": state.table_id, "column_id": column, **_values(row)})
    return wider, unknown


def _values(row: ColumnStats) -> dict[str, bool | str | None]:
    return {
        "contains_null": row.contains_null,
        "contains_nan": row.contains_nan,
        "min_value": row.min_value,
        "max_value": row.max_value,
    }


def _by_table(batches: Iterable[RowBatch]) -> dict[int, list[RowBatch]]:
    found: defaultdict[int, list[RowBatch]] = defaultdict(list)
    for batch in batches:
        found[batch.table_id].append(batch)
    return found


def _packed(batches: Sequence[RowBatch]) -> Packed:
    return batches[0].pack([batch.rows for batch in batches])


def _stats(batches: Sequence[RowBatch], packed: Packed | None) -> list[Sequence[ColumnStats]]:
    inlined = [] if packed is None else [packed.stats]
    return [*inlined, *(file.stats for batch in batches for file in batch.files)]


def _tokens(by_table: Mapping[int, Sequence[RowBatch]]) -> list[str]:
    return [
        f"{kind}:{table_id}"
        for table_id, batches in by_table.items()
        for kind in dict.fromkeys("inserted_into_table" if batch.files else "inlined_insert" for batch in batches)
    ]


def _applied(batch: RowBatch, known: int) -> AlreadyApplied:
    assert batch.producer is not None
    return AlreadyApplied(
        f"The last batch of {batch.producer.app_id} for this table has sequence {known}, so one with sequence "
        f"{batch.sequence} is taken to be applied: send those above {known}"
    )
