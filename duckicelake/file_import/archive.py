"""Move loaded files out of a watched folder or prefix."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from duckicelake.errors import BadInputError, PipelineError
from duckicelake.extras import import_extra
from duckicelake.file_import.source_files import InputFile, find_base, is_hidden, open_bucket


@dataclass(frozen=True, slots=True)
class Archive:
    """A folder, or a prefix of the same bucket, for loaded files. They keep their places below the watched one."""

    base: str
    place: str

    def keep(self, file: InputFile) -> None:
        """Move a file into the archive; a file of the same name is kept, too. One that is gone already is no error."""
        below = file.name.removeprefix(self.base).lstrip("/")
        try:
            if file.is_remote:
                self._move_object(file, below)
            else:
                self._move_file(file, below)
        except FileNotFoundError:
            return
        except Exception as error:
            raise PipelineError(f"{file.name} is loaded, but can't be moved to {self.place}: {error}") from error

    def _move_file(self, file: InputFile, below: str) -> None:
        target = Path(self.place) / below
        if target.exists():
            target = target.with_name(f"{target.name}.{file.version}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file.name, target)

    def _move_object(self, file: InputFile, below: str) -> None:
        obstore = import_extra("obstore")
        store, root, prefix = open_bucket(self.place)
        key = file.name.removeprefix(f"{root}/")
        target = f"{prefix.rstrip('/')}/{below}".lstrip("/")
        obstore.copy(store, key, target, overwrite=True)
        obstore.delete(store, key)


def open_archive(location: str, place: str) -> Archive:
    """Check where loaded files go. Raises BadInputError for a place that the watch would read again, or can't reach."""
    base = find_base(location)
    if "://" in location:
        bucket = "/".join(location.split("/")[:3])
        if not place.startswith(f"{bucket}/"):
            raise BadInputError(f"Invalid --archive {place}: expected a prefix of {bucket}, where the files are")
    elif "://" in place:
        raise BadInputError(f"Invalid --archive {place}: expected a folder, as the files are in one")
    else:
        place = str(Path(place).absolute())
    below = place.removeprefix(base).lstrip("/")
    if place == base or (place.startswith(f"{base}/") and not is_hidden(below)):
        raise BadInputError(
            f"Invalid --archive {place}: it is watched itself; name another folder, or one that begins with a dot"
        )
    return Archive(base, place)
