"""Tables that were imported from Delta by their names here, and the end of following one."""

from duckicelake.catalog.auditing import touched
from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest, NoSuchTable
from duckicelake.iceberg.names import namespace_of
from duckicelake.lake import delta_sources
from duckicelake.lake.delta_sources import Source


def find_source(services: Services, name: str) -> Source:
    """The Delta table of the table `namespace.table`; NoSuchTable if there is none."""
    with services.database.reading() as cursor:
        found = delta_sources.sources(cursor, name)
    if not found:
        raise NoSuchTable(f"{name} is no table that was imported from Delta")
    return found[0]


def adopt(services: Services, name: str) -> Source:
    """Let a table be written by everybody, and have no further versions; what it was. InvalidRequest, NoSuchTable."""
    source = find_source(services, name)
    with services.database.transaction() as cursor:
        if not delta_sources.adopt(cursor, source.table_id):
            raise InvalidRequest(f"{name} doesn't follow its Delta table: it can be written already")
        detail = {"delta": source.root, "version": source.position.version}
        services.settle(cursor, [touched(namespace_of(source.schema_name), source.table_name, detail)])
    return source
