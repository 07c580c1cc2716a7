"""Compute a table's contents by a query in a process of their own, put them into the lake, build their snapshot."""

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import duckdb

from duckicelake.bridge.data_files import parse_column_metrics
from duckicelake.bridge.snapshots import SnapshotTotals
from duckicelake.bridge.values.columns import to_columns, to_schema
from duckicelake.bridge.values.flush_layout import build_copy_stats, map_leaf_paths
from duckicelake.bridge.values.statistics import LakeMetrics
from duckicelake.bridge.values.types import build_field_ids, quote_identifier
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.snapshot_upload import SnapshotUpload, build_snapshot
from duckicelake.errors import InvalidRequestError, UnavailableError
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.manifest.entry import DataFile, FileContent, ManifestContent
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake.ducklake.view_columns import build_columns
from duckicelake.lake.model import find_children, fold_case
from duckicelake.query.processes import OpenOrder, QueryLimits, QueryProcess
from duckicelake.query.queries import GRACE_SECONDS, build_open_order
from duckicelake.query.reach import build_secrets, is_in_buckets
from duckicelake.query.statement import Tree
from duckicelake.sql_dialects.placeholders import DUCKDB, cast_query

CONTENT_WORKER: Final = Path(__file__).with_name("content_worker.py")
_FILE_BYTES: Final = 128 * 1024 * 1024
_ROW_GROUPS: Final = 4
"""Of memory for each thread: rows that it holds until a row group is full, and that of before as it is written."""
_CHECK_SECONDS: Final = 1.0
HOLE: Final = "\0"
"""In the place of a query in SQL around it."""
WrittenFile = tuple[Path, int, int, Any]
"""Path, rows, bytes and statistics of a file, as DuckDB's COPY says."""
_KEPT_TYPES: Final = frozenset(
    {
        *("boolean", "tinyint", "smallint", "integer", "bigint", "hugeint"),
        *("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint", "float", "double", "decimal"),
        *("date", "time", "timestamp", "timestamp_s", "timestamp_ms", "timestamp with time zone"),
        *("varchar", "blob", "uuid", "struct", "list", "array", "map"),
    }
)
"""DuckDB's types whose values a table keeps as they are."""


@dataclass(slots=True)
class ContentProcess:
    """A process that computes contents, with its principal's rights.

    Attributes:
        secrets: keys for the folders that it reads.
        max_file_bytes: of the files that it writes; None: as many as there is room for.

    """

    process: QueryProcess
    limits: QueryLimits
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_file_bytes: int | None = None

    def reach(self, services: Services, tables: Sequence[tuple[Namespace, str]]) -> None:
        """Let it read the folders of tables."""
        self.secrets = build_secrets(services, tables) if is_in_buckets(services) else {}

    def describe(self, tree: Tree) -> Schema:
        """Describe a query's columns as a table's. Raises InvalidRequestError for what no table keeps."""
        fields = json.loads(self._ask(b"S", {"tree": tree}))
        return build_schema([(name, kind) for name, kind in fields])

    def write(self, trees: Sequence[Tree], around: str, whole: str, schema: Schema) -> list[WrittenFile]:
        """Write the result of queries; return path, rows, bytes and statistics of each file.

        around: SQL around each query, whole: around all; both have a hole.
        """
        columns = to_columns(schema)
        ids = (
            f"{quote_identifier(one.column_name)}: {build_field_ids(one, columns)}"
            for one in find_children(columns, None)
        )
        order = {
            "trees": trees,
            "around": around.split(HOLE),
            "whole": whole.split(HOLE),
            "field_ids": f"{{{', '.join(ids)}}}",
            "file_bytes": _FILE_BYTES,
            "row_group_bytes": self.limits.memory_bytes // ((os.cpu_count() or 1) * _ROW_GROUPS),
            "max_bytes": self.max_file_bytes,
            "name": secrets.token_hex(8),
        }
        return [(Path(file), rows, size, stats) for file, rows, size, stats in json.loads(self._ask(b"W", order))]

    def _ask(self, kind: bytes, order: Mapping[str, Any]) -> bytes:
        message = {**order, "secrets": self.secrets, "seconds": self.limits.seconds}
        _, body = self.process.ask(kind, json.dumps(message).encode(), self.limits.seconds + GRACE_SECONDS)
        return bytes(body)


@contextmanager
def open_process(
    services: Services, limits: QueryLimits, check: Callable[[], None] | None = None
) -> Iterator[ContentProcess]:
    """Start a process for the definer of the services, which ends with the block.

    check: raises once the work is to stop; it is called every second, and its error ends the block's.
    """
    process = QueryProcess(CONTENT_WORKER)
    watch = _StopWatch(process, check) if check is not None else None
    try:
        process.open(build_content_order(services, is_restricted=False), limits)
        yield ContentProcess(process, limits)
    except UnavailableError as error:
        if watch is not None and watch.reason is not None:
            raise watch.reason from error
        raise
    finally:
        if watch is not None:
            watch.end()
        process.kill()


