"""What a snapshot's deletes mean to DuckLake: one delete file for each data file, and inlined rows that end.

DuckLake knows a delete file by its data file alone, and one live delete file for each. So a client's delete files are
split by data file, joined with what DuckLake already deletes there, and written again under DATA_PATH, before any lock.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from uuid import uuid4

from duckicelake.bridge import positions
from duckicelake.bridge.diff import Deletes
from duckicelake.bridge.manifests import ListedManifest
from duckicelake.bridge.uploads import Upload
from duckicelake.catalog.lake_deletes import read_lake_deletes
from duckicelake.catalog.restored import check_nothing_returns
from duckicelake.catalog.services import Services
from duckicelake.catalog.uploads import read_uploaded
from duckicelake.errors import InvalidRequest, Unsupported
from duckicelake.iceberg.manifest import FileContent
from duckicelake.lake import native, reader
from duckicelake.lake.changes import NewDeleteFile, NewDeletion, NewFile
from duckicelake.lake.model import InlinedDelete, InlinedKey, LakeFile
from duckicelake.lake.state import FileRow
from duckicelake.storage.parquet import read_position_deletes, write_position_deletes

Positions = Mapping[int, frozenset[int]]
Earlier = Sequence[tuple[Sequence[NewFile], Deletes]]
"""What the snapshots before it in the same request bring: no row of the catalog tells yet."""


def resolve_deletes(
    services: Services,
    table_id: int | None,
    location: str,
    upload: Upload,
    files: Sequence[NewFile],
    prior: Sequence[ListedManifest],
    earlier: Earlier = (),
) -> Deletes:
    """The deletes of an upload whose files got these rows; reads the client's delete files and writes DuckLake's."""
    older = [file for brought, _ in earlier for file in brought]
    deletions = _added_deletions(services, table_id, location, upload, [*older, *files], files, prior)
    if not (deletions or upload.removed):
        return Deletes()
    if table_id is None:
        raise Unsupported(
            "deletes-on-create", "Rows are deleted by the commit that creates the table: delete them later"
        )
    check_nothing_returns(services, table_id, upload, deletions, prior)
    removed = {row.file_id for row in upload.removed if row.content == FileContent.DATA}
    touched = _touched(deletions, removed)
    done = _touched((row for _, deletes in earlier for row in deletes.deletions), set())
    new = {file.file_id: file for file in (*older, *files)}
    with services.database.reading() as cursor:
        virtual = reader.virtual_files(cursor, table_id, touched.keys() | removed)
        gone = positions.by_data_file(reader.deletions_of(cursor, table_id, virtual))
        known = reader.files(cursor, touched.keys())
        real = {file_id: row for file_id, row in known.items() if file_id not in virtual}
        lake_ids = [row.ducklake_id for row in real.values() if row.ducklake_id is not None]
        existing = {file.target_id: file for file in native.live_delete_files(cursor, table_id, lake_ids)}
        inlined = native.inlined_deletes(cursor, table_id, native.newest_snapshot(cursor))
        folder = native.path_prefix(cursor, table_id)
    positions.check(touched, {**known, **new})
    ended_before = {key for _, deletes in earlier for key in deletes.ended_rows}
    rows: list[InlinedKey] = []
    for file_id, file in virtual.items():
        ended = frozenset(range(len(file.keys))) if file_id in removed else touched[file_id]
        keys = (file.keys[position] for position in sorted(ended - gone.get(file_id, frozenset())))
        rows += [key for key in keys if key not in ended_before]
    targets = {file_id: found for file_id, found in touched.items() if file_id in real or file_id in new}
    before = {i: _deleted_before(services, row, existing, inlined) for i, row in real.items()}
    for file_id in done.keys() & targets.keys():
        in_file, in_rows = before.get(file_id, (frozenset[int](), frozenset[int]()))
        before[file_id] = (in_file | (done[file_id] - in_rows), in_rows)
    written = _write_delete_files(services, targets, before, folder, _paths(new.values(), real))
    return Deletes(deletions, tuple(written), tuple(rows))


def _added_deletions(
    services: Services,
    table_id: int | None,
    location: str,
    upload: Upload,
    brought: Sequence[NewFile],
    files: Sequence[NewFile],
    prior: Sequence[ListedManifest],
) -> tuple[NewDeletion, ...]:
    """The positions in the upload's delete files, by data file; those in files that have left mean nothing."""
    added = [file for file in files if file.content == FileContent.POSITION_DELETES]
    found = {file.file_id: _read_positions(services, location, file) for file in added}
    paths = {path for by_path in found.values() for path in by_path}
    targets: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for file in brought:
        if file.content == FileContent.DATA:
            targets[file.path].append((file.file_id, file.sequence_number))
    if table_id is not None and paths:
        with services.database.reading() as cursor:
            manifest_ids = [manifest.manifest_id for manifest in prior]
            for path, file_id, number in reader.data_files_by_path(cursor, table_id, manifest_ids, paths):
                targets[path].append((file_id, number))
    left = {row.file_id for row in upload.removed}
    numbers = {file.file_id: file.sequence_number for file in added}
    for file_id, by_path in found.items():
        for path in by_path:
            if any(number > numbers[file_id] and target not in left for target, number in targets[path]):
                raise InvalidRequest(
                    f"A delete file with sequence number {numbers[file_id]} deletes from {path}, which is newer: "
                    "readers don't agree on whether it does"
                )
    return tuple(
        NewDeletion(file_id, target, positions.encode(rows))
        for file_id, by_path in found.items()
        for path, rows in by_path.items()
        for target, _ in targets[path]
        if target not in left
    )


