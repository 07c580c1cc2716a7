"""What the delete files of an upload delete: positions, by data file.

Whatever a client writes (position deletes, deletion vectors), the positions are read once, before any lock, and kept as
rows: DuckLake knows no other deletes, and every later question about deleted rows is answered from them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from duckicelake.bridge import positions
from duckicelake.bridge.realise import DELETION_VECTOR, AnyFile
from duckicelake.catalog.commits.uploaded_files import read_uploaded
from duckicelake.catalog.commits.workspace import Listed, Workspace
from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.manifest import FileContent, ManifestContent
from duckicelake.iceberg.puffin import read_deletion_vector
from duckicelake.lake.additions import NewDeletion, NewFile
from duckicelake.storage.parallel import in_parallel
from duckicelake.storage.parquet import read_position_deletes

Positions = Mapping[str, Sequence[int]]
"""Deleted positions by the path of their data file."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Data files that a snapshot's delete files may delete from: its parent's without those removed, and its own."""

    space: Workspace
    parent: Listed
    removed: frozenset[int]
    own: Sequence[NewFile]

    def at(self, paths: set[str]) -> dict[str, list[AnyFile]]:
        """Live data files by path; a path may have been added more than once."""
        found: defaultdict[str, list[AnyFile]] = defaultdict(list)
        for file in (*self.space.at_paths(self.parent, paths), *self.own):
            is_target = file.content == FileContent.DATA and file.path in paths
            if is_target and file.file_id not in self.removed:
                found[file.path].append(file)
        return found

    def of_parent(self) -> list[AnyFile]:
        """All live data files of the parent."""
        return self._live(ManifestContent.DATA)

    def equality_of_parent(self) -> list[AnyFile]:
        """All live equality delete files of the parent."""
        return [file for file in self._live(ManifestContent.DELETES) if file.content == FileContent.EQUALITY_DELETES]

    def _live(self, content: ManifestContent) -> list[AnyFile]:
        manifests = [manifest for manifest in self.parent if manifest.content == content]
        return list(self.space.files(self.space.live(manifests) - self.removed).values())


def read_deletions(services: Services, location: str, added: Sequence[NewFile], targets: Targets) -> list[NewDeletion]:
    """The deletions of added position delete files and vectors; positions in files that have left mean nothing.

    InvalidRequest where readers wouldn't agree on what is deleted.
    """
    rows = _matched(services, location, added, targets)
    for delete, target, _ in rows:
        _check_applies(delete, target)
    return [_deletion(*row) for row in rows]


def read_all_deletions(
    services: Services, location: str, files: Sequence[NewFile], targets: Targets
) -> list[NewDeletion]:
    """The deletions of all delete files of a table's history; some of its data files are newer than some deletes."""
    rows = _matched(services, location, files, targets)
    return [_deletion(*row) for row in rows if row[1].sequence_number <= row[0].sequence_number]


def _matched(
    services: Services, location: str, files: Sequence[NewFile], targets: Targets
) -> list[tuple[NewFile, AnyFile, Sequence[int]]]:
    """Each delete file with each data file that it names, and the positions there."""
    deletes = [file for file in files if file.content == FileContent.POSITION_DELETES]
    paths = list(dict.fromkeys(file.path for file in deletes))  # vectors share files
    read = in_parallel(partial(read_uploaded, services, location, what="delete file"), paths)
    data = dict(zip(paths, read, strict=True))
    found = {file.file_id: _positions(file, data[file.path]) for file in deletes}
    by_path = targets.at({path for rows in found.values() for path in rows})
    return [
        (delete, target, rows)
        for delete in deletes
        for path, rows in found[delete.file_id].items()
        for target in by_path.get(path, ())
    ]


def _deletion(delete: NewFile, target: AnyFile, rows: Sequence[int]) -> NewDeletion:
    positions.check({target.file_id: frozenset(rows)}, {target.file_id: target})
    return NewDeletion(delete.file_id, target.file_id, positions.encode(rows))


def _check_applies(delete: NewFile, target: AnyFile) -> None:
    if target.sequence_number > delete.sequence_number:
        raise InvalidRequest(
            f"A delete file with sequence number {delete.sequence_number} deletes from {target.path}, which is newer: "
            "readers don't agree on whether it does"
        )
    if (target.spec_id, target.partition) != (delete.spec_id, delete.partition):
        raise InvalidRequest(
            f"{delete.path} deletes from {target.path}, which is in another partition: "
            "readers don't agree on whether it does"
        )


def _positions(file: NewFile, data: bytes) -> Positions:
    if file.file_format == DELETION_VECTOR:
        return _read_vector(file, data)
    found = read_position_deletes(data, file.path)
    for path, rows in found.items():
        if rows[0] < 0:
            raise InvalidRequest(f"{file.path} deletes position {rows[0]} of {path}: positions are 0 or more")
    return found


def _read_vector(file: NewFile, data: bytes) -> Positions:
    path, offset, size = (
        file.metrics.get(key) for key in ("referenced_data_file", "content_offset", "content_size_in_bytes")
    )
    if path is None or offset is None or size is None:
        raise InvalidRequest(
            f"The deletion vector in {file.path} needs referenced_data_file, content_offset and content_size_in_bytes"
        )
    try:
        rows = read_deletion_vector(data, path, offset, size)
    except InvalidRequest as error:
        raise InvalidRequest(f"{file.path} at {offset}: {error}") from error
    if len(rows) != file.record_count:
        raise InvalidRequest(f"The deletion vector of {path} has {len(rows)} positions, not {file.record_count}")
    return {path: sorted(rows)} if rows else {}
