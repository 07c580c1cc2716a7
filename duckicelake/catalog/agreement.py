"""Whether Iceberg clients and DuckDB see the same rows of a table: what comparing all of both sides would change.

Catching up reads only what snapshots since the last time name. If nothing has happened since, there is nothing that a
look at everything could find.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count

from duckicelake.bridge.native import replay
from duckicelake.catalog.loads.missed import Missed, missed
from duckicelake.errors import DamagedTable
from duckicelake.lake import native, reader
from duckicelake.lake.doctor.findings import Finding
from duckicelake.lake.doctor.repairs import in_new_snapshot
from duckicelake.lake.model import LakeChange
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.state import LiveFiles

_ALL = frozenset({"compacted_table"})
"""What a snapshot is said to have changed after which all files are compared."""


def disagreements(cursor: Transaction, names: Mapping[int, str]) -> Iterator[Finding]:
    """Rows that only one side shows, of tables in which nothing has happened since they were caught up."""
    for table_id, name in names.items():
        found = None
        with (
            suppress(DamagedTable),
            cursor.connection.transaction(),
        ):  # which is another finding; the others are read on
            found = _compared(cursor, table_id)
        if found is not None:
            yield from _findings(table_id, name, found)


def _compared(cursor: Transaction, table_id: int) -> Missed | None:
    upto, *_, row = reader.standing(cursor, table_id)
    if row is None or native.changes(cursor, table_id, row.caught_up_to, upto):
        return None
    everything = LakeChange(upto, native.time_of(cursor, upto), _ALL)
    return missed(cursor, reader.table_state(cursor, row), upto, [everything], frozenset(), expired=True)


def _findings(table_id: int, name: str, found: Missed) -> Iterator[Finding]:
    advice = "let all of it be compared when it is next loaded: " + in_new_snapshot(
        "", f"deleted_from_table:{table_id},compacted_table:{table_id}"
    )
    for problem in _problems(found):
        yield Finding("rows", ok=False, detail=f"{name}: {problem}", advice=advice)


def _problems(found: Missed) -> Iterator[str]:
    unread = {file.file_id: dict[int, int | None]() for file in found.window.delete_files}
    for step in replay(found.window, found.live, unread, count()):
        deleted = sum(len(positions) for positions in step.positions.values())
        deleted += sum(_rows_left(found.live, file_id) for file_id in step.removed)
        if deleted:
            yield f"Iceberg clients see {deleted} rows that DuckLake doesn't have any more"
        rows = sum(len(keys) for _, keys in step.rows)
        if rows:
            yield f"Iceberg clients don't see {rows} rows that DuckLake has inlined"
    live = {file.ducklake_id for file in found.live.files}
    for file in found.window.delete_files:
        if file.target_id in live:
            yield f"delete file {file.file_id} ({file.path}) has come without a record, and no Iceberg client knows it"


def _rows_left(live: LiveFiles, file_id: int) -> int:
    """How many rows a file serves that DuckLake has inlined; 0 for DuckLake's own files, which others look after."""
    file = live.virtual.get(file_id)
    return len(file.keys) - len(live.deleted.get(file_id, ())) if file else 0
