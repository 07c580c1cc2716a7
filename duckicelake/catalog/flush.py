"""Flush inlined rows to data files, on request and in the background."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Final

from duckicelake.bridge.values.flush_layout import (
    build_copy_stats,
    build_key_expression,
    build_order_terms,
    get_bucket_function,
    list_folder_names,
    map_leaf_paths,
)
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.background_threads import run_in_thread
from duckicelake.catalog.context.caller import Caller, Principal
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.derived_files import parquet_columns, read_lake_deletes
from duckicelake.catalog.table.reclaim import discard_on_error
from duckicelake.errors import DamagedTableError, InvalidRequestError, NoSuchTableError, UnavailableError
from duckicelake.iceberg.identifiers import Namespace, format_full_name, parse_schema_name, to_schema_name
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake import maintenance
from duckicelake.lake.ducklake.maintenance import FlushableRows
from duckicelake.lake.ducklake.snapshots import retry_transaction
from duckicelake.lake.inlined import flush_writer
from duckicelake.lake.inlined.flush_writer import (
    CopiedTable,
    FlushedDeletes,
    FlushedFile,
    FlushPlan,
    FlushSource,
    InlinedFileDeletes,
)
from duckicelake.lake.model import InlinedKey
from duckicelake.lake.side_tables import reader
from duckicelake.parquet.flush import FlushedRows, FlushKey, RowFiles, RowsToWrite, WrittenDeletes, open_row_files
from duckicelake.parquet.inlined_rows import CopiedRows
from duckicelake.parquet.local_copies import open_temporary_folder

_ATTEMPTS: Final = 5
PAUSE_SECONDS: Final = 5.0
"""Seconds between two looks at the tables."""
_AFTER_FAILURE: Final = 300
"""Seconds for which a table is left alone that couldn't be flushed."""
_FLUSHER: Final = Caller(Principal("duckicelake", ()), operation="flush_table_rows")


@dataclass(frozen=True, slots=True)
class Flushed:
    """What was flushed: versions of rows, and deletes from files. snapshot_id: DuckLake's; None if nothing was."""

    rows: int = 0
    deletes: int = 0
    files: int = 0
    snapshot_id: int | None = None


def flush_rows(services: Services, namespace: Namespace, name: str) -> Flushed:
    """Flush a table's inlined rows and inlined deletes.

    NoSuchTableError, DamagedTableError, UnsupportedError; UnavailableError if others change what is flushed again and
    again.
    """

    def act() -> Flushed:
        services.database.gate.require_open()
        for _ in range(_ATTEMPTS):
            try:
                return _flush(services, namespace, name)
            except StaleBaseError as error:
                services.meter.count_retry("stale_base")
                last = error
        raise UnavailableError(
            f"Others flush or compact {format_full_name(namespace, name)}; nothing was written: {last}"
        )

    return services.run_once(act, lambda result: Flushed(**result))


def _flush(services: Services, namespace: Namespace, name: str) -> Flushed:
    with open_temporary_folder() as scratch:
        copies, made = scratch / "copies", scratch / "made"
        copies.mkdir()
        made.mkdir()
        with services.database.reading() as cursor:
            table_id = reader.find_table_id(cursor, to_schema_name(namespace), name)
            if table_id is None:
                raise NoSuchTableError(f"Table does not exist: {format_full_name(namespace, name)}")
            source = flush_writer.read_flush_source(cursor, table_id, copies)
        if not (source.tables or source.deletes):
            services.settle_unchanged([build_touched(namespace, name)], {})
            return Flushed()
        with open_row_files(made, source.prefix, has_folders=source.has_folders) as files:
            plan = _FlushPlan(services, source, files)
            with discard_on_error(services, plan.written):
                planned = plan.build_plan()
                flushed = retry_transaction(lambda: _write(services, namespace, name, planned))
    services.meter.rows_flushed(flushed.rows)
    return flushed


