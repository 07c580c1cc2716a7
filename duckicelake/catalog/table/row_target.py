"""Read the tables that rows are posted to, and encode rows for them."""

from dataclasses import replace

from duckicelake.bridge.project import project_metadata
from duckicelake.bridge.values.columns import to_schema
from duckicelake.catalog.context.hooks import check_features
from duckicelake.catalog.context.row_targets import RowTarget
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import FeatureUnavailableError, ReadOnlyTableError
from duckicelake.features.registry import is_installed
from duckicelake.iceberg.identifiers import Namespace, format_full_name, to_schema_name
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.ducklake import native
from duckicelake.lake.inlined.batches import InsertTarget, pack_values
from duckicelake.lake.inlined.targets import read_insert_target
from duckicelake.lake.side_tables import reader
from duckicelake.lake.state import TableRow, TableState
from duckicelake.lake.writer.tables import check_writable
from duckicelake.postgres.queries import Transaction
from duckicelake.properties import read_constraint_texts
from duckicelake.rows import inlined_values
from duckicelake.rows.columns import build_row_columns
from duckicelake.rows.layout import Layout
from duckicelake.rows.row_batch import Batch


def read_row_target(
    services: Services, namespace: Namespace, name: str, outdated: RowTarget | None = None
) -> RowTarget:
    """Return the table, read unless another than the outdated one is known.

    Raises NoSuchTableError, ReadOnlyTableError, and so on.
    """
    known = services.rows.find(namespace, name)
    if known is not None and known is not outdated:
        return known
    with services.rows.readers.get((namespace, name)).alone():  # the others take what the first of them reads
        known = services.rows.find(namespace, name)
        if known is None or known is outdated:
            known = _read(services, namespace, name, known)
            services.rows.put(namespace, name, known)
        return known


def pack_columns(target: RowTarget, batch: Batch) -> list[str]:
    """Encode the columns of a batch in the order of their ids, which is DuckDB's."""
    assert target.lake.inlined is not None
    ids = [column.field_id for column in batch.layout.stored]
    by_id = sorted(range(len(ids)), key=ids.__getitem__)
    return [_encode_column(batch, index, kind) for index, kind in zip(by_id, target.lake.inlined.types, strict=True)]


def _encode_column(batch: Batch, index: int, kind: str) -> str:
    numbers = inlined_values.encode_elements(batch.layout.stored[index], batch.column(index))
    return pack_values(batch.encode_column(index), kind) if numbers is None else numbers


def _read(services: Services, namespace: Namespace, name: str, known: RowTarget | None) -> RowTarget:
    """Read the target; keep the layout of unchanged columns, as other tables change DuckLake's schema version, too."""
    full_name = format_full_name(namespace, name)
    while True:
        with services.database.reading() as cursor:
            lake = read_insert_target(cursor, to_schema_name(namespace), name)
            check_not_followed(cursor, full_name, lake.definition.table_id)
            row = reader.read_table_row(cursor, lake.definition.table_id)
            folder = native.read_path_prefix(cursor, lake.definition.table_id)
        if row is not None:
            check_features(full_name, row.metadata["properties"])
        if known is not None and known.lake.definition == lake.definition and _has_same_constraints(known, row):
            return replace(known, lake=lake)
        if row is not None:
            return _build_target(lake, _build_metadata(row), folder)
        load_current_table(services, namespace, name)  # DuckDB's tables have a row from their first load on


def _build_target(lake: InsertTarget, metadata: TableMetadata, folder: str) -> RowTarget:
    """Return the table with the columns that DuckLake has now; the metadata may not have them yet."""
    columns = lake.definition.columns
    schema = to_schema(columns, metadata.current_schema_id, metadata.schema())
    leaves = {field_id: type_ for field_id, type_ in schema.leaves().items() if type_.name != "unknown"}
    return RowTarget(lake, Layout(build_row_columns(schema, columns)), metadata, schema, folder, leaves)


def _has_same_constraints(known: RowTarget, row: TableRow | None) -> bool:
    return row is not None and (
        read_constraint_texts(row.metadata["properties"]) == read_constraint_texts(known.metadata.properties)
    )


def _build_metadata(row: TableRow) -> TableMetadata:
    """Return the metadata without its snapshots, which take no part in what rows may look like."""
    bare = replace(row, current_snapshot_id=None, metadata={**row.metadata, "refs": {}})
    return project_metadata(TableState(bare, snapshots=(), snapshot_log=(), metadata_log=(), metadata_location=None))


def check_not_followed(cursor: Transaction, name: str, table_id: int) -> None:
    """Raise ReadOnlyTableError for a followed table, FeatureUnavailableError where Delta isn't installed."""
    try:
        check_writable(cursor, table_id)
    except ReadOnlyTableError as error:
        if is_installed("delta"):
            raise
        raise FeatureUnavailableError(
            f"Table {name} uses delta (it follows a Delta table), which this server runs without: "
            f"install duckicelake with delta, or write the Delta table. {error}"
        ) from error
