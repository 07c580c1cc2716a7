"""Checkpoints: classic, multi-part, and V2 as JSON or Parquet with sidecars (protocol, "Checkpoints")."""

from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from duckicelake.delta.checkpoint_adds import ADD_FIELDS, adds_of
from duckicelake.delta.commit_files import TAKERS, Actions, read_actions
from duckicelake.delta.listing import FOLDER, Checkpoint
from duckicelake.delta.paths import decoded, is_absolute
from duckicelake.delta.store import LogStore
from duckicelake.errors import DamagedLog, FileMissing

_WHOLE: Final = ("metaData", "protocol", "txn", "domainMetadata", "sidecar")
"""Kinds of which a checkpoint holds few; `remove` is a tombstone there, which only VACUUM asks for."""


def read_checkpoint(store: LogStore, root: str, checkpoint: Checkpoint) -> Actions:
    """The state that a checkpoint holds; DamagedLog names the file of it that is torn or isn't there."""
    actions = Actions()
    for file in checkpoint.files:
        _read_into(actions, store, file.location)
    for path in actions.sidecars:
        try:
            _read_into(actions, store, _sidecar(root, decoded(path)))
        except FileMissing as error:
            raise DamagedLog(
                f"the checkpoint {checkpoint.files[0].location} needs the sidecar {path}, which doesn't exist"
            ) from error
    actions.removes.clear()
    return actions


def _sidecar(root: str, path: str) -> str:
    return path if is_absolute(path) else f"{root.rstrip('/')}/{FOLDER}/_sidecars/{path}"


def _read_into(actions: Actions, store: LogStore, location: str) -> None:
    data = store.read(location)
    if location.endswith(".json"):
        _merge(actions, read_actions(data, location))
        return
    try:
        _merge(actions, _read_parquet(data))
    except (pa.ArrowException, OSError) as error:
        raise DamagedLog(f"the checkpoint's file {location} can't be read as Parquet: {error}") from error
    except KeyError as error:
        raise DamagedLog(f"the checkpoint's file {location}: an action lacks {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise DamagedLog(f"the checkpoint's file {location}: an action isn't one of Delta's: {error}") from error


def _read_parquet(data: bytes) -> Actions:
    file = pq.ParquetFile(pa.BufferReader(data))
    present = set(file.schema_arrow.names)
    columns = [kind for kind in _WHOLE if kind in present]
    columns += [f"add.{name}" for name in ADD_FIELDS if "add" in present]
    actions = Actions()
    for batch in file.iter_batches(batch_size=1 << 16, columns=columns):
        _take_batch(actions, batch)
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