def _write(services: Services, namespace: Namespace, name: str, planned: FlushPlan) -> Flushed:
    rows = sum(table.rows for table in planned.source.tables)
    deletes = sum(len(delete.positions) for delete in planned.source.deletes)
    with services.database.transaction() as cursor:
        snapshot_id = flush_writer.write_flush(cursor, planned)
        result = {"rows": rows, "deletes": deletes, "files": len(planned.files), "snapshot_id": snapshot_id}
        services.settle(cursor, [build_touched(namespace, name, {"rows": rows})], result)
    return Flushed(rows, deletes, len(planned.files), snapshot_id)


class _FlushPlan:
    """Encodes what was read and puts the files where they belong, none of them named by any row yet."""

    def __init__(self, services: Services, source: FlushSource, files: RowFiles) -> None:
        self._services = services
        self._source = source
        self._files = files
        self._names: dict[Path, str] = {}
        self.written: list[str] = []

    def build_plan(self) -> FlushPlan:
        """Return what is to be written in the catalog; the files are there."""
        files = [file for table in self._source.tables for file in self._rows(table)]
        deletes = [self._deletes_from(delete) for delete in self._source.deletes]
        return FlushPlan(self._source, files, deletes, self._places)

    def _places(self, name: str, keys: Sequence[InlinedKey]) -> list[tuple[str, int]]:
        found = self._files.places(name, [(key.begin_snapshot, key.row_id) for key in keys])
        return [(self._names[path], position) for path, position in found]

    def _rows(self, table: CopiedTable) -> list[FlushedFile]:
        try:
            written = self._files.write(_to_write(table, self._source))
        except InvalidRequestError as error:
            raise DamagedTableError(f"{table.name}, a table of its inlined rows: {error}") from error
        return [self._file(table, file) for file in written]

    def _file(self, table: CopiedTable, written: FlushedRows) -> FlushedFile:
        self._names[written.path] = written.name
        self._put(written.path, written.name)
        leaves = map_leaf_paths(table.columns)
        return FlushedFile(
            inlined_table=table.name,
            path=written.name,
            begin_snapshot=written.begin,
            partial_max=written.last,
            record_count=written.count,
            file_size_bytes=written.size,
            footer_size=written.footer_size,
            row_group_count=written.row_groups,
            row_id_start=written.first_row_id,
            stats=[build_copy_stats(leaves[path], said) for path, said in written.stats.items() if path in leaves],
            partition_values=written.partition,
            deletes=None if written.deletes is None else self._delete_file(written.deletes),
        )

    def _deletes_from(self, target: InlinedFileDeletes) -> FlushedDeletes:
        positions = dict(target.positions)
        if target.before is not None:
            for position, deleted_at in read_lake_deletes(self._services, target.before).items():
                positions[position] = target.before.begin_snapshot if deleted_at is None else deleted_at
        return self._delete_file(self._files.write_deletes(target.path, positions))

    def _delete_file(self, written: WrittenDeletes) -> FlushedDeletes:
        self._put(written.path, written.path.name)
        return FlushedDeletes(
            written.path.name,
            written.begin,
            written.last,
            written.count,
            written.size,
            written.footer_size,
            written.row_groups,
        )

    def _put(self, file: Path, name: str) -> None:
        location = self._source.prefix + name
        self.written.append(location)
        self._services.store.upload(location, file)
        file.unlink()


