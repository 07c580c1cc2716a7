"""Read the commits and checkpoints of one table's log; DamagedLogError names a torn or missing file."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import orjson

from duckicelake.delta.log.actions import NOTHING, AddFile, DeletionVector, Metadata
from duckicelake.delta.log.decoder import ACTION_SETTERS, LogActions, parse_partition_values, parse_vector, read_actions
from duckicelake.delta.log.paths import decode_path, locate_sidecar
from duckicelake.delta.log.segments import FOLDER, CheckpointFiles, LogListing, LogStore, has_hole, parse_listing
from duckicelake.errors import DamagedLogError, FileMissingError
from duckicelake.extras import DeferredModule

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa = DeferredModule("pyarrow")
    pq = DeferredModule("pyarrow.parquet")


PARSED_STATS_FIELD: Final = "stats_parsed"
ADD_FIELDS: Final = (
    "path",
    "partitionValues",
    "size",
    "modificationTime",
    "dataChange",
    "stats",
    PARSED_STATS_FIELD,
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
    "tags",
)
"""Fields read of a checkpoint's adds."""
_REQUIRED_ADD_FIELDS: Final = ("path", "size", "modificationTime")
_KINDS: Final = ("metaData", "protocol", "txn", "domainMetadata", "sidecar", "add")
"""Actions that are read of a checkpoint. `remove` is a tombstone there, which only VACUUM needs."""
_METADATA_COLUMNS: Final = ("metaData",)
_CHECKPOINT_BATCH: Final = 1 << 13
"""Rows of a file that are decoded at a time."""
_READ_AHEAD_FILES: Final = 8
"""Files that are fetched before they are asked for, where each takes a round trip."""
_MAX_TEXT_BYTES: Final = 1 << 29
"""Bytes of a commit, about a million files. A commit is in memory as a whole, more than once."""


def format_parsed_stats(row: dict[str, Any]) -> str:
    """Format statistics as JSON: no nulls, dates and times as ISO 8601, decimals as numbers with all digits."""
    return orjson.dumps(_convert_struct(row)).decode()


def _convert_struct(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _convert_value(value) for name, value in row.items() if value is not None}


def _convert_value(value: Any) -> Any:
    match value:
        case dict():
            return _convert_struct(value)
        case datetime():
            return _format_timestamp(value)
        case date():
            return value.isoformat()
        case Decimal():
            return orjson.Fragment(f"{value:f}")
        case float() if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case _:
            return value


def _format_timestamp(value: datetime) -> str:
    digits = "microseconds" if value.microsecond % 1000 else "milliseconds"
    if value.tzinfo is None:
        return value.isoformat(timespec=digits)
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=digits) + "Z"


def read_adds(column: pa.StructArray) -> Iterable[AddFile]:
    """Read the files of a column without nulls; ValueError names a missing field."""
    fields = dict(zip(column.type.names, column.flatten(), strict=True))
    for name in _REQUIRED_ADD_FIELDS:
        if fields[name].null_count:
            raise ValueError(f"an add has no {name}")
    count = len(column)
    return map(
        AddFile,
        map(decode_path, fields["path"].to_pylist()),
        map(parse_partition_values, _read_maps(fields.get("partitionValues"), count)),
        fields["size"].to_pylist(),
        fields["modificationTime"].to_pylist(),
        [False] * count,
        _read_stats(fields, count),
        _read_vectors(fields.get("deletionVector"), count),
        _read_values(fields.get("baseRowId"), count),
        _read_values(fields.get("defaultRowCommitVersion"), count),
        _read_maps(fields.get("tags"), count),
    )


def _read_stats(fields: Mapping[str, pa.Array], count: int) -> list[str | None]:
    """Read the log's texts, else those of the parsed columns, if there are any."""
    texts, parsed = _read_values(fields.get("stats"), count), fields.get(PARSED_STATS_FIELD)
    if parsed is None or None not in texts:
        return texts
    pairs = zip(texts, parsed.to_pylist(), strict=True)
    return [format_parsed_stats(row) if text is None and row is not None else text for text, row in pairs]


def _read_values(column: pa.Array | None, count: int) -> list[Any]:
    return [None] * count if column is None or column.null_count == count else column.to_pylist()


def _read_vectors(column: pa.Array | None, count: int) -> list[DeletionVector | None]:
    return [None if row is None else parse_vector(row) for row in _read_values(column, count)]


def _read_maps(column: pa.Array | None, count: int) -> list[Mapping[str, str | None]]:
    """Read each map as a dictionary; a null one is empty."""
    if column is None or column.null_count == count:
        return [NOTHING] * count
    offsets = column.offsets.to_pylist()
    if offsets[0] == offsets[-1]:
        return [NOTHING] * count
    keys, items = column.keys.to_pylist(), column.items.to_pylist()
    base = 0 if len(keys) == offsets[-1] else offsets[0]
    return [
        dict(zip(keys[start - base : end - base], items[start - base : end - base], strict=True))
        for start, end in pairwise(offsets)
    ]


