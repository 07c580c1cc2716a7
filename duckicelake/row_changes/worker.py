"""Run in a process of its own: what a query's process does, and besides answer the changes of a table's snapshots.

All queries of an answer are one stream. Its end says where it ends, by which a reader knows an end from a cut, and goes
on behind it. Each query reads one state of the lake: what happens between two of them changes no older snapshot's rows.

Changes of more rows than an answer may have are paired and sorted twice, not for each answer: the second one keeps what
is left in a table of the process, and later ones read that. A query that waits for its reader would keep a transaction
of Postgres open instead.
"""

import json
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute

from duckicelake.query.protocol import (
    Answers,
    Commands,
    Message,
    ProgressReports,
    describe_error,
    hold_secrets,
    main,
)
from duckicelake.query.result_formats import JsonWriter
from duckicelake.query.worker import ERRORS, HANDLERS

_BATCH_ROWS: Final = 8_192
_REST: Final = "rest_of_changes"
Position = tuple[int, int, int]
"""Of the next row: its snapshot, how many rows of that were read, and its ordinal."""
_SNAPSHOT_PLACE: Final = 2
"""Of the column `_commit_snapshot_id`."""


class EndedArrowWriter:
    """Write batches as Arrow's stream; the last one is empty, and its metadata say where the answer ends.

    Each message is written whole or not at all, also where the memory for it is missing: the stream may end before it.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._head = bytes(schema.serialize())
        """What comes before the first batch."""

    def write(self, batch: pa.RecordBatch) -> bytes:
        """Write a batch. Raises MemoryError."""
        written = b"".join((self._head, batch.serialize()))
        self._head = b""
        return written

    def end_at(self, position: str, *, is_complete: bool) -> bytes:
        """Write what ends the stream."""
        stream = pa.BufferOutputStream()
        empty = pa.RecordBatch.from_pylist([], schema=self._schema)
        with pa.ipc.new_stream(stream, self._schema) as writer:
            writer.write_batch(empty, custom_metadata={"position": position, "is-complete": json.dumps(is_complete)})
        return self._head + bytes(stream.getvalue())[self._schema.serialize().size :]


class EndedJsonWriter(JsonWriter):
    """Write rows as lines of JSON; the last line says where the answer ends."""

    def end_at(self, position: str, *, is_complete: bool) -> bytes:
        """Write the last line."""
        return json.dumps({"_position": position, "_is_complete": is_complete}).encode() + b"\n"


_FORMATS: Final[Mapping[str, Any]] = {"arrow": EndedArrowWriter, "json": EndedJsonWriter}


@dataclass(slots=True)
class RestOfChanges:
    """The rows of a step that no answer has had yet, in a table of the process.

    Attributes:
        step: as it was when they were read.
        shown: the columns that the table has, by their numbers.
        position: of the next row.
        read: how many rows of the table answers have had.

    """

    step: Mapping[str, Any]
    shown: Sequence[int]
    position: Position
    read: int = 0

    def is_continued_by(self, step: Mapping[str, Any], shown: Sequence[int], position: Position) -> bool:
        """Return whether a step begins with these rows, and goes at least as far."""
        return (self.step["shape"], self.shown, self.position) == (step["shape"], shown, position) and (
            self.step["snapshots"][-1] <= step["snapshots"][-1]
        )


@dataclass(slots=True)
class ChangeReader:
    """Reads the changes of orders, one after another, and keeps what is left of the last step."""

    rest: RestOfChanges | None = None

    def answer(
        self, connection: duckdb.DuckDBPyConnection, message: Message, answers: Answers, commands: Commands
    ) -> Iterator[Message]:
        """Answer the changes of a table's snapshots, one after another."""
        order = json.loads(message[1])
        holding = {**order, "seconds": order["seconds"] + order["grace_seconds"]}
        with (
            ProgressReports(connection, answers) as progress,
            hold_secrets(connection, holding),
            commands.run(),
        ):
            answer = PiecewiseAnswer(connection, order, progress, self.rest)
            self.rest = None  # unless the answer comes to its end
            yield from answer.read()
            self.rest = answer.rest


