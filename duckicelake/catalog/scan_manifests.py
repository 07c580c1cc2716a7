"""Read what plans of scans need of manifests, from the cache, from what earlier plans kept, or from rows of files.

What is read of big manifests is kept in Postgres, for other workers and the next start.
"""

import logging
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import orjson

from duckicelake.bridge.data_files import MetricsContract
from duckicelake.bridge.scan.bounds import BoundArrays, build_column_bounds, unpack_bounds
from duckicelake.bridge.scan.manifests import ManifestFiles, ScanManifest, unpack_files
from duckicelake.bridge.scan.partitions import build_partition_columns, code_partitions
from duckicelake.catalog.context.scan_cache import ScanCache
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.side_tables import scan
from duckicelake.postgres.database import Database

PackedArray: TypeAlias = tuple[int, str, bytes]
"""What is kept in Postgres: manifest id, name and data."""
_MANIFESTS_AT_ONCE: Final = 16
_FILES_AT_ONCE: Final = 10_000
"""Whose metrics are read at once: these are a kilobyte for each file, or several."""
_LEAST_KEPT_FILES: Final = 1_000
"""Files of a manifest from which on what is packed of it is kept in Postgres: of fewer it is made as soon as read."""
_FILES: Final = "files"
_DECIDING: Final = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class ScannedManifest:
    """A manifest, with what plans needed of it so far.

    Attributes:
        bounds: The bounds of columns that filters named, by field id and type.
        encoded: Files that matched, encoded for tasks, by file id and what the client reads.
        encoded_bytes: Bytes of these.

    """

    manifest: ScanManifest
    bounds: dict[tuple[int, str], BoundArrays] = field(default_factory=dict)
    encoded: dict[tuple[int, Hashable], bytes] = field(default_factory=dict)
    encoded_bytes: int = 0

    @property
    def manifest_id(self) -> int:
        return self.manifest.manifest_id

    @property
    def nbytes(self) -> int:
        return self.manifest.nbytes + sum(column.nbytes for column in self.bounds.values()) + self.encoded_bytes


