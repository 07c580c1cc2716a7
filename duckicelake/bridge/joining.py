"""PURE. DuckLake's rows of files that join main, and the table-wide statistics with them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from sys import maxsize

from duckicelake.bridge.absorbing import Absorbed
from duckicelake.bridge.entries import data_file, kept_metrics, writable_partition_type
from duckicelake.bridge.increments import Base, KnownFiles, LakeCopy, Move
from duckicelake.bridge.partitions import has_buckets, values_of
from duckicelake.bridge.realise import AnyFile
from duckicelake.bridge.stats import LakeStats, truncation, widen
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.manifest import DataFile
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import StructType
from duckicelake.lake.additions import InlinedFile, InlinedRows, NewDataFile
from duckicelake.lake.changes import DefinitionChange, TableStats
from duckicelake.lake.model import ColumnStats, PartitionKey
from duckicelake.lake.packed import PackedStats

_TOO_MANY = 2**63


class DataFiles:
    """Files as Iceberg knows them, made one at a time: there may be very many."""

    def __init__(self, target: TableMetadata) -> None:
        self._target = target
        self._types: dict[int, StructType] = {}

    def of(self, file: AnyFile) -> DataFile:
        """The file with its partition and metrics."""
        type_ = self._types.get(file.spec_id)
        if type_ is None:
            type_ = writable_partition_type(self._target.spec(file.spec_id), self._target.schemas)[1]
            self._types[file.spec_id] = type_
        return data_file(file, type_)


def undeclare_buckets(
    target: TableMetadata,
    files: Sequence[AnyFile],
    definition: DefinitionChange,
    declared: tuple[PartitionKey, ...],
) -> tuple[DefinitionChange, tuple[PartitionKey, ...]]:
    """Take bucket keys back from DuckLake if a file is registered that has no value for them."""
    as_iceberg = DataFiles(target)
    if has_buckets(declared) and any(_values(target, declared, each, as_iceberg.of(each)) is None for each in files):
        plain = tuple(key for key in declared if not has_buckets([key]))
        return replace(definition, partition_keys=plain), plain
    return definition, declared


def _values(
    target: TableMetadata, declared: tuple[PartitionKey, ...], row: AnyFile, file: DataFile
) -> tuple[str | None, ...] | None:
    spec = next(spec for spec in target.partition_specs if spec.spec_id == row.spec_id)
    return values_of(spec, target.schema(), declared, file.partition)


def data_file_rows(
    base: Base, target: TableMetadata, move: Move, declared: tuple[PartitionKey, ...]
) -> tuple[tuple[NewDataFile, ...], TableStats | None]:
    """DuckLake's rows of the registered data files, and the table-wide statistics with them."""
    before = records, next_row_id, size = base.stats or (0, 0, 0)
    rows: list[NewDataFile] = []
    facts = _Facts(target, move.known, declared)
    for row in move.registered:
        start = next_row_id if row.first_row_id is None else row.first_row_id
        stats, values = facts.of(row)
        rows.append(
            NewDataFile(
                file_id=row.file_id,
                path=row.path,
                record_count=row.record_count,
                file_size_bytes=row.file_size_in_bytes,
                row_id_start=start,
                stats=stats,
                partition_values=values,
                name_map=move.name_maps.get(row.file_id),
            )
        )
        next_row_id = max(next_row_id, start + row.record_count)
        records += row.record_count
        size += row.file_size_in_bytes
    next_row_id = _with_branches(target, next_row_id)
    is_widened = bool(rows) or (move.known is not None and base.stats is not None)
    if not is_widened and next_row_id == before[1]:
        return (), None
    if max(next_row_id, size) >= _TOO_MANY:
        raise InvalidRequest(f"the table would have had {next_row_id} rows in {size} bytes, more than can be counted")
    columns = _widened(base, target, move, rows) if is_widened else {}
    return tuple(rows), TableStats(records, next_row_id, size, columns)


def _with_branches(target: TableMetadata, next_row_id: int) -> int:
    """The next row id of a table whose branches use up row ids, too."""
    is_numbered = target.format_version >= ROW_LINEAGE_VERSION
    return max(next_row_id, target.next_row_id or 0) if is_numbered else next_row_id


def _widened(
    base: Base, target: TableMetadata, move: Move, rows: Sequence[NewDataFile]
) -> dict[int, ColumnStats | None]:
    """The table-wide statistics of columns with these files."""
    leaves = target.schema().leaves()
    held: Iterable[Iterable[ColumnStats]] = (row.stats for row in rows)
    if move.known is not None:
        widening = move.known.widening
        held, leaves = [[row for row in widening.values() if row]], {i: leaves[i] for i in leaves if i in widening}
    return widen(_existing(base), held, leaves, truncation(target.properties))


def _existing(base: Base) -> Mapping[int, ColumnStats] | None:
    """None: nothing has been there yet."""
    return base.column_stats if base.stats is not None else None


class _Facts:
    """DuckLake's statistics and partition values of files, where they aren't known made of what Iceberg knows."""

    def __init__(self, target: TableMetadata, known: KnownFiles | None, declared: tuple[PartitionKey, ...]) -> None:
        self._target = target
        self._known = known
        self._declared = declared
        self._stats = target.schema().remembered(_lake_stats)
        self._as_iceberg = DataFiles(target)

    def of(self, row: AnyFile) -> tuple[PackedStats, tuple[str | None, ...] | None]:
        if self._known is not None:
            return self._known.stats[row.file_id], self._known.partition_values[row.file_id]
        values = _values(self._target, self._declared, row, self._as_iceberg.of(row)) if self._declared else None
        return PackedStats(self._stats.of(kept_metrics(row))).deflated(), values


def _lake_stats(schema: Schema) -> LakeStats:
    return LakeStats(schema.leaves())


def inlined_rows(base: Base, target: TableMetadata, absorbed: Absorbed) -> tuple[InlinedRows, TableStats]:
    """The rows with the ids that they get, and the table-wide statistics with them."""
    records, next_row_id, size = base.stats or (0, 0, 0)
    files: list[InlinedFile] = []
    for each in absorbed.files:
        start = next_row_id if each.file.first_row_id is None else each.file.first_row_id
        files.append(InlinedFile(each.file.file_id, start, each.file.record_count, each.values))
        next_row_id = max(next_row_id, start + each.file.record_count)
        records += each.file.record_count
    next_row_id = _with_branches(target, next_row_id)
    columns = widen(_existing(base), [each.stats for each in absorbed.files], target.schema().leaves(), maxsize)
    return InlinedRows(absorbed.into, tuple(files)), TableStats(records, next_row_id, size, columns)


def with_copies(files: Sequence[NewDataFile], copies: Sequence[LakeCopy]) -> tuple[NewDataFile, ...]:
    """The rows, with DuckLake's copies in the place of files that have one."""
    by_file = {copy.file_id: copy for copy in copies}
    if not by_file:
        return tuple(files)
    return tuple(
        file._replace(path=copy.path, path_is_relative=copy.path_is_relative, file_size_bytes=copy.file_size_bytes)
        if (copy := by_file.get(file.file_id))
        else file
        for file in files
    )
