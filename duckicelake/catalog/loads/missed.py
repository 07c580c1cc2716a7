"""What DuckDB did to a table since it was last caught up, and the table's files as far as that can concern them.

Up to then DuckLake's files are the table's own, so only what the snapshots since then name is read: it costs what has
changed, however many files there are. Where the snapshots don't tell, all files are compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from duckicelake.bridge.realise import DELETION_VECTOR, deleted_positions
from duckicelake.iceberg.manifest import FileContent
from duckicelake.lake import native, reader
from duckicelake.lake.model import LakeChange
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.together import together
from duckicelake.lake.state import LiveFile, LiveFiles, NativeWindow, Reach, TableRow, TableState


@dataclass(frozen=True, slots=True)
class Missed:
    """The table as it is known, what DuckDB did to it since, and the snapshots that leave its history."""

    state: TableState
    window: NativeWindow
    live: LiveFiles
    leaving: frozenset[int]


def missed(
    cursor: Transaction,
    state: TableState,
    upto: int,
    touching: Sequence[LakeChange],
    leaving: frozenset[int],
    *,
    expired: bool,
) -> Missed:
    """What the snapshots up to `upto` that touch the table did; expired: since it was caught up, some were."""
    row, current = state.row, state.current()
    listed = current.manifest_ids if current else ()
    is_known = current is not None and not (expired and touching)
    asked = native.asked_ground(row.table_id, row.caught_up_to, upto), reader.asked_virtual(row.table_id, listed)
    [found], virtual = together(cursor, *asked)
    ground, sizes = native.Ground(*found), {LiveFile(*each): size for size, *each in virtual}
    reach = native.reach(ground, row.caught_up_to, touching) if is_known else None
    if reach is None:
        is_whole, files = True, reader.live_files(cursor, listed)
        reach = Reach(live=tuple(file.ducklake_id for file in files if file.ducklake_id is not None))
    else:
        is_whole, files = False, _with_deletes(cursor, row, listed, tuple(sizes))
    live = _live(cursor, row, files)
    serving = [file for file in files if file.content == FileContent.DATA and file.ducklake_id is None]
    if native.only_adds(touching):
        reach = replace(reach, served=_served(sizes, live))
    window = native.window(cursor, row.table_id, row.caught_up_to, upto, touching, ground, reach)
    lake_ids = set[int]() if is_whole else _touched(window)
    if lake_ids:
        touched = reader.live_data(cursor, row.table_id, row.caught_up_to, lake_ids=lake_ids)
        live = _live(cursor, row, _with_deletes(cursor, row, listed, (*serving, *touched))) if touched else live
    if window.all_rows:
        ids = [file.file_id for file in serving]
        live = replace(live, virtual=reader.virtual_files(cursor, row.table_id, ids))
    return Missed(state, window, live, leaving)


def _touched(window: NativeWindow) -> set[int]:
    """DuckLake's ids of the data files that end in the window or get deletes; new ones among them."""
    deleted_from = {file.target_id for file in window.delete_files if file.target_id is not None}
    ended = {file.file_id for file in window.data_files if file.end_snapshot is not None}
    return ended | deleted_from | {each.data_file_id for each in window.deletes}


def _with_deletes(
    cursor: Transaction, row: TableRow, listed: Sequence[int], data: Sequence[LiveFile]
) -> tuple[LiveFile, ...]:
    """The data files with all that deletes from them, what that deletes from besides, and the vectors of this."""
    ids = {file.file_id for file in data}
    deletes = reader.live_deletes(cursor, row.table_id, listed, ids) if ids else ()
    rows = reader.deletions(cursor, row.table_id, [file.file_id for file in deletes]) if deletes else ()
    further = {each.data_file_id for each in rows} - ids
    if not further:
        return (*data, *deletes)
    others = reader.live_data(cursor, row.table_id, row.caught_up_to, file_ids=further)
    theirs = reader.live_deletes(cursor, row.table_id, listed, further)
    vectors = (file for file in theirs if file.file_format == DELETION_VECTOR and file not in deletes)
    return (*data, *deletes, *others, *vectors)


def live_with_deletes(cursor: Transaction, row: TableRow, listed: Sequence[int], data: Sequence[LiveFile]) -> LiveFiles:
    """Data files with all that is deleted from them; `listed` are the current snapshot's manifests."""
    return _live(cursor, row, _with_deletes(cursor, row, listed, data))


def _live(cursor: Transaction, row: TableRow, files: Sequence[LiveFile]) -> LiveFiles:
    """The files with what the delete files among them delete."""
    deletes = {file.file_id: file for file in files if file.content != FileContent.DATA}
    deletions = reader.deletions(cursor, row.table_id, deletes) if deletes else ()
    targets: dict[int, frozenset[int]] = {}
    for each in deletions:
        targets[each.delete_file_id] = targets.get(each.delete_file_id, frozenset()) | {each.data_file_id}
    return LiveFiles(tuple(files), {}, deleted_positions(deletions, deletes), targets)


def _served(sizes: Mapping[LiveFile, int], live: LiveFiles) -> int:
    """How many inlined rows files of these sizes serve that aren't DuckLake's by now."""
    own = ((file.file_id, size) for file, size in sizes.items() if file.ducklake_id is None)
    return sum(size - len(live.deleted.get(file_id, ())) for file_id, size in own)
