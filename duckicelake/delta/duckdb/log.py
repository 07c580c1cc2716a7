"""A Delta log that DuckDB itself reads: which files of it, names tell; what they come to, is SQL (`sql/`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Final

import duckdb
import orjson

from duckicelake.delta.actions import DeletionVector, Metadata, Protocol
from duckicelake.delta.duckdb.store import DuckStore, escaped, spelled
from duckicelake.delta.duckdb.types import pointer, quoted
from duckicelake.delta.features import check_readable
from duckicelake.delta.listing import FOLDER, Listing, listing_of
from duckicelake.delta.log import DeltaLog
from duckicelake.delta.parsing import metadata_of, protocol_of, vector_of
from duckicelake.delta.paths import decoded, location, sidecar
from duckicelake.delta.schema import DeltaField, parse_schema
from duckicelake.delta.segments import Segment, check_version, newest, oldest, segments
from duckicelake.delta.times import file_times, in_commit_times
from duckicelake.errors import DamagedLog, InvalidRequest, NotDelta

Connection = duckdb.DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class Table:
    """A table at a version. `connection` has its live files in `delta_live`: path, partition_values, stats, vector."""

    root: str
    version: int
    metadata: Metadata
    connection: Connection
    columns: tuple[DeltaField, ...] = field(default=())

    @property
    def partition_columns(self) -> tuple[DeltaField, ...]:
        return tuple(each for each in self.columns if each.name in self.metadata.partition_columns)

    @property
    def data_columns(self) -> tuple[DeltaField, ...]:
        return tuple(each for each in self.columns if each.name not in self.metadata.partition_columns)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of a table; partition values in the order of the table's partition columns, as the log has them."""

    location: str
    partition_values: Sequence[str | None]
    vector: DeletionVector | None


def query(name: str) -> str:
    """The text of `sql/<name>.sql`."""
    return files("duckicelake.delta").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


_LONG: Final = 1 << 20
"""Bytes of most lines of JSON; DuckDB takes memory for it whether it needs it or not."""
_LONGEST: Final = 1 << 30

_LINES: Final = query("lines")
_COMMITS: Final = query("commits")
_CHECKPOINT: Final = query("checkpoint")
_LIVE: Final = query("live")
_HISTORY: Final = query("history")


def open_table(connection: Connection, path: str, version: int | None, timestamp_ms: int | None) -> Table:
    """The table in a folder at a version or time, else the newest; `connection` is used up for it.

    Raises NotDelta, InvalidRequest, Forgotten, DamagedLog and Unsupported, as DeltaLog does.
    """
    if version is not None and timestamp_ms is not None:
        raise InvalidRequest("read_delta takes a version or a timestamp, not both")
    root = _root(path)
    connection.execute("SET TimeZone = 'UTC'")
    if timestamp_ms is not None:
        version = DeltaLog(DuckStore(connection, timed=True), root).version_at(timestamp_ms)
    listing = _listing(connection, root)
    wanted = newest(listing) if version is None else version
    check_version(listing, wanted)
    metadata, protocol = _replayed(connection, listing, wanted)
    check_readable(protocol, root, wanted)
    return Table(root, wanted, metadata, connection, parse_schema(metadata.schema_string).fields)


def partition_text(column: DeltaField) -> str:
    """SQL over `delta_live` for a partition value as the log has it; an empty one is null."""
    return f"nullif(partition_values ->> {quoted(pointer(column.physical_name))}, '')"


def live_files(table: Table, condition: str) -> list[LiveFile]:
    """The files for which a condition on `delta_live` holds, in the order of their paths."""
    values = ", ".join(map(partition_text, table.partition_columns))
    found = table.connection.execute(
        f"SELECT path, [{values}]::VARCHAR[], vector FROM delta_live WHERE {condition} ORDER BY path"
    ).fetchall()
    return [_live_file(table.root, *row) for row in found]


