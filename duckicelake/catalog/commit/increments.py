"""The steps of one commit: its new snapshots, on whichever branch, and the moves of main between them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from duckicelake.bridge.commit.increments import Increment, NewList
from duckicelake.bridge.commit.renumber import GivenNumbers
from duckicelake.bridge.commit.uploads import ManifestLayout, build_new_files, check_rebased, set_manifest_counts
from duckicelake.bridge.manifest_lists import ListOwner, build_next_list, build_relaid_list, parse_packing
from duckicelake.catalog.commit.deletes import FoundRows, ListedFiles, Targets, build_deleting_files, list_files
from duckicelake.catalog.commit.main_update import Absorber, move_main
from duckicelake.catalog.commit.replaced_files import ReplacedFiles, build_packed_layout, build_replacing_files
from duckicelake.catalog.commit.uploads import ParentList, ReadAhead, read_snapshot_files, read_upload
from duckicelake.catalog.commit.workspace import Listed, Workspace
from duckicelake.catalog.context.cache import ManifestCache
from duckicelake.catalog.context.services import Services, take_file_ids, take_manifest_ids
from duckicelake.errors import CommitFailedError, InvalidRequestError
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import SEQUENCE_NUMBER_VERSION, TableMetadata
from duckicelake.iceberg.snapshot import Snapshot, walk_ancestry
from duckicelake.iceberg.updates import AddSnapshot, TableUpdate
from duckicelake.lake.additions import SideFiles
from duckicelake.lake.changes import Creation
from duckicelake.lake.state import FileRow, TableState


@dataclass(frozen=True, slots=True)
class CommitContext:
    """What becomes of new snapshots other than what clients uploaded for them.

    absorb: what inlines the rows of appends, of a request that has nothing else. found: what the only new snapshot
    deletes; replaced: what it puts in the place of other files. ahead: uploads that were read already.
    """

    absorb: Absorber | None = None
    found: FoundRows | None = None
    replaced: ReplacedFiles | None = None
    ahead: ReadAhead = field(default_factory=ReadAhead)


_UPLOADED: Final = CommitContext()


def build_increments(
    services: Services,
    state: TableState | None,
    target: TableMetadata,
    updates: Sequence[TableUpdate],
    given: GivenNumbers,
    creation: Creation | None = None,
    known: ManifestCache | None = None,
    brought: CommitContext = _UPLOADED,
) -> tuple[TableMetadata, list[Increment]]:
    """Return what lies between the table's state and `target`, which may need more row ids.

    Reads what clients uploaded.
    """
    table = creation if state is None else state.row.table_id
    assert table is not None
    builder = _IncrementBuilder(services, Workspace(services, table, known), state, target, updates, given)
    builder.brought = brought
    for update in updates:
        if isinstance(update, AddSnapshot):
            builder.add(target.snapshot(update.snapshot.snapshot_id) or update.snapshot)
    builder.settle_main()
    return builder.target, builder.increments


@dataclass(frozen=True, slots=True)
class _Built:
    """What a snapshot is made of: its parent's manifests, its own files, and what its client uploaded to say so."""

    parent: Listed
    made: ListedFiles
    layout: ManifestLayout | None = None
    uploads: tuple[str, ...] = ()


