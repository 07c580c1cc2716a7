"""Find the files to load: of this machine, or of a bucket, which are copied into a temporary folder first."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from glob import glob, has_magic
from pathlib import Path
from threading import Event
from typing import Any, Final, Literal, cast, get_args

from duckicelake.errors import BadInputError, BadSourceError, JobConflictError, PipelineError
from duckicelake.extras import import_extra
from duckicelake.file_import.roots import Roots
from duckicelake.pipeline.sources import SourceFile

FileFormat = Literal["csv", "json", "parquet", "arrow", "avro"]
FILE_FORMATS: Final = get_args(FileFormat)
_SUFFIX_FORMATS: Final[Mapping[str, FileFormat]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".avro": "avro",
}
_COMPRESSIONS: Final = {".gz": "gzip", ".zst": "zstd"}
_URL: Final = re.compile(r"(s3a?|gs|az|abfss?)://([^/]+)/?(.*)", re.DOTALL)
_CHUNK_BYTES: Final = 1 << 20
_MAX_NAMED: Final = 5
_COPY_THREADS: Final = 4


@dataclass(frozen=True, slots=True, order=True)
class InputFile:
    """A file to load.

    Attributes:
        name: as people know it: a path, or a URL.
        size: bytes.
        version: its ETag, or the time of its last change in ms.

    """

    name: str
    size: int
    version: str

    @property
    def identity(self) -> SourceFile:
        """Return what the fingerprint of a run has of it."""
        return SourceFile(f"{self.name} {self.version}", self.size, 0)

    @property
    def shown(self) -> str:
        """Its name, with marks in place of bytes that are no text."""
        return self.name.encode(errors="replace").decode()

    @property
    def is_remote(self) -> bool:
        """Whether it lies in a bucket."""
        return "://" in self.name


@dataclass(frozen=True, slots=True)
class ReadableFile:
    """A file that DuckDB can read.

    Attributes:
        path: the file itself, or its copy.
        compression: what DuckDB calls it.
        encoding: of a text, as DuckDB calls it.

    """

    found: InputFile
    path: Path
    compression: str
    encoding: str = "utf-8"


def _find_compression(file: InputFile) -> str:
    return _COMPRESSIONS.get(Path(file.name).suffix.lower(), "uncompressed")


def find_files(locations: Sequence[str], format_: str | None) -> tuple[list[InputFile], FileFormat]:
    """Find the files of paths, folders, patterns and URLs, and their format.

    Raises BadSourceError if a location has none, BadInputError if the format isn't clear.
    """
    if not locations:
        raise BadInputError("No files given: expected files, folders, patterns or URLs, as sales/*.csv")
    found: dict[str, InputFile] = {}
    for location in locations:
        matches = list(list_location(location, format_))
        if not matches:
            kinds = format_ or ", ".join(sorted(_SUFFIX_FORMATS))
            raise BadSourceError(f"{location} has no files ({kinds}): check the path, or give --format")
        found |= {one.name: one for one in matches}
    files = sorted(found.values())
    return files, cast("FileFormat", format_) if format_ else _guess_format(files)


def list_location(location: str, format_: str | None) -> Iterator[InputFile]:
    """List the files of one location. In folders, hidden files and those of other formats are left out.

    Raises BadSourceError if one can't be read.
    """
    if "://" in location and not location.startswith("file://"):
        yield from _list_bucket(location, format_)
        return
    path = location.removeprefix("file://")
    for one in _list_paths(Path(path), format_):
        try:
            with one.open("rb"):
                found = _describe(one)
        except OSError as error:
            raise BadSourceError(f"{one} can't be read: {error.strerror}") from error
        check_name(found)
        yield found


def check_name(file: InputFile) -> None:
    """Raise BadSourceError for a name that neither DuckDB nor the catalog can write."""
    if file.shown != file.name:
        raise BadSourceError(f"{file.shown}: the name is no UTF-8; rename the file")


def list_arrivals(location: str, format_: str | None) -> list[InputFile]:
    """List the files of a folder, pattern or prefix that come and go, whether they can be read or not.

    Files without the suffix of a format are left out unless it is given. Raises BadSourceError without such a place.
    """
    if "://" in location and not location.startswith("file://"):
        return [one for one in _list_bucket(location, format_) if format_ or find_format(one.name)]
    path = location.removeprefix("file://")
    if not has_magic(path) and not Path(path).exists():
        raise BadSourceError(f"{location} isn't there: expected a folder, or a pattern as in/*.csv")
    found = []
    for one in _list_paths(Path(path), format_):
        if format_ or find_format(one.name):
            with suppress(FileNotFoundError):
                found.append(_describe(one))
    return found


def _list_paths(path: Path, format_: str | None) -> Iterator[Path]:
    """List the files of a path that may be a pattern, or a folder."""
    if has_magic(str(path)) and not path.exists():
        matches = sorted(glob(str(path), recursive=True))  # noqa: PTH207 - absolute patterns, too
        yield from (Path(match) for match in matches if Path(match).is_file())
    elif path.is_dir():
        below = (one for one in sorted(path.rglob("*")) if one.is_file())
        yield from (one for one in below if _is_wanted(one.relative_to(path).as_posix(), format_))
    else:
        yield path


def find_base(location: str) -> str:
    """Return the folder or prefix below which the files of a location lie, without a slash at its end."""
    path = location.removeprefix("file://")
    is_remote = "://" in path
    fixed = re.split(r"[*?\[]", path, maxsplit=1)[0]
    if fixed != path and (is_remote or not Path(path).exists()):
        path = fixed.rpartition("/")[0]
    return path.rstrip("/") if is_remote else str(Path(path or ".").absolute())


def _describe(path: Path) -> InputFile:
    status = path.stat()
    return InputFile(str(path.absolute()), status.st_size, str(status.st_mtime_ns // 1_000_000))


def is_hidden(name: str) -> bool:
    """Return whether folders leave a file out by its name, or by that of a folder below the watched one."""
    return any(part.startswith((".", "_")) for part in name.split("/"))


def _is_wanted(name: str, format_: str | None) -> bool:
    if is_hidden(name):
        return False
    kind = find_format(name)
    return kind is not None if format_ is None else kind in {None, format_}


def find_format(name: str) -> FileFormat | None:
    """Find the format of a file by its suffix, below that of its compression."""
    path = Path(name.lower())
    if path.suffix in _COMPRESSIONS:
        path = path.with_suffix("")
    return _SUFFIX_FORMATS.get(path.suffix)


def _guess_format(files: Iterable[InputFile]) -> FileFormat:
    kinds = {find_format(one.name): one.name for one in files}
    if len(kinds) == 1 and None not in kinds:
        return cast("FileFormat", next(iter(kinds)))
    named = ", ".join(list(kinds.values())[:_MAX_NAMED])
    problem = "the suffix doesn't say it" if len(kinds) == 1 else "the files have several"
    raise BadInputError(f"Unknown format of {named}: {problem}; give --format {'|'.join(FILE_FORMATS)}")


def open_bucket(location: str) -> tuple[Any, str, str]:
    """Open a bucket with the credentials of this machine; return it, its URL and the rest of the location."""
    match = _URL.fullmatch(location)
    if match is None:
        raise BadInputError(f"Invalid location {location!r}: expected a path, or s3://, gs:// or az:// and a bucket")
    scheme, bucket, rest = "s3" if match[1] == "s3a" else match[1], match[2], match[3]
    root = f"{scheme}://{bucket}"
    try:
        return import_extra("obstore.store").from_url(root), root, rest
    except ValueError as error:
        raise BadInputError(f"{root} can't be opened: {error}") from error


def _list_bucket(location: str, format_: str | None) -> Iterator[InputFile]:
    store, root, rest = open_bucket(location)
    prefix = re.split(r"[*?\[]", rest, maxsplit=1)[0]
    folder = prefix if prefix == rest else prefix.rpartition("/")[0]
    try:
        for batch in import_extra("obstore").list(store, folder.rstrip("/") or None):
            for meta in batch:
                key = str(meta["path"])
                if _matches(key, rest, format_):
                    yield _describe_object(root, meta)
        if prefix == rest and find_format(rest) is not None:
            yield _describe_object(root, import_extra("obstore").head(store, rest))
    except FileNotFoundError:
        return
    except Exception as error:
        raise BadSourceError(f"{location} can't be listed: {' '.join(str(error).split())[:300]}") from error


def _describe_object(root: str, meta: Mapping[str, Any]) -> InputFile:
    return InputFile(f"{root}/{meta['path']}", int(meta["size"]), str(meta["e_tag"] or meta["last_modified"]))


def _matches(key: str, wanted: str, format_: str | None) -> bool:
    if re.search(r"[*?\[]", wanted):
        return fnmatch(key, wanted)
    below = key.removeprefix(wanted.rstrip("/")).lstrip("/")
    return _is_wanted(below or key.rpartition("/")[2], format_)


def fetch_files(files: Sequence[InputFile], folder: Path, roots: Roots) -> list[ReadableFile]:
    """Return the files as DuckDB can read them: those of buckets are copied into the folder.

    Raises BadSourceError for one that lies outside of the roots or can't be read, PipelineError.
    """
    is_ended = Event()

    def fetch(numbered: tuple[int, InputFile]) -> ReadableFile:
        number, one = numbered
        if not one.is_remote:
            return ReadableFile(one, roots.find_path(one), _find_compression(one))
        roots.check(one)
        path = folder / f"{number}{''.join(Path(one.name).suffixes[-2:])}"
        store, root, _ = open_bucket(one.name)
        try:
            with path.open("wb") as copy:
                for chunk in import_extra("obstore").get(store, one.name.removeprefix(f"{root}/")).stream(_CHUNK_BYTES):
                    if is_ended.is_set():
                        break
                    copy.write(chunk)
        except (FileNotFoundError, PermissionError) as error:
            raise BadSourceError(f"{one.name} can't be read: {' '.join(str(error).split())[:300]}") from error
        except Exception as error:
            raise PipelineError(f"{one.name} can't be read now: {' '.join(str(error).split())[:300]}") from error
        return ReadableFile(one, path, _find_compression(one))

    with ThreadPoolExecutor(_COPY_THREADS) as pool:
        try:
            return list(pool.map(fetch, enumerate(files)))
        finally:  # after Ctrl-C or an error the pool waits for what its threads do
            is_ended.set()


def check_unchanged(files: Iterable[InputFile]) -> None:
    """Raise JobConflictError if a file of this machine is gone, or another than the one that was found."""
    for one in files:
        if not one.is_remote and not is_unchanged(one):
            raise JobConflictError(f"{one.name} was changed while it was read: nothing was loaded; run it again")


def is_unchanged(file: InputFile) -> bool:
    """Return whether a file is still there, as it was found."""
    try:
        if not file.is_remote:
            return _describe(Path(file.name)) == file
        store, root, _ = open_bucket(file.name)
        return _describe_object(root, import_extra("obstore").head(store, file.name.removeprefix(f"{root}/"))) == file
    except FileNotFoundError:
        return False


def check_whole(file: ReadableFile) -> None:
    """Raise BadSourceError for a compressed file that was cut off, of which DuckDB reads what is there."""
    try:
        if file.compression == "gzip":
            with gzip.open(file.path) as stream:
                while stream.read(_CHUNK_BYTES):
                    pass
        elif file.compression == "zstd":
            _check_whole_zstd(file.path)
    except (OSError, EOFError, zlib.error) as error:
        raise BadSourceError(f"{file.found.name} is damaged or cut off: {error}; copy it again") from error


def _check_whole_zstd(path: Path) -> None:
    """Raise EOFError unless a file ends with the end of a frame: zstandard's own streams don't look."""
    zstandard = import_extra("zstandard")
    with path.open("rb") as raw:
        frame, is_within = zstandard.ZstdDecompressor().decompressobj(), False
        while chunk := raw.read(_CHUNK_BYTES):
            while chunk:
                try:
                    frame.decompress(chunk)
                except zstandard.ZstdError as error:
                    raise EOFError(str(error)) from error
                is_within, chunk = not frame.eof, frame.unused_data
                if frame.eof:
                    frame = zstandard.ZstdDecompressor().decompressobj()
    if is_within:
        raise EOFError("it ends within a frame")