def read_checkpoint(store: LogStore, root: str, checkpoint: CheckpointFiles) -> Iterator[LogActions]:
    """Yield the state in a checkpoint in parts: it may hold millions of files.

    DamagedLogError names a torn or missing file.
    """
    sidecars: list[str] = []
    for file in checkpoint.files:
        for actions in _read_part(store, file.location, _KINDS):
            sidecars += actions.sidecars
            yield actions
    for path in sidecars:
        yield from _read_part(store, locate_sidecar(root, path), _KINDS)


def read_metadata(store: LogStore, checkpoint: CheckpointFiles) -> Metadata | None:
    """Read only the table's metadata. Sidecars hold none."""
    parts = (actions for file in checkpoint.files for actions in _read_part(store, file.location, _METADATA_COLUMNS))
    return next((actions.metadata for actions in parts if actions.metadata is not None), None)


def _read_part(store: LogStore, location: str, kinds: Sequence[str]) -> Iterator[LogActions]:
    try:
        data = store.read(location)
    except FileMissingError as error:
        raise DamagedLogError(f"a checkpoint can't be read: its file {location} doesn't exist") from error
    if location.endswith(".json"):
        actions = read_actions(data, location)
        actions.removes.clear()
        yield actions
        return
    try:
        yield from _read_parquet(data, kinds)
    except (pa.ArrowException, OSError) as error:
        raise DamagedLogError(f"the checkpoint's file {location} can't be read as Parquet: {error}") from error
    except KeyError as error:
        raise DamagedLogError(f"the checkpoint's file {location}: an action lacks {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise DamagedLogError(f"the checkpoint's file {location}: an action isn't one of Delta's: {error}") from error


def _read_parquet(data: bytes, kinds: Sequence[str]) -> Iterator[LogActions]:
    file = pq.ParquetFile(pa.BufferReader(data))
    present = [kind for kind in kinds if kind in file.schema_arrow.names]
    columns = [kind for kind in present if kind != "add"]
    columns += [f"add.{name}" for name in ADD_FIELDS if "add" in present]
    return map(_collect_actions, file.iter_batches(batch_size=_CHECKPOINT_BATCH, columns=columns))


def _collect_actions(batch: pa.RecordBatch) -> LogActions:
    actions = LogActions()
    for kind in batch.schema.names:
        found = batch.column(kind).drop_null()
        if kind == "add" and len(found):
            actions.adds += read_adds(found)
        elif kind != "add":
            for row in found.to_pylist(maps_as_pydicts="strict"):
                ACTION_SETTERS[kind](actions, row)
    return actions


class LogFiles:
    """The `_delta_log` of the table in the folder `root`."""

    def __init__(self, store: LogStore, root: str) -> None:
        self.store = store
        self.root = root

    def listing(self) -> LogListing:
        """List the log now.

        It is listed twice if a commit seems missing: a listing may miss one that is made meanwhile.
        """
        found = self._list_log()
        return self._list_log() if has_hole(found) else found

    def _list_log(self) -> LogListing:
        return parse_listing(self.root, self.store.files_below(f"{self.root}/{FOLDER}"))

    def actions(self, location: str) -> LogActions:
        """Read a commit or a compaction."""
        return read_actions(self._read(location), location)

    def all_actions(self, locations: Sequence[str]) -> Iterator[LogActions]:
        """Yield the actions of each file, in order; a few files at a time are in memory."""
        for location, data in zip(locations, self._read_all(locations), strict=True):
            yield read_actions(data, location)

    def checkpoint(self, checkpoint: CheckpointFiles) -> Iterator[LogActions]:
        """Yield the state in a checkpoint in parts."""
        return read_checkpoint(self.store, self.root, checkpoint)

    def checkpoint_metadata(self, checkpoint: CheckpointFiles) -> Metadata | None:
        """Read only the metadata in a checkpoint."""
        return read_metadata(self.store, checkpoint)

    def read_metadata_at(self, locations: Sequence[str]) -> Iterator[Metadata | None]:
        """Yield the metadata that each commit sets; None if it sets none, or can't be read."""
        for location, data in zip(locations, self._read_all(locations), strict=True):
            found = None
            if b'"metaData"' in data:
                with suppress(DamagedLogError):
                    found = read_actions(data, location).metadata
            yield found

    def _read(self, location: str) -> bytes:
        try:
            return self.store.read(location, _MAX_TEXT_BYTES)
        except FileMissingError as error:
            raise DamagedLogError(f"{location} was deleted after the log was listed; try again") from error

    def _read_all(self, locations: Sequence[str]) -> Iterator[bytes]:
        if not locations or self.store.local_path(locations[0]) is not None:
            yield from map(self._read, locations)
            return
        with ThreadPoolExecutor(_READ_AHEAD_FILES) as pool:
            waiting: deque[Future[bytes]] = deque()
            for location in locations:
                waiting.append(pool.submit(self._read, location))
                if len(waiting) == _READ_AHEAD_FILES:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
