"""Appends of Iceberg clients that are so small that their rows are inlined, as DuckDB does with inserts of its own.

What can't be inlined is committed as it came: other columns than the table's, values that DuckLake doesn't inline, and
files that the server can't or may not read.
"""

from collections.abc import Callable
from dataclasses import replace

from duckicelake.bridge.commit.increments import Absorbed, AbsorbedFile, MainUpdate
from duckicelake.catalog.authz.locations import check_readable
from duckicelake.catalog.context.hooks import RowCheck, build_row_check
from duckicelake.catalog.context.row_targets import RowTarget
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.row_target import pack_columns, read_row_target
from duckicelake.errors import CatalogError, InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.additions import AnyFile, InlinedInto, NewFile
from duckicelake.parquet.footer import check_footer
from duckicelake.parquet.local_copies import open_local_copies
from duckicelake.properties import get_absorbed_rows
from duckicelake.rows import row_batch
from duckicelake.rows.arrow_rows import MAX_PARQUET_BYTES, read_parquet
from duckicelake.rows.row_batch import Batch


class _ViolatedError(Exception):
    """Rows violate a constraint of the table, so that they can't be committed as they came either."""


def build_absorber(
    services: Services, namespace: Namespace, table: str, metadata: TableMetadata
) -> Callable[[MainUpdate], MainUpdate] | None:
    """Return what inlines the rows of appends to a table as it will be, one after the other.

    None if it wants none inlined.
    """
    most = get_absorbed_rows(metadata.properties)
    if not most:
        return None
    made: set[str] = set()

    def absorb(move: MainUpdate) -> MainUpdate:
        if not _is_small(move, most):
            return move
        target = read_row_target(services, namespace, table, services.rows.find(namespace, table))
        try:
            absorbed = _absorb(services, metadata, target, move)
        except _ViolatedError as error:
            raise InvalidRequestError(str(error)) from error
        except CatalogError:
            return move
        if absorbed is None:
            return move
        if absorbed.into.name in made:
            absorbed = replace(absorbed, into=replace(absorbed.into, version=None))
        made.add(absorbed.into.name)
        return replace(move, registered=(), absorbed=absorbed)

    return absorb


def _is_small(move: MainUpdate, most: int) -> bool:
    """Return whether main gains rows of new files and nothing else, as few as may be inlined, in a moderate size."""
    is_append = not (move.ended_files or move.ended_rows or move.delete_files or move.copies or move.name_maps)
    is_append &= all(isinstance(file, NewFile) for file in move.registered)
    count = sum(file.record_count for file in move.registered)
    return (
        is_append
        and 0 < count <= most
        and sum(file.file_size_in_bytes for file in move.registered) <= MAX_PARQUET_BYTES
    )


def _absorb(services: Services, metadata: TableMetadata, target: RowTarget, move: MainUpdate) -> Absorbed | None:
    into = _into(target)
    if into is None or target.metadata.schema().leaves() != metadata.schema().leaves():
        return None
    check = build_row_check(metadata.properties, metadata.schema())
    for file in move.registered:
        check_readable(services, file.path, metadata.location)
    with open_local_copies(services.store, (file.path for file in move.registered)) as paths:
        files = []
        for file in move.registered:
            check_footer(paths[file.path], file.path)
            batch = read_parquet(paths[file.path], target.layout, file.record_count)
            _check_rows(check, file, batch)
            if row_batch.find_inlining_obstacle(batch) is not None:
                return None
            files.append(AbsorbedFile(file, tuple(pack_columns(target, batch)), row_batch.build_column_stats(batch)))
    return Absorbed(into, tuple(files))


def _check_rows(check: RowCheck, file: AnyFile, batch: Batch) -> None:
    try:
        check(batch)
    except InvalidRequestError as error:
        raise _ViolatedError(f"{file.path}: {error}") from error


def _into(target: RowTarget) -> InlinedInto | None:
    """None where rows can't be inlined, or are not safe: DuckDB's flush forgets deletes in some partitions."""
    inlined, columns = target.lake.inlined, target.lake.definition.columns
    if inlined is None or target.lake.definition.partition_keys:
        return None
    version = None if inlined.name == inlined.registered else inlined.version
    return InlinedInto(inlined.name, inlined.types, version, columns)