def build_content_order(services: Services, *, is_restricted: bool) -> OpenOrder:
    """Build the order by which a process opens the lake to compute contents; see `build_open_order`."""
    order = build_open_order(services, is_restricted=is_restricted)
    settings = {**order.settings, "preserve_insertion_order": False}
    return replace(order, settings=settings, worker=CONTENT_WORKER)


class _StopWatch:
    """Kills a process once its work is to stop. reason: the error that says why."""

    def __init__(self, process: QueryProcess, check: Callable[[], None]) -> None:
        self.reason: Exception | None = None
        self._process, self._check = process, check
        self._ended = Event()
        self._thread = Thread(target=self._watch, name="refresh-watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the watch."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_CHECK_SECONDS):
            try:
                self._check()
            except Exception as error:  # noqa: BLE001 - whoever works is given it
                self.reason = error
                self._process.kill()
                return


def build_schema(fields: Sequence[tuple[str, str]]) -> Schema:
    """Build the schema of a table for a result's columns, by DuckDB's names of their types. InvalidRequestError."""
    kinds = [(name, duckdb.sqltype(kind)) for name, kind in fields]
    for name, kind in kinds:
        _check_kept(name, kind)
    names = [fold_case(name) for name, _ in fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidRequestError(f"The query has several columns called {twice}: name them with AS")
    return to_schema(tuple(build_columns(kinds, count(1), None)), 0)


def _check_kept(name: str, kind: Any) -> None:
    if kind.id not in _KEPT_TYPES:
        raise InvalidRequestError(f"Column {name} is of type {kind}, which no table here keeps exactly: CAST it")
    if kind.id in {"struct", "list", "array", "map"}:
        for _, part in kind.children:
            if hasattr(part, "id"):
                _check_kept(name, part)


def write_select(schema: Schema) -> str:
    """Write the SQL around a query that gives its columns the names and types of the table."""
    return cast_query(DUCKDB, HOLE, schema)


class ContentUpload:
    """Puts files of contents into the table's folder, and builds their snapshot."""

    def __init__(self, upload: SnapshotUpload) -> None:
        """Begin without files."""
        self._upload = upload
        metadata = upload.metadata
        self._leaves = map_leaf_paths(to_columns(metadata.schema()))
        self._metrics = LakeMetrics(metadata.schema().leaves())
        self._files: list[DataFile] = []

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(file.record_count for file in self._files)

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.file_size_in_bytes for file in self._files)

    @property
    def files(self) -> int:
        """How many files there are."""
        return len(self._files)

    def add_files(self, written: Sequence[WrittenFile]) -> None:
        """Put files into the store, and remove them here; one without rows is left out."""
        for path, rows, size, said in written:
            if rows:
                self._files.append(self._add_file(path, rows, size, said))
            path.unlink(missing_ok=True)

    def build_snapshot(self, parent: Snapshot | None, facts: Mapping[str, str], *, is_append: bool) -> Snapshot:
        """Build the snapshot: the files beside those of its parent, or in their place. facts: for its summary."""
        services, metadata = self._upload.services, self._upload.metadata
        snapshot_id, spec = secrets.randbits(62), metadata.spec()
        before = SnapshotTotals.from_parent(parent)
        summary = _summarize(self._files, before, is_append=is_append) | dict(facts)
        added = [self._upload.add_manifest(snapshot_id, ManifestContent.DATA, spec, self._files)] if self._files else []
        snapshot = build_snapshot(services, metadata, snapshot_id, parent, summary, self.rows)
        return self._upload.add_list(snapshot, added, parent if is_append else None)

    def _add_file(self, path: Path, rows: int, size: int, said: Mapping[str, Mapping[str, str]]) -> DataFile:
        stats = [build_copy_stats(self._leaves[leaf], facts) for leaf, facts in said.items() if leaf in self._leaves]
        return DataFile(
            content=FileContent.DATA,
            file_path=self._upload.add_data_file("rows.parquet", path),
            file_format="PARQUET",
            partition=(),
            record_count=rows,
            file_size_in_bytes=size,
            **parse_column_metrics(self._metrics.build_metrics(stats)),
        )


def _summarize(files: Sequence[DataFile], before: SnapshotTotals, *, is_append: bool) -> dict[str, str]:
    rows, size = sum(file.record_count for file in files), sum(file.file_size_in_bytes for file in files)
    added = SnapshotTotals(data_files=len(files), records=rows, files_size=size)
    counts = {
        "added-data-files": len(files),
        "added-records": rows,
        "added-files-size": size,
        "deleted-data-files": 0 if is_append else before.data_files,
        "deleted-records": 0 if is_append else before.records,
        "removed-files-size": 0 if is_append else before.files_size,
    }
    stated = {name: str(number) for name, number in counts.items() if number}
    totals = (before if is_append else SnapshotTotals()).summarize_after(added)
    return {"operation": "append" if is_append else "overwrite", **stated, **totals}
