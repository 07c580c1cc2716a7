"""Read what plans of scans need of manifests, from the cache, from what earlier plans kept, or from rows of files.

What is read of big manifests is kept in Postgres, for other workers and the next start.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from duckicelake.bridge.data_files import MetricsContract
from duckicelake.bridge.scan.bounds import BoundArrays, unpack_bounds
from duckicelake.bridge.scan.column_metrics import build_column_bounds
from duckicelake.bridge.scan.manifests import (
    BoundBlock,
    BoundedBlock,
    ManifestFiles,
    build_block,
    build_bound_block,
    divide_bounds,
    join_blocks,
    join_bound_blocks,
    unpack_files,
)
from duckicelake.bridge.scan.partitions import code_partitions
from duckicelake.catalog.context.scan_cache import ScanCache
from duckicelake.extras import DeferredModule
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.side_tables import scan
from duckicelake.lake.state import ManifestRow
from duckicelake.postgres.database import Database

if TYPE_CHECKING:
    import numpy as np
else:
    np = DeferredModule("numpy")


PackedArray: TypeAlias = tuple[int, str, bytes]
"""What is kept in Postgres: manifest id, name and data."""
_Name: TypeAlias = tuple[int, str]
"""Of what is read of a manifest: its id, and `files` or which bounds."""
_MANIFESTS_AT_ONCE: Final = 16
_FILES_AT_ONCE: Final = 10_000
"""Whose metrics are read at once: these are a kilobyte for each file, or several."""
_LEAST_KEPT_FILES: Final = 1_000
"""Files of a manifest from which on what is packed of it is kept in Postgres: of fewer it is made as soon as read."""
_NEWER_MANIFESTS: Final = 16
"""Of which few enough are joined to a block in memory."""
_FILES: Final = "files"
_DECIDING: Final = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
_LOG: Final = logging.getLogger(__name__)


class SnapshotGoneError(Exception):
    """Rows of the snapshot's files have gone: it has expired since the table was loaded."""


