"""A Hive Metastore, asked by what each Hive from 2.3 on answers. PyIceberg asks by what Hive 4.0.1 lacks."""

from collections.abc import Iterator
from typing import Any, Final

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    ClientCapabilities,
    ClientCapability,
    GetTableRequest,
    GetTablesRequest,
    NoSuchObjectException,
)
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.io import load_file_io

from duckicelake.client.models import Json
from duckicelake.errors import MissingTableError, PipelineError
from duckicelake.other_catalogs.pyiceberg_source import PyIcebergSource, catalog_errors, open_catalog
from duckicelake.other_catalogs.source import CatalogSource, CatalogTable, Options, parse_metadata
from duckicelake.rest.names import Namespace, format_name

_TABLE, _VIEW = "iceberg", "iceberg-view"
"""What Java's HiveCatalog writes into the parameter `table_type`, in either case."""
_BATCH_NAMES: Final = 500
"""Tables that one request asks for."""
_CAPABILITIES: Final = ClientCapabilities([ClientCapability.INSERT_ONLY_TABLES])
"""Without it, a namespace that has an insert-only table can't be listed."""


class HiveSource(PyIcebergSource):
    """Iceberg's tables and views in a Hive Metastore. Threads may share it: each call has a connection of its own."""

    def __init__(self, catalog: HiveCatalog) -> None:
        super().__init__(catalog)
        self._properties = catalog.properties

    def tables(self, namespace: Namespace) -> Iterator[str]:
        """Yield the names of a namespace's Iceberg tables."""
        return self._list(namespace, _TABLE)

    def views(self, namespace: Namespace) -> Iterator[str]:
        """Yield the names of a namespace's Iceberg views. Hive's own views are none."""
        return self._list(namespace, _VIEW)

    def load_table(self, namespace: Namespace, name: str) -> CatalogTable:
        """Return a table as it is now."""
        location, metadata = self._load(namespace, name, _TABLE)
        return CatalogTable(location, metadata, dict(self._properties))

    def load_view(self, namespace: Namespace, name: str) -> Json:
        """Return a view's metadata."""
        return self._load(namespace, name, _VIEW)[1]

    def _connect(self) -> Any:
        return HiveCatalog._create_hive_client(self._properties)  # noqa: SLF001 - PyIceberg's own has one connection for all threads

    def _list(self, namespace: Namespace, kind: str) -> Iterator[str]:
        with catalog_errors(), self._connect() as client:
            names = sorted(client.get_all_tables(".".join(namespace)))
            found = [
                name
                for start in range(0, len(names), _BATCH_NAMES)
                for name in _find(client, namespace, names[start : start + _BATCH_NAMES], kind)
            ]
        yield from found

    def _load(self, namespace: Namespace, name: str, kind: str) -> tuple[str, Json]:
        with catalog_errors():
            with self._connect() as client:
                request = GetTableRequest(".".join(namespace), name, _CAPABILITIES)
                try:
                    found = client.get_table_req(request).table
                except NoSuchObjectException as error:
                    raise MissingTableError(f"Table or view does not exist: {format_name(namespace, name)}") from error
            location = (found.parameters or {}).get("metadata_location")
            if not location or _kind_of(found) != kind:
                raise PipelineError(f"{format_name(namespace, name)} is no {kind} of the metastore's any more")
            with load_file_io(dict(self._properties), location).new_input(location).open() as stream:
                return location, parse_metadata(stream.read())


def _find(client: Client, namespace: Namespace, names: list[str], kind: str) -> list[str]:
    request = GetTablesRequest(".".join(namespace), names, _CAPABILITIES)
    return [
        table.tableName for table in client.get_table_objects_by_name_req(request).tables if _kind_of(table) == kind
    ]


def _kind_of(table: HiveTable) -> str:
    return str((table.parameters or {}).get("table_type", "")).lower()


def open_hive_source(options: Options) -> CatalogSource:
    """Open the metastore at `uri`, such as thrift://hive:9083; several are joined by commas."""
    return HiveSource(open_catalog({**options, "type": "hive"}))
