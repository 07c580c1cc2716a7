"""Read a Delta log with DuckDB's own file systems and SQL (`sql/`)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Final

import duckdb
import orjson

from duckicelake.delta.duckdb.types import format_pointer, quote_text
from duckicelake.delta.log.actions import DeletionVector, Metadata, Protocol, check_readable
from duckicelake.delta.log.clock import compute_file_times, read_in_commit_times
from duckicelake.delta.log.decoder import parse_metadata, parse_protocol, parse_vector
from duckicelake.delta.log.paths import decode_path, locate_sidecar, resolve_location
from duckicelake.delta.log.reader import DeltaLog
from duckicelake.delta.log.schema import DeltaField, parse_schema
from duckicelake.delta.log.segments import (
    FOLDER,
    LogListing,
    LogSegment,
    check_version,
    find_newest_version,
    find_oldest_version,
    find_segments,
    parse_listing,
)
from duckicelake.errors import DamagedLogError, FileMissingError, InvalidRequestError, NoDeltaLogError, UnavailableError

_GLOB: Final = re.compile(r"[\[*?]")
_SCHEME_SPELLINGS: Final = (("s3a://", "s3://"), ("s3n://", "s3://"))
RawConnection = duckdb.DuckDBPyConnection
_MAX_LINES_TAIL: Final = 1 << 20
"""The usual size of a JSON line in bytes; DuckDB always allocates as much."""
_MAX_LINE_BYTES: Final = 1 << 30


def format_location(location: str) -> str:
    """Format a location for DuckDB."""
    if location[:1] == "/":
        return location
    if location.startswith("file:"):
        return "/" + location.removeprefix("file:").lstrip("/")
    for theirs, ours in _SCHEME_SPELLINGS:
        if location.startswith(theirs):
            return ours + location.removeprefix(theirs)
    return location


def escape_pattern(location: str) -> str:
    """Escape a location so that as a pattern it matches only itself."""
    return _GLOB.sub(r"[\g<0>]", format_location(location))


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a log. Its `size` is never needed."""

    location: str
    modified_ms: int
    size: int = 0


