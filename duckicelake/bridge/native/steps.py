"""PURE. DuckDB's changes of a table as a sequence of changes to Iceberg's file set."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import groupby
from math import inf
from operator import attrgetter, itemgetter
from typing import Generic, NamedTuple, TypeVar

from duckicelake.bridge import main_diff
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.puffin import FILE_FORMAT
from duckicelake.lake.additions import NewDeletion
from duckicelake.lake.changes import Hold
from duckicelake.lake.model import InlinedKey, LakeChange, LakeFile, TableDefinition
from duckicelake.lake.state import FileRow, LiveFiles, NativeWindow
from duckicelake.properties import get_hold

T = TypeVar("T")
REWRITES_HISTORY = frozenset({"merge_adjacent", "inline_flush", "flushed_inlined", "compacted_table"})
SAME_ROWS = REWRITES_HISTORY | {"rewrite_delete"}
DEFINES = frozenset({"created_table", "altered_table"})
INLINED = frozenset({"inlined_insert", "inlined_delete"})
DeletedPositions = Mapping[int, Mapping[int, int | None]]
"""By delete_file_id, each position with the snapshot that deleted it; None: the one at which the file begins."""


class DueItems(Generic[T]):
    """Hands each thing out once, when its snapshot has come; in order of these."""

    def __init__(self, things: Iterable[tuple[int, T]]) -> None:
        self._things = sorted(things, key=itemgetter(0))
        self._next = 0

    def due(self, at: int) -> list[T]:
        """Return what came due up to a snapshot and wasn't handed out yet."""
        start = self._next
        while self._next < len(self._things) and self._things[self._next][0] <= at:
            self._next += 1
        return [thing for _, thing in self._things[start : self._next]]


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

    def merge_later(self, later: "NativeStep") -> "NativeStep":
        """Return one step that does what this and a later one do.

        Files that come with this and leave with that aren't in it.

        So a change is said that Iceberg has no word for at this step, but has at the later one.
        """
        new = {file_id for file_id, _ in (*self.data_files, *self.rows)}
        gone = new & later.removed
        ids = self.positions.keys() | later.positions.keys()
        none = frozenset[int]()
        return NativeStep(
            change=replace(later.change, kinds=self.change.kinds | later.change.kinds),
            definition=later.definition or self.definition,
            data_files=(*(pair for pair in self.data_files if pair[0] not in gone), *later.data_files),
            rows=(*(pair for pair in self.rows if pair[0] not in gone), *later.rows),
            positions={
                file_id: self.positions.get(file_id, none) | later.positions.get(file_id, none)
                for file_id in ids - later.removed
            },
            removed=self.removed | (later.removed - gone),
        )


def replay_window(
    window: NativeWindow, live: LiveFiles, deleted: DeletedPositions, new_ids: Iterator[int]
) -> tuple[NativeStep, ...]:
    """Return the steps from the live files to DuckLake's state at `window.upto`, oldest first.

    `deleted` is what the window's delete files hold.
    """
    tracker = _Tracker(window, live, deleted, new_ids)
    steps = (tracker.step(change) for change in _split_steps(window))
    return tuple(step for step in steps if step.changes_files or step.definition)


def _split_steps(window: NativeWindow) -> list[LakeChange]:
    """Return the changes that become steps, each with the kinds of those that fold into it."""
    rewritten = max((c.snapshot_id for c in window.changes if c.kinds & REWRITES_HISTORY), default=window.after)
    mixed = [file for file in window.data_files if file.partial_max is not None]
    steps: list[LakeChange] = []
    folded: frozenset[str] = frozenset()
    for index, change in enumerate(window.changes):
        kinds = folded | change.kinds
        later = window.changes[index + 1].kinds if index + 1 < len(window.changes) else None
        collapses = later == change.kinds and change.kinds <= INLINED
        at = change.snapshot_id
        is_exact = all(file.is_exact(at) for file in mixed if file.visible(at))
        if at < rewritten or collapses or not is_exact:
            folded = kinds
        else:
            steps.append(LakeChange(at, change.timestamp_ms, kinds))
            folded = frozenset()
    return steps


