"""Reads the delete files that DuckDB wrote."""

from typing import Final

from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg import puffin
from duckicelake.iceberg.deletes import read_vector
from duckicelake.lake.model import LakeFile
from duckicelake.storage.parquet import read_ducklake_deletes

_SNAPSHOT: Final = "ducklake-snapshot-id"
"""The blob property that names the DuckLake snapshot of a vector in a container."""


def read_lake_deletes(services: Services, file: LakeFile) -> dict[int, int | None]:
    """The deleted positions, each with the snapshot that deleted it; None: the one at which the file begins."""
    data = services.store.read(file.path)
    if file.file_format == "parquet":
        return read_ducklake_deletes(data, file.path)
    try:
        return _read_container(data) if data.startswith(puffin.MAGIC) else dict.fromkeys(read_vector(data))
    except InvalidRequest as error:
        raise InvalidRequest(f"DuckLake's delete file {file.path} of format {file.file_format}: {error}") from error


def _read_container(data: bytes) -> dict[int, int | None]:
    """Read a Puffin file of DuckDB 2.0: one vector per snapshot, each with the positions of the earlier ones, too."""
    snapshots: dict[int, puffin.PuffinBlob] = {}
    for blob in puffin.read_footer(data).blobs:
        snapshot = blob.properties.get(_SNAPSHOT, "")
        if blob.type != puffin.DELETION_VECTOR or blob.compression_codec is not None or not snapshot.isdigit():
            raise InvalidRequest(f"its blob at {blob.offset} is no plain {puffin.DELETION_VECTOR} with a {_SNAPSHOT}")
        snapshots[int(snapshot)] = blob
    positions: dict[int, int | None] = {}
    for number, blob in sorted(snapshots.items()):
        for position in read_vector(data[blob.offset : blob.offset + blob.length]):
            positions.setdefault(position, number)
    return positions
