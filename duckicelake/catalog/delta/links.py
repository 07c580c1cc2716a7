"""Where DuckLake finds the files whose paths don't say their partition: below links, or copies, whose folders do."""

from collections.abc import Iterable
from pathlib import Path

from duckicelake.bridge.delta.files import TranslatedFile
from duckicelake.bridge.delta.paths import PartitionColumn, linked_folder
from duckicelake.bridge.increments import LakeCopy
from duckicelake.catalog.access.confinement import write
from duckicelake.catalog.commits.workspace import Workspace
from duckicelake.catalog.services import Services
from duckicelake.errors import FileMissing, Unavailable, Unsupported
from duckicelake.storage.parallel import in_parallel


class Linker:
    """Makes them in the table's DuckLake folder. copies: make copies where the store has no links."""

    def __init__(self, services: Services, space: Workspace, *, copies: bool) -> None:
        self._services = services
        self._space = space
        self._copies = copies

    def of(self, columns: tuple[PartitionColumn, ...], files: Iterable[TranslatedFile]) -> tuple[LakeCopy, ...]:
        """A place for each file; Unsupported where there can't be one."""
        wanted = list(files)
        folder = self._space.folder() if wanted else ""
        if wanted and self._services.store.local_path(wanted[0].file.path) is None and not self._copies:
            raise Unsupported(
                "partition-columns",
                f"{wanted[0].file.path} has no column {columns[0].names[-1]}, nor do its folders say the value: "
                "DuckLake needs a copy in folders that do; --copy-for-duckdb makes one of each such file, in the store",
            )
        return tuple(in_parallel(lambda each: self._made(folder, columns, each), wanted))

    def _made(self, folder: str, columns: tuple[PartitionColumn, ...], each: TranslatedFile) -> LakeCopy:
        file = each.file
        name = f"{linked_folder(columns, each.values)}{file.file_id}-{file.path.rpartition('/')[2]}"
        source, place = (self._services.store.local_path(location) for location in (file.path, folder + name))
        if source is None or place is None:
            write(self._services, folder + name, self._services.store.read(file.path))
        else:
            _link(source, place)
        return LakeCopy(file.file_id, name, file.file_size_in_bytes)


def _link(source: Path, place: Path) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(source)
    except FileNotFoundError as error:
        raise FileMissing(f"{place} can't be made: {error.strerror}") from error
    except OSError as error:
        raise Unavailable(f"{place} can't be made a link to {source}: {error.strerror}") from error
