"""Checkpoints: classic, multi-part, and V2 as JSON or Parquet with sidecars (protocol, "Checkpoints")."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from duckicelake.delta.actions import Metadata
from duckicelake.delta.checkpoint_adds import ADD_FIELDS, adds_of
from duckicelake.delta.commit_files import TAKERS, Actions, read_actions
from duckicelake.delta.listing import Checkpoint
from duckicelake.delta.parsed_stats import with_parsed_stats
from duckicelake.delta.paths import sidecar
from duckicelake.delta.store import LogStore
from duckicelake.errors import DamagedLog, FileMissing

_KINDS: Final = ("metaData", "protocol", "txn", "domainMetadata", "sidecar", "add")
"""What is asked of a checkpoint; `remove` is a tombstone there, which only VACUUM asks for."""
_METADATA: Final = ("metaData",)


def read_checkpoint(store: LogStore, root: str, checkpoint: Checkpoint) -> Actions:
    """The state that a checkpoint holds; DamagedLog names the file of it that is torn or isn't there."""
    actions = Actions()
    for file in checkpoint.files:
        _read_into(actions, store, file.location)
    for path in actions.sidecars:
        _read_into(actions, store, sidecar(root, path))
    actions.removes.clear()
    return actions


def read_metadata(store: LogStore, checkpoint: Checkpoint) -> Metadata | None:
    """The table's metadata alone; sidecars hold none."""
    actions = Actions()
    for file in checkpoint.files:
        _read_into(actions, store, file.location, _METADATA)
    return actions.metadata


def _read_into(actions: Actions, store: LogStore, location: str, kinds: Sequence[str] = _KINDS) -> None:
    try:
        data = store.read(location)
    except FileMissing as error:
        raise DamagedLog(f"a checkpoint can't be read: its file {location} doesn't exist") from error
    if location.endswith(".json"):
        _merge(actions, read_actions(data, location))
        return
    try:
        _merge(actions, _read_parquet(data, kinds))
    except (pa.ArrowException, OSError) as error:
        raise DamagedLog(f"the checkpoint's file {location} can't be read as Parquet: {error}") from error
    except KeyError as error:
        raise DamagedLog(f"the checkpoint's file {location}: an action lacks {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise DamagedLog(f"the checkpoint's file {location}: an action isn't one of Delta's: {error}") from error


def _read_parquet(data: bytes, kinds: Sequence[str]) -> Actions:
    file = pq.ParquetFile(pa.BufferReader(data))
    present = [kind for kind in kinds if kind in file.schema_arrow.names]
    columns = [kind for kind in present if kind != "add"]
    columns += [f"add.{name}" for name in ADD_FIELDS if "add" in present]
    actions = Actions()
    for batch in file.iter_batches(batch_size=1 << 16, columns=columns):
        _take_batch(actions, batch)
    if "add" in present and any(add.stats is None for add in actions.adds):
        actions.adds = with_parsed_stats(file, actions.adds)
    return actions


def _take_batch(actions: Actions, batch: pa.RecordBatch) -> None:
    for kind in batch.schema.names:
        column = batch.column(kind)
        if column.null_count == len(column):
            continue
        found = column.drop_null()
        if kind == "add":
            actions.adds += adds_of(found)
        else:
            for row in found.to_pylist(maps_as_pydicts="strict"):
                TAKERS[kind](actions, row)


def _merge(actions: Actions, more: Actions) -> None:
    names: tuple[str, ...] = ("adds", "txns", "domains", "sidecars")
    for name in names:
        kept: list[Any] = getattr(actions, name)
        kept += getattr(more, name)
    actions.metadata = more.metadata or actions.metadata
    actions.protocol = more.protocol or actions.protocol