class _Tracker:
    """The file set while the window is replayed; each step costs what it changes."""

    def __init__(
        self, window: NativeWindow, live: LiveFiles, deleted: DeletedPositions, new_ids: Iterator[int]
    ) -> None:
        self._new_ids = new_ids
        self._definitions = DueItems(window.definitions.items())
        self._data = {f.ducklake_id: f.file_id for f in live.files if f.ducklake_id is not None}
        self._vanished = [data_file_id for data_file_id in self._data if data_file_id in window.vanished]
        self._appearing = DueItems((file.begin_snapshot, file) for file in window.data_files)
        self._ending = DueItems((f.end_snapshot, f.file_id) for f in window.data_files if f.end_snapshot is not None)
        self._rows = _InlinedRows(window, live)
        self._deleted = defaultdict(set, {file_id: set(done) for file_id, done in live.deleted.items()})
        self._deletes = DueItems((*_read_inlined_deletes(window), *_read_file_deletes(window, deleted)))
        self._early: defaultdict[int, list[_Delete]] = defaultdict(list)

    def step(self, change: LakeChange) -> NativeStep:
        at = change.snapshot_id
        definitions = self._definitions.due(at)
        removed = self._drop_data(at)
        data_files = self._add_data(at)
        emptied, positions = self._rows.end(at)
        for file_id, found in positions.items():
            self._deleted[file_id] |= found
        rows = self._rows.add(at, self._new_ids)
        for file_id, found in self._find_newly_deleted(at, data_files).items():
            positions[file_id] |= found
        return NativeStep(
            change=change,
            definition=definitions[-1] if definitions else None,
            data_files=data_files,
            rows=rows,
            positions={file_id: frozenset(found) for file_id, found in positions.items()},
            removed=frozenset(removed | emptied),
        )

    def _drop_data(self, at: int) -> set[int]:
        gone, self._vanished = [*self._vanished, *self._ending.due(at)], []
        return {self._data.pop(data_file_id) for data_file_id in gone if data_file_id in self._data}

    def _add_data(self, at: int) -> tuple[tuple[int, LakeFile], ...]:
        new = [file for file in self._appearing.due(at) if file.visible(at) and file.file_id not in self._data]
        pairs = tuple((next(self._new_ids), file) for file in sorted(new, key=lambda file: file.file_id))
        self._data.update((file.file_id, file_id) for file_id, file in pairs)
        return pairs

    def _find_newly_deleted(self, at: int, added: Sequence[tuple[int, LakeFile]]) -> dict[int, set[int]]:
        """Find deletes of the step, and older ones of data files that a flush or a merged step shows first."""
        found: defaultdict[int, set[int]] = defaultdict(set)
        early = [delete for _, file in added for delete in self._early.pop(file.file_id, ())]
        for delete in (*early, *self._deletes.due(at)):
            file_id = self._data.get(delete.data_file_id)
            if file_id is None:
                self._early[delete.data_file_id].append(delete)
            elif at < delete.until and delete.position not in self._deleted[file_id]:
                found[file_id].add(delete.position)
                self._deleted[file_id].add(delete.position)
        return found


class _Delete(NamedTuple):
    """A position that is deleted; what says so ends with snapshot `until`, if it isn't noticed before."""

    data_file_id: int
    position: int
    until: float = inf


def _read_inlined_deletes(window: NativeWindow) -> Iterator[tuple[int, _Delete]]:
    return ((delete.begin_snapshot, _Delete(delete.data_file_id, delete.position)) for delete in window.deletes)


def _read_file_deletes(window: NativeWindow, deleted: DeletedPositions) -> Iterator[tuple[int, _Delete]]:
    for file in window.delete_files:
        if file.target_id is not None:
            until = inf if file.end_snapshot is None else file.end_snapshot
            for position, deleted_at in deleted[file.file_id].items():
                yield max(file.begin_snapshot, deleted_at or 0), _Delete(file.target_id, position, until)


