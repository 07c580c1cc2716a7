"""The files of one table as a commit sees them: the catalog's, and those that the commit itself has brought so far.

Everything is read outside of any lock; the writer checks that the table is still the one that was read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from duckicelake.bridge.main_diff import FileSetDifference, collect_deleted_positions
from duckicelake.bridge.manifest_lists import DEFAULT_PACKING, ListedManifest, ManifestPacking, find_manifests_to_load
from duckicelake.catalog.context.cache import ManifestCache, ManifestLostError
from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.lake.additions import NewDeletion
from duckicelake.lake.changes import Creation
from duckicelake.lake.ducklake import inlined_rows, native
from duckicelake.lake.side_tables import reader
from duckicelake.lake.state import DeletionRow, FileRow, VirtualFileRow

Listed = Sequence[ListedManifest]


class Workspace:
    """Files and deletions by id; the table is either there or to be created.

    `known` is what was read of the table before, and learns what is read now.
    """

    def __init__(self, services: Services, table: int | Creation, known: ManifestCache | None = None) -> None:
        self._database = services.database
        self._known = known or ManifestCache()
        self._creation = table if isinstance(table, Creation) else None
        self._table_id = table if isinstance(table, int) else None
        self._new: dict[int, FileRow] = {}
        self._read: dict[int, FileRow] = {}
        """Kept, as a commit asks for the same files several times: to read one from JSON takes 50 µs."""
        self._deletions: list[DeletionRow] = []
        self._live_files: dict[int, Mapping[int, int]] = {}

    @property
    def table_id(self) -> int | None:
        """The table's; None of one that is to be created."""
        return self._table_id

    def learn(self, files: Iterable[FileRow], deletions: Iterable[NewDeletion]) -> None:
        """Take in what a new snapshot brings."""
        self._new |= {file.file_id: file for file in files}
        self._deletions += [DeletionRow(row.delete_file_id, row.data_file_id, row.positions) for row in deletions]

    def files(self, file_ids: Iterable[int]) -> dict[int, FileRow]:
        """Return files by id."""
        wanted = set(file_ids)
        missing = wanted - self._new.keys() - self._read.keys()
        if missing:
            with self._database.reading() as cursor:
                self._read |= reader.read_files(cursor, missing)
        found = {file_id: self._read[file_id] for file_id in wanted & self._read.keys()}
        return found | {file_id: self._new[file_id] for file_id in wanted & self._new.keys()}

    def list_manifests(self, manifest_ids: Sequence[int]) -> Listed:
        """Return the manifests of a snapshot in the catalog, in list order, without their files."""
        return tuple(map(ListedManifest.from_row, self._known.manifests_of(self._database, manifest_ids).values()))

    def paths(self, manifest_ids: Sequence[int]) -> dict[str, int]:
        """Return the ids of a snapshot's manifests by the paths at which clients find them.

        Unwritten if one has none.
        """
        rows = self._known.manifests_of(self._database, manifest_ids).values()
        paths = {row.path: row.manifest_id for row in rows if row.path is not None}
        if len(paths) < len(rows):
            raise ManifestLostError("manifests of the table are to be written again")
        return paths

    def load_manifests(
        self, listed: Listed, removed: Iterable[int], format_version: int, packing: ManifestPacking = DEFAULT_PACKING
    ) -> Listed:
        """Return the manifests, those with their live files that a next list without the removed files rewrites."""
        holding = {manifest_id for manifest_id, files in self.find_holding(listed, removed).items() if files}
        wanted = holding | find_manifests_to_load(listed, format_version, packing)
        live = self._live(manifest for manifest in listed if manifest.manifest_id in wanted)
        return tuple(
            replace(manifest, live=live[manifest.manifest_id]) if manifest.manifest_id in live else manifest
            for manifest in listed
        )

    def load_live(self, listed: Listed) -> Listed:
        """Return the manifests with their live files."""
        live = self._live(listed)
        return tuple(replace(manifest, live=live[manifest.manifest_id]) for manifest in listed)

    def live(self, listed: Iterable[ListedManifest]) -> set[int]:
        """Return the ids of the live files of the manifests."""
        return {file_id for files in self._live(listed).values() for file_id in files}

    def find_among(self, listed: Listed, file_ids: Iterable[int]) -> set[int]:
        """Return those of the files that the manifests list as live."""
        return {file_id for files in self.find_holding(listed, file_ids).values() for file_id in files}

    def find_holding(self, listed: Listed, file_ids: Iterable[int]) -> dict[int, set[int]]:
        """Return those of the files that the manifests list as live, by manifest id."""
        wanted = set(file_ids)
        if not wanted:
            return {}
        found = {m.manifest_id: wanted & m.live.keys() for m in listed if m.live is not None}
        bare = [manifest.manifest_id for manifest in listed if manifest.live is None]
        if bare:
            with self._database.reading() as cursor:
                for manifest_id, file_id in reader.find_live_among(cursor, bare, wanted):
                    found.setdefault(manifest_id, set()).add(file_id)
        return found

    def deletions_of(self, data_file_ids: Iterable[int]) -> tuple[DeletionRow, ...]:
        """Return everything that any delete file ever deleted from the data files."""
        wanted = set(data_file_ids)
        rows = [row for row in self._deletions if row.data_file_id in wanted]
        old = wanted - self._new.keys()
        if self._table_id is not None and old:
            with self._database.reading() as cursor:
                rows += reader.read_data_file_deletions(cursor, self._table_id, old)
        return tuple(rows)

    def targets_of(self, delete_file_ids: Iterable[int]) -> set[int]:
        """Return the data files that the delete files delete from."""
        wanted = set(delete_file_ids)
        found = {row.data_file_id for row in self._deletions if row.delete_file_id in wanted}
        if self._table_id is not None and wanted:
            with self._database.reading() as cursor:
                found |= {row.data_file_id for row in reader.read_deletions(cursor, self._table_id, wanted)}
        return found

    def at_paths(self, listed: Listed, paths: Iterable[str]) -> list[FileRow]:
        """Return live data files of the manifests by path; a path may have been added more than once."""
        wanted = set(paths)
        if not wanted:
            return []
        ids = {file_id for file_id, file in self._new.items() if file.path in wanted and file.content == 0}
        if self._table_id is not None:
            with self._database.reading() as cursor:
                ids |= reader.find_data_files_at(cursor, self._table_id, wanted)
        return list(self.files(self.find_among(listed, ids)).values())

    def read_virtual_files(self, file_ids: Iterable[int]) -> dict[int, VirtualFileRow]:
        """Return those of the files that serve inlined rows."""
        old = set(file_ids) - self._new.keys()
        if self._table_id is None or not old:
            return {}
        with self._database.reading() as cursor:
            return reader.read_virtual_files(cursor, self._table_id, old)

    def read_inlined_deletes(self, files: Iterable[FileRow]) -> dict[int, frozenset[int]]:
        """Return the positions that DuckLake keeps deleted in rows of its own, by data file."""
        ids = {file.ducklake_id: file.file_id for file in files if file.ducklake_id is not None}
        if self._table_id is None or not ids:
            return {}
        found: dict[int, set[int]] = {}
        with self._database.reading() as cursor:
            for delete in inlined_rows.read_inlined_deletes(
                cursor, self._table_id, native.read_newest_snapshot(cursor)
            ):
                if delete.data_file_id in ids:
                    found.setdefault(ids[delete.data_file_id], set()).add(delete.position)
        return {file_id: frozenset(deleted) for file_id, deleted in found.items()}

    def build_difference(self, before: Listed, after: Listed) -> FileSetDifference:
        """Build the difference of main before and after: rows that come and go, by file."""
        gone, come = self.find_changed_files(before, after)
        files = self.files(gone | come)
        deletes = {file_id for file_id, file in files.items() if file.content != FileContent.DATA}
        left, joined = sorted(gone - deletes), sorted(come - deletes)
        kept = self.find_among(after, self.targets_of(deletes)) - come
        touched = {*left, *joined, *kept}
        if not touched:
            return FileSetDifference()
        known = self.files(kept)
        deletions = self.deletions_of(touched)
        return FileSetDifference(
            left=left,
            joined=[files[file_id] for file_id in joined],
            kept=[known[file_id] for file_id in sorted(kept)],
            deleted_before=self._find_deleted(before, deletions),
            deleted_after=self._find_deleted(after, deletions),
            virtual=self.read_virtual_files(touched),
            inlined=self.read_inlined_deletes(known.values()),
        )

    def find_changed_files(self, before: Listed, after: Listed) -> tuple[set[int], set[int]]:
        """Return (files of the first list alone, files of the second alone); manifests of both aren't read."""
        shared = {m.manifest_id for m in before} & {m.manifest_id for m in after}
        old = self.live(manifest for manifest in before if manifest.manifest_id not in shared)
        new = self.live(manifest for manifest in after if manifest.manifest_id not in shared)
        return old - new, new - old

    def _find_deleted(self, listed: Listed, deletions: Sequence[DeletionRow]) -> dict[int, frozenset[int]]:
        if not deletions:
            return {}
        live = self.find_among(listed, {row.delete_file_id for row in deletions})
        return collect_deleted_positions(deletions, self.files(live))

    def folders(self) -> tuple[str, ...]:
        """Return where files of the table may lie besides its location.

        DuckLake's folder, and the locations that it had.
        """
        if self._table_id is None:
            return (self.folder(),)
        with self._database.reading() as cursor:
            return (native.read_path_prefix(cursor, self._table_id), *reader.read_locations(cursor, self._table_id))

    def folder(self) -> str:
        """Return where DuckLake keeps the table's own files."""
        with self._database.reading() as cursor:
            if self._creation is not None:
                return native.predict_path_prefix(cursor, self._creation)
            assert self._table_id is not None
            return native.read_path_prefix(cursor, self._table_id)

    def _live(self, listed: Iterable[ListedManifest]) -> dict[int, Mapping[int, int]]:
        """Return the live file ids of each manifest, with their sequence numbers."""
        given = {manifest.manifest_id: manifest.live for manifest in listed}
        bare = sorted(id_ for id_, live in given.items() if live is None and id_ not in self._live_files)
        if bare:
            read: dict[int, dict[int, int]] = {manifest_id: {} for manifest_id in bare}
            with self._database.statement(only_reads=True) as cursor:
                for file in reader.read_live_files(cursor, bare):
                    read[file.manifest_id][file.file_id] = file.sequence_number
            self._live_files |= read
        return {id_: self._live_files[id_] if live is None else live for id_, live in given.items()}
