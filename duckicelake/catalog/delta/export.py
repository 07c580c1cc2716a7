"""Bringing a table's Delta log up to date when somebody asks for it."""

from duckicelake.bridge.delta.out_definition import ENABLED, is_enabled
from duckicelake.catalog.delta.log import keep_in_step
from duckicelake.catalog.delta.log_files import mend
from duckicelake.catalog.loads.loading import current_table
from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.names import namespace_of
from duckicelake.lake.delta_logs import LogRow


def export(services: Services, name: str) -> LogRow:
    """The log of a table, given as `namespace.table`, up to date and with all its files.

    Raises NoSuchTable, InvalidRequest where the table wants no log, and Unsupported where Delta can't say the table.
    """
    schema, _, table_name = name.rpartition(".")
    table = current_table(services, namespace_of(schema), table_name).materialized
    if not is_enabled(table.metadata.properties):
        raise InvalidRequest(f"{name} has no Delta log: set its table property {ENABLED} to true")
    log = keep_in_step(services, table)
    mend(services, table.row.table_id)
    return log