class _InlinedRows:
    """The inlined rows while the window is replayed, and which virtual file serves them at which position."""

    def __init__(self, window: NativeWindow, live: LiveFiles) -> None:
        known = {row.key for row in window.rows}
        self._places: dict[InlinedKey, tuple[int, int]] = {}
        self._left: Counter[int] = Counter()
        self._flushed: set[int] = set()
        for file in live.virtual.values():
            deleted = live.deleted.get(file.file_id, frozenset())
            left = {key: (file.file_id, at) for at, key in enumerate(file.keys) if at not in deleted}
            if left and known.isdisjoint(left):
                self._flushed.add(file.file_id)
            else:
                self._places |= left
                self._left[file.file_id] = len(left)
        self._vanished = [key for key in self._places if key not in known]
        self._appearing = DueItems((row.key.begin_snapshot, row) for row in window.rows)
        self._ending = DueItems((row.end_snapshot, row.key) for row in window.rows if row.end_snapshot is not None)

    def end(self, at: int) -> tuple[set[int], defaultdict[int, set[int]]]:
        """Return virtual files with no row left, and positions of single rows that ended."""
        gone, self._vanished = [*self._vanished, *self._ending.due(at)], []
        flushed, self._flushed = self._flushed, set()
        ended: defaultdict[int, set[int]] = defaultdict(set)
        for file_id, position in (self._places.pop(key) for key in gone if key in self._places):
            ended[file_id].add(position)
            self._left[file_id] -= 1
        emptied = {file_id for file_id in ended if not self._left[file_id]}
        for file_id in emptied:
            del ended[file_id]
        return emptied | flushed, ended

    def add(self, at: int, new_ids: Iterator[int]) -> tuple[tuple[int, tuple[InlinedKey, ...]], ...]:
        """Return one virtual file for each inlined table, as these have different columns."""
        appeared = (row.key for row in self._appearing.due(at) if row.visible(at))
        by_table = groupby(sorted(key for key in appeared if key not in self._places), attrgetter("inlined_table"))
        files = tuple((next(new_ids), tuple(keys)) for _, keys in by_table)
        for file_id, keys in files:
            self._places.update((key, (file_id, position)) for position, key in enumerate(keys))
            self._left[file_id] = len(keys)
        return files


def find_held_files(
    step: NativeStep, window: NativeWindow, known: Mapping[int, FileRow], properties: Mapping[str, str]
) -> Hold | None:
    """Return the files that the step gives up, by id, and until when the snapshots that list them stay.

    None without any.

    `known` has the files that leave. Those that DuckLake still has for its own history aren't given up.
    """
    if not step.change.kinds & REWRITES_HISTORY:
        return None
    gone = window.vanished | {None}  # those without a DuckLake id served inlined rows
    given_up = tuple(file_id for file_id in sorted(step.removed) if known[file_id].ducklake_id in gone)
    if not given_up:
        return None
    return Hold(given_up, step.change.timestamp_ms + get_hold(properties) // timedelta(milliseconds=1))


class LiveDeletes:
    """Follows main's delete files from step to step; `deleted` are the positions deleted by them, by data file.

    A vector leaves other delete files nothing to delete from its data file.
    """

    def __init__(self, live: LiveFiles) -> None:
        self.deleted = {file_id: set(found) for file_id, found in live.deleted.items()}
        self._targets: dict[int, set[int]] = {}
        self._idle: set[int] = set()
        self._by_data_file: defaultdict[int, set[int]] = defaultdict(set)
        for file_id, targets in _find_targets(live).items():
            self._add(file_id, targets)

    def find_idle(self, data_files: AbstractSet[int]) -> frozenset[int]:
        """Return the delete files that delete from no other data file than these."""
        reached = {file_id for data_file in data_files for file_id in self._by_data_file.get(data_file, ())}
        return frozenset(self._idle | {file_id for file_id in reached if self._targets[file_id] <= data_files})

    def leave(self, data_files: AbstractSet[int]) -> frozenset[int]:
        """Let go of data files that left main or get a vector of their own; the delete files that leave with them."""
        idle = self.find_idle(data_files)
        for data_file in data_files:
            for file_id in self._by_data_file.pop(data_file, ()):
                self._targets[file_id].discard(data_file)
        for file_id in idle:
            del self._targets[file_id]
        self._idle.clear()
        return idle

    def join(self, deletions: Iterable[NewDeletion]) -> None:
        """Take in what new delete files delete."""
        for row in deletions:
            self._add(row.delete_file_id, {row.data_file_id})
            self.deleted.setdefault(row.data_file_id, set()).update(main_diff.decode_positions(row.positions))

    def _add(self, file_id: int, targets: Iterable[int]) -> None:
        self._targets.setdefault(file_id, set()).update(targets)
        if not self._targets[file_id]:
            self._idle.add(file_id)
        for target in targets:
            self._by_data_file[target].add(file_id)


def _find_targets(live: LiveFiles) -> dict[int, AbstractSet[int]]:
    """Return the live data files that each delete file does delete from."""
    data = {file.file_id for file in live.files if file.content == FileContent.DATA}
    vectors = {file.file_id for file in live.files if file.file_format == FILE_FORMAT}
    bare = data.difference(*(live.delete_targets.get(file_id, ()) for file_id in vectors))
    return {
        file_id: targets & (data if file_id in vectors else bare) for file_id, targets in live.delete_targets.items()
    }
