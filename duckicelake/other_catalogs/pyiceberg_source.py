"""Catalogs that PyIceberg opens: Glue, JDBC, and whatever `.pyiceberg.yaml` names."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson
from pyiceberg.catalog import Catalog, load_catalog

from duckicelake.client.models import Json
from duckicelake.errors import CatalogUnreachableError, PipelineError
from duckicelake.other_catalogs.source import CatalogSource, CatalogTable, Options
from duckicelake.rest.names import Namespace


class PyIcebergSource:
    """A catalog of PyIceberg's. It reads each metadata.json by the store's options, such as `s3.endpoint`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def namespaces(self, parent: Namespace) -> Iterator[Namespace]:
        """Yield the direct children of a namespace; of (): the top level."""
        with catalog_errors():
            found = self._catalog.list_namespaces(parent)
        depth = len(parent) + 1
        yield from sorted({tuple(levels) for levels in found if len(levels) == depth and tuple(levels)[:-1] == parent})

    def properties(self, namespace: Namespace) -> Mapping[str, str]:
        """Return the properties of a namespace."""
        with catalog_errors():
            return {key: str(value) for key, value in self._catalog.load_namespace_properties(namespace).items()}

    def tables(self, namespace: Namespace) -> Iterator[str]:
        """Yield the names of a namespace's tables."""
        with catalog_errors():
            found = self._catalog.list_tables(namespace)
        yield from (identifier[-1] for identifier in found)

    def views(self, namespace: Namespace) -> Iterator[str]:
        """Yield nothing: PyIceberg reads views of REST catalogs alone."""
        yield from ()

    def load_table(self, namespace: Namespace, name: str) -> CatalogTable:
        """Return a table as it is now."""
        with catalog_errors():
            table = self._catalog.load_table((*namespace, name))
            metadata = orjson.loads(table.metadata.model_dump_json(by_alias=True))
            return CatalogTable(table.metadata_location, metadata, dict(table.io.properties))

    def load_view(self, namespace: Namespace, name: str) -> Json:
        """Raise PipelineError: there are no views."""
        raise PipelineError(f"PyIceberg doesn't read the view {'.'.join((*namespace, name))}")

    def close(self) -> None:
        """Close the connections."""
        self._catalog.close()


@contextmanager
def catalog_errors() -> Iterator[None]:
    """Raise PipelineError for whatever the catalog's own libraries raise, which are many."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"{type(error).__name__}: {error}") from error


def open_pyiceberg_source(options: Options) -> CatalogSource:
    """Open the catalog with the options; `catalog` is its name, in `.pyiceberg.yaml` or in the tables of JDBC."""
    return PyIcebergSource(open_catalog(options))


def open_catalog(options: Options) -> Any:
    """Open a catalog of PyIceberg's. Raises CatalogUnreachableError."""
    given: dict[str, Any] = dict(options)
    try:
        return load_catalog(given.pop("catalog", None), **given)
    except Exception as error:
        raise CatalogUnreachableError(f"the catalog can't be opened: {type(error).__name__}: {error}") from error