def _to_write(table: CopiedTable, source: FlushSource) -> RowsToWrite:
    definition = source.definition
    keys = zip(definition.partition_keys, list_folder_names(definition), strict=True)
    return RowsToWrite(
        name=table.name,
        copied=CopiedRows(table.copy, table.longest, parquet_columns(table.columns)),
        keys=[
            FlushKey(folder, build_key_expression(key, definition, table.columns), get_bucket_function(key, definition))
            for key, folder in keys
        ],
        order=build_order_terms(definition, table.columns),
    )


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From when on a table is flushed: any one of them is enough; None: never for that. age in milliseconds."""

    rows: int | None = None
    bytes: int | None = None
    age: int | None = None

    @property
    def any(self) -> bool:
        """Whether there is one at all."""
        return (self.rows, self.bytes, self.age) != (None, None, None)

    def is_reached_by(self, waiting: FlushableRows) -> bool:
        """Return whether the table has waited for long enough. Deletes of rows in files go with the rows, or of age."""
        is_old = self.age is not None and (waiting.age_ms is None or waiting.age_ms >= self.age)
        is_long = self.rows is not None and waiting.rows >= self.rows
        return is_long or is_old or (self.bytes is not None and waiting.bytes >= self.bytes)


def find_waiting_tables(services: Services, name: str | None = None) -> list[FlushableRows]:
    """Return tables with something to flush: all, or those of a namespace and below it, or the one table of that name.

    name: as DuckLake has it, `namespace` or `namespace.table`. NoSuchTableError if it is neither.
    """
    with services.database.statement() as cursor:
        found = maintenance.read_table_ids(cursor, name, None, 0, None)
        if name is not None and not found:
            schema, _, table = name.rpartition(".")
            found = maintenance.read_table_ids(cursor, schema, table, 0, None)
            if not found:
                raise NoSuchTableError(f"{name} is neither a table nor a namespace with tables")
        return maintenance.read_flushable(cursor, [table_id for table_id, _ in found])


def flush_waiting(services: Services, table: FlushableRows) -> Flushed:
    """Flush one of them; raises what `flush_rows` does."""
    return flush_rows(services, parse_schema_name(table.schema_name), table.table_name)


def flush_if_free(services: Services, table: FlushableRows) -> Flushed | None:
    """Flush a table unless another process is at it; raises as `flush_rows` does."""
    return flush_unless_busy(services, parse_schema_name(table.schema_name), table.table_name, table.table_id)


def flush_unless_busy(services: Services, namespace: Namespace, name: str, table_id: int) -> Flushed | None:
    """Flush a table, as the flusher and workers of upkeep both do; None if another process is at it.

    Raises as `flush_rows` does.
    """
    with services.database.statement() as cursor, flush_writer.hold_flush_lease(cursor, table_id) as is_ours:
        return flush_rows(services, namespace, name) if is_ours else None


def flush_in_background(
    services: Services, thresholds: Thresholds, failed: Callable[[FlushableRows | None, Exception], object]
) -> AbstractContextManager[None]:
    """Flush tables that reach a threshold, for as long as the context lasts; `failed` hears of those that can't be."""
    if not thresholds.any:
        return nullcontext()
    return run_in_thread("flusher", _Flusher(replace(services, caller=_FLUSHER), thresholds, failed).run)


class _Flusher:
    """Looks at the tables again and again."""

    def __init__(
        self,
        services: Services,
        thresholds: Thresholds,
        failed: Callable[[FlushableRows | None, Exception], object],
    ) -> None:
        self._services = services
        self._thresholds = thresholds
        self._failed = failed
        self._left_alone: dict[int, float] = {}

    def run(self, ended: threading.Event) -> None:
        """Run until the event is set; a flush under way is finished."""
        while not ended.wait(PAUSE_SECONDS):
            try:
                for table in find_waiting_tables(self._services):
                    if ended.is_set():
                        return
                    self._look_at(table)
            except Exception as error:  # noqa: BLE001 - whatever it was, the next look may find it gone
                self._report(None, error)

    def _look_at(self, table: FlushableRows) -> None:
        if self._left_alone.get(table.table_id, 0) > monotonic() or not self._thresholds.is_reached_by(table):
            return
        try:
            flushed = flush_if_free(self._services, table)
        except NoSuchTableError:  # it was dropped or renamed since it was listed
            return
        except Exception as error:  # noqa: BLE001 - whatever it was, the other tables are to be flushed
            self._leave_alone(table)
            self._report(table, error)
            return
        if flushed is not None and flushed.snapshot_id is None:
            self._leave_alone(table)

    def _leave_alone(self, table: FlushableRows) -> None:
        self._left_alone[table.table_id] = monotonic() + _AFTER_FAILURE

    def _report(self, table: FlushableRows | None, error: Exception) -> None:
        self._services.meter.task_failed("flush")
        with suppress(Exception):  # who can't hear of it doesn't keep rows from being flushed
            self._failed(table, error)
