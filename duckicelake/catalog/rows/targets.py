"""Tables as batches of rows are prepared for them: read once, and again once a batch finds that one has changed."""

from dataclasses import replace

from duckicelake.bridge.columns import schema_of
from duckicelake.bridge.constraints.properties import texts_of
from duckicelake.bridge.project import project
from duckicelake.catalog.loads.loading import current_table
from duckicelake.catalog.rows.target import RowTarget
from duckicelake.catalog.services import Services
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.names import Namespace, schema_name
from duckicelake.lake import delta_sources, native, reader
from duckicelake.lake.rows.batches import InsertTarget
from duckicelake.lake.rows.targets import insert_target
from duckicelake.lake.state import TableRow, TableState
from duckicelake.rows.columns import row_columns
from duckicelake.rows.layout import Layout


def row_target(services: Services, namespace: Namespace, name: str, outdated: RowTarget | None = None) -> RowTarget:
    """The table, read unless another than the outdated one is known; NoSuchTable, ReadOnlyTable, and so on."""
    known = services.rows.find(namespace, name)
    if known is not None and known is not outdated:
        return known
    with services.rows.readers.of((namespace, name)).alone():  # the others take what the first of them reads
        known = services.rows.find(namespace, name)
        if known is None or known is outdated:
            known = _read(services, namespace, name, known)
            services.rows.put(namespace, name, known)
        return known


def _read(services: Services, namespace: Namespace, name: str, known: RowTarget | None) -> RowTarget:
    """Columns that are what they were keep their layout: other tables change DuckLake's schema version, too."""
    while True:
        with services.database.reading() as cursor:
            lake = insert_target(cursor, schema_name(namespace), name)
            delta_sources.check_writable(cursor, lake.definition.table_id)
            row = reader.table_row(cursor, lake.definition.table_id)
            folder = native.path_prefix(cursor, lake.definition.table_id)
        if known is not None and known.lake.definition == lake.definition and _has_same_constraints(known, row):
            return replace(known, lake=lake)
        if row is not None:
            return _target(lake, _defined(row), folder)
        current_table(services, namespace, name)  # DuckDB's tables have a row from their first load on


def _target(lake: InsertTarget, metadata: TableMetadata, folder: str) -> RowTarget:
    """The table with the columns that DuckLake has now; the metadata may not have them yet."""
    columns = lake.definition.columns
    schema = schema_of(columns, metadata.current_schema_id, metadata.schema())
    leaves = {field_id: type_ for field_id, type_ in schema.leaves().items() if type_.name != "unknown"}
    return RowTarget(lake, Layout(row_columns(schema, columns)), metadata, schema, folder, leaves)


def _has_same_constraints(known: RowTarget, row: TableRow | None) -> bool:
    return row is not None and texts_of(row.metadata["properties"]) == texts_of(known.metadata.properties)


def _defined(row: TableRow) -> TableMetadata:
    """The metadata without its snapshots, which take no part in what rows may look like."""
    bare = replace(row, current_snapshot_id=None, metadata={**row.metadata, "refs": {}})
    return project(TableState(bare, snapshots=(), snapshot_log=(), metadata_log=(), metadata_location=None))
