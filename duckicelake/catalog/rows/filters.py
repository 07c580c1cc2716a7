"""Rows that a filter finds, as the values that its columns have in them: by those they are deleted, as by keys.

Who has the same values in these columns is found by the filter, too, so that nothing else goes.
"""

from collections.abc import Sequence

from duckicelake.bridge.equality import EqualityKey, equality_key, field_names, range_of
from duckicelake.bridge.pruning import may_match
from duckicelake.bridge.realise import AnyFile
from duckicelake.catalog.commits.workspace import Workspace
from duckicelake.catalog.deletes.equality import check_sizes, data_rows, key_column
from duckicelake.catalog.deletes.equality_commits import KeyFile
from duckicelake.catalog.deletes.uploaded import Targets
from duckicelake.catalog.loads.cache import Materialized
from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest, Unsupported
from duckicelake.iceberg.expressions import Predicate, tests_of
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.model import ColumnStats
from duckicelake.rows.filters import FilterColumn, bind, condition
from duckicelake.rows.layout import Layout
from duckicelake.storage.local_copies import local_copies
from duckicelake.storage.matching import Matching, find_values
from duckicelake.storage.parquet import ParquetRows


def keys_where(services: Services, table: Materialized, layout: Layout, predicate: Predicate) -> KeyFile:
    """The values of the filter's columns in the rows of main that it finds, each combination once.

    Reads the data files that may have such rows. InvalidRequest for columns and constants that the table doesn't have,
    and for more to read than it allows; Unsupported.
    """
    bound, metadata = bind(predicate, layout.columns), table.metadata
    keys = _keys(bound, metadata, layout)
    files = [file for file in _live_files(services, table) if _may_match(bound, keys, file)]
    space = Workspace(services, table.row.table_id, table.known)
    check_sizes(services, metadata, space.folders(), (), files)
    names = field_names(metadata)
    with local_copies(services.store, (file.path for file in files)) as paths:
        rows = [data_rows(file, keys, names, paths) for file in files]
        return _key_file(keys, find_values(_matching(bound, keys), rows))


def _keys(bound: Predicate, metadata: TableMetadata, layout: Layout) -> list[EqualityKey]:
    """The columns that the filter tests; where it tests none, any that tells rows apart."""
    field_ids = sorted({test.column for test in tests_of(bound) if isinstance(test.column, int)})
    if field_ids:
        return [equality_key(field_id, metadata, "The filter") for field_id in field_ids]
    for column in layout.stored:
        try:
            return [equality_key(column.field_id, metadata, "The filter")]
        except (InvalidRequest, Unsupported):
            continue
    raise InvalidRequest("The table has no column by whose values rows can be deleted")


def _live_files(services: Services, table: Materialized) -> Sequence[AnyFile]:
    current = table.state.current()
    if current is None:
        return ()
    space = Workspace(services, table.row.table_id, table.known)
    return Targets(space, space.listed(current.manifest_ids), frozenset(), ()).of_parent()


def _may_match(bound: Predicate, keys: Sequence[EqualityKey], file: AnyFile) -> bool:
    return may_match(bound, {key.field.id: range_of(file, key) for key in keys})


def _matching(bound: Predicate, keys: Sequence[EqualityKey]) -> Matching:
    columns: dict[int, FilterColumn] = {}
    for number, key in enumerate(keys):
        assert isinstance(key.field.type, PrimitiveType)
        columns[key.field.id] = FilterColumn(key.field.type, f"v{number}", key.duckdb_type)
    where = condition(bound, columns)
    return Matching(tuple(map(key_column, keys)), where.sql, where.parameters)


def _key_file(keys: Sequence[EqualityKey], found: ParquetRows) -> KeyFile:
    stats = tuple(
        ColumnStats(keys[number].field.id, min_value=low, max_value=high, value_count=values, null_count=nulls)
        for number, (values, nulls, low, high) in found.stats.items()
    )
    return KeyFile(found.data, found.record_count, tuple(key.field.id for key in keys), stats)
