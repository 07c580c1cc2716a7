"""PURE. The delete files of main while catching up: what each one deletes from, and which are of no use any more."""

from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from duckicelake.bridge import positions
from duckicelake.iceberg.manifest import FileContent
from duckicelake.iceberg.puffin import FILE_FORMAT
from duckicelake.lake.additions import NewDeletion
from duckicelake.lake.state import LiveFiles


class LiveDeletes:
    """Follows main's delete files from step to step; `deleted` are the positions deleted by them, by data file.

    A vector leaves other delete files nothing to delete from its data file.
    """

    def __init__(self, live: LiveFiles) -> None:
        self.deleted = {file_id: set(found) for file_id, found in live.deleted.items()}
        self._targets: dict[int, set[int]] = {}
        self._idle: set[int] = set()
        self._by_data_file: defaultdict[int, set[int]] = defaultdict(set)
        for file_id, targets in _targets(live).items():
            self._add(file_id, targets)

    def idle_without(self, data_files: AbstractSet[int]) -> frozenset[int]:
        """The delete files that delete from no other data file than these."""
        reached = {file_id for each in data_files for file_id in self._by_data_file.get(each, ())}
        return frozenset(self._idle | {file_id for file_id in reached if self._targets[file_id] <= data_files})

    def leave(self, data_files: AbstractSet[int]) -> frozenset[int]:
        """Let go of data files that left main or get a vector of their own; the delete files that leave with them."""
        idle = self.idle_without(data_files)
        for each in data_files:
            for file_id in self._by_data_file.pop(each, ()):
                self._targets[file_id].discard(each)
        for file_id in idle:
            del self._targets[file_id]
        self._idle.clear()
        return idle

    def join(self, deletions: Iterable[NewDeletion]) -> None:
        """Take in what new delete files delete."""
        for row in deletions:
            self._add(row.delete_file_id, {row.data_file_id})
            self.deleted.setdefault(row.data_file_id, set()).update(positions.decode(row.positions))

    def _add(self, file_id: int, targets: Iterable[int]) -> None:
        self._targets.setdefault(file_id, set()).update(targets)
        if not self._targets[file_id]:
            self._idle.add(file_id)
        for each in targets:
            self._by_data_file[each].add(file_id)


def _targets(live: LiveFiles) -> dict[int, AbstractSet[int]]:
    """The live data files that each delete file does delete from."""
    data = {file.file_id for file in live.files if file.content == FileContent.DATA}
    vectors = {file.file_id for file in live.files if file.file_format == FILE_FORMAT}
    bare = data.difference(*(live.delete_targets.get(file_id, ()) for file_id in vectors))
    return {
        file_id: targets & (data if file_id in vectors else bare) for file_id, targets in live.delete_targets.items()
    }