class DuckStore:
    """Reads files and lists folders by a DuckDB connection. timed: whether listings have times.

    Threads may call `read` at once.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, *, timed: bool = False) -> None:
        self._connection, self._timed = connection, timed

    def read(self, location: str, at_most: int | None = None) -> bytes:  # noqa: ARG002 - DuckDB reads files whole
        try:
            with self._connection.cursor() as own:
                found = own.execute("SELECT content FROM read_blob(?)", [escape_pattern(location)]).fetchone()
        except duckdb.IOException as error:
            raise FileMissingError(f"{location} can't be read: {error}") from error
        if found is None:
            raise FileMissingError(f"{location} doesn't exist")
        content: bytes = found[0]
        return content

    def files_below(self, folder: str) -> Iterator[ListedFile]:
        """Yield the files directly in a folder. Files further below are found by name."""
        pattern = f"{escape_pattern(folder)}/*"
        try:
            return iter(self._list_files(pattern))
        except duckdb.Error as error:
            raise UnavailableError(f"{folder} can't be listed: {error}") from error

    def size(self, location: str) -> int:
        return len(self.read(location))

    def local_path(self, location: str) -> Path | None:
        return None if "://" in format_location(location) else Path(format_location(location))

    def _list_files(self, pattern: str) -> list[ListedFile]:
        if not self._timed or self.local_path(pattern) is not None:
            names = self._connection.execute("SELECT file FROM glob(?)", [pattern]).fetchall()
            return [ListedFile(name, self._modified_ms(name)) for (name,) in names]
        query = "SELECT filename, epoch_ms(last_modified) FROM read_blob(?)"
        return [ListedFile(*row) for row in self._connection.execute(query, [pattern]).fetchall()]

    def _modified_ms(self, name: str) -> int:
        """Return the time of a local file. DuckDB's own function has whole seconds."""
        return Path(name).stat().st_mtime_ns // 1_000_000 if self._timed else 0


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A table at a version. connection: has its live files in `delta_live`: path, partition_values, stats, vector."""

    root: str
    version: int
    metadata: Metadata
    connection: RawConnection
    columns: tuple[DeltaField, ...] = field(default=())

    @property
    def partition_columns(self) -> tuple[DeltaField, ...]:
        return tuple(column for column in self.columns if column.name in self.metadata.partition_columns)

    @property
    def data_columns(self) -> tuple[DeltaField, ...]:
        return tuple(column for column in self.columns if column.name not in self.metadata.partition_columns)


@dataclass(frozen=True, slots=True)
class DeltaLiveFile:
    """A data file of a table. Partition values are in the order of the partition columns, as in the log."""

    location: str
    partition_values: Sequence[str | None]
    vector: DeletionVector | None


def read_query(name: str) -> str:
    """Read `sql/<name>.sql`."""
    return files("duckicelake.delta.duckdb").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


_LINES: Final = read_query("lines")

_COMMITS: Final = read_query("commits")

_CHECKPOINT: Final = read_query("checkpoint")

_LIVE: Final = read_query("live")

_HISTORY: Final = read_query("history")


def open_table(connection: RawConnection, path: str, version: int | None, timestamp_ms: int | None) -> DeltaTable:
    """Open the table in a folder at a version or time, else the newest. Uses up `connection`.

    Raises NoDeltaLogError, InvalidRequestError, ExpiredError, DamagedLogError and UnsupportedError, as DeltaLog does.
    """
    if version is not None and timestamp_ms is not None:
        raise InvalidRequestError("read_delta takes a version or a timestamp, not both")
    root = _normalize_root(path)
    connection.execute("SET TimeZone = 'UTC'")
    if timestamp_ms is not None:
        version = DeltaLog(DuckStore(connection, timed=True), root).version_at(timestamp_ms)
    listing = _read_listing(connection, root)
    wanted = find_newest_version(listing) if version is None else version
    check_version(listing, wanted)
    metadata, protocol = _load_live(connection, listing, wanted)
    check_readable(protocol, root, wanted)
    return DeltaTable(root, wanted, metadata, connection, parse_schema(metadata.schema_string).fields)


def build_partition_text(column: DeltaField) -> str:
    """Build SQL over `delta_live` for a partition value as in the log; an empty one is null."""
    return f"nullif(partition_values ->> {quote_text(format_pointer(column.physical_name))}, '')"


def read_live_files(table: DeltaTable, condition: str) -> list[DeltaLiveFile]:
    """Read the files for which a condition on `delta_live` is true, in the order of their paths."""
    values = ", ".join(map(build_partition_text, table.partition_columns))
    found = table.connection.execute(
        f"SELECT path, [{values}]::VARCHAR[], vector FROM delta_live WHERE {condition} ORDER BY path"
    ).fetchall()
    return [_build_live_file(table.root, *row) for row in found]


def build_history_query(connection: RawConnection, path: str) -> str:
    """Build a query for the history of a table's commits, newest first."""
    root = _normalize_root(path)
    listing = _read_listing(connection, root, timed=True)
    first = find_oldest_version(listing)
    check_version(listing, first)
    times = _read_times(connection, listing, first)
    commits = [
        quote_text(escape_pattern(file.location))
        for version, file in sorted(listing.commits.items())
        if version >= first
    ]
    rows = ", ".join(f"({version}, {ms})" for version, ms in times.items())
    return _HISTORY.replace("$times", f"VALUES {rows}").replace("$files", f"[{', '.join(commits)}]")


def _normalize_root(path: str) -> str:
    root = decode_path(path) if path.startswith("file:") else path
    return format_location(root).rstrip("/") or "/"


def _read_listing(connection: RawConnection, root: str, *, timed: bool = False) -> LogListing:
    listing = parse_listing(root, DuckStore(connection, timed=timed).files_below(f"{root}/{FOLDER}"))
    if listing.newest is None and not listing.torn:
        raise NoDeltaLogError(f"{root} isn't a Delta table: there is no {root}/{FOLDER}, or no log in it")
    return listing