class ManifestScanner:
    """Reads data manifests of one table for a plan.

    What it returns are blocks of manifests with the bounds of columns by field id. Raises SnapshotGoneError.
    """

    def __init__(self, cache: ScanCache, database: Database, metadata: TableMetadata) -> None:
        self._cache = cache
        self._database = database
        self._metadata = metadata

    def count_unread(self, rows: Sequence[ManifestRow], columns: Mapping[int, PrimitiveType]) -> int:
        """Count the files of which rows must be read to decide by these columns.

        What earlier plans kept of the others is in memory then.
        """
        if self._find(rows, columns) is not None:
            return 0
        with self._cache.reading:
            newer, _ = self._find_older(rows, columns)
            parts = self._read_kept(newer, columns)
        return sum(row.live_files for row in newer if _is_missing(parts, row.manifest_id, columns))

    def read(self, rows: Sequence[ManifestRow], columns: Mapping[int, PrimitiveType]) -> list[BoundedBlock]:
        """Return manifests of one spec, joined as far as the keys of their bounds are alike."""
        found = self._find(rows, columns)
        if found is None:
            with self._cache.reading:
                found = self._find(rows, columns)
                if found is None:
                    newer, older = self._find_older(rows, columns)
                    found = self._join(rows, columns, self._read_parts(newer, columns), older)
        return found

    def read_each(self, rows: Sequence[ManifestRow], columns: Mapping[int, PrimitiveType]) -> list[BoundedBlock]:
        """Return each manifest by itself."""
        found = [self._find([row], columns) for row in rows]
        if None in found:
            with self._cache.reading:
                parts = self._read_parts(rows, columns)
            found = [self._join([row], columns, parts) for row in rows]
        return [bounded for blocks in found for bounded in blocks or ()]

    def _find(self, rows: Sequence[ManifestRow], columns: Mapping[int, PrimitiveType]) -> list[BoundedBlock] | None:
        """Find manifests in memory."""
        ids = tuple(row.manifest_id for row in rows)
        if len(ids) == 1:
            block = self._cache.find_manifest(ids[0], _FILES)
            pieces = {
                id_: self._cache.find_manifest(ids[0], _name_bounds(id_, type_)) for id_, type_ in columns.items()
            }
            return None if block is None or None in pieces.values() else [BoundedBlock(block, pieces)]
        block = self._cache.find(ids, _FILES)
        bounds = {id_: self._cache.find(ids, _name_bounds(id_, type_)) for id_, type_ in columns.items()}
        return None if block is None or None in bounds.values() else divide_bounds(block, bounds)

    def _find_older(
        self, rows: Sequence[ManifestRow], columns: Mapping[int, PrimitiveType]
    ) -> tuple[Sequence[ManifestRow], dict[str, Any]]:
        """Find what is joined in memory of all manifests but a few newer ones; return these, and blocks by name.

        After a commit, a plan would take 30 µs for each manifest of the newest block without it.
        """
        ids = tuple(row.manifest_id for row in rows)
        names = [_FILES, *(_name_bounds(id_, type_) for id_, type_ in columns.items())]
        for newer in range(1, min(_NEWER_MANIFESTS, len(ids) - 2) + 1):
            found = {name: self._cache.find(ids[newer:], name) for name in names}
            if None not in found.values():
                return rows[:newer], found
        return rows, {}

    def _join(
        self,
        rows: Sequence[ManifestRow],
        columns: Mapping[int, PrimitiveType],
        parts: Mapping[_Name, Any],
        older: Mapping[str, Any] = MappingProxyType({}),
    ) -> list[BoundedBlock]:
        """Join manifests that were read with the older ones, if some are joined; keep all joined in memory."""
        ids = tuple(row.manifest_id for row in rows)
        names = {id_: _name_bounds(id_, type_) for id_, type_ in columns.items()}
        if len(ids) == 1:
            return divide_bounds(parts[ids[0], _FILES], {id_: parts[ids[0], name] for id_, name in names.items()})

        def list_parts(name: str) -> list[Any]:
            read = [parts[id_, name] for id_ in ids if (id_, name) in parts]
            return [*read, older[name]] if older else read

        block = self._cache.find(ids, _FILES)
        if block is None:
            spec, schema = self._metadata.spec(rows[0].spec_id), self._metadata.schema()
            block = join_blocks(list_parts(_FILES), spec, schema)
            self._cache.keep(ids, _FILES, block)
        bounds: dict[int, BoundBlock] = {}
        for field_id, name in names.items():
            column = self._cache.find(ids, name)
            if column is None:
                column = join_bound_blocks(list_parts(name))
                self._cache.keep(ids, name, column)
            bounds[field_id] = column
        return divide_bounds(block, bounds)

    def _read_parts(self, rows: Sequence[ManifestRow], columns: Mapping[int, PrimitiveType]) -> dict[_Name, Any]:
        """Read manifests by themselves, from memory or from Postgres, and keep them in memory."""
        parts = self._read_kept(rows, columns)
        unread = [row for row in rows if _is_missing(parts, row.manifest_id, columns)]
        self._cache.read_manifests += len(unread)
        for start in range(0, len(unread), _MANIFESTS_AT_ONCE):
            some = unread[start : start + _MANIFESTS_AT_ONCE]
            self._keep_arrays(self._read_files([row for row in some if (row.manifest_id, _FILES) not in parts], parts))
            for group in _group(some):
                self._keep_arrays(self._read_bounds(group, columns, parts))
        return parts

    def _read_kept(self, rows: Sequence[ManifestRow], columns: Mapping[int, PrimitiveType]) -> dict[_Name, Any]:
        """Read what is in memory, and what earlier plans kept in Postgres."""
        names = [_FILES, *(_name_bounds(id_, type_) for id_, type_ in columns.items())]
        wanted = [(row.manifest_id, name) for name in names for row in rows]
        known = {key: part for key in wanted if (part := self._cache.find_manifest(*key)) is not None}
        found = {key: part if key[1] == _FILES else build_bound_block(part) for key, part in known.items()}
        lacking = {manifest_id for manifest_id, name in wanted if (manifest_id, name) not in found}
        if not lacking:
            return found
        types = {_name_bounds(id_, type_): type_ for id_, type_ in columns.items()}
        with self._database.statement(only_reads=True) as cursor:
            arrays = scan.read_arrays(cursor, lacking, names)
        for manifest_id, name, data in arrays:
            if (manifest_id, name) in found:
                continue
            if name == _FILES:
                self._add_files(manifest_id, unpack_files(data), found)
            else:
                self._add_bounds(manifest_id, name, unpack_bounds(types[name], data), found)
        return found

    def _read_files(self, missing: Sequence[ManifestRow], parts: dict[_Name, Any]) -> list[PackedArray]:
        """Read the files of manifests; return what is worth keeping of them."""
        if not missing:
            return []
        with self._database.statement(only_reads=True) as cursor:
            heads = {
                head.manifest_id: head for head in scan.read_manifest_heads(cursor, [r.manifest_id for r in missing])
            }
        made: list[PackedArray] = []
        for row in missing:
            head = heads.get(row.manifest_id)
            if head is None or len(head.file_ids) != row.live_files:
                raise SnapshotGoneError
            ids, rows, sizes = (np.array(values, np.int64) for values in head[2:5])
            coded = code_partitions(head.partitions, len(self._metadata.spec(head.spec_id).fields))
            files = ManifestFiles(head.spec_id, ids, rows, sizes, coded)
            self._add_files(row.manifest_id, files, parts)
            if row.live_files >= _LEAST_KEPT_FILES:
                made.append((row.manifest_id, _FILES, files.pack()))
        return made

    def _add_files(self, manifest_id: int, files: ManifestFiles, parts: dict[_Name, Any]) -> None:
        block = build_block(manifest_id, files, self._metadata.spec(files.spec_id), self._metadata.schema())
        parts[manifest_id, _FILES] = block
        self._cache.keep((manifest_id,), _FILES, block)

    def _read_bounds(
        self, rows: Sequence[ManifestRow], columns: Mapping[int, PrimitiveType], parts: dict[_Name, Any]
    ) -> list[PackedArray]:
        """Read the bounds of columns from the metrics of files; return what is worth keeping of them."""
        lacking = [row for row in rows if _is_missing(parts, row.manifest_id, columns)]
        if not lacking:
            return []
        contract = MetricsContract((*self._metadata.schemas, self._metadata.schema()))
        names, metrics = tuple(map(str, columns)), defaultdict[int, list[Mapping[str, Any]]](list)
        with self._database.statement(only_reads=True) as cursor:
            for manifest_id, text in scan.read_manifest_metrics(cursor, [row.manifest_id for row in lacking]):
                of_file = contract.publish_bounds(FileContent.DATA, _parse_metrics(text, names))
                metrics[manifest_id].append(of_file)
        made: list[PackedArray] = []
        for row in lacking:
            published = metrics[row.manifest_id]
            if len(published) != row.live_files:
                raise SnapshotGoneError
            for field_id, type_ in columns.items():
                name = _name_bounds(field_id, type_)
                if (row.manifest_id, name) not in parts:
                    bounds = build_column_bounds(type_, field_id, published)
                    self._add_bounds(row.manifest_id, name, bounds, parts)
                    if row.live_files >= _LEAST_KEPT_FILES:
                        made.append((row.manifest_id, name, bounds.pack()))
        return made

    def _add_bounds(self, manifest_id: int, name: str, bounds: BoundArrays, parts: dict[_Name, Any]) -> None:
        block = parts[manifest_id, name] = build_bound_block(bounds)
        self._cache.keep((manifest_id,), name, block)

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


def _parse_metrics(text: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what decides filters of a file's metrics, of fields of these names alone: others are hundreds."""
    metrics = orjson.loads(text)
    kinds = ((kind, metrics.get(kind) or {}) for kind in _DECIDING)
    return {kind: {name: values[name] for name in names if name in values} for kind, values in kinds}


def _group(rows: Sequence[ManifestRow]) -> Iterator[list[ManifestRow]]:
    """Group manifests whose metrics are read at once: one, or several of few files."""
    group, files = list[ManifestRow](), 0
    for row in rows:
        if group and files + row.live_files > _FILES_AT_ONCE:
            yield group
            group, files = [], 0
        group.append(row)
        files += row.live_files
    if group:
        yield group


def _name_bounds(field_id: int, type_: PrimitiveType) -> str:
    kind = "texts" if type_.traits.family in ("string", "bytes") else "bounds"
    return f"{kind} {field_id} {type_}"


def _is_missing(parts: Mapping[_Name, Any], manifest_id: int, columns: Mapping[int, PrimitiveType]) -> bool:
    names = (_FILES, *(_name_bounds(id_, type_) for id_, type_ in columns.items()))
    return any((manifest_id, name) not in parts for name in names)