def history_query(connection: Connection, path: str) -> str:
    """A query for what each commit in the log of a table says of itself, newest first."""
    root = _root(path)
    listing = _listing(connection, root, timed=True)
    first = oldest(listing)
    check_version(listing, first)
    times = _times(connection, listing, first)
    commits = [quoted(escaped(file.location)) for version, file in sorted(listing.commits.items()) if version >= first]
    rows = ", ".join(f"({version}, {ms})" for version, ms in times.items())
    return _HISTORY.replace("$times", f"VALUES {rows}").replace("$files", f"[{', '.join(commits)}]")


def _root(path: str) -> str:
    root = decoded(path) if path.startswith("file:") else path
    return spelled(root).rstrip("/") or "/"


def _listing(connection: Connection, root: str, *, timed: bool = False) -> Listing:
    listing = listing_of(root, DuckStore(connection, timed=timed).files_below(f"{root}/{FOLDER}"))
    if listing.newest is None and not listing.torn:
        raise NotDelta(f"{root} isn't a Delta table: there is no {root}/{FOLDER}, or no log in it")
    return listing


def _replayed(connection: Connection, listing: Listing, version: int) -> tuple[Metadata, Protocol]:
    """Fill `delta_live` by the newest checkpoint, or an earlier one where that is torn, as Delta itself does."""
    first: DamagedLog | None = None
    for segment in segments(listing, version):
        try:
            _take(connection, listing.root, segment)
            return _said(connection, listing.root, version)
        except (duckdb.Error, DamagedLog) as error:
            damage = error if isinstance(error, DamagedLog) else DamagedLog(f"the log of {listing.root}: {error}")
            first = first or damage
    raise first or DamagedLog(f"the log of {listing.root} has no way to version {version}")


def _take(connection: Connection, root: str, segment: Segment) -> None:
    connection.execute(_LINES)
    checkpoint = () if segment.checkpoint is None else segment.checkpoint.files
    _read(connection, [file.location for file in (*checkpoint, *segment.tail)])
    sidecars = connection.execute("SELECT DISTINCT sidecar FROM delta_line WHERE sidecar IS NOT NULL").fetchall()
    _read(connection, [sidecar(root, path) for (path,) in sidecars])
    connection.execute(_LIVE)


def _read(connection: Connection, locations: list[str]) -> None:
    lines, rows = ([escaped(each) for each in locations if each.endswith(kind)] for kind in (".json", ".parquet"))
    if lines:
        _read_lines(connection, lines)
    if rows:
        connection.execute(_CHECKPOINT, {"files": rows})


def _read_lines(connection: Connection, patterns: list[str]) -> None:
    try:
        connection.execute(_COMMITS, {"files": patterns, "longest": _LONG})
    except duckdb.InvalidInputException as error:
        if "maximum_object_size" not in str(error):
            raise
        connection.execute(_COMMITS, {"files": patterns, "longest": _LONGEST})


def _said(connection: Connection, root: str, version: int) -> tuple[Metadata, Protocol]:
    found = connection.execute(
        "SELECT max_by(metaData, version), max_by(protocol, version), "
        "count(*) FILTER (added IS NOT NULL AND path IS NULL) FROM delta_line"
    ).fetchone()
    metadata, protocol, nameless = found or (None, None, 0)
    if metadata is None or protocol is None:
        lacking = "metaData" if metadata is None else "protocol"
        raise DamagedLog(f"the log of {root} has no {lacking} up to version {version}: every table's first has one")
    if nameless:
        raise DamagedLog(f"the log of {root} has an add without a path")
    try:
        return metadata_of(orjson.loads(metadata)), protocol_of(orjson.loads(protocol))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedLog(f"the log of {root}: its metaData or protocol isn't Delta's: {error}") from error


def _live_file(root: str, path: str, values: Sequence[str | None], vector: str | None) -> LiveFile:
    return LiveFile(spelled(location(root, path)), values, None if vector is None else vector_of(orjson.loads(vector)))


def _times(connection: Connection, listing: Listing, first: int) -> Mapping[int, int]:
    """When each version was: as commits say, from the version on that the table's newest metadata names."""
    times = dict(file_times(listing, first))
    metadata, _ = _replayed(connection, listing, newest(listing))
    stated = in_commit_times(metadata, listing.root)
    promising = [
        escaped(file.location) for version, file in listing.commits.items() if version in times and stated.has(version)
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
