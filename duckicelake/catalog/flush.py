"""Flushing: the rows that a table keeps in Postgres become data files, with their ids and their history.

What DuckDB's own flush makes of them, but sorted and partitioned as the table is, and against any writer: read and
encoded without a lock, written in one transaction only if nothing that was read has gone. Iceberg clients see it as
they see DuckDB's, when they next load the table.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from duckicelake.bridge.flushed import bucket_of, folder_names, key_expression, leaf_paths, order_terms
from duckicelake.catalog.auditing import touched
from duckicelake.catalog.deletes.ducklake import read_lake_deletes
from duckicelake.catalog.files.discarding import discarding
from duckicelake.catalog.files.served import parquet_columns
from duckicelake.catalog.services import Services
from duckicelake.errors import DamagedTable, InvalidRequest, NoSuchTable, Unavailable
from duckicelake.iceberg.names import Namespace, full_name, schema_name
from duckicelake.lake import flush, reader
from duckicelake.lake.flush import DeletedFrom, Flush, FlushedDeletes, FlushedFile, Inlined, InlinedTable
from duckicelake.lake.model import ColumnStats, InlinedKey
from duckicelake.lake.snapshots import retrying
from duckicelake.lake.writing.files import StaleBase
from duckicelake.storage.csv_rows import CopiedRows
from duckicelake.storage.flushed import Key, RowFiles, RowsToWrite, WrittenDeletes, WrittenRows, flushing
from duckicelake.storage.parquet import in_room

_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Flushed:
    """What was flushed: versions of rows, and deletes from files. snapshot_id: DuckLake's; None if nothing was."""

    rows: int = 0
    deletes: int = 0
    files: int = 0
    snapshot_id: int | None = None


def flush_rows(services: Services, namespace: Namespace, name: str) -> Flushed:
    """Flush a table's inlined rows and inlined deletes.

    NoSuchTable, DamagedTable, Unsupported; Unavailable if others change what is flushed again and again.
    """

    def act() -> Flushed:
        services.database.gate.require_open()
        for _ in range(_ATTEMPTS):
            try:
                return _flush(services, namespace, name)
            except StaleBase as error:
                services.meter.retried("stale_base")
                last = error
        raise Unavailable(f"Others flush or compact {full_name(namespace, name)}; nothing was written: {last}")

    return services.run_once(act, lambda result: Flushed(**result))


def _flush(services: Services, namespace: Namespace, name: str) -> Flushed:
    with tempfile.TemporaryDirectory() as scratch:
        copies, made = Path(scratch, "copies"), Path(scratch, "made")
        copies.mkdir()
        made.mkdir()
        with in_room(), services.database.reading() as cursor:
            table_id = reader.table_id(cursor, schema_name(namespace), name)
            if table_id is None:
                raise NoSuchTable(f"Table does not exist: {full_name(namespace, name)}")
            source = flush.read(cursor, table_id, copies)
        if not (source.tables or source.deletes):
            services.settle_unchanged([touched(namespace, name)], {})
            return Flushed()
        with flushing(made, source.prefix, has_folders=source.has_folders) as files:
            plan = _Plan(services, source, files)
            with discarding(services, plan.written):
                planned = plan.made()
                flushed = retrying(lambda: _write(services, namespace, name, planned))
    services.meter.rows_flushed(flushed.rows)
    return flushed


def _write(services: Services, namespace: Namespace, name: str, planned: Flush) -> Flushed:
    rows = sum(table.rows for table in planned.source.tables)
    deletes = sum(len(each.positions) for each in planned.source.deletes)
    with services.database.transaction() as cursor:
        snapshot_id = flush.write(cursor, planned)
        result = {"rows": rows, "deletes": deletes, "files": len(planned.files), "snapshot_id": snapshot_id}
        services.settle(cursor, [touched(namespace, name, {"rows": rows})], result)
    return Flushed(rows, deletes, len(planned.files), snapshot_id)


class _Plan:
    """Encodes what was read and puts the files where they belong, none of them named by any row yet."""

    def __init__(self, services: Services, source: Inlined, files: RowFiles) -> None:
        self._services = services
        self._source = source
        self._files = files
        self._names: dict[Path, str] = {}
        self.written: list[str] = []

    def made(self) -> Flush:
        """What is to be written in the catalog; the files are there."""
        files = [file for table in self._source.tables for file in self._rows(table)]
        deletes = [self._deletes_from(each) for each in self._source.deletes]
        return Flush(self._source, files, deletes, self._places)

    def _places(self, name: str, keys: Sequence[InlinedKey]) -> list[tuple[str, int]]:
        found = self._files.places(name, [(key.begin_snapshot, key.row_id) for key in keys])
        return [(self._names[path], position) for path, position in found]

    def _rows(self, table: InlinedTable) -> list[FlushedFile]:
        try:
            written = self._files.write(_to_write(table, self._source))
        except InvalidRequest as error:
            raise DamagedTable(f"{table.name}, a table of its inlined rows: {error}") from error
        return [self._file(table, each) for each in written]

    def _file(self, table: InlinedTable, written: WrittenRows) -> FlushedFile:
        self._names[written.path] = written.name
        self._put(written.path, written.name)
        leaves = leaf_paths(table.columns)
        return FlushedFile(
            inlined_table=table.name,
            path=written.name,
            begin_snapshot=written.begin,
            partial_max=written.last,
            record_count=written.count,
            file_size_bytes=written.size,
            footer_size=written.footer_size,
            row_id_start=written.first_row_id,
            stats=[_stats(leaves[path], said) for path, said in written.stats.items() if path in leaves],
            partition_values=written.partition,
            deletes=None if written.deletes is None else self._delete_file(written.deletes),
        )

    def _deletes_from(self, target: DeletedFrom) -> FlushedDeletes:
        positions = dict(target.positions)
        if target.before is not None:
            for position, deleted_at in read_lake_deletes(self._services, target.before).items():
                positions[position] = target.before.begin_snapshot if deleted_at is None else deleted_at
        return self._delete_file(self._files.write_deletes(target.path, positions))

    def _delete_file(self, written: WrittenDeletes) -> FlushedDeletes:
        self._put(written.path, written.path.name)
        return FlushedDeletes(
            written.path.name, written.begin, written.last, written.count, written.size, written.footer_size
        )

    def _put(self, file: Path, name: str) -> None:
        location = self._source.prefix + name
        self.written.append(location)
        self._services.store.write(location, file.read_bytes())
        file.unlink()


def _to_write(table: InlinedTable, source: Inlined) -> RowsToWrite:
    definition = source.definition
    keys = zip(definition.partition_keys, folder_names(definition), strict=True)
    return RowsToWrite(
        name=table.name,
        copied=CopiedRows(table.copy, table.longest, parquet_columns(table.columns)),
        keys=[
            Key(folder, key_expression(key, definition, table.columns), bucket_of(key, definition))
            for key, folder in keys
        ],
        order=order_terms(definition, table.columns),
    )


def _stats(column_id: int, said: dict[str, Any] | Any) -> ColumnStats:
    nulls = int(said["null_count"])
    has_nan = said.get("has_nan")
    return ColumnStats(
        column_id,
        contains_null=nulls > 0,
        contains_nan=None if has_nan is None else has_nan == "true",
        min_value=said.get("min"),
        max_value=said.get("max"),
        column_size_bytes=int(said["column_size_bytes"]),
        value_count=int(said["num_values"]) - nulls,
        null_count=nulls,
    )
