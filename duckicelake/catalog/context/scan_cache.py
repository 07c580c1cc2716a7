"""Cache what plans of scans read of manifests, which never change."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duckicelake.bridge.data_files import MetricsContract
from duckicelake.bridge.scan.bounds import BoundArrays, build_column_bounds
from duckicelake.bridge.scan.manifests import ScanManifest
from duckicelake.bridge.scan.partitions import build_partition_columns
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.side_tables import scan
from duckicelake.postgres.database import Database

DEFAULT_BYTES: Final = 256 << 20
_MANIFESTS_AT_ONCE: Final = 8
"""Manifests whose metrics are read at once: these are a kilobyte for each file."""


@dataclass(slots=True)
class ScannedManifest:
    """A manifest, and the bounds of those columns that filters named so far, by field id and type.

    sizes: the bytes of its files, once a scan was explained; empty before.
    """

    manifest: ScanManifest
    bounds: dict[tuple[int, str], BoundArrays] = field(default_factory=dict)
    sizes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def nbytes(self) -> int:
        return self.manifest.nbytes + self.sizes.nbytes + sum(column.nbytes for column in self.bounds.values())


class ScanCache:
    """Keeps the manifests used last, of all tables, up to a number of bytes.

    Threads may share it: what one reads, others wait for.
    """

    def __init__(self, most_bytes: int = DEFAULT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[int, ScannedManifest] = OrderedDict()
        self._bytes = 0
        self._manifests_read = 0
        self._lock = Lock()
        self._reading = Lock()

    @property
    def nbytes(self) -> int:
        return self._bytes

    def statistics(self) -> dict[str, int]:
        """Count the manifests kept and their bytes, and those whose files or bounds were read since the start."""
        return {"manifests": len(self._kept), "bytes": self._bytes, "read": self._manifests_read}

    def find_unread(self, manifest_ids: Iterable[int], columns: Mapping[int, PrimitiveType]) -> set[int]:
        """Return those manifests of which something must be read to decide by these columns."""
        wanted = list(manifest_ids)
        found = self._find(wanted)
        return {id_ for id_ in wanted if id_ not in found or _find_missing(found[id_], columns)}

    def read(
        self,
        database: Database,
        metadata: TableMetadata,
        manifest_ids: Sequence[int],
        columns: Mapping[int, PrimitiveType],
    ) -> list[ScannedManifest]:
        """Return data manifests in the order of their ids given, with the bounds of columns by field id.

        Manifests without live files are left out.
        """
        found = self._find(manifest_ids)
        if not _is_complete(found, manifest_ids, columns):
            with self._reading:
                self._manifests_read += len(self.find_unread(manifest_ids, columns))
                found = self._find(manifest_ids)
                self._read_heads(database, metadata, [id_ for id_ in manifest_ids if id_ not in found], found)
                self._read_bounds(database, metadata, found, columns)
        return [found[id_] for id_ in manifest_ids if id_ in found and len(found[id_].manifest.file_ids)]

    def read_sizes(self, database: Database, manifests: Iterable[ScannedManifest]) -> None:
        """Read the bytes of the manifests' files where they aren't known."""
        lacking = {found.manifest.manifest_id: found for found in manifests if not len(found.sizes)}
        if not lacking:
            return
        with self._reading, database.statement(only_reads=True) as cursor:
            sizes = scan.read_file_sizes(cursor, lacking)
        for manifest_id, scanned in lacking.items():
            scanned.sizes = np.array(sizes[manifest_id], np.int64)
            self._keep(scanned, scanned.sizes.nbytes)

    def _find(self, manifest_ids: Iterable[int]) -> dict[int, ScannedManifest]:
        found: dict[int, ScannedManifest] = {}
        with self._lock:
            for manifest_id in manifest_ids:
                kept = self._kept.get(manifest_id)
                if kept is not None:
                    self._kept.move_to_end(manifest_id)
                    found[manifest_id] = kept
        return found

    def _read_heads(
        self,
        database: Database,
        metadata: TableMetadata,
        missing: Sequence[int],
        found: dict[int, ScannedManifest],
    ) -> None:
        if not missing:
            return
        with database.statement(only_reads=True) as cursor:
            heads = scan.read_manifest_heads(cursor, missing)
        for head in heads:
            spec = metadata.spec(head.spec_id)
            manifest = ScanManifest(
                head.manifest_id,
                head.spec_id,
                np.array(head.file_ids, np.int64),
                np.array(head.record_counts, np.int64),
                build_partition_columns(spec, _find_schema(metadata), head.partitions),
            )
            found[head.manifest_id] = ScannedManifest(manifest)
            self._keep(found[head.manifest_id], manifest.nbytes)

    def _read_bounds(
        self,
        database: Database,
        metadata: TableMetadata,
        found: Mapping[int, ScannedManifest],
        columns: Mapping[int, PrimitiveType],
    ) -> None:
        lacking = [id_ for id_, scanned in found.items() if _find_missing(scanned, columns)]
        contract = MetricsContract((*metadata.schemas, metadata.schema()))
        for start in range(0, len(lacking), _MANIFESTS_AT_ONCE):
            with database.statement(only_reads=True) as cursor:
                metrics = scan.read_manifest_metrics(cursor, lacking[start : start + _MANIFESTS_AT_ONCE])
            for manifest_id, of_files in metrics.items():
                published = [contract.publish_bounds(FileContent.DATA, of_file) for of_file in of_files]
                scanned = found[manifest_id]
                for field_id, type_ in _find_missing(scanned, columns).items():
                    bounds = build_column_bounds(type_, field_id, published)
                    scanned.bounds[field_id, str(type_)] = bounds
                    self._keep(scanned, bounds.nbytes)

    def _keep(self, scanned: ScannedManifest, more_bytes: int) -> None:
        with self._lock:
            manifest_id = scanned.manifest.manifest_id
            before = self._kept.pop(manifest_id, None)
            self._kept[manifest_id] = scanned
            self._bytes += more_bytes if before is scanned else scanned.nbytes - (before.nbytes if before else 0)
            while self._bytes > self._most_bytes and len(self._kept) > 1:
                _, gone = self._kept.popitem(last=False)
                self._bytes -= gone.nbytes


def _find_schema(metadata: TableMetadata) -> Schema:
    return metadata.schema()


def _find_missing(scanned: ScannedManifest, columns: Mapping[int, PrimitiveType]) -> dict[int, PrimitiveType]:
    return {id_: type_ for id_, type_ in columns.items() if (id_, str(type_)) not in scanned.bounds}


def _is_complete(
    found: Mapping[int, ScannedManifest], manifest_ids: Sequence[int], columns: Mapping[int, PrimitiveType]
) -> bool:
    return len(found) == len(manifest_ids) and not any(_find_missing(scanned, columns) for scanned in found.values())
