"""Translate versions of a Delta table to commits: an Iceberg and a DuckLake snapshot for each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from duckicelake.bridge.commit.change_set import build_change_and_next_base
from duckicelake.bridge.commit.increments import Base, Increment, KnownFiles, MainUpdate, NewList
from duckicelake.bridge.manifest_lists import ListOwner, build_next_list, parse_packing
from duckicelake.bridge.native.change_set import SnapshotLine, move_main
from duckicelake.bridge.snapshots import SnapshotNumbers, find_free_id
from duckicelake.catalog.commit.workspace import Listed, Workspace
from duckicelake.catalog.context.services import Services, take_file_ids, take_manifest_ids
from duckicelake.delta.import_.added_files import DeltaDeletes, HiveLinker, VersionDeletes, read_positions
from duckicelake.delta.import_.columns import read_columns
from duckicelake.delta.import_.definition import DeltaState, check_no_files_left, find_replaced_columns, redefine
from duckicelake.delta.import_.files import FileTranslator, TranslatedFile
from duckicelake.delta.import_.history import DeltaFiles
from duckicelake.delta.import_.stats import StatsWidening
from duckicelake.delta.import_.versions import DeltaVersion, build_snapshot
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.snapshot import Snapshot, SnapshotRef
from duckicelake.lake.additions import NewManifest, SideFiles
from duckicelake.lake.changes import ChangeSet, Creation, WrittenCommit
from duckicelake.lake.state import FileRow
from duckicelake.lake.writer import groups
from duckicelake.postgres.queries import Transaction

VERSION_ZERO: Final = 1 << 62
"""The snapshot id of version 0, which clients take for no snapshot; the tag `v0` names it."""
_MAX_FILES: Final = 4_000
_MAX_VERSIONS: Final = 200
"""Files or versions in a change, so that its rows can be written while the next change is computed."""


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """The table that gets versions. metadata: its present one. creation: of a new table.

    next_id: the first version's DuckLake snapshot, if Iceberg's numbers fix it. copies: whether DuckLake may get copies
    of files.
    """

    table: int | Creation
    base: Base
    metadata: TableMetadata
    state: DeltaState
    listed: Listed = ()
    next_id: int | None = None
    copies: bool = False

    @property
    def creation(self) -> Creation | None:
        return self.table if isinstance(self.table, Creation) else None


def has_shared_numbers(services: Services, metadata: TableMetadata) -> bool:
    """Return whether Iceberg's numbers fix the DuckLake snapshot of a version."""
    return services.snapshot_ids == "ducklake" or metadata.format_version >= ROW_LINEAGE_VERSION


def write_changes(cursor: Transaction, changes: Iterable[ChangeSet]) -> WrittenCommit:
    """Write changes of one table, at least one, each on top of the one before. StaleBaseError."""
    written: WrittenCommit | None = None
    for change in changes:
        following = change
        if written is not None:
            version = 0 if written.change.table_id is None else written.change.base_version + 1
            following = replace(
                change, table_id=written.table_id, base_version=version, caught_up_to=written.caught_up_to
            )
        written = groups.write_change_set(cursor, following)
    assert written is not None
    return written


@dataclass(slots=True)
class TranslatedCount:
    """The number of translated versions and files so far."""

    versions: int = 0
    files: int = 0
    rows: int = 0


@dataclass(slots=True)
class _VersionVectors:
    """The deletes of a version: all deleted positions by the log's path, and files whose rows come back."""

    after: dict[str, frozenset[int]] = field(default_factory=dict)
    returning: set[int] = field(default_factory=set)


