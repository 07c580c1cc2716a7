"""PURE. Catching up: what DuckDB did to a table since we last looked, as a sequence of changes to Iceberg's file set.

DuckLake's rows say which files a snapshot shows, so each step is a difference of sets, whatever operation caused it.
Deletes are taken as positions, wherever DuckLake keeps them: its delete files carry other field ids than Iceberg's, so
Java can't read them (`_file` and `_pos` for file_path and pos), and they are cumulative, one for each data file.
Snapshots whose files a later merge or flush has rewritten can't be told exactly any more: never served, they fold into
the next step; and so do all but the last of a run that only inlined rows (design §6.17).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from duckicelake.lake.model import InlinedKey, LakeChange, LakeFile, TableDefinition
from duckicelake.lake.state import LiveFiles, NativeWindow

REWRITES_HISTORY = frozenset({"merge_adjacent", "inline_flush", "flushed_inlined", "compacted_table"})
SAME_ROWS = REWRITES_HISTORY | {"rewrite_delete"}
DEFINES = frozenset({"created_table", "altered_table"})
INLINED = frozenset({"inlined_insert", "inlined_delete"})

DeletedPositions = Mapping[int, Mapping[int, int | None]]
"""By delete_file_id, each position with the snapshot that deleted it; None: the one at which the file begins."""


@dataclass(frozen=True, slots=True)
class NativeStep:
    """One DuckLake snapshot's change of the table's file set, in ids of `duckicelake_file`.

    `data_files` pair a new file id with DuckLake's row; `rows` are virtual files of new inlined rows; `positions` are
    newly deleted positions by data file id; `removed` are data files.
    """

    change: LakeChange
    definition: TableDefinition | None = None
    data_files: tuple[tuple[int, LakeFile], ...] = ()
    rows: tuple[tuple[int, tuple[InlinedKey, ...]], ...] = ()
    positions: Mapping[int, frozenset[int]] = field(default_factory=dict)
    removed: frozenset[int] = frozenset()

    @property
    def changes_files(self) -> bool:
        """Whether it makes an Iceberg snapshot; a change of the definition alone makes none."""
        return bool(self.data_files or self.rows or self.positions or self.removed)


def replay(
    window: NativeWindow, live: LiveFiles, deleted: DeletedPositions, new_ids: Iterator[int]
) -> tuple[NativeStep, ...]:
    """The steps from the live files to DuckLake's state at `window.upto`, oldest first.

    `deleted` is what the window's delete files hold.
    """
    tracker = _Tracker(window, live, deleted, new_ids)
    steps = (tracker.step(change) for change in _own_steps(window))
    return tuple(step for step in steps if step.changes_files or step.definition)


def _own_steps(window: NativeWindow) -> list[LakeChange]:
    """The changes that become steps, each with the kinds of those that fold into it."""
    rewritten = max((c.snapshot_id for c in window.changes if c.kinds & REWRITES_HISTORY), default=window.after)
    steps: list[LakeChange] = []
    folded: frozenset[str] = frozenset()
    for index, change in enumerate(window.changes):
        kinds = folded | change.kinds
        later = window.changes[index + 1].kinds if index + 1 < len(window.changes) else None
        collapses = later is not None and change.kinds <= INLINED and later <= INLINED
        if change.snapshot_id < rewritten or collapses or not _exact(window, change.snapshot_id):
            folded = kinds
        else:
            steps.append(LakeChange(change.snapshot_id, change.timestamp_ms, kinds))
            folded = frozenset()
    return steps


def _exact(window: NativeWindow, snapshot_id: int) -> bool:
    return all(file.exact(snapshot_id) for file in window.data_files if file.visible(snapshot_id))


class _Tracker:
    """The file set while the window is replayed."""

    def __init__(
        self, window: NativeWindow, live: LiveFiles, deleted: DeletedPositions, new_ids: Iterator[int]
    ) -> None:
        self._window = window
        self._in_delete_files = deleted
        self._new_ids = new_ids
        self._pending = sorted(window.definitions)
        self._data = {f.ducklake_id: f.file_id for f in live.files if f.ducklake_id is not None}
        self._deleted = defaultdict(set, {file_id: set(done) for file_id, done in live.deleted.items()})
        self._places = {
            key: (file.file_id, position)
            for file in live.virtual.values()
            for position, key in enumerate(file.keys)
            if position not in live.deleted.get(file.file_id, ())
        }

    def step(self, change: LakeChange) -> NativeStep:
        at = change.snapshot_id
        definition = self._definition(at)
        removed = self._drop_data(at)
        data_files = self._add_data(at)
        emptied, positions = self._end_rows(at)
        rows = self._add_rows(at)
        for file_id, found in self._newly_deleted(at).items():
            positions[file_id] |= found
        return NativeStep(
            change=change,
            definition=definition,
            data_files=data_files,
            rows=rows,
            positions={file_id: frozenset(found) for file_id, found in positions.items()},
            removed=frozenset(removed | emptied),
        )

    def _definition(self, at: int) -> TableDefinition | None:
        due = [snapshot for snapshot in self._pending if snapshot <= at]
        self._pending = self._pending[len(due) :]
        return self._window.definitions[due[-1]] if due else None

    def _drop_data(self, at: int) -> set[int]:
        ended = {file.file_id for file in self._window.data_files if not file.visible(at)}
        gone = [key for key in self._data if key in ended or key in self._window.vanished]
        return {self._data.pop(key) for key in gone}

    def _add_data(self, at: int) -> tuple[tuple[int, LakeFile], ...]:
        new = [file for file in self._window.data_files if file.visible(at) and file.file_id not in self._data]
        pairs = tuple((next(self._new_ids), file) for file in new)
        self._data.update((file.file_id, file_id) for file_id, file in pairs)
        return pairs

    def _end_rows(self, at: int) -> tuple[set[int], defaultdict[int, set[int]]]:
        """Virtual files with no row left, and positions of single rows that ended."""
        visible = {row.key for row in self._window.rows if row.visible(at)}
        ended: defaultdict[int, set[int]] = defaultdict(set)
        for key in [key for key in self._places if key not in visible]:
            file_id, position = self._places.pop(key)
            ended[file_id].add(position)
        still_used = {file_id for file_id, _ in self._places.values()}
        emptied = {file_id for file_id in ended if file_id not in still_used}
        for file_id in emptied:
            del ended[file_id]
        for file_id, found in ended.items():
            self._deleted[file_id] |= found
        return emptied, ended

    def _add_rows(self, at: int) -> tuple[tuple[int, tuple[InlinedKey, ...]], ...]:
        """One virtual file for each inlined table, as these have different columns."""
        new = sorted(row.key for row in self._window.rows if row.visible(at) and row.key not in self._places)
        by_table = groupby(new, key=lambda key: key.inlined_table)
        files = tuple((next(self._new_ids), tuple(keys)) for _, keys in by_table)
        for file_id, keys in files:
            self._places.update((key, (file_id, position)) for position, key in enumerate(keys))
        return files

    def _newly_deleted(self, at: int) -> dict[int, set[int]]:
        found: defaultdict[int, set[int]] = defaultdict(set)
        for data_file_id, position in (*self._inlined_deletes(at), *self._file_deletes(at)):
            file_id = self._data.get(data_file_id)
            if file_id is not None and position not in self._deleted[file_id]:
                found[file_id].add(position)
                self._deleted[file_id].add(position)
        return found

    def _inlined_deletes(self, at: int) -> Iterator[tuple[int, int]]:
        for delete in self._window.deletes:
            if delete.begin_snapshot <= at:
                yield delete.data_file_id, delete.position

    def _file_deletes(self, at: int) -> Iterator[tuple[int, int]]:
        for file in self._window.delete_files:
            if file.visible(at) and file.target_id is not None:
                for position, deleted_at in self._in_delete_files[file.file_id].items():
                    if deleted_at is None or deleted_at <= at:
                        yield file.target_id, position