def _load_live(connection: RawConnection, listing: LogListing, version: int) -> tuple[Metadata, Protocol]:
    """Fill `delta_live` from the newest checkpoint, or from an earlier one if that is torn, as Delta does."""
    first: DamagedLogError | None = None
    for segment in find_segments(listing, version):
        try:
            _load_segment(connection, listing.root, segment)
            return _read_definition(connection, listing.root, version)
        except (duckdb.Error, DamagedLogError) as error:
            damage = (
                error if isinstance(error, DamagedLogError) else DamagedLogError(f"the log of {listing.root}: {error}")
            )
            first = first or damage
    raise first or DamagedLogError(f"the log of {listing.root} has no way to version {version}")


def _load_segment(connection: RawConnection, root: str, segment: LogSegment) -> None:
    connection.execute(_LINES)
    checkpoint = () if segment.checkpoint is None else segment.checkpoint.files
    _read(connection, [file.location for file in (*checkpoint, *segment.tail)])
    sidecars = connection.execute("SELECT DISTINCT sidecar FROM delta_line WHERE sidecar IS NOT NULL").fetchall()
    _read(connection, [locate_sidecar(root, path) for (path,) in sidecars])
    connection.execute(_LIVE)


def _read(connection: RawConnection, locations: list[str]) -> None:
    lines, rows = (
        [escape_pattern(location) for location in locations if location.endswith(kind)]
        for kind in (".json", ".parquet")
    )
    if lines:
        _read_lines(connection, lines)
    if rows:
        connection.execute(_CHECKPOINT, {"files": rows})


def _read_lines(connection: RawConnection, patterns: list[str]) -> None:
    try:
        connection.execute(_COMMITS, {"files": patterns, "longest": _MAX_LINES_TAIL})
    except duckdb.InvalidInputException as error:
        if "maximum_object_size" not in str(error):
            raise
        connection.execute(_COMMITS, {"files": patterns, "longest": _MAX_LINE_BYTES})


def _read_definition(connection: RawConnection, root: str, version: int) -> tuple[Metadata, Protocol]:
    found = connection.execute(
        "SELECT max_by(metaData, version), max_by(protocol, version), "
        "count(*) FILTER (added IS NOT NULL AND path IS NULL) FROM delta_line"
    ).fetchone()
    metadata, protocol, nameless = found or (None, None, 0)
    if metadata is None or protocol is None:
        lacking = "metaData" if metadata is None else "protocol"
        raise DamagedLogError(
            f"the log of {root} has no {lacking} up to version {version}: every table's first has one"
        )
    if nameless:
        raise DamagedLogError(f"the log of {root} has an add without a path")
    try:
        return parse_metadata(orjson.loads(metadata)), parse_protocol(orjson.loads(protocol))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedLogError(f"the log of {root}: its metaData or protocol isn't Delta's: {error}") from error


def _build_live_file(root: str, path: str, values: Sequence[str | None], vector: str | None) -> DeltaLiveFile:
    return DeltaLiveFile(
        format_location(resolve_location(root, path)),
        values,
        None if vector is None else parse_vector(orjson.loads(vector)),
    )


def _read_times(connection: RawConnection, listing: LogListing, first: int) -> Mapping[int, int]:
    """Read each version's time: the commit's own, from the version on that the newest metadata names."""
    times = dict(compute_file_times(listing, first))
    metadata, _ = _load_live(connection, listing, find_newest_version(listing))
    stated = read_in_commit_times(metadata, listing.root)
    promising = [
        escape_pattern(file.location)
        for version, file in listing.commits.items()
        if version in times and stated.has(version)
    ]
    if promising:
        said = connection.execute(
            "SELECT left(parse_filename(filename), 20)::BIGINT, max(commitInfo.inCommitTimestamp) FROM read_json(?, "
            "format = 'newline_delimited', filename = true, "
            "columns = {commitInfo: 'STRUCT(inCommitTimestamp BIGINT)'}) GROUP BY ALL",
            [promising],
        ).fetchall()
        times.update({version: ms for version, ms in said if ms is not None})
    return times
