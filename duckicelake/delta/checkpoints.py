"""Checkpoints: classic, multi-part, and V2 as JSON or Parquet with sidecars (protocol, "Checkpoints")."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from duckicelake.delta.actions import Metadata
from duckicelake.delta.checkpoint_adds import ADD_FIELDS, adds_of
from duckicelake.delta.commit_files import TAKERS, Actions, read_actions
from duckicelake.delta.listing import Checkpoint
from duckicelake.delta.paths import sidecar
from duckicelake.delta.store import LogStore
from duckicelake.errors import DamagedLog, FileMissing

_KINDS: Final = ("metaData", "protocol", "txn", "domainMetadata", "sidecar", "add")
"""What is asked of a checkpoint; `remove` is a tombstone there, which only VACUUM asks for."""
_METADATA: Final = ("metaData",)
_ROWS: Final = 1 << 13
"""Rows of a file that are actions at once, besides those that are kept."""


def read_checkpoint(store: LogStore, root: str, checkpoint: Checkpoint) -> Iterator[Actions]:
    """The state that a checkpoint holds, some of it at a time: it may tell of millions of files.

    DamagedLog names the file of it that is torn or isn't there.
    """
    sidecars: list[str] = []
    for file in checkpoint.files:
        for actions in _read(store, file.location, _KINDS):
            sidecars += actions.sidecars
            yield actions
    for path in sidecars:
        yield from _read(store, sidecar(root, path), _KINDS)


def read_metadata(store: LogStore, checkpoint: Checkpoint) -> Metadata | None:
    """The table's metadata alone; sidecars hold none."""
    parts = (actions for file in checkpoint.files for actions in _read(store, file.location, _METADATA))
    return next((actions.metadata for actions in parts if actions.metadata is not None), None)


def _read(store: LogStore, location: str, kinds: Sequence[str]) -> Iterator[Actions]:
    try:
        data = store.read(location)
    except FileMissing as error:
        raise DamagedLog(f"a checkpoint can't be read: its file {location} doesn't exist") from error
    if location.endswith(".json"):
        actions = read_actions(data, location)
        actions.removes.clear()
        yield actions
        return
    try:
        yield from _read_parquet(data, kinds)
    except (pa.ArrowException, OSError) as error:
        raise DamagedLog(f"the checkpoint's file {location} can't be read as Parquet: {error}") from error
    except KeyError as error:
        raise DamagedLog(f"the checkpoint's file {location}: an action lacks {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise DamagedLog(f"the checkpoint's file {location}: an action isn't one of Delta's: {error}") from error


def _read_parquet(data: bytes, kinds: Sequence[str]) -> Iterator[Actions]:
    file = pq.ParquetFile(pa.BufferReader(data))
    present = [kind for kind in kinds if kind in file.schema_arrow.names]
    columns = [kind for kind in present if kind != "add"]
    columns += [f"add.{name}" for name in ADD_FIELDS if "add" in present]
    return map(_actions_of, file.iter_batches(batch_size=_ROWS, columns=columns))


def _actions_of(batch: pa.RecordBatch) -> Actions:
    actions = Actions()
    for kind in batch.schema.names:
        found = batch.column(kind).drop_null()
        if kind == "add" and len(found):
            actions.adds += adds_of(found)
        elif kind != "add":
            for row in found.to_pylist(maps_as_pydicts="strict"):
                TAKERS[kind](actions, row)
    return actions