class _IncrementBuilder:
    """Adds snapshots one after the other, each on the manifests of its parent; main follows those that it leads to."""

    def __init__(
        self,
        services: Services,
        space: Workspace,
        state: TableState | None,
        target: TableMetadata,
        updates: Sequence[TableUpdate],
        given: GivenNumbers,
    ) -> None:
        self.increments: list[Increment] = []
        self.brought = _UPLOADED
        self.target = target
        self._services = services
        self._table_id = state.row.table_id if state else None
        self._space = space
        self._given = given
        self._built_on = {u.snapshot.parent_snapshot_id for u in updates if isinstance(u, AddSnapshot)}
        self._built_on |= {base.parent_id for base in given.built_on.values()}
        self._rows = state.snapshots if state else ()
        self._lists: dict[int | None, Listed] = {None: ()}
        self._parents: dict[int | None, ParentList] = {None: {}}
        current = state.row.current_snapshot_id if state else None
        line = walk_ancestry(target.snapshots_by_id, target.current_snapshot_id)
        self._line = set(takewhile(lambda snapshot_id: snapshot_id != current, line))
        self._main: Listed = self._list_of(current)
        self._main_is: int | None = current
        self._file_ids, self._manifest_ids = take_file_ids(services), take_manifest_ids(services)

    def add(self, snapshot: Snapshot) -> None:
        """Add a new snapshot; one that the request itself removes again is a step to the others, but isn't listed."""
        listed, made, side = self._build(snapshot)
        self._lists[snapshot.snapshot_id] = listed
        move = None
        if snapshot.snapshot_id in self._line:
            move = move_main(self._services, self._space, self.target, self._main, listed, snapshot.operation)
            self._main, self._main_is = listed, snapshot.snapshot_id
            move = move if self.brought.absorb is None else self.brought.absorb(move, side.files)
        proposed = self._given.proposed.get(snapshot.snapshot_id)
        row = NewList(made, tuple(manifest.manifest_id for manifest in listed), proposed)
        stays = self.target.snapshot(snapshot.snapshot_id) is not None
        expected = self._given.expected.get(snapshot.snapshot_id)
        self.increments.append(Increment((row,) if stays else (), side, move, expected))

    def settle_main(self) -> None:
        """Move main to where the request leaves it, if no new snapshot did."""
        current = self.target.current_snapshot_id
        if current != self._main_is:
            move = move_main(self._services, self._space, self.target, self._main, self._list_of(current))
            self.increments.append(Increment(move=move))

    def _build(self, snapshot: Snapshot) -> tuple[Listed, Snapshot, SideFiles]:
        """Return the manifests that the snapshot lists, the snapshot as it is kept, and the rows that it brings."""
        built = self._build_brought(snapshot)
        parent, made, layout = built.parent, built.made, built.layout
        self._space.learn(made.files, made.deletions)
        number, packing = snapshot.sequence_number, parse_packing(self.target.properties)
        owner = ListOwner(snapshot.snapshot_id, number, self._schema_id(snapshot), self._version, packing)
        kept = parent if layout is None else [manifest for manifest in parent if manifest.manifest_id in layout.kept]
        loaded = self._space.load_manifests(kept, made.removed, self._version, packing)
        if layout is None:
            manifests = build_next_list(loaded, made.files, made.removed, owner, self._manifest_ids)
        else:
            manifests = build_relaid_list(loaded, layout.groups, owner, self._manifest_ids)
        side = SideFiles(made.files, made.deletions, manifests=manifests.new, uploads=built.uploads)
        before = {manifest.manifest_id for manifest in parent if manifest.live_count}
        counted = set_manifest_counts(made.snapshot, before, manifests, is_laid_out=layout is not None)
        return manifests.listed, counted, side

    def _build_brought(self, snapshot: Snapshot) -> _Built:
        if self.brought.replaced is not None:
            return self._build_replacing(snapshot, self.brought.replaced)
        return self._build_uploaded(snapshot) if self.brought.found is None else self._build_found(snapshot)

    def _build_replacing(self, snapshot: Snapshot, replaced: ReplacedFiles) -> _Built:
        parent = self._list_of(snapshot.parent_snapshot_id)
        targets = Targets(self._space, parent, frozenset(), ())
        made = build_replacing_files(self._services, self.target, snapshot, replaced, targets, self._file_ids)
        packed = replaced.packed
        layout = build_packed_layout(self.target, packed, self._space, parent) if packed else None
        return _Built(parent, made, layout)

    def _build_found(self, snapshot: Snapshot) -> _Built:
        """Return the manifests of the parent, and the files that delete what was found in it.

        Raises CommitFailedError if it isn't it.
        """
        found, parent = self.brought.found, self._list_of(snapshot.parent_snapshot_id)
        assert found is not None
        if self._version < SEQUENCE_NUMBER_VERSION:
            raise InvalidRequestError("Rows are deleted from files by format version 2 and above: upgrade the table")
        if tuple(manifest.manifest_id for manifest in parent) != found.manifest_ids:
            raise CommitFailedError(
                "The table's files changed after rows were looked for in them", "assert-ref-snapshot-id"
            )
        targets = Targets(self._space, parent, frozenset(), ())
        made = build_deleting_files(self._services, self.target, snapshot, found.positions, targets, self._file_ids)
        return _Built(parent, made)

    def _build_uploaded(self, snapshot: Snapshot) -> _Built:
        """Return the manifests that the snapshot builds on, and what its client brings."""
        services, target, space = self._services, self.target, self._space
        parent_id = snapshot.parent_snapshot_id
        proposed_id = self._given.proposed.get(snapshot.snapshot_id, snapshot.snapshot_id)
        built_on = self._given.built_on.get(snapshot.snapshot_id)
        parents = self._parent_list(built_on.parent_id if built_on else parent_id)
        with services.meter.phase("upload_read"):
            read = read_upload(services, self._table_id, target, snapshot, proposed_id, parents, self.brought.ahead)
        if built_on is not None:
            check_rebased(read.upload)
        row_shift = self._given.row_shift + (built_on.row_shift if built_on else 0)
        uploaded = self._assign_row_ids(build_new_files(read.upload, target, self._file_ids, row_shift))
        if snapshot.snapshot_id in self._built_on:
            self._parents[snapshot.snapshot_id] = read.as_parent(uploaded)
        parent = self._list_of(parent_id)
        if read.borrowed:
            parent = (*parent, *space.list_manifests(sorted(read.borrowed.values())))
        removed = [file.file_id for file in read.upload.removed]
        targets = Targets(space, parent, frozenset(space.find_among(parent, removed) if removed else ()), uploaded)
        made = list_files(services, target, snapshot, uploaded, targets, self._file_ids)
        return _Built(parent, made, read.layout, tuple(dict.fromkeys((*read_snapshot_files(snapshot), *read.read))))

    def _assign_row_ids(self, files: tuple[FileRow, ...]) -> tuple[FileRow, ...]:
        """Assign row ids to the files of a snapshot that is older than the upgrade to version 3 in the same request."""
        following, numbered = self.target.next_row_id, []
        for file in files:
            if following is not None and file.content == FileContent.DATA and file.first_row_id is None:
                numbered.append(file._replace(first_row_id=following))
                following += file.record_count
            else:
                numbered.append(file)
        if following != self.target.next_row_id:
            self.target = self.target.replace_fields(next_row_id=following)
        return tuple(numbered)

    @property
    def _version(self) -> int:
        return self.target.format_version

    def _schema_id(self, snapshot: Snapshot) -> int:
        return self.target.current_schema_id if snapshot.schema_id is None else snapshot.schema_id

    def _list_of(self, snapshot_id: int | None) -> Listed:
        """Return the manifests of a snapshot, old or new; none for one that the table doesn't have (any more)."""
        if snapshot_id not in self._lists:
            self._lists[snapshot_id] = self._space.list_manifests(self._manifest_ids_of(snapshot_id))
        return self._lists[snapshot_id]

    def _parent_list(self, snapshot_id: int | None) -> ParentList:
        if snapshot_id not in self._parents:
            self._parents[snapshot_id] = self._space.paths(self._manifest_ids_of(snapshot_id))
        return self._parents[snapshot_id]

    def _manifest_ids_of(self, snapshot_id: int | None) -> Sequence[int]:
        """Return the manifests of a snapshot that the table had; the newest snapshots are asked for most."""
        return next((row.manifest_ids for row in reversed(self._rows) if row.snapshot_id == snapshot_id), ())