class ManifestScanner:
    """Reads manifests of one table for a plan."""

    def __init__(self, cache: ScanCache[ScannedManifest], database: Database, metadata: TableMetadata) -> None:
        self._cache = cache
        self._database = database
        self._metadata = metadata

    def find_unread(
        self,
        manifest_ids: Iterable[int],
        columns: Mapping[int, PrimitiveType],
    ) -> set[int]:
        """Return those manifests of which the rows of files must be read to decide by these columns.

        What earlier plans kept of the others is in memory then.
        """
        wanted = list(manifest_ids)
        found = self._cache.find(wanted)
        if not _is_complete(found, wanted, columns):
            with self._cache.reading:
                self._read_kept(wanted, columns)
            found = self._cache.find(wanted)
            return {id_ for id_ in wanted if id_ not in found or _find_missing(found[id_], columns)}
        return set()

    def read(
        self,
        manifest_ids: Sequence[int],
        columns: Mapping[int, PrimitiveType],
    ) -> list[ScannedManifest]:
        """Return data manifests in the order of their ids given, with the bounds of columns by field id.

        Manifests without live files are left out.
        """
        found = self._cache.find(manifest_ids)
        if not _is_complete(found, manifest_ids, columns):
            with self._cache.reading:
                found = self._read_kept(manifest_ids, columns)
                unread = [id_ for id_ in manifest_ids if id_ not in found or _find_missing(found[id_], columns)]
                self._cache.read_manifests += len(unread)
                for start in range(0, len(unread), _MANIFESTS_AT_ONCE):
                    some = unread[start : start + _MANIFESTS_AT_ONCE]
                    self._keep_arrays(self._read_files([id_ for id_ in some if id_ not in found], found))
                    for group in _group([found[id_] for id_ in some if id_ in found]):
                        self._keep_arrays(self._read_bounds(group, columns))
        return [found[id_] for id_ in manifest_ids if id_ in found and len(found[id_].manifest.file_ids)]

    def _read_kept(
        self,
        manifest_ids: Sequence[int],
        columns: Mapping[int, PrimitiveType],
    ) -> dict[int, ScannedManifest]:
        """Read what earlier plans kept in Postgres; return all that is in memory then."""
        found = self._cache.find(manifest_ids)
        lacking = [id_ for id_ in manifest_ids if id_ not in found or _find_missing(found[id_], columns)]
        types = {_name_bounds(field_id, type_): (field_id, type_) for field_id, type_ in columns.items()}
        with self._database.statement(only_reads=True) as cursor:
            arrays = scan.read_arrays(cursor, lacking, [_FILES, *types])
        for manifest_id, _, data in (kept for kept in arrays if kept[1] == _FILES):
            if manifest_id not in found:
                self._add_files(manifest_id, unpack_files(data), found)
        for manifest_id, name, data in arrays:
            if name in types and manifest_id in found:
                field_id, type_ = types[name]
                self._add_bounds(found[manifest_id], field_id, unpack_bounds(type_, data))
        return found

    def _read_files(
        self,
        missing: Sequence[int],
        found: dict[int, ScannedManifest],
    ) -> list[PackedArray]:
        """Read the files of manifests; return what is worth keeping of them."""
        if not missing:
            return []
        with self._database.statement(only_reads=True) as cursor:
            heads = scan.read_manifest_heads(cursor, missing)
        for head in heads:
            ids, rows, sizes = (np.array(values, np.int64) for values in head[2:5])
            coded = code_partitions(head.partitions, len(self._metadata.spec(head.spec_id).fields))
            self._add_files(head.manifest_id, ManifestFiles(head.spec_id, ids, rows, sizes, coded), found)
        return [
            (head.manifest_id, _FILES, found[head.manifest_id].manifest.files.pack())
            for head in heads
            if len(head.file_ids) >= _LEAST_KEPT_FILES
        ]

    def _add_files(self, manifest_id: int, files: ManifestFiles, found: dict[int, ScannedManifest]) -> None:
        columns = build_partition_columns(self._metadata.spec(files.spec_id), self._metadata.schema(), files.partitions)
        scanned = ScannedManifest(ScanManifest(manifest_id, files, columns))
        found[manifest_id] = scanned
        self._cache.keep(scanned, scanned.manifest.nbytes)

    def _read_bounds(
        self, manifests: Sequence[ScannedManifest], columns: Mapping[int, PrimitiveType]
    ) -> list[PackedArray]:
        """Read the bounds of columns from the metrics of files; return what is worth keeping of them."""
        lacking = {scanned.manifest_id: scanned for scanned in manifests if _find_missing(scanned, columns)}
        if not lacking:
            return []
        contract = MetricsContract((*self._metadata.schemas, self._metadata.schema()))
        names, metrics = tuple(map(str, columns)), defaultdict[int, list[Mapping[str, Any]]](list)
        with self._database.statement(only_reads=True) as cursor:
            for manifest_id, text in scan.read_manifest_metrics(cursor, lacking):
                of_file = contract.publish_bounds(FileContent.DATA, _parse_metrics(text, names))
                metrics[manifest_id].append(of_file)
        made: list[PackedArray] = []
        for manifest_id, published in metrics.items():
            scanned = lacking[manifest_id]
            for field_id, type_ in _find_missing(scanned, columns).items():
                bounds = build_column_bounds(type_, field_id, published)
                self._add_bounds(scanned, field_id, bounds)
                if len(published) >= _LEAST_KEPT_FILES:
                    made.append((manifest_id, _name_bounds(field_id, type_), bounds.pack()))
        return made

    def _keep_arrays(self, made: Sequence[PackedArray]) -> None:
        """Keep in Postgres what was packed; the plan has what it needs and goes on without that if it can't be."""
        if not made:
            return
        try:
            with self._database.statement() as cursor:
                scan.keep_arrays(cursor, made)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next plan reads the same again
            if not self._cache.unkept_arrays:
                _LOG.warning(
                    "What was read of manifests can't be kept in Postgres, each start reads it again: %s", error
                )
            self._cache.unkept_arrays += len(made)

    def _add_bounds(self, scanned: ScannedManifest, field_id: int, bounds: BoundArrays) -> None:
        scanned.bounds[field_id, str(bounds.type)] = bounds
        self._cache.keep(scanned, bounds.nbytes)


def _parse_metrics(text: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what decides filters of a file's metrics, of fields of these names alone: others are hundreds."""
    metrics = orjson.loads(text)
    kinds = ((kind, metrics.get(kind) or {}) for kind in _DECIDING)
    return {kind: {name: values[name] for name in names if name in values} for kind, values in kinds}


def _group(manifests: Sequence[ScannedManifest]) -> Iterator[list[ScannedManifest]]:
    """Group manifests whose metrics are read at once: one, or several of few files."""
    group, files = list[ScannedManifest](), 0
    for scanned in manifests:
        count = len(scanned.manifest.file_ids)
        if group and files + count > _FILES_AT_ONCE:
            yield group
            group, files = [], 0
        group.append(scanned)
        files += count
    if group:
        yield group


def _name_bounds(field_id: int, type_: PrimitiveType) -> str:
    return f"bounds {field_id} {type_}"


def _find_missing(scanned: ScannedManifest, columns: Mapping[int, PrimitiveType]) -> dict[int, PrimitiveType]:
    return {id_: type_ for id_, type_ in columns.items() if (id_, str(type_)) not in scanned.bounds}


def _is_complete(
    found: Mapping[int, ScannedManifest], manifest_ids: Sequence[int], columns: Mapping[int, PrimitiveType]
) -> bool:
    names = {(field_id, str(type_)) for field_id, type_ in columns.items()}
    return len(found) == len(manifest_ids) and all(names <= scanned.bounds.keys() for scanned in found.values())