@dataclass(slots=True)
class PiecewiseAnswer:
    """One answer, which is read step by step, and knows how far it is. rest: which it may begin with."""

    connection: duckdb.DuckDBPyConnection
    order: Mapping[str, Any]
    progress: ProgressReports
    rest: RestOfChanges | None = None
    _columns: list[tuple[int, str, str]] = field(init=False)
    _position: Position = field(init=False)
    _ends: float = field(init=False)

    def __post_init__(self) -> None:
        """Look up the types of the answer's columns."""
        self._ends = time.monotonic() + self.order["seconds"]
        described = self.connection.execute(f"DESCRIBE {self.order['target']}").fetchall()
        self._columns = [(at, *described[at][:2]) for at in self.order["shown"]]
        self._position = self._begin

    @property
    def _begin(self) -> Position:
        snapshot_id, rows, ordinal = self.order["position"]
        return snapshot_id, rows, ordinal

    def read(self) -> Iterator[Message]:
        """Yield the rows in pieces of the format, what ends them, and how many they were."""
        if not (self.order["has_rest"] and self.order["steps"]):
            self._drop_rest()  # the answer's end would say that it is of this reader, as new as this answer
        empty = ", ".join(f"NULL AS c{at}" for at, *_ in self._columns) or "1"
        none = f"(SELECT NULL AS t, NULL AS s, NULL AS r, {empty})"
        schema = self._run(f"{self._select({'snapshots': [], 'ordinal': 0})} FROM {none} LIMIT 0").schema
        writer = _FORMATS[self.order["format"]](schema)
        is_cut = is_broken = False
        try:
            is_cut = yield from self._read_steps(writer)
        except (duckdb.Error, OSError, MemoryError, *ERRORS) as error:
            if not self._can_end_at(error):
                raise
            is_cut = is_broken = True
        if not is_cut:
            self._reach(self.order["upto"], self._position[2])
        is_complete = self.order["is_last"] and not is_cut
        yield b"D", writer.end_at(self._write_position(), is_complete=is_complete)
        end = {"rows": self.progress.rows, "is_cut": not is_complete, "is_broken": is_broken}
        rest = None if self.rest is None else ".".join(map(str, self.rest.position))
        yield b"E", json.dumps({**end, "rest": rest}).encode()

    def _can_end_at(self, error: Exception) -> bool:
        """Return whether the answer may end where an error came: its reader goes on there, in another process.

        One that has been used before may know of tables of inlined rows that are gone.
        """
        is_cancelled = isinstance(error, BrokenPipeError) or describe_error(error)["kind"] == "InterruptException"
        return not is_cancelled and self._position != self._begin

    def _read_steps(self, writer: Any) -> Generator[Message, None, bool]:
        """Yield the rows of all steps; return whether some are left."""
        for number, step in enumerate(self.order["steps"]):
            if number > 0 and self._is_due():
                return True
            batches, read = self._open_step(step)
            if (yield from self._read_batches(batches, read, writer)):
                return True
            self._drop_rest()
            last = read["snapshots"][-1]
            self._reach(last, read["ordinal"] + len(read["snapshots"]))
            if last < step["snapshots"][-1]:  # the rest of an older step ends before
                return True
        return False

    def _write_position(self) -> str:
        """Write the position as `RowChangePosition` does, whose module this process would have to import."""
        seen = f".{self.order['seen']}" if self._position[1] > 0 else ""
        return f"{'.'.join(map(str, self._position))}{seen}"

    def _is_due(self) -> bool:
        """Return whether the answer must end, as it has taken its time or its rows."""
        return self.progress.rows >= int(self.order["rows"]) or time.monotonic() > self._ends

    def _reach(self, snapshot_id: int, ordinal: int) -> None:
        """Note that all of a snapshot has been read. ordinal: of the next one."""
        self._position = (snapshot_id, 0, ordinal)

    def _open_step(self, step: Mapping[str, Any]) -> tuple[pa.RecordBatchReader, Mapping[str, Any]]:
        """Begin to read a step; return its batches, and the step of which they are."""
        rest = self.rest
        if rest is not None and rest.is_continued_by(step, self.order["shown"], self._position):
            return self._run(f"{self._select(rest.step)} FROM {_REST} WHERE rowid >= {rest.read}"), rest.step
        self._drop_rest()
        ending = f"FROM ({step['sql']}) q ORDER BY {step['order']} OFFSET {step['skip']}"
        if step["skip"] > 0 and self._keep(ending):
            self.rest = RestOfChanges(step, self.order["shown"], self._position)
            return self._run(f"{self._select(step)} FROM {_REST}"), step
        return self._run(f"{self._select(step)} {ending}"), step

    def _drop_rest(self) -> None:
        self.rest = None
        self.connection.execute(f"DROP TABLE IF EXISTS {_REST}")

    def _keep(self, ending: str) -> bool:
        """Put rows into the table of the process; return whether they have room there."""
        columns = ", ".join(("t", "s", "r", *(f"c{at}" for at in self.order["shown"])))
        try:
            self.connection.execute(f"CREATE TEMP TABLE {_REST} AS SELECT {columns} {ending}")
        except duckdb.OutOfMemoryException:
            return False
        return True

    def _read_batches(
        self, batches: pa.RecordBatchReader, step: Mapping[str, Any], writer: Any
    ) -> Generator[Message, None, bool]:
        """Yield the rows of a step; return whether some are left.

        An answer of exactly as many rows as it may have isn't cut: to find out that none is left, the next one would
        pair and sort all of them again. The first rows of an answer are sent however long they took, so that its
        reader gets on.
        """
        for found in batches:
            if found.num_rows == 0:
                continue
            if self.progress.rows > 0 and self._is_due():
                return True
            batch = found.slice(0, self.order["rows"] - self.progress.rows)
            piece = writer.write(batch)  # before they count as read: an answer may end at an error
            self._pass(batch, step)
            self.progress.rows += batch.num_rows
            yield b"D", piece
            if batch.num_rows < found.num_rows:
                return True
        return False

    def _pass(self, batch: pa.RecordBatch, step: Mapping[str, Any]) -> None:
        """Note that rows have been read."""
        snapshots = batch.column(_SNAPSHOT_PLACE)
        last = snapshots[-1].as_py()
        rows = pa.compute.sum(pa.compute.equal(snapshots, last)).as_py()
        before = self._position[1] if self._position[0] == last else 0
        self._position = (last, before + rows, step["ordinal"] + step["snapshots"].index(last))
        if self.rest is not None:
            self.rest.position, self.rest.read = self._position, self.rest.read + batch.num_rows

    def _select(self, step: Mapping[str, Any]) -> str:
        """Write the columns of an answer, with the table's names and types, from those of a step."""
        ordinal = f"list_position({step['snapshots']}, s) + {step['ordinal'] - 1}"
        row_id = "r" if self.order["has_row_ids"] else "NULL"
        hashed = self.order["hashed"]
        columns = (
            f"CAST({hashed.get(str(at), f'c{at}')} AS {kind}) AS {quote(name)}" for at, name, kind in self._columns
        )
        own = (
            "CAST(t AS VARCHAR) AS _change_type",
            f"CAST({ordinal} AS BIGINT) AS _change_ordinal",
            "CAST(s AS BIGINT) AS _commit_snapshot_id",
            f"CAST({row_id} AS BIGINT) AS _changed_row_id",
        )
        return f"SELECT {', '.join((*own, *columns))}"

    def _run(self, sql: str) -> pa.RecordBatchReader:
        return self.connection.execute(sql).to_arrow_reader(_BATCH_ROWS)


def quote(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


if __name__ == "__main__":
    main({**HANDLERS, b"H": ChangeReader().answer}, ERRORS)