def _read_positions(services: Services, location: str, file: NewFile) -> dict[str, list[int]]:
    found = read_position_deletes(read_uploaded(services, location, file.path, "delete file"), file.path)
    for path, rows in found.items():
        if rows[0] < 0:
            raise InvalidRequest(f"{file.path} deletes position {rows[0]} of {path}: positions are 0 or more")
    return found


def _touched(deletions: Iterable[NewDeletion], removed: set[int]) -> Positions:
    """Newly deleted positions by data file that stays."""
    touched: defaultdict[int, frozenset[int]] = defaultdict(frozenset)
    for deletion in deletions:
        touched[deletion.data_file_id] |= positions.decode(deletion.positions)
    return {file_id: found for file_id, found in touched.items() if file_id not in removed}


def _paths(files: Iterable[NewFile], real: Mapping[int, FileRow]) -> dict[int, str]:
    return {file.file_id: file.path for file in files} | {file_id: row.path for file_id, row in real.items()}


def _deleted_before(
    services: Services, row: FileRow, existing: Mapping[int | None, LakeFile], inlined: Iterable[InlinedDelete]
) -> tuple[frozenset[int], frozenset[int]]:
    """What DuckLake already deletes from a data file: (in its delete file, inlined)."""
    file = existing.get(row.ducklake_id)
    in_file = frozenset(read_lake_deletes(services, file)) if file else frozenset[int]()
    return in_file, frozenset(delete.position for delete in inlined if delete.data_file_id == row.ducklake_id)


def _write_delete_files(
    services: Services,
    targets: Positions,
    before: Mapping[int, tuple[frozenset[int], frozenset[int]]],
    folder: str,
    paths: Mapping[int, str],
) -> Iterable[NewDeleteFile]:
    """Write DuckLake's delete files; no position may be in one and inlined as well, or DuckDB misreads both."""
    for file_id, found in targets.items():
        in_file, inlined = before.get(file_id, (frozenset[int](), frozenset[int]()))
        everything = (in_file | found) - inlined
        if everything == in_file:
            continue
        name = f"ducklake-{uuid4()}-delete.parquet"
        data = write_position_deletes([(paths[file_id], position) for position in everything])
        services.store.write(folder + name, data)
        yield NewDeleteFile(file_id, name, len(everything), len(data))