class Translation:
    """Translates versions to changes. state: after the last one.

    Raises UnsupportedError, DamagedLogError, FileMissingError.
    """

    def __init__(self, services: Services, files: DeltaFiles, target: DeltaTarget) -> None:
        self.count = TranslatedCount()
        self._services = services
        self._delta = files
        self._base = target.base
        self._metadata = target.metadata
        self._ids = target.state.ids()
        self._definition = target.state.metadata
        self._creation = target.creation
        self._is_new = target.creation is not None
        self._space = Workspace(services, target.table)
        self._listed = target.listed
        self._live: dict[str, int] = {}
        self._deletes = DeltaDeletes(services, self._space, target.listed)
        self._links = HiveLinker(services, self._space, copies=target.copies)
        self._file_ids, self._manifest_ids = take_file_ids(services), take_manifest_ids(services)
        self._next_id = target.next_id
        self._line = SnapshotLine(target.metadata)
        self._files = self._translator()
        self._replaced: frozenset[int] = frozenset()

    @property
    def state(self) -> DeltaState:
        """The state for the next version's translation."""
        return DeltaState.of(self._definition, self._ids)

    def changes(self, versions: Iterable[DeltaVersion]) -> Iterator[ChangeSet]:
        """Yield the changes, each on top of the one before.

        Later ones get their base when they are written.

        A change of one definition is as large as memory allows.
        """
        waiting: list[Increment] = []
        files = 0
        for version in versions:
            if version.metadata not in (None, self._definition):
                yield from self._changes(waiting)
                waiting, files = [], 0
                self._redefine(version)
            waiting.append(self._increment(version))
            files += len(version.added)
            if files >= _MAX_FILES or len(waiting) >= _MAX_VERSIONS:
                yield from self._changes(waiting)
                waiting, files = [], 0
        yield from self._changes(waiting)

    def _changes(self, increments: Sequence[Increment]) -> Iterator[ChangeSet]:
        if increments:
            self._metadata = self._line.list_added(self._metadata)
            self._line = SnapshotLine(self._metadata)
            change, self._base = build_change_and_next_base(self._base, self._metadata, increments, self._creation)
            self._creation = None
            yield change

    def _redefine(self, version: DeltaVersion) -> None:
        assert version.metadata is not None
        before = self._metadata
        self._metadata, _ = redefine(before, version.metadata, self._ids)
        self._definition = version.metadata
        self._replaced = find_replaced_columns(before, self._metadata)
        self._files = self._translator()

    def _translator(self) -> FileTranslator:
        columns = read_columns(self._definition, self._ids, self._metadata.current_schema_id)
        return FileTranslator(columns, self._metadata.default_spec_id, self._delta.locate, self._delta.counts.get)

    def _increment(self, version: DeltaVersion) -> Increment:
        numbers, expected = self._numbers(version)
        wide = StatsWidening()
        live = self._find_known((*version.gone, *version.added))
        vectors = self._vectors(version, live)
        fresh = {p: a for p, a in version.added.items() if p not in live or live[p] in vectors.returning}
        new = self._with_row_ids([self._files.of(a, next(self._file_ids), numbers, wide) for a in fresh.values()])
        left = frozenset(live[path] for path in version.gone if path in live) | vectors.returning
        self._replace(version, dict(zip(fresh, new, strict=True)), left)
        deleted = self._delete(numbers, vectors, left)
        added = (*(added_file.file for added_file in new), *deleted.files)
        removed = self._space.files(left | deleted.idle)
        snapshot = self._snapshot(version, numbers, added, tuple(removed.values()))
        side = SideFiles(added, deleted.deletions, (), self._manifests(snapshot, added, removed.keys()))
        move = self._move(new, wide, left, deleted, rewrites=snapshot.operation == "replace")
        self.count.versions += 1
        self.count.files += len(new)
        self.count.rows += sum(added_file.file.record_count for added_file in new)
        row = NewList(snapshot, tuple(manifest.manifest_id for manifest in self._listed))
        return Increment((row,), side, move, expected)

    def _numbers(self, version: DeltaVersion) -> tuple[SnapshotNumbers, int | None]:
        """Return the snapshot's numbers, and the DuckLake snapshot that these fix, if any."""
        following, expected = self._metadata.last_sequence_number + 1, self._next_id
        own = version.version or VERSION_ZERO
        if expected is None:
            return SnapshotNumbers(find_free_id(own, self._line.ids), following), None
        self._next_id = expected + 1
        given = expected if self._services.snapshot_ids == "ducklake" else own
        return SnapshotNumbers(find_free_id(given, self._line.ids), max(expected, following)), expected

    def _find_known(self, paths: Iterable[str]) -> dict[str, int]:
        """Find the live files at the log's paths."""
        wanted = list(paths)
        unknown = [] if self._is_new else [path for path in wanted if path not in self._live]
        if unknown:
            located = {self._delta.locate(path): path for path in unknown}
            found = self._space.at_paths(self._listed, located)
            self._live.update((located[file.path], file.file_id) for file in found)
        return {path: self._live[path] for path in wanted if path in self._live}

    def _vectors(self, version: DeltaVersion, live: Mapping[str, int]) -> _VersionVectors:
        found = _VersionVectors()
        for path, add in version.added.items():
            before = self._deletes.of(live[path]) if path in live else frozenset()
            vector = add.deletion_vector
            if vector is None and not before:
                continue
            after = frozenset() if vector is None else read_positions(self._delta.log, vector, path)
            if before - after:
                found.returning.add(live[path])
                before = frozenset()
            if after - before:
                found.after[path] = after
        return found

    def _with_row_ids(self, files: list[TranslatedFile]) -> list[TranslatedFile]:
        following = self._metadata.next_row_id
        if following is None:
            return files
        numbered: list[TranslatedFile] = []
        for file in files:
            numbered.append(file._replace(file=file.file._replace(first_row_id=following)))
            following += file.file.record_count
        return numbered

    def _replace(self, version: DeltaVersion, fresh: Mapping[str, TranslatedFile], left: AbstractSet[int]) -> None:
        """Replace files by the log's paths, and check that no remaining file is unreadable."""
        for path in version.gone:
            self._live.pop(path, None)
        self._live.update((path, added_file.file.file_id) for path, added_file in fresh.items())
        self._space.learn((added_file.file for added_file in fresh.values()), ())
        if self._replaced:
            staying = self._space.live(self._listed) - left
            for file in self._space.files([min(staying)] if staying else []).values():
                check_no_files_left(self._replaced, self._metadata, file.path)
            self._replaced = frozenset()

    def _delete(self, numbers: SnapshotNumbers, vectors: _VersionVectors, left: AbstractSet[int]) -> VersionDeletes:
        after = {self._live[path]: found for path, found in vectors.after.items()}
        targets: Mapping[int, FileRow] = self._space.files(after)
        deleted = self._deletes.serve(self._metadata, numbers, after, targets, left)
        self._space.learn(deleted.files, deleted.deletions)
        return deleted

    def _snapshot(
        self, version: DeltaVersion, numbers: SnapshotNumbers, added: Sequence[FileRow], removed: Sequence[FileRow]
    ) -> Snapshot:
        snapshot = build_snapshot(version, numbers, self._metadata, self._line.newest, added, removed)
        self._line.add(snapshot)
        self._metadata = move_main(self._metadata, snapshot)
        if numbers.snapshot_id == VERSION_ZERO:
            tag = SnapshotRef(snapshot_id=VERSION_ZERO, type="tag")
            self._metadata = self._metadata.replace_fields(refs={**self._metadata.refs, "v0": tag})
        return snapshot

    def _manifests(
        self, snapshot: Snapshot, added: Sequence[FileRow], removed: AbstractSet[int]
    ) -> tuple[NewManifest, ...]:
        """Build the snapshot's new manifests; `_listed` has all of its manifests."""
        version = self._metadata.format_version
        schema_id, packing = self._metadata.current_schema_id, parse_packing(self._metadata.properties)
        owner = ListOwner(snapshot.snapshot_id, snapshot.sequence_number, schema_id, version, packing)
        loaded = self._space.load_manifests(self._listed, removed, version, packing)
        manifests = build_next_list(loaded, added, removed, owner, self._manifest_ids)
        self._listed = manifests.listed
        return manifests.new

    def _move(
        self,
        new: Sequence[TranslatedFile],
        wide: StatsWidening,
        left: AbstractSet[int],
        deleted: VersionDeletes,
        *,
        rewrites: bool,
    ) -> MainUpdate:
        known = KnownFiles(
            {added_file.file.file_id: added_file.stats for added_file in new},
            {added_file.file.file_id: added_file.partition_values for added_file in new},
            wide.rows(self._files.columns.schema.leaves()),
        )
        columns = self._files.partition
        names = {
            added_file.file.file_id: added_file.keys or tuple(column.names[0] for column in columns)
            for added_file in new
        }
        return MainUpdate(
            ended_files=tuple(sorted(left)),
            registered=tuple(added_file.file for added_file in new),
            copies=self._links.of(columns, (added_file for added_file in new if added_file.keys is None)),
            name_maps={file_id: self._files.name_map(keys) for file_id, keys in names.items()},
            delete_files=deleted.delete_files,
            rewrites=rewrites,
            known=known if new else None,
        )
