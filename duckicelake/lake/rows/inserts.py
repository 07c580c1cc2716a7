"""Writes batches of rows as DuckDB does, those of many callers in one DuckLake snapshot (`ducklake-facts.md` §6).

Up to a limit rows go to a table in Postgres, else they come as files. Iceberg's side tables hear of them as they do of
what DuckDB wrote: when somebody next loads the table.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from psycopg import Cursor, sql

from duckicelake.errors import AlreadyApplied, CatalogError
from duckicelake.lake import native
from duckicelake.lake.additions import NewDataFile
from duckicelake.lake.audit import signed_by
from duckicelake.lake.idempotency import Repeated
from duckicelake.lake.model import ColumnStats, Extent
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.pipelines import send_off
from duckicelake.lake.rows import producers
from duckicelake.lake.rows.batches import Packed, RowBatch, WrittenRows
from duckicelake.lake.rows.gains import Gain, write_gains
from duckicelake.lake.rows.memory import Left, Memory, claim_next
from duckicelake.lake.rows.producers import Producer
from duckicelake.lake.rows.tables import Now, TableNow, ask
from duckicelake.lake.snapshots import ROWS_CHECKED, Counters, Wanted, claim, record_changes
from duckicelake.lake.writing import definition, files
from duckicelake.lake.writing.files import StaleBase


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
            self._claimed, last, asked = claim(cursor, wanted, partial(self._ask, batches))
            self._now, self._before = asked(), replace(wanted.before(self._claimed), time=last)
        else:
            self._claimed, self._now, self._before = wanted.after(left.snapshot)[1], left.now(), left.snapshot
        self._next_file_id = self._before.next_file_id
        self._new_sequences: dict[Producer, int] = {}
        self._admitted: set[int] = set()
        self._outcomes = [self._admit(batch) for batch in batches]

    def _ask(self, batches: Sequence[RowBatch]) -> Callable[[], Now]:
        """Pack the rows that are most likely written, while Postgres looks for the answer."""
        asked = ask(self._cursor, batches)
        send_off(self._cursor)
        if not self._foreseen:
            for table_id, group in _by_table(each for each in batches if not each.files).items():
                alike = [each for each in group if each.target is group[0].target]
                self._foreseen[table_id] = alike, _packed(alike)
        return asked

    def write(self) -> list[WrittenRows | StaleBase | CatalogError | Repeated]:
        """Say what becomes of each, and write all but the rows; the reason is raised if none can be written."""
        admitted = [each for each in self._outcomes if isinstance(each, RowBatch)]
        if not admitted:
            raise next(each for each in self._outcomes if not isinstance(each, RowBatch))
        self._by_table = _by_table(admitted)
        written = {id(batch): rows for batches in self._by_table.values() for batch, rows in self._placed(batches)}
        producers.note(self._cursor, self._new_sequences, self._claimed.snapshot_id)
        self._sign(admitted)
        return [written[id(each)] if isinstance(each, RowBatch) else each for each in self._outcomes]

    def finish(self) -> None:
        """Write the rows, which are packed while Postgres does what came before."""
        send_off(self._cursor)
        self._gains = [self._write_table(batches) for batches in self._by_table.values()]
        send_off(self._cursor)
        write_gains(self._cursor, self._gains)

    def _sign(self, batches: Sequence[RowBatch]) -> None:
        """Record what the snapshot has changed, and by whom."""
        at, signature = self._claimed.snapshot_id, signed_by([batch.origin for batch in batches])
        author, message = signature.author, signature.message
        tokens = _tokens(self._by_table)
        record_changes(self._cursor, at, tokens, author=author, message=message, extra_info=ROWS_CHECKED)

    def committed(self) -> None:
        """Have it remembered what is known of the lake now."""
        row = self._claiming.fetchone() if self._claiming is not None else None
        snapshot = self._claimed if row is None else Counters(*row[:5])
        tables = {gain.state.table_id: gain.after for gain in self._gains}
        self._memory.put(self._before, Left(snapshot, tables, self._now.sequences))

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

    def _placed(self, batches: Sequence[RowBatch]) -> list[tuple[RowBatch, WrittenRows]]:
        """In the order of the batches, but inlined rows before files, so that their row ids follow each other."""
        row_id, placed = self._now.tables[batches[0].table_id].sizes[1], []
        for batch in sorted(batches, key=lambda batch: bool(batch.files)):
            placed.append((batch, WrittenRows(self._claimed.snapshot_id, row_id, batch.count)))
            row_id += batch.count
        return placed

    def _write_table(self, batches: Sequence[RowBatch]) -> Gain:
        state, inlined = self._now.tables[batches[0].table_id], [batch for batch in batches if not batch.files]
        packed = self._packed(inlined) if inlined else None
        if packed is not None:
            self._insert(state, inlined[0], packed)
        for batch, placed in self._placed(batches):
            numbered = _numbered(batch, placed.first_row_id)
            self._next_file_id = files.insert_lake_files(
                self._cursor, batch.table_id, numbered, self._next_file_id, self._claimed.snapshot_id
            )
        return Gain(state, batches, _stats(batches, packed))

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


def _by_table(batches: Iterable[RowBatch]) -> dict[int, list[RowBatch]]:
    found: defaultdict[int, list[RowBatch]] = defaultdict(list)
    for batch in batches:
        found[batch.table_id].append(batch)
    return found


def _packed(batches: Sequence[RowBatch]) -> Packed:
    return batches[0].pack([batch.rows for batch in batches])


def _stats(batches: Sequence[RowBatch], packed: Packed | None) -> list[Sequence[ColumnStats | Extent]]:
    inlined = [] if packed is None else [packed.extents]
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
