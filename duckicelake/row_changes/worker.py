"""Run in a process of its own: what a query's process does, and besides answer the changes of a table's snapshots.

All queries of an answer are one stream. Its end says where it ends, by which a reader knows an end from a cut, and goes
on behind it. Each query reads one state of the lake: what happens between two of them changes no older snapshot's rows.
"""

import json
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute

from duckicelake.query.protocol import Answers, Commands, Message, ProgressReports, hold_secrets, main
from duckicelake.query.result_formats import ArrowWriter, JsonWriter
from duckicelake.query.worker import ERRORS, HANDLERS

_BATCH_ROWS: Final = 8_192
_SNAPSHOT_PLACE: Final = 2
"""Of the column `_commit_snapshot_id`."""


class EndedArrowWriter(ArrowWriter):
    """Write batches as Arrow's stream; the last one is empty, and its metadata say where the answer ends."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._schema = schema

    def end_at(self, position: str, *, is_complete: bool) -> bytes:
        """Write what ends the stream."""
        empty = pa.RecordBatch.from_pylist([], schema=self._schema)
        self._writer.write_batch(empty, custom_metadata={"position": position, "is-complete": json.dumps(is_complete)})
        return self.end()


class EndedJsonWriter(JsonWriter):
    """Write rows as lines of JSON; the last line says where the answer ends."""

    def end_at(self, position: str, *, is_complete: bool) -> bytes:
        """Write the last line."""
        return json.dumps({"_position": position, "_is_complete": is_complete}).encode() + b"\n"


_FORMATS: Final[Mapping[str, Any]] = {"arrow": EndedArrowWriter, "json": EndedJsonWriter}


class ChangeReader:
    """Reads the changes of an order, step by step, and knows how far it is."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, order: Mapping[str, Any], progress: ProgressReports
    ) -> None:
        """Look up the types of the answer's columns."""
        self._connection, self._order, self._progress = connection, order, progress
        self._ends = time.monotonic() + order["seconds"]
        described = connection.execute(f"DESCRIBE {order['target']}").fetchall()
        self._columns = [(at, *described[at][:2]) for at in order["shown"]]
        self._snapshot_id, self._rows, self._ordinal = order["position"]

    def read(self) -> Iterator[Message]:
        """Yield the rows in pieces of the format, what ends them, and how many they were."""
        empty = ", ".join(f"NULL AS c{at}" for at, *_ in self._columns) or "1"
        schema = self._run(f"SELECT NULL AS t, NULL AS s, NULL AS r, {empty}", "NULL", "LIMIT 0").schema
        writer = _FORMATS[self._order["format"]](schema)
        is_cut = False
        for number, step in enumerate(self._order["steps"]):
            is_cut = (number > 0 and self._is_due()) or (yield from self._read_step(step, writer))
            if is_cut:
                break
            self._reach(step["snapshots"][-1], step["ordinal"] + len(step["snapshots"]))
        if not is_cut:
            self._reach(self._order["upto"], self._ordinal)
        is_complete = self._order["is_last"] and not is_cut
        yield b"D", writer.end_at(self._write_position(), is_complete=is_complete)
        yield b"E", json.dumps({"rows": self._progress.rows, "is_cut": not is_complete}).encode()

    def _write_position(self) -> str:
        """Write the position as `RowChangePosition` does, whose module this process would have to import."""
        seen = f".{self._order['seen']}" if self._rows > 0 else ""
        return f"{self._snapshot_id}.{self._rows}.{self._ordinal}{seen}"

    def _is_due(self) -> bool:
        """Return whether the answer must end, as it has taken its time or its rows."""
        return self._progress.rows >= int(self._order["rows"]) or time.monotonic() > self._ends

    def _reach(self, snapshot_id: int, ordinal: int) -> None:
        """Note that all of a snapshot has been read. ordinal: of the next one."""
        self._snapshot_id, self._rows, self._ordinal = snapshot_id, 0, ordinal

    def _read_step(self, step: Mapping[str, Any], writer: Any) -> Generator[Message, None, bool]:
        """Yield the rows of a step; return whether some are left.

        An answer of exactly as many rows as it may have isn't cut: to find out that none is left, the next one would
        pair and sort all of them again. The first rows of an answer are sent however long they took, so that its
        reader gets on.
        """
        snapshots: Sequence[int] = step["snapshots"]
        ordinal = f"list_position({snapshots}, s) + {step['ordinal'] - 1}"
        for found in self._run(step["sql"], ordinal, f"ORDER BY s, g, side, r OFFSET {step['skip']}"):
            if found.num_rows == 0:
                continue
            if self._progress.rows > 0 and self._is_due():
                return True
            batch = found.slice(0, self._order["rows"] - self._progress.rows)
            self._pass(batch, step)
            self._progress.rows += batch.num_rows
            yield b"D", writer.write(batch)
            if batch.num_rows < found.num_rows:
                return True
        return False

    def _pass(self, batch: pa.RecordBatch, step: Mapping[str, Any]) -> None:
        """Note that rows have been read."""
        snapshots = batch.column(_SNAPSHOT_PLACE)
        last = snapshots[-1].as_py()
        rows = pa.compute.sum(pa.compute.equal(snapshots, last)).as_py()
        before = self._rows if self._snapshot_id == last else 0
        self._snapshot_id, self._rows = last, before + rows
        self._ordinal = step["ordinal"] + step["snapshots"].index(last)

    def _run(self, rows: str, ordinal: str, ending: str) -> pa.RecordBatchReader:
        """Run a query of rows with short names of columns; the answer has the table's names and types."""
        row_id = "r" if self._order["has_row_ids"] else "NULL"
        columns = (f"CAST(c{at} AS {kind}) AS {quote(name)}" for at, name, kind in self._columns)
        own = (
            "CAST(t AS VARCHAR) AS _change_type",
            f"CAST({ordinal} AS BIGINT) AS _change_ordinal",
            "CAST(s AS BIGINT) AS _commit_snapshot_id",
            f"CAST({row_id} AS BIGINT) AS _changed_row_id",
        )
        sql = f"SELECT {', '.join((*own, *columns))} FROM ({rows}) {ending}"
        return self._connection.execute(sql).to_arrow_reader(_BATCH_ROWS)


def quote(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def answer_changes(
    connection: duckdb.DuckDBPyConnection, message: Message, answers: Answers, commands: Commands
) -> Iterator[Message]:
    """Answer the changes of a table's snapshots, one after another."""
    order = json.loads(message[1])
    holding = {**order, "seconds": order["seconds"] + order["grace_seconds"]}
    with (
        ProgressReports(connection, answers) as progress,
        hold_secrets(connection, holding),
        commands.run(),
    ):
        yield from ChangeReader(connection, order, progress).read()


if __name__ == "__main__":
    main({**HANDLERS, b"H": answer_changes}, ERRORS)
