"""The folders and prefixes from which files may be loaded, where an operator bounds them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from duckicelake.errors import BadInputError, BadSourceError

if TYPE_CHECKING:
    from duckicelake.file_import.source_files import InputFile

_SCHEMES: Final = ("s3://", "gs://", "az://", "abfs://", "abfss://")


@dataclass(frozen=True, slots=True)
class Roots:
    """Folders, without links, and prefixes of buckets; without any, files may lie anywhere."""

    places: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> Roots:
        """Parse places that are joined by commas. Raises BadInputError for one that can't be, and for commas alone."""
        places = tuple(_parse_place(place.strip()) for place in (text or "").split(",") if place.strip())
        if text and not places:
            raise BadInputError(f"Invalid --roots {text!r}: it names no folder or prefix")
        return cls(places)

    def find_path(self, file: InputFile) -> Path:
        """Find the path of a file of this machine, without links if there are roots. Raises as `check`."""
        path = Path(file.name)
        if self.places:
            path = path.resolve()
            self._check_place(file, str(path))
        return path

    def check(self, file: InputFile) -> None:
        """Raise BadSourceError unless the file, and what its links lead to, lies below a root."""
        if self.places:
            self._check_place(file, file.name if file.is_remote else str(Path(file.name).resolve()))

    def _check_place(self, file: InputFile, place: str) -> None:
        if any(_is_below(place, root) for root in self.places):
            return
        what = f"{file.shown} lies" if place == file.name else f"{file.shown} leads to {place}, which lies"
        raise BadSourceError(f"{what} outside of what may be loaded: files below {', '.join(self.places)} (--roots)")


def _parse_place(text: str) -> str:
    text = text.replace("s3a://", "s3://", 1).removeprefix("file://")
    if text.startswith(_SCHEMES):
        return text.rstrip("/")
    if "://" in text or not text.startswith("/"):
        raise BadInputError(f"Invalid --roots {text!r}: expected absolute folders, or s3://, gs:// or az:// prefixes")
    return str(Path(text).resolve())


def _is_below(place: str, root: str) -> bool:
    return place == root or place.startswith(f"{root.rstrip('/')}/")
