"""Find the encodings of text files, and write copies in UTF-8 of those that DuckDB doesn't read."""

from __future__ import annotations

import codecs
import gzip
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from duckicelake.errors import BadInputError, BadSourceError
from duckicelake.extras import import_extra
from duckicelake.file_import.source_files import ReadableFile, check_whole

if TYPE_CHECKING:
    from duckicelake.file_import.source_files import FileFormat

_HEAD_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 1 << 20
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_AS_UTF_8: Final = frozenset({"utf-8", "utf-8-sig", "ascii"})
_LATIN_1: Final = "iso8859-1"
ENCODING_OPTIONS: Final = ("encoding", "charset")


def read_as_utf8(
    files: Sequence[ReadableFile], kind: FileFormat, options: Mapping[str, str], folder: Path
) -> list[ReadableFile]:
    """Return whole files as DuckDB reads their text: those of other encodings than UTF-8 are copied into the folder.

    DuckDB 1.5 takes UTF-16 of big-endian bytes for a file without rows, refuses letters of two units in UTF-16, and
    knows no code pages. options: of the reader, by lower-case names.
    Raises BadSourceError for a file that was cut off or is no text of its encoding, BadInputError for an unknown one.
    """
    if kind not in {"csv", "json"}:
        return list(files)
    given = next((options[name] for name in ENCODING_OPTIONS if name in options), None)
    wanted = None if given is None else _find_codec(given)
    numbers = count()
    return [_read_file(one, kind, wanted, folder / f"text-{next(numbers)}") for one in files]


def _find_codec(name: str) -> str:
    try:
        "".encode(name)  # Python also has codecs that are no encodings, as hex
        return codecs.lookup(name).name
    except LookupError as error:
        raise BadInputError(
            f"Invalid --option encoding={name}: expected an encoding, as utf-16, latin-1 or cp1252"
        ) from error


def _read_file(file: ReadableFile, kind: FileFormat, wanted: str | None, path: Path) -> ReadableFile:
    check_whole(file)
    if not file.found.size:
        return file
    encoding = wanted or ("utf-16" if read_head(file).startswith(_UTF_16) else "utf-8")
    if encoding in _AS_UTF_8:
        return file
    if encoding == _LATIN_1 and kind == "csv":
        return replace(file, encoding="latin-1")
    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")  # a byte that is no letter makes its row bad
    try:
        with closing(open_unpacked(file)) as source, path.open("wb") as copy:
            is_last = False
            while not is_last:
                chunk = source.read(_CHUNK_BYTES)
                is_last = not chunk
                copy.write(decoder.decode(chunk, is_last).encode("utf-8", "surrogateescape"))
    except UnicodeError as error:
        raise BadSourceError(f"{file.found.name} is no text of {encoding}: {error}; see --option encoding") from error
    return replace(file, path=path, compression="uncompressed")


def open_unpacked(file: ReadableFile) -> BinaryIO:
    """Open a file for its unpacked bytes."""
    if file.compression == "gzip":
        return cast("BinaryIO", gzip.open(file.path))
    if file.compression == "zstd":
        return cast("BinaryIO", import_extra("zstandard").open(file.path, "rb"))
    return file.path.open("rb")


def read_head(file: ReadableFile) -> bytes:
    """Read the first bytes of a file, unpacked. Raises BadSourceError."""
    try:
        with closing(open_unpacked(file)) as stream:
            return stream.read(_HEAD_BYTES)
    except (OSError, EOFError) as error:
        raise BadSourceError(f"{file.found.name} can't be read: {error}") from error
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise BadSourceError(f"{file.found.name} is damaged or cut off: {error}; copy it again") from error
