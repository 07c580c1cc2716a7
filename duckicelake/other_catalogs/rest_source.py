"""Catalogs with Iceberg's REST interface: Polaris, Lakekeeper, Nessie, Unity Catalog, another server of this kind."""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote

from duckicelake.client.models import Json
from duckicelake.errors import BadInputError, PipelineError
from duckicelake.other_catalogs.source import CatalogSource, CatalogTable, Options, find_store
from duckicelake.rest.client import CatalogClient, encode_namespace, encode_segment
from duckicelake.rest.connection import Connection
from duckicelake.rest.names import Namespace, format_name

_OPTIONS: Final = ("uri", "warehouse", "credential", "token", "scope", "oauth2-server-uri")
_LIST_VIEWS: Final = "GET /v1/{prefix}/namespaces/{namespace}/views"
_HEADER: Final = "header."
"""Begins options that are sent as headers, as in PyIceberg and Java."""
_STORE: Final = ("s3.", "gcs.", "adls.")
"""Begin options of the store, in PyIceberg's names. They stand above what the catalog answers."""
_DELEGATION: Final = {"X-Iceberg-Access-Delegation": "vended-credentials"}


class RestSource:
    """A catalog behind Iceberg's REST interface."""

    def __init__(self, connection: Connection, store: Options) -> None:
        self._client = CatalogClient(connection)
        self._store = store
        self._endpoints: frozenset[str] | None = None
        """What the catalog says that it has; empty for one that says nothing."""

    def namespaces(self, parent: Namespace) -> Iterator[Namespace]:
        """Yield the direct children of a namespace; of (): the top level."""
        return self._client.namespaces(parent)

    def properties(self, namespace: Namespace) -> Mapping[str, str]:
        """Return the properties of a namespace."""
        properties: Mapping[str, str] = self._client.namespace_properties(namespace) or {}
        return properties

    def tables(self, namespace: Namespace) -> Iterator[str]:
        """Yield the names of a namespace's tables."""
        return self._client.tables(namespace)

    def views(self, namespace: Namespace) -> Iterator[str]:
        """Yield the names of a namespace's views; none if the catalog has no views."""
        if self._endpoints is None:
            self._endpoints = frozenset(self._client.config().get("endpoints") or ())
        if self._endpoints and _LIST_VIEWS not in self._endpoints:
            return
        try:
            yield from self._client.views(namespace)
        except PipelineError:
            if self._endpoints or not self._has_namespace(namespace):
                raise

    def load_table(self, namespace: Namespace, name: str) -> CatalogTable:
        """Return a table as it is now."""
        loaded = self._client.load_table(namespace, name)
        location = loaded.get("metadata-location")
        if not location:
            raise PipelineError(f"the catalog doesn't say where the metadata of {format_name(namespace, name)} is")
        store = find_store(loaded, loaded["metadata"]["location"]) | self._store
        return CatalogTable(str(location), loaded["metadata"], store)

    def load_view(self, namespace: Namespace, name: str) -> Json:
        """Return a view's metadata."""
        path = self._client.iceberg("namespaces", encode_namespace(namespace), "views", encode_segment(name))
        return self._client.get(path)["metadata"]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _has_namespace(self, namespace: Namespace) -> bool:
        """Return whether the namespace is there: then it is views that the catalog doesn't know."""
        try:
            self._client.namespace_properties(namespace)
        except PipelineError:
            return False
        return True


def open_rest_source(options: Options) -> CatalogSource:
    """Open a catalog by its `uri`. Raises BadInputError for an option that it doesn't know."""
    known = (_HEADER, *_STORE)
    unknown = [name for name in options if name not in _OPTIONS and not name.startswith(known)]
    if unknown:
        raise BadInputError(
            f"a catalog with a REST interface has no option {unknown[0]!r}; it has {', '.join(_OPTIONS)}, "
            "header.<name> and those of its store, as s3.endpoint"
        )
    return RestSource(
        Connection(
            options["uri"].rstrip("/").removesuffix("/v1"),
            credential=options.get("credential"),
            token=options.get("token"),
            oauth2_server_uri=options.get("oauth2-server-uri"),
            scope=options.get("scope"),
            warehouse=options.get("warehouse"),
            headers=_DELEGATION
            | {name.removeprefix(_HEADER): value for name, value in options.items() if name.startswith(_HEADER)},
            read_only_by="the source of a migration",
        ),
        {name: value for name, value in options.items() if name.startswith(_STORE)},
    )


def open_nessie_source(options: Options) -> CatalogSource:
    """Open what a branch or tag of Nessie has, that `ref` names; without it, the default branch.

    Nessie takes the reference as a segment of the URI's path.
    """
    given = dict(options)
    ref = given.pop("ref", "")
    if ref:
        given["uri"] = f"{given['uri'].rstrip('/').removesuffix('/v1')}/{quote(ref, safe='')}"
    return open_rest_source(given)
