"""Rows that a filter finds in the data files of a table, inlined rows as the file in which they are served."""

from collections.abc import Sequence

from duckicelake.bridge.equality import EqualityKey, equality_key, field_names, range_of
from duckicelake.bridge.pruning import may_match
from duckicelake.bridge.realise import AnyFile
from duckicelake.catalog.commits.workspace import Workspace
from duckicelake.catalog.deletes.equality import check_sizes, data_rows, key_column
from duckicelake.catalog.deletes.found import FoundRows
from duckicelake.catalog.deletes.uploaded import Targets
from duckicelake.catalog.loads.cache import Materialized
from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest, Unsupported
from duckicelake.iceberg.expressions import Predicate, tests_of
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.rows.filters import FilterColumn, bind, condition
from duckicelake.rows.layout import Layout
from duckicelake.storage.local_copies import local_copies
from duckicelake.storage.matching import Matching, find_rows


def rows_where(services: Services, table: Materialized, layout: Layout, predicate: Predicate) -> tuple[FoundRows, int]:
    """The rows of main that the filter finds, and how many combinations of values its columns have in them.

    Reads the data files that may have such rows, each once. InvalidRequest for columns and constants that the table
    doesn't have, and for more to read than it allows; Unsupported.
    """
    bound, metadata = bind(predicate, layout.columns), table.metadata
    keys = _keys(bound, metadata, layout)
    files = [file for file in _live_files(services, table) if _may_match(bound, keys, file)]
    space = Workspace(services, table.row.table_id, table.known)
    check_sizes(services, metadata, space.folders(), (), files)
    names = field_names(metadata)
    with local_copies(services.store, (file.path for file in files)) as paths:
        rows = [data_rows(file, keys, names, paths) for file in files]
        matches = find_rows(_matching(bound, keys), rows)
    current = table.state.current()
    return FoundRows(tuple(current.manifest_ids) if current else (), matches.positions), matches.values


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
