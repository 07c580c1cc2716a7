"""Read what plans of scans need of manifests: files, partitions, metrics and deletes, without opening one."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("lake", "scan")
REQUEST_LIFETIME: Final = timedelta(days=1)
"""How long a request is kept that is too long for plan tasks."""
MAX_REQUESTS_BYTES: Final = 256 << 20
"""Of all these requests together, packed."""
MAX_KEPT_ARRAYS: Final = 64
"""Kept of a manifest, about: who may read a table can filter by each of ten thousand columns."""


class ManifestHead(NamedTuple):
    """The live files of a manifest in its order: ids, rows, bytes, and partitions as JSON single values."""

    manifest_id: int
    spec_id: int
    file_ids: Sequence[int]
    record_counts: Sequence[int]
    sizes: Sequence[int]
    partitions: Sequence[Sequence[Any]]


def read_manifest_heads(cursor: Transaction, manifest_ids: Iterable[int]) -> list[ManifestHead]:
    """Read the heads of manifests; those without live files are left out."""
    rows = cursor.execute(_SQL.heads, {"manifest_ids": list(manifest_ids)}).fetchall()
    return [ManifestHead(*row) for row in rows]


def read_manifest_metrics(cursor: Transaction, manifest_ids: Iterable[int]) -> list[tuple[int, str]]:
    """Read the metrics of the live files of manifests as (manifest id, JSON), by manifest and in its order."""
    return cursor.execute(_SQL.metrics, {"manifest_ids": list(manifest_ids)}).fetchall()


def read_arrays(cursor: Transaction, manifest_ids: Iterable[int], names: Iterable[str]) -> list[tuple[int, str, bytes]]:
    """Read what earlier plans packed of manifests, as (manifest id, name, data)."""
    parameters = {"manifest_ids": list(manifest_ids), "names": list(names)}
    return cursor.execute(_SQL.arrays, parameters, binary=True).fetchall()


def keep_arrays(cursor: Transaction, arrays: Sequence[tuple[int, str, bytes]]) -> None:
    """Keep what a plan packed of manifests, given as (manifest id, name, data)."""
    manifest_ids, names, data = zip(*arrays, strict=True)
    most = MAX_KEPT_ARRAYS
    parameters = {"manifest_ids": list(manifest_ids), "names": list(names), "data": list(data), "most": most}
    cursor.execute(_SQL.keep_arrays, parameters)


def read_delete_files(
    cursor: Transaction, table_id: int, file_ids: Iterable[int], manifest_ids: Iterable[int]
) -> dict[int, list[int]]:
    """Read the ids of the delete files of data files, of those that delete manifests list as live."""
    parameters = {"table_id": table_id, "file_ids": list(file_ids), "manifest_ids": list(manifest_ids)}
    found: defaultdict[int, list[int]] = defaultdict(list)
    for data_file_id, delete_file_id in cursor.execute(_SQL.deletes, parameters).fetchall():
        found[data_file_id].append(delete_file_id)
    return dict(found)


def keep_request(cursor: Transaction, digest: bytes, packed: bytes) -> bool:
    """Keep a request to plan for REQUEST_LIFETIME, and forget some older ones; False if there are too many bytes."""
    parameters = {
        "hash": digest,
        "request": packed,
        "lifetime": REQUEST_LIFETIME,
        "most_bytes": MAX_REQUESTS_BYTES,
    }
    return cursor.execute(_SQL.keep_request, parameters).fetchone() is not None


def find_request(cursor: Transaction, digest: bytes) -> bytes | None:
    """Find a request to plan by its hash; None for one that wasn't kept, or is older than REQUEST_LIFETIME."""
    row = cursor.execute(_SQL.request, {"hash": digest, "lifetime": REQUEST_LIFETIME}).fetchone()
    return None if row is None else bytes(row[0])
